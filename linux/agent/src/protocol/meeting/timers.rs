//! The timers by which the host interrupts a replica that computes.
//!
//! Slices are of CPU time: who waits is left alone. A replica on its way to a point is looked after
//! in shorter and more exact intervals than the host has for CPU time.

use crate::arch::faults::SIG_TICK;
use crate::one_thread::OneThread;
use crate::sys::ticks::Ticker;

/// How often a replica that is to be stopped is looked after, at the least and at most, in ns.
pub(super) const LOOK_NS: u64 = 200_000;
pub(super) const LONG_LOOK_NS: u64 = 4_000_000;

/// The timer of slices, in CPU time, and the one that looks after a replica on its way, once there
/// are any.
#[unsafe(link_section = ".bss.own.2")]
static SLICES: OneThread<Option<Ticker>> = OneThread::new(None);
#[unsafe(link_section = ".bss.own.2")]
static LOOKS: OneThread<Option<Ticker>> = OneThread::new(None);

/// Has the host signal this thread each time it has computed for so long; 0 stops that.
pub(super) fn slices(ns: u64) {
    set(&SLICES, Ticker::of_cpu_time, ns);
}

/// The program will be interrupted soon, wherever it is then.
pub(crate) fn look_again() {
    look_after(LONG_LOOK_NS);
}

/// Has the host signal this thread at intervals; 0 stops that.
pub(super) fn look_after(ns: u64) {
    set(&LOOKS, Ticker::new, ns);
}

fn set(timer: &OneThread<Option<Ticker>>, new: fn(u32) -> Option<Ticker>, ns: u64) {
    // SAFETY: one kernel thread, and the handlers that come here in the midst of this do the same
    // at once: the later word counts.
    let timer = unsafe { &mut *timer.get() };
    if timer.is_none() && ns != 0 {
        *timer = new(SIG_TICK);
    }
    if let Some(timer) = timer {
        timer.every(ns);
    }
}
