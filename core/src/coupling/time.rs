//! Where a replica stands between two events, and how to tell who is ahead.
//!
//! Two ways to know. *Equality of states* ([`States`]): replicas are deterministic between events,
//! so all pass through one sequence of states; whoever has the target's state is at the target, or
//! at a point with the same future. Nothing tells who is ahead but the CPU time used, which is a
//! guess. *A counter* ([`Counter`]): the processor counts branches, so that places have an order
//! and are met exactly; states are compared there all the same, which is how damage shows.

use core::cmp::Reverse;

use super::LAST_PHASE;

/// What a replica says of the place where it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Standing {
    /// Events of the trace so far. Where a call is not always an event it is the number of calls:
    /// who is at one would seem ahead of who has made it.
    pub events: u64,
    /// The sums of the trace's signature.
    pub signature: [u64; 2],
    /// Whether it is at its next call, before the event of that.
    pub at_call: bool,
    /// How far it has come since the last event: CPU time in nanoseconds, or branches.
    pub progress: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Iterations that a repeated instruction still has to do; else 0.
    pub left: u64,
}

/// A point in a program's execution that is the same instruction in all replicas (DSN'19, III-C).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogicalTime {
    /// Events of the trace so far.
    pub events: u64,
    /// Whether all of the way to the next event is done.
    pub at_call: bool,
    /// Branches since the last event, or an estimate of how far it is.
    pub progress: u64,
    /// Instruction pointer: orders points within one straight run of code.
    pub ip: u64,
    /// Iterations left of a repeated instruction: the fewer, the later.
    pub left: Reverse<u64>,
}

/// A way to know where a replica is.
pub trait Backend: Clone {
    /// Whether a time comes once only: who has another state there need not look for it further.
    const EXACT: bool;

    /// How far it is: exact, or the best guess.
    fn time(standing: &Standing) -> LogicalTime;

    /// By how much that may be wrong of a replica that has come so far.
    #[must_use]
    fn doubt(progress: u64) -> u64 {
        if Self::EXACT { 0 } else { progress / DOUBT }
    }
}

/// Places are told apart by the state of the replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum States {}

impl Backend for States {
    const EXACT: bool = false;

    /// The instruction pointer orders nothing in a loop.
    fn time(standing: &Standing) -> LogicalTime {
        LogicalTime {
            events: standing.events,
            at_call: standing.at_call,
            progress: standing.progress,
            ..LogicalTime::default()
        }
    }
}

/// Places are told apart by a counter of branches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Counter {}

impl Backend for Counter {
    const EXACT: bool = true;

    fn time(standing: &Standing) -> LogicalTime {
        LogicalTime {
            ip: standing.ip,
            left: Reverse(standing.left),
            ..States::time(standing)
        }
    }
}

/// How long a replica may run to a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pace {
    /// What it may run in the first phase, in the unit of [`Standing::progress`].
    pub base: u64,
    /// And in the last.
    pub most: u64,
    /// And to catch up with what it lags behind.
    pub lag: u64,
    /// Rounds of an attempt, at least 1; in each of them budgets begin anew.
    pub rounds: u8,
    /// Rounds, at least as many, as long as of three or more no majority has stood at one target:
    /// who is right can be told as soon as two of them meet, and not without.
    pub undecided: u8,
    /// What the phases of the first round may lead beyond the furthest, together, before it ends;
    /// each round that follows may take twice as much ([`Pace::after`]).
    pub round: u64,
}

/// Each phase's budget is that many times the one before, beside what is to be caught up: who was
/// ahead of a target is overtaken then.
const GROWTH: u64 = 6;

/// Phases that a round has at least: who was taken for the one that is ahead may not have been. Of
/// two each is the target in turn, so with an odd number it is another one in the last phase of
/// each round, which may take the most.
const FAIR: u8 = 5;

/// Rounds of which each may take twice as much as the one before.
const DOUBLED: u8 = 6;

/// The part of what replicas have done since the last event by which CPU time may mislead: cores
/// differ, and share what they have with others.
const DOUBT: u64 = 4;

impl Pace {
    /// What a replica that lags behind by `lag`, as far as is known, may run in this phase of a
    /// round, from 1, if the phases before have led so far beyond the furthest. Who is ahead is
    /// known but for this `doubt`: within a round budgets come to make up for it, too, by the last
    /// phase, unless that would be more than a round may take.
    #[must_use]
    pub fn budget(self, lag: u64, doubt: u64, phase: u8, spent: u64) -> u64 {
        let times = GROWTH.saturating_pow(u32::from(phase).saturating_sub(1));
        let known = self.base.saturating_mul(times).min(self.most);
        let unknown = (doubt / (GROWTH * GROWTH)).saturating_mul(times);
        let share = self.round / GROWTH.pow(u32::from(FAIR.saturating_sub(phase)));
        let search = known.max(unknown.min(share).min(doubt.saturating_mul(GROWTH)));
        // Were it given more time for the way, and in vain, the others would lag by all of that.
        let way = lag.saturating_add(lag / 4).min(self.lag);
        let room = self.round.saturating_sub(spent).max(search);
        way.saturating_add(search).min(lag.saturating_add(room))
    }

    /// The same for the round that comes after so many. Whoever runs to one that is behind it takes
    /// itself further away, by as much as the other gains in the next round: they meet because that
    /// may take more.
    #[must_use]
    pub const fn after(self, rounds: u8) -> Self {
        let doubled = if rounds > DOUBLED { DOUBLED } else { rounds };
        Self {
            round: self.round.saturating_mul(1 << doubled),
            ..self
        }
    }

    /// Is a round over after this phase, from 1, if its phases have led so far beyond the furthest?
    #[must_use]
    pub const fn is_over(self, phase: u8, spent: u64) -> bool {
        phase >= LAST_PHASE || phase >= FAIR && spent >= self.round
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_grow_six_fold_up_to_a_bound() {
        let pace = Pace {
            base: 10,
            most: 4000,
            lag: 100,
            rounds: 1,
            undecided: 1,
            round: u64::MAX,
        };
        let budgets = [1, 2, 3, 4, 5].map(|phase| pace.budget(5, 0, phase, 0));
        assert_eq!(budgets, [16, 66, 366, 2166, 4006]);
        assert_eq!(pace.budget(u64::MAX, 0, u8::MAX, 0), 4100);
        assert!(!pace.is_over(LAST_PHASE - 1, u64::MAX - 1) && pace.is_over(LAST_PHASE, 0));
    }

    #[test]
    fn the_phases_of_a_round_make_up_for_what_is_not_known() {
        let pace = Pace {
            base: 10,
            most: 4000,
            lag: 100_000,
            rounds: 3,
            undecided: 3,
            round: 50_000,
        };
        let doubt = States::doubt(80_000);
        let most = (1..=FAIR).map(|phase| pace.budget(0, doubt, phase, 0));
        assert!(most.max() >= Some(doubt), "a round can find who is ahead");
        assert!(
            pace.budget(0, doubt, 1, 0) < doubt / 8,
            "it begins with less"
        );
        assert_eq!(Counter::doubt(80_000), 0);
    }

    #[test]
    fn rounds_end_when_they_have_led_far_enough() {
        let pace = Pace {
            base: 10,
            most: 4000,
            lag: 100_000,
            rounds: 3,
            undecided: 3,
            round: 500,
        };
        // What lags behind is caught up with, whatever the round may take.
        assert_eq!(pace.budget(2000, 0, 1, 0), 2500);
        assert_eq!(pace.budget(200, 0, 2, 300), 310);
        assert_eq!(pace.budget(200, 0, 4, 500), 200 + 2160);
        assert!(!pace.is_over(4, u64::MAX), "too few to tell");
        assert!(pace.is_over(5, 500) && !pace.is_over(5, 499));
    }

    #[test]
    fn each_round_may_take_twice_as_much_up_to_a_bound() {
        let pace = Pace {
            base: 10,
            most: 4000,
            lag: 100_000,
            rounds: 3,
            undecided: 12,
            round: 500,
        };
        let rounds = [0, 1, 2, 6, 11].map(|rounds| pace.after(rounds).round);
        assert_eq!(rounds, [500, 1000, 2000, 32_000, 32_000]);
        let unbounded = Pace {
            round: u64::MAX,
            ..pace
        };
        assert_eq!(unbounded.after(6), unbounded);
    }

    /// Of two the one in front is taken for the one behind, and both for the same.
    #[test]
    fn two_that_are_taken_for_each_other_meet() {
        let pace = Pace {
            base: 1,
            most: 100_000,
            lag: 1_000_000,
            rounds: 5,
            undecided: 5,
            round: 500,
        };
        for (apart, first) in [(300, 0), (300, 1), (2000, 0), (2000_u64, 1)] {
            let doubt = States::doubt(40_000);
            let mut ahead: [u64; 2] = [apart, 0];
            let mut owner: usize = first;
            let phases = (0..pace.rounds).flat_map(|round| (1..=FAIR).map(move |it| (round, it)));
            let met = phases.into_iter().any(|(round, phase)| {
                let budget = pace.after(round).budget(0, doubt, phase, 0);
                let runner = 1 - owner;
                let way = ahead[owner].checked_sub(ahead[runner]);
                ahead[runner] += budget;
                owner = runner;
                way.is_some_and(|way: u64| way <= budget)
            });
            assert!(met, "{apart} apart, {first} first");
        }
    }

    #[test]
    fn a_counter_orders_all_places() {
        let at = |events, at_call, progress, ip, left| {
            Counter::time(&Standing {
                events,
                at_call,
                progress,
                ip,
                left,
                ..Standing::default()
            })
        };
        let times = [
            at(1, false, 9, 9, 0),
            at(1, true, 0, 0, 0),
            at(2, false, 3, 7, 0),
            at(2, false, 3, 8, 5),
            at(2, false, 3, 8, 4),
            at(2, false, 4, 1, 9),
        ];
        assert!(times.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn states_are_ordered_by_cpu_time_only() {
        let at = |ip, left| Standing {
            ip,
            left,
            progress: 4,
            ..Standing::default()
        };
        assert_eq!(States::time(&at(1, 2)), States::time(&at(3, 4)));
    }
}
