//! Twins: what a replica was at a fork, kept for the replica of the child that is to be its copy.
//!
//! Processes share a table of descriptors only by descent, so all replicas of a child descend from
//! the parent's primary, and with them a flip that lies unnoticed in that one's memory would reach
//! all of them alike: nobody would be left to differ. So every other replica of the parent leaves a
//! twin at the fork: a process that does nothing but hold, copy-on-write, the memory of that
//! moment. The child's replica of the same number makes its own memory equal to the twin's, and so
//! is the copy of its own replica of the parent in all but descent. From there on the vote does the
//! rest.
//!
//! The child's first replica, which has the primary's number, is a true copy and needs no twin.
//!
//! A lost replica of the parent leaves no twin. Its counterpart in the child then goes on as a copy
//! of the primary: under one fault at a time, that one was right.
//!
//! A twin ends as soon as its counterpart needs nothing more of it or is gone.

use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_core::ReplicaId;
use rcoe_linux_abi::{ReplicaState, TWIN};

use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::{deferred, regions};
use crate::sys;

/// Longest sleep before looking again.
const LOOK_NS: u64 = 20_000_000;

/// What is noted of a process that came with a birth: the birth's number above, its id below.
pub(super) fn note(serial: u64, pid: u32) -> u64 {
    serial << 32 | u64::from(pid)
}

/// Parent, not the primary: leaves a twin for the child in `group`.
pub(super) fn leave(kernel: &Kernel, group: usize, serial: u64) {
    let cell = &kernel.report.births[group];
    let twin = sys::clone_twin().expect("the host has room for another process");
    if twin == 0 {
        let own = sys::getpid();
        cell.store(note(serial, own | TWIN), Ordering::Release);
        sys::futex_wake(cell.as_ptr().cast());
        sys::die_with_supervisor(kernel.control.supervisor.load(Ordering::Relaxed));
        sys::open_memory(kernel.control.supervisor.load(Ordering::Relaxed));
        hold(group, serial, own);
        sys::exit_group(0);
    }
    // Notes of later births must not be overtaken by this one.
    let noted = || cell.load(Ordering::Acquire) >> 32 == serial;
    while !noted() {
        // It may note itself, and end, between a look at the note and one at its life.
        if sys::cpu_time(low32(twin)).is_none() && !noted() {
            // Lost at once. Who looks for it finds nothing to compare with, and says so.
            cell.store(note(serial, low32(twin) | TWIN), Ordering::Release);
            sys::futex_wake(cell.as_ptr().cast());
        }
        sys::sched_yield();
    }
}

/// The twin: keeps still until nobody needs it.
fn hold(group: usize, serial: u64, own: u32) {
    let control = regions::control(group);
    let count = control.replicas.load(Ordering::Relaxed) as usize;
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        let same = u64::from(control.serial.load(Ordering::Acquire)) == serial;
        if !same || control.ending.load(Ordering::Acquire) != 0 {
            return;
        }
        let counterpart = (0..count).find(|&index| {
            let report = regions::report(group, index);
            report.adopts.load(Ordering::Acquire) == own
        });
        let mut words = [(control.bell.as_ptr().cast_const(), bell); 2];
        if let Some(index) = counterpart {
            let adopted = &regions::report(group, index).adopted;
            let dead = control.state[index].load(Ordering::Acquire) == ReplicaState::Dead as u32;
            if dead || adopted.load(Ordering::Acquire) != 0 {
                return;
            }
            words[1] = (adopted.as_ptr().cast_const(), 0);
        }
        let used = 1 + usize::from(counterpart.is_some());
        sys::futex_wait_any(&words[..used], LOOK_NS);
        sys::leave_if_orphaned(control.supervisor.load(Ordering::Relaxed));
    }
}

/// Child: the twin that replica `id` of the parent has left; `None` if that is lost.
pub(super) fn await_twin(parent: usize, id: ReplicaId, group: usize, serial: u64) -> Option<u32> {
    let cell = &regions::report(parent, id.index()).births[group];
    let control = regions::control(parent);
    loop {
        let seen = cell.load(Ordering::Acquire);
        if seen >> 32 == serial {
            return Some(low32(seen) & !TWIN);
        }
        if control.state[id.index()].load(Ordering::Acquire) == ReplicaState::Dead as u32 {
            return None;
        }
        wait_for(cell, seen);
    }
}

/// Sleeps until a note may have changed.
pub(super) fn wait_for(cell: &AtomicU64, seen: u64) {
    sys::futex_wait(
        cell.as_ptr().cast::<u32>().cast_const(),
        low32(seen),
        LOOK_NS,
    );
    sys::leave_if_orphaned(regions::control(0).supervisor.load(Ordering::Relaxed));
}

/// Child: nothing more is needed of its twin.
pub(crate) fn release(kernel: &Kernel) {
    if deferred::finish().is_some() {
        let adopted = &kernel.report.adopted;
        adopted.store(1, Ordering::Release);
        sys::futex_wake(adopted.as_ptr());
    }
}
