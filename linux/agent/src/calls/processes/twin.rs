//! Twins: what a replica was at a fork, kept for the replica of the child that is to be its copy.
//!
//! Processes share a table of descriptors only by descent, so all replicas of a child descend from
//! the parent's primary, and with them a flip that lies unnoticed in that one's memory would reach
//! all of them alike: nobody would be left to differ. So the child's replica makes its own memory
//! equal to that of the parent's replica of the same number, as it was at the fork, and so is the
//! copy of its own replica of the parent in all but descent. From there on the vote does the rest.
//!
//! The parent's replica stands still meanwhile. That takes a moment only, as large memory waits
//! until the child touches it. Where there is such memory, or the child's replica takes long or may
//! not look, it leaves a twin: a process that does nothing but hold, copy-on-write, the memory of
//! that moment. It goes on once the twin is noted; what was read before that note is of a memory
//! that stood still, and all else is read of the twin.
//!
//! The child's first replica, which has the primary's number, is a true copy and needs no twin.
//!
//! A replica of the parent that is lost before leaves no twin. Its counterpart in the child then
//! goes on as a copy of the primary: under one fault at a time, that one was right.
//!
//! A twin ends as soon as its counterpart needs nothing more of it or is gone.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rcoe_core::ReplicaId;
use rcoe_linux_abi::{ADOPTED, Control, ReplicaState, Report, TWIN, TWIN_WANTED};

use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::{deferred, regions};
use crate::sys;

/// Longest sleep before looking again.
const LOOK_NS: u64 = 20_000_000;
/// How long a replica of the parent stands still at most, and in how many sleeps.
const STILL_NS: u64 = 20_000_000;
const SLEEPS: u64 = 4;

/// What is noted of a process that came with a birth: the birth's number above, its id below.
pub(super) fn note(serial: u64, pid: u32) -> u64 {
    serial << 32 | u64::from(pid)
}

/// Parent, not the primary: stands still until its replica of the child in `group` needs nothing
/// more, or leaves a twin.
pub(super) fn serve(kernel: &Kernel, group: usize, serial: u64) {
    let index = kernel.replica.id().index();
    let adopted = &regions::report(group, index).adopted;
    for _ in 0..SLEEPS {
        if adopted.load(Ordering::Acquire) != 0 {
            break;
        }
        sys::futex_wait(adopted.as_ptr(), 0, STILL_NS / SLEEPS);
    }
    if adopted.load(Ordering::Acquire) != ADOPTED {
        leave(kernel, group, serial);
    }
}

/// Parent, not the primary: leaves a twin for the child in `group`.
fn leave(kernel: &Kernel, group: usize, serial: u64) {
    let cell = &kernel.report.births[group];
    let twin = sys::clone_twin().expect("the host has room for another process");
    if twin == 0 {
        let own = sys::getpid();
        sys::die_with_supervisor(kernel.control.supervisor.load(Ordering::Relaxed));
        sys::open_memory(kernel.control.supervisor.load(Ordering::Relaxed));
        cell.store(note(serial, own | TWIN), Ordering::Release);
        sys::futex_wake(cell.as_ptr().cast());
        hold(group, serial, kernel.replica.id().index());
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

/// The twin: keeps still until replica `index` of the child does not need it any more.
fn hold(group: usize, serial: u64, index: usize) {
    let control = regions::control(group);
    let adopted = &regions::report(group, index).adopted;
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        let seen = adopted.load(Ordering::Acquire);
        let same = u64::from(control.serial.load(Ordering::Acquire)) == serial;
        let dead = control.state[index].load(Ordering::Acquire) == ReplicaState::Dead as u32;
        if !same || dead || seen == ADOPTED || control.ending.load(Ordering::Acquire) != 0 {
            return;
        }
        let words = [
            (control.bell.as_ptr().cast_const(), bell),
            (adopted.as_ptr().cast_const(), seen),
        ];
        sys::futex_wait_any(&words, LOOK_NS);
        sys::leave_if_orphaned(control.supervisor.load(Ordering::Relaxed));
    }
}

/// Child: where the memory is that a replica of the parent had at the fork.
pub(super) struct Source {
    /// Where that replica notes its twin, and the birth's number.
    cell: &'static AtomicU64,
    serial: u64,
    /// The parent, the replica's number, and which process that number has.
    control: &'static Control,
    index: usize,
    own: &'static AtomicU32,
    /// That replica's process, as of the fork: one that has taken its place since never knew it.
    replica: u32,
    /// The process that holds the memory.
    pub(super) process: u32,
    /// It is that replica itself, which stands still until it has noted a twin.
    itself: bool,
}

impl Source {
    /// Replica `id` of the parent, which was that process at the fork, once it stands still, or its
    /// twin; `None` if it is lost.
    pub(super) fn find(
        parent: usize,
        (id, process): (ReplicaId, u32),
        group: usize,
        serial: u64,
    ) -> Option<Self> {
        let report = regions::report(parent, id.index());
        let mut source = Self {
            cell: &report.births[group],
            serial,
            control: regions::control(parent),
            index: id.index(),
            own: &report.pid,
            replica: process,
            process,
            itself: true,
        };
        let launched = &report.launched[group];
        loop {
            let seen = launched.load(Ordering::Acquire);
            let stands = source.has_moved() || seen >> 32 == serial;
            // Asked after the notes were read: a copy in its place has those of another replica.
            if source.is_replaced() {
                return None;
            }
            if stands {
                return Some(source);
            }
            if source.is_lost() {
                return None;
            }
            wait_for(launched, seen);
        }
    }

    /// Has the replica itself gone on? Then its twin has the memory from now on, and what was read
    /// since this was last asked may be newer.
    pub(super) fn has_moved(&mut self) -> bool {
        let note = self.cell.load(Ordering::Acquire);
        let moved = self.itself && note >> 32 == self.serial && !self.is_replaced();
        if moved {
            self.process = low32(note) & !TWIN;
            self.itself = false;
        }
        moved
    }

    /// Has the replica leave a twin, unless it has; false if it is lost.
    pub(super) fn want_twin(&mut self, own: &Report) -> bool {
        if !self.itself {
            return true;
        }
        own.adopted.store(TWIN_WANTED, Ordering::Release);
        sys::futex_wake(own.adopted.as_ptr());
        loop {
            let seen = self.cell.load(Ordering::Acquire);
            if self.has_moved() {
                return true;
            }
            if self.is_lost() {
                return false;
            }
            wait_for(self.cell, seen);
        }
    }

    fn is_lost(&self) -> bool {
        let state = self.control.state[self.index].load(Ordering::Acquire);
        self.is_replaced() || state == ReplicaState::Dead as u32
    }

    /// Has a copy taken its place? That one knows nothing of this birth, and notes nothing.
    fn is_replaced(&self) -> bool {
        self.own.load(Ordering::Acquire) != self.replica
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
        tell_adopted(kernel.report);
    }
}

/// Child: nothing more is needed of whoever holds the memory.
pub(super) fn tell_adopted(own: &Report) {
    own.adopted.store(ADOPTED, Ordering::Release);
    sys::futex_wake(own.adopted.as_ptr());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process 7 of the parent, of which nothing is known yet.
    fn source() -> Source {
        // SAFETY: all fields are atomic words, and zero is a value of each.
        let control: Box<Control> = unsafe { Box::new_zeroed().assume_init() };
        Source {
            cell: Box::leak(Box::new(AtomicU64::new(0))),
            serial: 3,
            control: Box::leak(control),
            index: 1,
            own: Box::leak(Box::new(AtomicU32::new(7))),
            replica: 7,
            process: 7,
            itself: true,
        }
    }

    #[test]
    fn who_has_left_a_twin_has_gone_on() {
        let mut source = source();
        assert!(!source.is_lost() && !source.has_moved());
        source.cell.store(note(2, 11 | TWIN), Ordering::Relaxed);
        assert!(!source.has_moved(), "of another birth");
        source.cell.store(note(3, 12 | TWIN), Ordering::Relaxed);
        assert!(source.has_moved());
        assert_eq!(source.process, 12);
        assert!(!source.has_moved(), "told once");
    }

    #[test]
    fn a_copy_in_the_place_of_a_lost_replica_is_neither_awaited_nor_read() {
        let mut source = source();
        source.own.store(9, Ordering::Relaxed);
        source.cell.store(note(3, 12 | TWIN), Ordering::Relaxed);
        assert!(source.is_lost());
        assert!(
            !source.has_moved(),
            "these are the notes of whom it was copied from"
        );
        assert_eq!(source.process, 7);
    }
}
