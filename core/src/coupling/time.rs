//! Where a replica stands between two events, and how to tell who is ahead.
//!
//! Two ways to know. *Equality of states* ([`States`]): replicas are deterministic between events,
//! so all pass through one sequence of states; whoever has the target's state is at the target, or
//! at a point with the same future. Nothing tells who is ahead but the CPU time used, which is a
//! guess. *A counter* ([`Counter`]): the processor counts branches, so that places have an order
//! and are met exactly; states are compared there all the same, which is how damage shows.

use core::cmp::Reverse;

use super::counts::Counted;

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
    /// What a counter of the processor tells beside CPU time, if there is one.
    pub counted: Counted,
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

impl States {
    /// How far a replica has come, in ns, that has made so many visits to a stub in `ns` of CPU
    /// time since that was put there: all of that but the visits.
    ///
    /// In a tight loop most of the time is that of the visits, and how long they take depends on
    /// who else uses the processor's units and caches. So there the visits are what counts: a
    /// replica that has run to a target in vain, and one that has to run as far, make equally many.
    #[must_use]
    pub const fn progress(visits: u64, ns: u64) -> u64 {
        /// What a visit takes if nobody is in the way.
        const VISIT_NS: u64 = 4;
        /// What a round of a tight loop and the visit in it take at most, and what counts of that.
        const TIGHT_NS: u64 = 16;
        const ROUND_NS: u64 = 2;
        let tight = visits.saturating_mul(ROUND_NS);
        let more = ns.saturating_sub(visits.saturating_mul(TIGHT_NS));
        // Steeply, so that it soon is all but the visits.
        let (some, rest) = (
            tight.saturating_add(more).saturating_add(more / 4),
            ns.saturating_sub(visits.saturating_mul(VISIT_NS)),
        );
        match more {
            0 if tight > ns => ns,
            0 => tight,
            _ if some < rest => some,
            _ => rest,
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
    /// Phases of an attempt, at least 1 and at most [`LAST_PHASE`].
    pub phases: u8,
    /// Phases, at least as many, as long as of three or more no majority has stood at one target:
    /// who is right can be told as soon as two of them meet, and not without.
    pub undecided: u8,
    /// Where a verdict is to come soon: what the last phase of steep growth may search for what is
    /// not known of who is ahead. Else the most there is: then budgets grow steeply to the end.
    pub steep: u64,
}

/// Each phase's budget is that many times the one before, beside what is to be caught up: who was
/// ahead of a target is overtaken then.
const GROWTH: u64 = 6;

/// Phases of steep growth where a verdict is to come soon. In each one that follows what may be
/// searched is so many times what it was in the one before. Budgets never begin anew: a run in the
/// wrong direction leads away by all of its budget, and adds to what is not known of who is ahead.
/// Only a larger one makes up for that; three times as large is enough although one replica makes
/// half of what it is taken for.
const STEEP: u8 = 4;
const SLOWER: u64 = 3;

/// Phases of slower growth. Behind them nothing grows: only ways to a call take that long.
const SLOWLY: u8 = 4;

/// The part of what replicas have done since the last event by which CPU time may mislead: cores
/// differ, and share what they have with others.
const DOUBT: u64 = 4;

impl Pace {
    /// Is a verdict to come soon?
    #[must_use]
    pub const fn is_short(self) -> bool {
        self.steep != u64::MAX
    }

    /// What a replica that lags behind by `lag`, as far as is known, may run in this phase, from 1.
    /// Who is ahead is known but for this `doubt`: budgets come to make up for it, too, by the last
    /// phase of steep growth, unless that would be more than [`Pace::steep`].
    #[must_use]
    pub fn budget(self, lag: u64, doubt: u64, phase: u8) -> u64 {
        let steep = if self.is_short() {
            phase.min(STEEP)
        } else {
            phase
        };
        let times = GROWTH.saturating_pow(u32::from(steep).saturating_sub(1));
        let known = self.base.saturating_mul(times).min(self.most);
        let unknown = (doubt / GROWTH).saturating_mul(times);
        let share = self.steep / GROWTH.pow(u32::from(STEEP.saturating_sub(steep)));
        let search = known.max(unknown.min(share).min(doubt.saturating_mul(GROWTH)));
        let slowly = SLOWER.pow((phase - steep).min(SLOWLY).into());
        let search = search.saturating_mul(slowly);
        // Were it given more time for the way, and in vain, the others would lag by all of that.
        let way = lag.saturating_add(lag / 4).min(self.lag);
        way.saturating_add(search)
    }
}

#[cfg(test)]
mod tests {
    use super::super::LAST_PHASE;
    use super::*;

    const LONG: Pace = Pace {
        base: 10,
        most: 4000,
        lag: 100,
        phases: LAST_PHASE,
        undecided: LAST_PHASE,
        steep: u64::MAX,
    };
    const SHORT: Pace = Pace {
        lag: 100_000,
        phases: 7,
        undecided: 8,
        steep: 50_000,
        ..LONG
    };

    #[test]
    fn budgets_grow_six_fold_up_to_a_bound() {
        let budgets = [1, 2, 3, 4, 5].map(|phase| LONG.budget(5, 0, phase));
        assert_eq!(budgets, [16, 66, 366, 2166, 4006]);
        assert_eq!(LONG.budget(u64::MAX, 0, u8::MAX), 4100);
    }

    #[test]
    fn budgets_make_up_for_what_is_not_known() {
        let doubt = States::doubt(80_000);
        let most = (1..=STEEP).map(|phase| SHORT.budget(0, doubt, phase));
        assert!(most.max() >= Some(doubt), "it is found who is ahead");
        assert!(SHORT.budget(0, doubt, 1) < doubt / 8, "it begins with less");
        assert_eq!(Counter::doubt(80_000), 0);
    }

    #[test]
    fn behind_steep_growth_each_phase_may_search_three_times_as_far() {
        let searches = [4, 5, 6, 8, 20].map(|phase| SHORT.budget(0, 0, phase));
        assert_eq!(searches, [2160, 6480, 19_440, 174_960, 174_960]);
        // What lags behind is caught up with, whatever may be searched.
        assert_eq!(SHORT.budget(2000, 0, 1), 2510);
        let far = States::doubt(1_000_000);
        assert_eq!(SHORT.budget(0, far, STEEP), SHORT.steep);
    }

    /// Of two the one in front is taken for the one behind, and both for the same; and what one of
    /// them makes is half of what the other does, whichever.
    #[test]
    fn two_that_are_taken_for_each_other_meet() {
        let pace = Pace {
            base: 1,
            most: 100_000,
            lag: 1_000_000,
            steep: 100,
            ..SHORT
        };
        let cases = [(20, 0), (20, 1), (200, 0), (200_u64, 1)];
        for ((apart, first), slow) in cases.into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
            let doubt = States::doubt(400);
            let (mut ahead, mut known) = ([apart, 0], [0, 0]);
            let mut owner: usize = first;
            let met = (1..=pace.phases).any(|phase| {
                let runner = 1 - owner;
                let lag = u64::saturating_sub(known[owner], known[runner]);
                let budget = pace.budget(lag, doubt, phase);
                let made = budget / if runner == slow { 2 } else { 1 };
                let way = ahead[owner].checked_sub(ahead[runner]);
                ahead[runner] += made;
                known[runner] += budget;
                owner = runner;
                way.is_some_and(|way: u64| way <= made)
            });
            assert!(met, "{apart} apart, {first} first, {slow} slow");
        }
    }

    #[test]
    fn what_visits_to_a_stub_take_is_no_progress() {
        let rounds = 1000;
        let after = |round: u64| States::progress(rounds, rounds * round);
        assert_eq!([2, 5, 8, 16].map(after), [2000; 4], "a tight loop");
        assert_eq!([20, 200].map(after), [7000, 196_000], "a long one");
        assert_eq!(after(1), 1000, "no more than there was");
        assert_eq!(States::progress(0, 4000), 4000, "elsewhere");
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
