//! Where a replica stands between two events, and how to tell who is ahead.
//!
//! Two ways to know. *Equality of states* ([`States`]): replicas are deterministic between events,
//! so all pass through one sequence of states; whoever has the target's state is at the target, or
//! at a point with the same future. Nothing tells who is ahead but the CPU time used, which is a
//! guess. *A counter* ([`Counter`]): the processor counts branches, so that places have an order
//! and are met exactly; states are compared there all the same, which is how damage shows.

use core::cmp::Reverse;

/// What a replica says of the place where it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Standing {
    /// Events of the trace so far.
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
    /// What it may run at least, in the unit of [`Standing::progress`].
    pub base: u64,
    /// And at most.
    pub most: u64,
}

/// Each phase's budget is that many times the one before: who was ahead of a target is overtaken
/// then.
const GROWTH: u64 = 6;

impl Pace {
    /// What a replica that lags behind by `lag` may run in this phase, from 1.
    #[must_use]
    pub fn budget(self, lag: u64, phase: u8) -> u64 {
        let first = lag.saturating_mul(4).saturating_add(self.base);
        let times = GROWTH.saturating_pow(u32::from(phase).saturating_sub(1));
        first.saturating_mul(times).min(self.most)
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
        };
        let budgets = [1, 2, 3, 4, 5].map(|phase| pace.budget(5, phase));
        assert_eq!(budgets, [30, 180, 1080, 4000, 4000]);
        assert_eq!(pace.budget(u64::MAX, u8::MAX), 4000);
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
