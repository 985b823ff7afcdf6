//! The timers by which the host interrupts a replica that computes.
//!
//! Slices and ticks are of CPU time: who waits is left alone. A replica on its way to a point is
//! looked after in shorter and more exact intervals than the host has for CPU time.

use core::sync::atomic::Ordering;

use rcoe_linux_abi::Control;

use crate::arch::faults::SIG_TICK;
use crate::one_thread::OneThread;
use crate::sys;
use crate::sys::ticks::Ticker;

/// How often a replica that is to be stopped is looked after, at the least and at most, in ns.
pub(super) const LOOK_NS: u64 = 400_000;
pub(super) const LONG_LOOK_NS: u64 = 4_000_000;

/// Looks in a tick.
const PARTS: u64 = 16;

/// The timers of slices and of ticks, in CPU time, and the one that looks after a replica on its
/// way, once there are any; and the process that has made them. Its copies and children have none
/// of them, and may be interrupted before they know what they are.
struct Timers {
    maker: u32,
    slices: Timer,
    ticks: Timer,
    looks: Timer,
}

/// It signals at such intervals, or 0 if it does not run.
struct Timer {
    host: Option<Ticker>,
    every: u64,
}

impl Timer {
    const NONE: Self = Self {
        host: None,
        every: 0,
    };
}

#[unsafe(link_section = ".bss.own.1")]
static TIMERS: OneThread<Timers> = OneThread::new(Timers {
    maker: 0,
    slices: Timer::NONE,
    ticks: Timer::NONE,
    looks: Timer::NONE,
});

/// Has the host signal this thread each time it has computed for so long; 0 stops that.
pub(super) fn slices(ns: u64) {
    set(|timers| &mut timers.slices, Ticker::of_cpu_time, ns);
}

/// Has the host signal this thread so often in a tick that it knows well enough how long ago all
/// compared, if this run has ticks.
pub(super) fn set_ticks(control: &Control) {
    let tick = control.tick_ns.load(Ordering::Relaxed);
    set(
        |timers| &mut timers.ticks,
        Ticker::of_cpu_time,
        tick / PARTS,
    );
}

/// The program will be interrupted soon, wherever it is then.
pub(crate) fn look_again() {
    look_after(LONG_LOOK_NS);
}

/// Has the host signal this thread at intervals; 0 stops that.
pub(super) fn look_after(ns: u64) {
    set(|timers| &mut timers.looks, Ticker::new, ns);
}

fn set(which: fn(&mut Timers) -> &mut Timer, new: fn(u32) -> Option<Ticker>, ns: u64) {
    // SAFETY: one kernel thread, and the handlers that come here in the midst of this do the same
    // at once: the later word counts.
    let timers = unsafe { &mut *TIMERS.get() };
    if ns == 0 && which(timers).every == 0 {
        return;
    }
    let own = sys::getpid();
    if timers.maker != own {
        timers.maker = own;
        (timers.slices, timers.ticks) = (Timer::NONE, Timer::NONE);
        timers.looks = Timer::NONE;
    }
    let timer = which(timers);
    if timer.host.is_none() && ns != 0 {
        timer.host = new(SIG_TICK);
    }
    timer.every = ns;
    if let Some(host) = timer.host {
        host.every(ns);
    }
}
