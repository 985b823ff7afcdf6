//! How far a replica has come since its last call or point, as CPU time tells.
//!
//! What it does in a stub is no progress, nor is what the agent does meanwhile. Where slices are as
//! long as need be, a clock at each call would be too much for what comes of it: there the last
//! look tells, of which there is one at intervals. But where points follow each other soon, as they
//! do for a program that a timer of its own interrupts, what is between two looks is all there is;
//! so for some time after each point the clock is read at each call ([`EXACT_NS`]).
//!
//! Contract: a guess, by which it is chosen who goes to whom and for how long. Nothing is agreed by
//! it.

use crate::coupling::counter;
use crate::coupling::stub::Wanted;
use crate::protocol::meeting::{Doing, Meeting, cpu_now};

/// So long after a point, in CPU time, it is known at which time each call was.
const EXACT_NS: u64 = 500_000_000;

impl Meeting {
    /// How far this replica has come since the last call or point, as far as is known.
    pub(super) fn progress(&self, now: u64) -> u64 {
        let shift = self.hints.told_in(self.coupler.stamp().phase);
        self.worked(now).saturating_add_signed(shift)
    }

    /// What it has worked since then, at most, without visits to a stub that stands. As far as a
    /// look at intervals tells, where slices are as long as need be: they are long, and what is
    /// between two looks is a small part of them.
    pub(super) fn worked(&self, now: u64) -> u64 {
        let cpu = cpu_now();
        let since_point = cpu.saturating_sub(self.base);
        let gross = match self.is_exact() {
            true => since_point.min(now.saturating_sub(self.marked)),
            false if self.moved => 0,
            false => since_point,
        };
        gross.saturating_sub(self.toll(cpu))
    }

    /// Is the clock read at each call?
    pub(super) const fn is_exact(&self) -> bool {
        !self.lazy || self.exact_until != 0
    }

    /// The program was interrupted: if it has made a call since the last look, what it works counts
    /// from here on, unless the clock was read at that call.
    pub(super) fn count_from_here(&mut self, now: u64) {
        let cpu = cpu_now();
        if self.exact_until != 0 && cpu > self.exact_until {
            self.base = cpu.saturating_sub(self.worked(now));
            (self.exact_until, self.moved) = (0, false);
        }
        if !self.is_exact() && core::mem::take(&mut self.moved) {
            self.base = cpu;
        }
    }

    /// A point is over, which all leave at the same place: what follows counts from here on.
    pub(super) fn count_from_point(&mut self, now: u64) {
        (self.base, self.marked) = (cpu_now(), now);
        self.exact_until = self.base.saturating_add(EXACT_NS);
        self.moved = false;
    }

    /// So much CPU time the agent has used while the program stood still.
    pub(super) const fn leave_out(&mut self, ns: u64) {
        self.base = self.base.saturating_add(ns);
        self.marked = self.marked.saturating_add(ns);
    }

    /// The interrupted program has stood still from this CPU time until now, while the agent did
    /// what had to be done. None of that is its progress, nor spent of what it may run; of a stub
    /// that was planted meanwhile nothing was to be seen yet.
    pub(super) fn stood_still(&mut self, began: u64) {
        let now = cpu_now();
        let ns = now.saturating_sub(began);
        self.leave_out(ns);
        if self.planted >= began {
            self.planted = now;
        }
        if let Doing::Running { since, .. } = &mut self.doing {
            *since = if *since >= began {
                now
            } else {
                since.saturating_add(ns)
            };
        }
    }

    /// How much of the CPU time since a stub was planted is not to count as progress.
    pub(super) fn toll(&self, now: u64) -> u64 {
        self.site.toll(now.saturating_sub(self.planted))
    }

    /// From here on the stub that stands stops this replica at what is wanted, and not at each
    /// visit. False if that cannot be, and it is to be taken out.
    pub(super) fn want(&mut self, wanted: &Wanted<'_>) -> bool {
        let began = cpu_now();
        let toll = self.toll(began);
        self.add_visits();
        if !self.site.want(wanted) {
            return false;
        }
        self.planted = began;
        self.leave_out(toll);
        if let Doing::Running { since, .. } = &mut self.doing {
            *since = since.saturating_add(toll);
        }
        self.stood_still(began);
        true
    }

    /// The stub's count begins anew.
    fn add_visits(&mut self) {
        counter::add_visits(self.site.visits());
        self.milestone.add_visits(&self.site);
    }

    /// Takes the stub out, and that time from what counts.
    pub(crate) fn take_out(&mut self) {
        if !self.site.is_planted() {
            return;
        }
        let began = cpu_now();
        let toll = self.toll(began);
        self.add_visits();
        self.site.take_out();
        self.leave_out(toll);
        if let Doing::Running { since, .. } = &mut self.doing {
            *since = since.saturating_add(toll);
        }
        self.stood_still(began);
    }
}
