//! Which thread gets a signal, and which one it wakes.
//!
//! A signal sent to a thread is that thread's. One sent to the program is taken by the first thread
//! that does not block it, the leader before all others, or by one that waits for it with
//! `rt_sigtimedwait`. What is pending depends on the trace alone, so all replicas agree.

use core::sync::atomic::Ordering;

use crate::arch::faults::bit;
use crate::calls::signals::pending::SI_TIMER;
use crate::calls::signals::{Effect, Info, SS_DISABLE, Target, look};
use crate::calls::timers;
use crate::convert::Maybe;
use crate::kernel::Kernel;
use crate::recover::reintegration;
use crate::sched::threads::{Cause, Next};

/// What of the signal state belongs to one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) mask: u64,
    /// Sent to this very thread.
    pub(crate) pending: u64,
    /// Mask to return to after a call that came with its own.
    pub(in crate::calls) saved: Maybe,
    /// `stack_t` of the alternate stack: pointer, flags, size.
    pub(in crate::calls) stack: [u64; 3],
}

impl Own {
    /// Zero bytes, for a slot that nobody uses.
    pub(crate) const NONE: Self = Self {
        mask: 0,
        pending: 0,
        saved: Maybe::NONE,
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

/// Keeps the supervisor's copy of the sets of signals that would end or stop the program: those
/// with that action that not all threads block.
pub(crate) fn publish(kernel: &Kernel) {
    let open = !blocked_by_all(kernel);
    let fatal = kernel.signals.that(Effect::End) & open;
    let stops = kernel.signals.that(Effect::Stop) & open;
    kernel.report.fatal.store(fatal, Ordering::Release);
    kernel.report.stops.store(stops, Ordering::Release);
}

/// What of the signals belongs to the thread in this slot.
pub(in crate::calls) fn own_of(kernel: &Kernel, slot: usize) -> &Own {
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
    look(kernel);
    if kernel.inbox.due || reintegration::is_due_at_turn(kernel) {
        return true;
    }
    let inbox = kernel.inbox.set;
    if inbox == 0 {
        return false;
    }
    let mut slots = kernel.threads.live_slots();
    let awaited = inbox & kernel.signals.files.taken() != 0
        || slots.any(|slot| inbox & awaited_by(kernel, slot) != 0);
    awaited || acted_upon(kernel, inbox & !blocked_by_all(kernel)) != 0
}

/// Those of the signals that do something.
pub(super) fn acted_upon(kernel: &Kernel, set: u64) -> u64 {
    let (mut left, mut acted_upon) = (set, 0);
    while left != 0 {
        let signal = left.trailing_zeros() + 1;
        left &= left - 1;
        if kernel.signals.effect(signal) != Effect::Nothing {
            acted_upon |= bit(signal);
        }
    }
    acted_upon
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
pub(in crate::calls) fn open_for(kernel: &Kernel, slot: usize) -> u64 {
    let own = own_of(kernel, slot);
    let shared = kernel.signals.shared & !left_to_others(kernel, slot);
    (own.pending | shared) & !own.mask
}

/// Interrupts threads that wait and have a signal to act upon.
pub(crate) fn rouse(kernel: &mut Kernel) {
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
pub(super) fn next_pending(kernel: &mut Kernel) -> Option<Info> {
    let open = open_for(kernel, kernel.threads.current_slot());
    if open == 0 {
        return None;
    }
    Some(remove_first(kernel, open))
}

/// Takes the first of these pending signals; those of the thread itself come before the others.
pub(super) fn remove_first(kernel: &mut Kernel, open: u64) -> Info {
    let slot = u16::try_from(kernel.threads.current_slot()).expect("slots are few");
    let signals = &mut kernel.signals;
    let own = signals.own.pending & open;
    let (set, from, to) = match own {
        0 => (&mut signals.shared, open, Target::Program),
        _ => (&mut signals.own.pending, own, Target::Thread(slot)),
    };
    let signal = from.trailing_zeros() + 1;
    let (mut info, again) = signals.pending.pop(signal, to);
    if !again {
        *set &= !bit(signal);
    }
    if info.code == SI_TIMER {
        timers::delivered(kernel, &mut info);
    }
    info
}
