//! Calls that wait for signals, or that let some in while they wait for something else.

use linux_raw_sys::errno::{EAGAIN, EINTR, EINVAL};
use rcoe_linux_syscalls::Special;

use crate::calls::signals::UNSTOPPABLE;
use crate::calls::signals::targets::{acted_upon, open_for, publish, remove_first};
use crate::calls::{Call, PARKED, io};
use crate::convert::Maybe;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::sched::threads::{Cause, NEVER};
use crate::sched::timeouts;
use crate::sys;
use crate::sys::polling::POLL;

/// `pause` and `rt_sigsuspend`: wait until a signal is acted upon.
pub(in crate::calls) fn wait(kernel: &mut Kernel, call: &Call) -> i64 {
    if call.what.special == Special::RtSigsuspend {
        let Ok(mask) = guest::read::<u64>(call.arg(0)) else {
            return Fault::RESULT;
        };
        suspend(kernel, mask);
    }
    if kernel.threads.must_not_block() {
        if open_for(kernel, kernel.threads.current_slot()) == 0 {
            kernel.threads.park(Cause::Signal, NEVER);
            return PARKED;
        }
        return sys::error(EINTR);
    }
    // A poll of nothing without a timeout ends by a signal only.
    let nr = POLL;
    let raw = [0, 0, u64::from(u32::MAX), 0, 0, 0];
    let entry = rcoe_linux_syscalls::entry(nr).expect("poll is in the table");
    let poll = Call {
        nr,
        raw,
        what: entry.resolve(&raw),
    };
    io::input(kernel, &poll);
    sys::error(EINTR)
}

fn suspend(kernel: &mut Kernel, mask: u64) {
    if kernel.signals.own.saved.get().is_some() {
        // The call was parked and is made again.
        return;
    }
    kernel.signals.own.saved = Maybe::some(kernel.signals.own.mask);
    kernel.signals.own.mask = mask & !UNSTOPPABLE;
    publish(kernel);
}

/// Calls that bring a mask of their own for as long as they last.
pub(in crate::calls) fn suspend_for(kernel: &mut Kernel, call: &Call) {
    let pointer = match call.what.special {
        Special::Ppoll => call.arg(3),
        Special::EpollPwait => call.arg(4),
        Special::Pselect6 if call.arg(5) != 0 => guest::read(call.arg(5)).unwrap_or(0),
        _ => 0,
    };
    if pointer != 0
        && let Ok(mask) = guest::read::<u64>(pointer)
    {
        suspend(kernel, mask);
    }
}

/// `rt_sigtimedwait`: takes a pending signal of the set, or waits for one.
pub(in crate::calls) fn wait_for(kernel: &mut Kernel, call: &Call) -> i64 {
    let Ok(set) = guest::read::<u64>(call.arg(0)) else {
        return Fault::RESULT;
    };
    let set = set & !UNSTOPPABLE;
    crate::calls::signals::look_outside(kernel);
    let pending = (kernel.signals.shared | kernel.signals.own.pending) & set;
    if pending != 0 {
        let info = remove_first(kernel, pending);
        let wants_info = call.arg(1) != 0;
        return match guest::write(call.arg(1), &info.raw()) {
            Err(Fault) if wants_info => Fault::RESULT,
            _ => i64::from(info.signal),
        };
    }
    let wait = kernel.threads.current().wait;
    let deadline = match (wait.parked, call.arg(2)) {
        (true, _) => wait.deadline,
        (false, 0) => NEVER,
        (false, time) => match timeouts::timespec(time) {
            Err(Fault) => return Fault::RESULT,
            Ok(None) => return sys::error(EINVAL),
            Ok(Some(0)) => return sys::error(EAGAIN),
            Ok(Some(time)) => timeouts::after(kernel, time),
        },
    };
    if wait.expired {
        return sys::error(EAGAIN);
    }
    if acted_upon(kernel, open_for(kernel, kernel.threads.current_slot())) != 0 {
        return sys::error(EINTR);
    }
    kernel.threads.park(Cause::SignalSet, deadline);
    kernel.threads.current_mut().wait.address = set;
    PARKED
}
