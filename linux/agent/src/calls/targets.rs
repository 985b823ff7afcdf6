//! Which thread gets a signal, and which one it wakes.
//!
//! A signal sent to a thread is that thread's. One sent to the program is taken by the first thread
//! that does not block it, the leader before all others, or by one that waits for it with
//! `rt_sigtimedwait`. What is pending depends on the trace alone, so all replicas agree.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EAGAIN, EINTR, EINVAL};

use super::signals::{Effect, LAST, SS_DISABLE, UNSTOPPABLE, sent_info};
use super::{Call, PARKED, timeouts};
use crate::faults::bit;
use crate::guest::{self, Fault};
use crate::kernel::Kernel;
use crate::sys;
use crate::threads::{Cause, NEVER, Next};

/// What of the signal state belongs to one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) mask: u64,
    /// Sent to this very thread.
    pub(crate) pending: u64,
    /// Mask to return to after a call that came with its own.
    pub(super) saved: Option<u64>,
    /// `stack_t` of the alternate stack: pointer, flags, size.
    pub(super) stack: [u64; 3],
}

impl Own {
    /// Zero bytes, for a slot that nobody uses.
    pub(crate) const NONE: Self = Self {
        mask: 0,
        pending: 0,
        saved: None,
        stack: [0; 3],
    };

    /// What a new thread starts with: its maker's mask and nothing else.
    pub(crate) const fn inherit(mask: u64) -> Self {
        Self {
            mask,
            stack: [0, SS_DISABLE, 0],
            ..Self::NONE
        }
    }
}

/// Keeps the supervisor's copy of the set of signals that would end the program: those with that
/// action that not all threads block.
pub(crate) fn publish(kernel: &Kernel) {
    let fatal = kernel.signals.ending() & !blocked_by_all(kernel);
    kernel.report.fatal.store(fatal, Ordering::Release);
}

/// What of the signals belongs to the thread in this slot.
pub(super) fn own_of(kernel: &Kernel, slot: usize) -> &Own {
    if slot == kernel.threads.loaded {
        &kernel.signals.own
    } else {
        &kernel.threads.at(slot).signals
    }
}

pub(super) fn own_of_mut(kernel: &mut Kernel, slot: usize) -> &mut Own {
    if slot == kernel.threads.loaded {
        &mut kernel.signals.own
    } else {
        &mut kernel.threads.get(slot).signals
    }
}

pub(super) fn blocked_by_all(kernel: &Kernel) -> u64 {
    let slots = kernel.threads.live_slots();
    slots.fold(u64::MAX, |all, slot| all & own_of(kernel, slot).mask)
}

/// Primary, while all threads wait: has something arrived that one of them acts on or waits for?
pub(crate) fn must_wake(kernel: &mut Kernel) -> bool {
    kernel.signals.look(kernel.control);
    let inbox = kernel.signals.inbox;
    if inbox == 0 {
        return false;
    }
    let mut slots = kernel.threads.live_slots();
    let awaited = slots.any(|slot| inbox & awaited_by(kernel, slot) != 0);
    awaited || acted_upon(kernel, inbox & !blocked_by_all(kernel)) != 0
}

/// Those of the signals that do something.
fn acted_upon(kernel: &Kernel, set: u64) -> u64 {
    let signals = (1..=LAST).filter(|signal| set & bit(*signal) != 0);
    signals
        .filter(|signal| kernel.signals.effect(*signal) != Effect::Nothing)
        .fold(0, |set, signal| set | bit(signal))
}

/// Signals that the thread in this slot waits for, with `rt_sigtimedwait`.
fn awaited_by(kernel: &Kernel, slot: usize) -> u64 {
    let thread = kernel.threads.at(slot);
    if thread.is_waiting() && thread.wait.cause == Cause::SignalSet {
        thread.wait.address
    } else {
        0
    }
}

/// Signals pending for all that the thread in this slot leaves to one before it: the first that
/// does not block a signal takes it.
fn left_to_others(kernel: &Kernel, slot: usize) -> u64 {
    if kernel.signals.shared == 0 {
        return 0;
    }
    let before = kernel.threads.live_slots().take_while(|it| *it < slot);
    let taken = before.fold(0, |set, it| set | !own_of(kernel, it).mask);
    kernel.signals.shared & taken
}

/// Signals that the thread in this slot would act upon.
pub(super) fn open_for(kernel: &Kernel, slot: usize) -> u64 {
    let own = own_of(kernel, slot);
    let shared = kernel.signals.shared & !left_to_others(kernel, slot);
    (own.pending | shared) & !own.mask
}

/// Interrupts threads that wait and have a signal to act upon.
pub(super) fn rouse(kernel: &mut Kernel) {
    for slot in 0..kernel.threads.used() {
        if !kernel.threads.at(slot).is_waiting() {
            continue;
        }
        let pending = kernel.signals.shared | own_of(kernel, slot).pending;
        if pending & awaited_by(kernel, slot) != 0 {
            kernel.threads.wake(slot, Next::Again);
        } else if acted_upon(kernel, open_for(kernel, slot)) != 0 {
            kernel.threads.wake(slot, Next::Interrupted);
        }
    }
}

/// Takes the next signal that the running thread acts upon.
pub(super) fn next_pending(kernel: &mut Kernel) -> Option<u32> {
    let open = open_for(kernel, kernel.threads.current_slot());
    if open == 0 {
        return None;
    }
    Some(remove_first(kernel, open))
}

/// Takes the first of these pending signals.
fn remove_first(kernel: &mut Kernel, open: u64) -> u32 {
    let signal = open.trailing_zeros() + 1;
    let signals = &mut kernel.signals;
    if signals.own.pending & bit(signal) != 0 {
        signals.own.pending &= !bit(signal);
    } else {
        signals.shared &= !bit(signal);
    }
    signal
}

/// `rt_sigtimedwait`: takes a pending signal of the set, or waits for one.
pub(super) fn wait_for(kernel: &mut Kernel, call: &Call) -> i64 {
    let Ok(set) = guest::read::<u64>(call.arg(0)) else {
        return Fault::RESULT;
    };
    let set = set & !UNSTOPPABLE;
    let pending = (kernel.signals.shared | kernel.signals.own.pending) & set;
    if pending != 0 {
        let signal = remove_first(kernel, pending);
        let info = sent_info(kernel, signal);
        let wants_info = call.arg(1) != 0;
        return match guest::write(call.arg(1), &info) {
            Err(Fault) if wants_info => Fault::RESULT,
            _ => i64::from(signal),
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
