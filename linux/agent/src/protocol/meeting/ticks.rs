//! Ticks: a program that computes agrees on its state now and then, so that a corrupted loop is
//! caught before its next call.
//!
//! A tick is of CPU time, since a corrupted loop burns it and who waits has nothing to corrupt. It
//! runs from the last vote or point: there all replicas were compared. The primary begins; one that
//! has been hit so that it does not is noticed by the others, who begin a tick later.
//!
//! Where it is counted how far replicas have come since a point
//! ([`crate::protocol::meeting::milestone`]), the first point behind a vote comes sooner: up to
//! there only CPU time tells who is ahead, and the less of it the better.
//!
//! Contract: with ticks an attempt without agreement is a verdict, so it ends soon, and not before
//! budgets have grown far beyond what replicas that are well need ([`rcoe_core::coupling::Pace`]).
//!
//! Not covered: a vote is noticed at the next look, of which there are a few in a tick, so a tick
//! may be longer by one of these.

use core::sync::atomic::Ordering;

use rcoe_core::coupling::Pace;
use rcoe_linux_abi::Control;

use crate::protocol::meeting::cpu_now;

/// Phases of an attempt beside one for each replica, and those that follow while no two of three
/// have met.
///
/// Of 823 attempts without a fault, by two and three replicas of six programs at loads of 10 to 14,
/// with a growth of six in each of the first five phases, all but two agreed in these, and the two
/// in the next one. What is beyond is the margin: each phase searches three times as far as the one
/// before, and each of two replicas is the target of one.
const PHASES: u8 = 5;
const UNDECIDED: u8 = 1;
/// The last phase of steep growth searches up to this part of a tick, and up to so many ns.
const PART: u64 = 10;
const MOST_NS: u64 = 750_000_000;

/// How long attempts take in this run, if this is how long they take without ticks.
pub(super) fn pace(control: &Control, without: Pace) -> Pace {
    let replicas = control.replicas.load(Ordering::Relaxed);
    match control.tick_ns.load(Ordering::Relaxed) {
        0 => without,
        tick => Pace {
            phases: phases(replicas),
            undecided: phases(replicas) + UNDECIDED,
            steep: (tick / PART).min(MOST_NS),
            ..without
        },
    }
}

/// The more there are the rarer it is that all are where they can come to one target.
fn phases(replicas: u32) -> u8 {
    PHASES + u8::try_from(replicas).expect("few replicas")
}

/// The part of a tick after which the first point behind a vote is due, if it is counted from
/// there.
const FIRST: u64 = 8;

/// When all last compared, as far as this replica has noticed.
pub(super) struct Ticks {
    /// CPU time of a tick in ns, or 0 for none.
    tick: u64,
    /// Votes until then.
    votes: u64,
    /// CPU time then.
    since: u64,
    /// There is to be a point soon, from which it is counted.
    counts: bool,
    is_first: bool,
}

impl Ticks {
    pub(super) fn of(control: &Control) -> Self {
        Self {
            tick: control.tick_ns.load(Ordering::Relaxed),
            votes: 0,
            since: 0,
            counts: control.milestones.load(Ordering::Relaxed) != 0,
            is_first: true,
        }
    }

    pub(super) const fn are_on(&self) -> bool {
        self.tick != 0
    }

    /// All have compared, at a point, at this CPU time.
    pub(super) const fn begin(&mut self, now: u64) {
        (self.since, self.is_first) = (now, false);
    }

    /// Is a tick over, after so many votes?
    pub(super) fn is_due(&mut self, votes: u64, is_primary: bool) -> bool {
        self.are_on() && self.is_due_at(cpu_now(), votes, is_primary)
    }

    const fn is_due_at(&mut self, now: u64, votes: u64, is_primary: bool) -> bool {
        if self.votes != votes {
            (self.votes, self.since, self.is_first) = (votes, now, true);
        }
        let due = match is_primary {
            true if self.counts && self.is_first => self.tick / FIRST,
            true => self.tick,
            false => self.tick.saturating_mul(2),
        };
        now.saturating_sub(self.since) >= due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKS: Ticks = Ticks {
        tick: 100,
        votes: 0,
        since: 0,
        counts: false,
        is_first: true,
    };

    #[test]
    fn a_tick_begins_at_the_last_vote_or_point() {
        let mut ticks = TICKS;
        assert!(!ticks.is_due_at(99, 0, true));
        assert!(ticks.is_due_at(100, 0, true));
        assert!(!ticks.is_due_at(120, 1, true), "there was a vote");
        assert!(!ticks.is_due_at(219, 1, true));
        assert!(ticks.is_due_at(220, 1, true));
        ticks.begin(230);
        assert!(!ticks.is_due_at(329, 1, true), "there was a point");
        assert!(ticks.is_due_at(330, 1, true));
    }

    #[test]
    fn others_begin_if_the_primary_does_not() {
        let mut ticks = TICKS;
        assert!(!ticks.is_due_at(199, 0, false));
        assert!(ticks.is_due_at(200, 0, false));
    }

    #[test]
    fn what_is_counted_from_comes_soon_after_a_vote() {
        let mut ticks = Ticks {
            counts: true,
            ..TICKS
        };
        assert!(!ticks.is_due_at(11, 0, true));
        assert!(!ticks.is_due_at(12, 0, false), "the primary begins");
        assert!(ticks.is_due_at(12, 0, true));
        ticks.begin(30);
        assert!(!ticks.is_due_at(129, 0, true));
        assert!(ticks.is_due_at(130, 0, true));
        assert!(!ticks.is_due_at(140, 1, true), "there was a vote");
        assert!(ticks.is_due_at(152, 1, true));
    }
}
