//! Ticks: a program that computes agrees on its state now and then, so that a corrupted loop is
//! caught before its next call.
//!
//! A tick is of CPU time, since a corrupted loop burns it and who waits has nothing to corrupt. It
//! runs from the last vote or point: there all replicas were compared. The primary begins; one that
//! has been hit so that it does not is noticed by the others, who begin a tick later.
//!
//! Contract: with ticks an attempt without agreement is a verdict, so it ends soon, and not before
//! several rounds of it have failed ([`rcoe_core::coupling::Pace`]).
//!
//! Not covered: a vote is noticed at the next look, of which there are a few in a tick, so a tick
//! may be longer by one of these.

use core::sync::atomic::Ordering;

use rcoe_core::coupling::Pace;
use rcoe_linux_abi::Control;

use crate::protocol::meeting::cpu_now;

/// Rounds of an attempt, and of one in which no two of three have met: where cores are crowded
/// these can take many.
const ROUNDS: u8 = 5;
const UNDECIDED: u8 = 2 * ROUNDS;
/// What the first round may take is this part of a tick, within these bounds, in ns.
const PART: u64 = 8;
const LEAST_NS: u64 = 125_000_000;
const MOST_NS: u64 = 1_000_000_000;

/// How long attempts take in this run, if this is how long they take without ticks.
pub(super) fn pace(control: &Control, without: Pace) -> Pace {
    match control.tick_ns.load(Ordering::Relaxed) {
        0 => without,
        tick => Pace {
            rounds: ROUNDS,
            undecided: UNDECIDED,
            round: (tick / PART).clamp(LEAST_NS, MOST_NS),
            ..without
        },
    }
}

/// When all last compared, as far as this replica has noticed.
pub(super) struct Ticks {
    /// CPU time of a tick in ns, or 0 for none.
    tick: u64,
    /// Votes until then.
    votes: u64,
    /// CPU time then.
    since: u64,
}

impl Ticks {
    pub(super) fn of(control: &Control) -> Self {
        Self {
            tick: control.tick_ns.load(Ordering::Relaxed),
            votes: 0,
            since: 0,
        }
    }

    pub(super) const fn are_on(&self) -> bool {
        self.tick != 0
    }

    /// All have compared, at this CPU time.
    pub(super) const fn begin(&mut self, now: u64) {
        self.since = now;
    }

    /// Is a tick over, after so many votes?
    pub(super) fn is_due(&mut self, votes: u64, is_primary: bool) -> bool {
        self.are_on() && self.is_due_at(cpu_now(), votes, is_primary)
    }

    const fn is_due_at(&mut self, now: u64, votes: u64, is_primary: bool) -> bool {
        if self.votes != votes {
            (self.votes, self.since) = (votes, now);
        }
        let ticks = if is_primary { 1 } else { 2 };
        now.saturating_sub(self.since) >= self.tick.saturating_mul(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_begins_at_the_last_vote_or_point() {
        let mut ticks = Ticks {
            tick: 100,
            votes: 0,
            since: 0,
        };
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
        let mut ticks = Ticks {
            tick: 100,
            votes: 0,
            since: 0,
        };
        assert!(!ticks.is_due_at(199, 0, false));
        assert!(ticks.is_due_at(200, 0, false));
    }
}
