//! Process groups, sessions, parents, and signals to other processes of the program.
//!
//! All of it is the supervisor's to know; see [`rcoe_linux_abi::Ask`].
//!
//! Not covered: `kill` of a whole process group reaches the program's own processes only.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EINVAL, ESRCH};
use rcoe_linux_abi::{Ask, NOT_OURS};
use rcoe_linux_syscalls::Special;

use super::super::{Call, io, transfer};
use super::ask;
use crate::convert;
use crate::frames::SigInfo;
use crate::guest::{self, Fault};
use crate::kernel::Kernel;
use crate::sys;

/// `getppid`: changes when the parent ends, so all take the primary's word.
pub(crate) fn parent(kernel: &mut Kernel) -> i64 {
    let control = kernel.control;
    transfer::agree(kernel, || u64::from(control.ppid.load(Ordering::Relaxed))).cast_signed()
}

/// `getpgrp`, `getpgid` and `getsid`.
pub(crate) fn get_group(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(0) != 0 {
        kernel.processes.number_request();
    }
    io::exchange(kernel, call, true)
}

/// `setpgid` and `setsid`.
pub(crate) fn set_group(kernel: &mut Kernel, call: &Call) -> i64 {
    kernel.processes.number_request();
    kernel.rendezvous();
    let result = io::exchange(kernel, call, true);
    kernel.processes.leads |= call.what.special == Special::Setsid && result >= 0;
    result
}

/// Primary: what the supervisor says.
pub(super) fn execute(kernel: &Kernel, call: &Call) -> i64 {
    let pid = convert::low32(call.arg(0));
    let own = pid == 0;
    let control = kernel.control;
    match call.what.special {
        Special::Setpgid if call.arg(0).cast_signed() < 0 || call.arg(1).cast_signed() < 0 => {
            sys::error(EINVAL)
        }
        Special::Setpgid => ask(
            kernel,
            Ask::SetGroup {
                pid,
                group: convert::low32(call.arg(1)),
            },
        ),
        Special::Setsid => ask(kernel, Ask::NewSession),
        Special::Getsid if own => i64::from(control.sid.load(Ordering::Relaxed)),
        Special::Getsid => ask(kernel, Ask::GetSession { pid }),
        Special::Getpgid if !own => ask(kernel, Ask::GetGroup { pid }),
        _ => i64::from(control.pgid.load(Ordering::Relaxed)),
    }
}

/// Primary: sends a signal; `None` if the host has to.
pub(super) fn kill(kernel: &Kernel, call: &Call) -> Option<i64> {
    let (mut target, signal, info) = match call.what.special {
        Special::Tgkill => (call.arg(0), call.arg(2), 0),
        Special::RtSigqueueinfo | Special::PidfdSendSignal => {
            (call.arg(0), call.arg(1), call.arg(2))
        }
        Special::RtTgsigqueueinfo => (call.arg(0), call.arg(2), call.arg(3)),
        _ => (call.arg(0), call.arg(1), 0),
    };
    if call.what.special == Special::PidfdSendSignal {
        target = match kernel.processes.addressee {
            // The host finds the same, and says what is wrong.
            0 => return None,
            pid => u64::from(pid),
        };
    }
    let signal = u8::try_from(signal).ok().filter(|signal| *signal <= 64);
    let (Ok(target), Some(signal)) = (i32::try_from(target.cast_signed()), signal) else {
        return Some(sys::error(EINVAL));
    };
    let wish = match (info, u32::try_from(target)) {
        (0, _) => Ask::Kill { target, signal },
        (info, Ok(pid)) if enclose(kernel, info).is_ok() => Ask::Queue { pid, signal },
        (_, Ok(_)) => return Some(Fault::RESULT),
        // What is sent to a group has no number of a process to begin with.
        (_, Err(_)) => return Some(sys::error(ESRCH)),
    };
    match ask(kernel, wish) {
        NOT_OURS => None,
        result => Some(result),
    }
}

/// Primary: leaves what comes with a signal for the supervisor.
fn enclose(kernel: &Kernel, info: u64) -> Result<(), Fault> {
    let info = guest::read::<SigInfo>(info)?;
    let code = u64::from(info.code.cast_unsigned());
    for (cell, word) in kernel
        .report
        .enclosed
        .iter()
        .zip([code, info.first, info.rest()[0]])
    {
        cell.store(word, Ordering::Release);
    }
    Ok(())
}
