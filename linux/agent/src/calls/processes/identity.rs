//! Process groups, sessions, parents, and signals to other processes of the program.
//!
//! All of it is the supervisor's to know; see [`rcoe_linux_abi::Ask`].
//!
//! Not covered: `kill` of a whole process group reaches the program's own processes only.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EINVAL, EPERM, ESRCH};
use rcoe_linux_abi::{Ask, NOT_OURS};
use rcoe_linux_syscalls::Special;

use crate::arch::frames::SigInfo;
use crate::calls::processes::{ask, ask_with, plan, plan_with};
use crate::calls::{Call, io};
use crate::convert;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sys;
use crate::sys::numbers::PR_SET_CHILD_SUBREAPER;

/// `getppid`: changes when the parent ends, so all take the primary's word.
#[inline(always)]
pub(crate) fn parent(kernel: &mut Kernel) -> i64 {
    let control = kernel.control;
    let parent = || u64::from(control.ppid.load(Ordering::Relaxed));
    transfer::agree_promptly(kernel, parent).cast_signed()
}

/// `getpgrp`, `getpgid` and `getsid`.
pub(crate) fn get_group(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(0) != 0 {
        plan(kernel, wish(call));
        kernel.rendezvous();
    }
    io::exchange(kernel, call, true)
}

/// `setpgid` and `setsid`.
pub(crate) fn set_group(kernel: &mut Kernel, call: &Call) -> i64 {
    plan(kernel, wish(call));
    kernel.rendezvous();
    let result = io::exchange(kernel, call, true);
    kernel.processes.leads |= call.what.special == Special::Setsid && result >= 0;
    result
}

/// All replicas: whether orphans among its descendants become its children.
pub(crate) fn subreaper(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.arg(0) != PR_SET_CHILD_SUBREAPER {
        let own = u32::from(kernel.processes.subreaper);
        return guest::write(call.arg(1), &own).map_or(Fault::RESULT, |()| 0);
    }
    let own = call.arg(1) != 0;
    kernel.processes.subreaper = own;
    let cell = &kernel.report.subreaper;
    cell.store(own.into(), Ordering::Release);
    0
}

/// What is asked of the supervisor for such a call; `None` if the answer is known without it.
fn wish(call: &Call) -> Option<Ask> {
    let pid = convert::low32(call.arg(0));
    let group = convert::low32(call.arg(1));
    match call.what.special {
        Special::Setpgid => Some(Ask::SetGroup { pid, group }),
        Special::Setsid => Some(Ask::NewSession),
        Special::Getsid if pid != 0 => Some(Ask::GetSession { pid }),
        Special::Getpgid if pid != 0 => Some(Ask::GetGroup { pid }),
        _ => None,
    }
}

/// Primary: what the supervisor says.
pub(super) fn execute(kernel: &mut Kernel, call: &Call) -> i64 {
    let id = |at| convert::low32(call.arg(at)).cast_signed();
    let most = MOST_PID.cast_signed();
    let control = kernel.control;
    match (call.what.special, wish(call)) {
        (Special::Setpgid, _) if id(1) < 0 || id(1) == 0 && id(0) < 0 => sys::error(EINVAL),
        (Special::Setpgid, _) if id(0) > most || id(0) < 0 => sys::error(ESRCH),
        (Special::Setpgid, _) if id(1) > most => sys::error(EPERM),
        (Special::Getsid | Special::Getpgid, Some(_)) if id(0) > most || id(0) < 0 => {
            sys::error(ESRCH)
        }
        (_, Some(wish)) => ask(kernel, wish),
        (Special::Getsid, None) => i64::from(control.sid.load(Ordering::Relaxed)),
        (_, None) => i64::from(control.pgid.load(Ordering::Relaxed)),
    }
}

/// No process of any host has a higher number.
const MOST_PID: u32 = (1 << 22) - 1;

/// Primary: sends a signal; `None` if the host has to.
pub(super) fn kill(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let (wish, enclosed) = match sending(kernel, call) {
        Ok(request) => request,
        Err(result) => return result,
    };
    match ask_with(kernel, wish, enclosed) {
        NOT_OURS => None,
        result => Some(result),
    }
}

/// All replicas, before the vote on a signal for another process.
pub(in crate::calls) fn plan_sending(kernel: &mut Kernel, call: &Call) {
    let request = sending(kernel, call).ok();
    plan_with(kernel, request);
}

/// What is asked of the supervisor for a signal.
///
/// # Errors
/// The call's result without asking; `None` if the host knows it.
fn sending(kernel: &Kernel, call: &Call) -> Result<(Ask, [u64; 3]), Option<i64>> {
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
            0 => return Err(None),
            pid => u64::from(pid),
        };
    }
    let signal = u8::try_from(signal).ok().filter(|signal| *signal <= 64);
    let (Ok(target), Some(signal)) = (i32::try_from(target.cast_signed()), signal) else {
        return Err(Some(sys::error(EINVAL)));
    };
    if target.unsigned_abs() > MOST_PID {
        return Err(Some(sys::error(ESRCH)));
    }
    match (info, u32::try_from(target)) {
        (0, _) => Ok((Ask::Kill { target, signal }, [0; 3])),
        (info, Ok(pid)) => match enclosed(info) {
            Ok(enclosed) => Ok((Ask::Queue { pid, signal }, enclosed)),
            Err(_) => Err(Some(Fault::RESULT)),
        },
        // What is sent to a group has no number of a process to begin with.
        (_, Err(_)) => Err(Some(sys::error(ESRCH))),
    }
}

/// What comes with a signal, as a request encloses it.
fn enclosed(info: u64) -> Result<[u64; 3], Fault> {
    let info = guest::read::<SigInfo>(info)?;
    let code = u64::from(info.code.cast_unsigned());
    Ok([code, info.first, info.rest()[0]])
}
