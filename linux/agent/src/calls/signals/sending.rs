//! `kill` and its kin, as far as they concern the program itself.

use linux_raw_sys::errno::{EAGAIN, EINVAL, EPERM, ESRCH};
use linux_raw_sys::general::SIGKILL;
use rcoe_linux_syscalls::Special;

use crate::arch::faults::bit;
use crate::arch::frames::SigInfo;
use crate::calls::Call;
use crate::calls::emulated::own_pid;
use crate::calls::processes::{pidfd, plan_sending};
use crate::calls::signals::pending::{Info, SI_TKILL, SI_USER, Target};
use crate::calls::signals::targets::rouse;
use crate::calls::signals::{LAST, arrive, valid_signal};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sys;

/// What a call asks for: which process, which thread of it, which signal, and what comes with it.
struct Wish {
    process: Option<u64>,
    thread: Option<u64>,
    number: u64,
    info: Option<u64>,
}

impl Wish {
    fn of(call: &Call) -> Self {
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|i| call.arg(i));
        let (process, thread, number, info) = match call.what.special {
            Special::Tkill => (None, Some(first), second, None),
            Special::Tgkill => (Some(first), Some(second), third, None),
            Special::RtSigqueueinfo => (Some(first), None, second, Some(third)),
            Special::PidfdSendSignal => (None, None, second, (third != 0).then_some(third)),
            Special::RtTgsigqueueinfo => (Some(first), Some(second), third, Some(fourth)),
            _ => (Some(first), None, second, None),
        };
        Self {
            process,
            thread,
            number,
            info,
        }
    }
}

/// `kill` and its kin, if they concern the program itself; `None` if the host has to send.
pub(in crate::calls) fn send(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let mut wish = Wish::of(call);
    if call.what.special == Special::PidfdSendSignal {
        if call.arg(3) != 0 {
            return Some(sys::error(EINVAL));
        }
        let process = pidfd::agreed(kernel, call.arg(0));
        kernel.processes.address(process);
        wish.process = match process {
            pidfd::Process::Own(pid) => Some(u64::from(pid)),
            // None that the program has: the host knows whose it is, and says what is wrong.
            _ => Some(u64::MAX),
        };
    }
    let is_none = |id: u64| low32(id).cast_signed() <= 0;
    if let Some(thread) = wish.thread
        && (is_none(thread) || wish.process.is_some_and(is_none))
    {
        return Some(sys::error(EINVAL));
    }
    let own = u64::from(own_pid(kernel));
    let found = wish.thread.map(|thread| kernel.threads.find(low32(thread)));
    let ours = match wish.process {
        // The number of any thread stands for its process.
        Some(process) if wish.thread.is_none() => {
            process == own || kernel.threads.find(low32(process)).is_some()
        }
        Some(process) => process == own,
        None => matches!(found, Some(Some(_))),
    };
    let raw = match wish.info.map(guest::read::<SigInfo>) {
        Some(Err(Fault)) => return Some(Fault::RESULT),
        Some(Ok(raw)) => Some(raw),
        None => None,
    };
    let contradicts = |raw: &SigInfo| i64::from(raw.signo) != wish.number.cast_signed();
    if call.what.special == Special::PidfdSendSignal && raw.as_ref().is_some_and(contradicts) {
        return Some(sys::error(EINVAL));
    }
    if !ours {
        // A code of the kernel's, or of `kill`, would be a lie.
        return match raw {
            Some(raw) if raw.code >= 0 || raw.code == SI_TKILL => Some(sys::error(EPERM)),
            _ => elsewhere(kernel, call, wish.number),
        };
    }
    let to = match found {
        None => Target::Program,
        Some(None) => return Some(sys::error(ESRCH)),
        Some(Some(slot)) => Target::Thread(u16::try_from(slot).expect("slots are few")),
    };
    if wish.number == 0 {
        return Some(0);
    }
    let Some(signal) = valid_signal(wish.number) else {
        return Some(sys::error(EINVAL));
    };
    Some(to_own(kernel, signal, to, raw.as_ref()))
}

fn to_own(kernel: &mut Kernel, signal: u32, to: Target, raw: Option<&SigInfo>) -> i64 {
    if bit(signal) == bit(SIGKILL) {
        kernel.end_by(SIGKILL);
    }
    let code = if to == Target::Program {
        SI_USER
    } else {
        SI_TKILL
    };
    let info = match raw {
        Some(raw) => Info::of(signal, raw),
        None => Info::sent(signal, code, own_pid(kernel), sys::getuid(), 0),
    };
    let arrived = arrive(kernel, info, to);
    rouse(kernel);
    if arrived { 0 } else { sys::error(EAGAIN) }
}

/// A signal for another process, which the primary sends; or what the call returns instead.
fn elsewhere(kernel: &mut Kernel, call: &Call, number: u64) -> Option<i64> {
    if number > u64::from(LAST) {
        return Some(sys::error(EINVAL));
    }
    plan_sending(kernel, call);
    None
}
