//! How much an attempt has taken, by the reports of all: so all see a round end alike.
//!
//! Not counted is the way to a call, or through one: who waits there has its own patience.

use super::Pace;
use super::board::Report;

/// What an attempt has taken so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Effort {
    /// Rounds that are over.
    pub(super) rounds: u8,
    /// The phase of the present round, from 1; 0 before the first.
    pub(super) phase: u8,
    /// How far the phases of this round have led beyond the furthest.
    pub(super) spent: u64,
    /// The progress of the furthest.
    front: u64,
    /// Phases of the attempt, and those of them in which nobody can be stopped at the target.
    phases: u8,
    unplaced: u8,
    /// This replica owns the target of the present phase, and nobody can be stopped there.
    pub(super) nowhere: bool,
}

/// What follows from what an attempt has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Phase,
    Verdict,
    /// The attempt proves nothing.
    Unplaced,
}

impl Effort {
    /// A phase is over in which not all have come to the target, or none has begun yet. `decided`:
    /// it is known who is right, or more rounds would not tell.
    pub(super) fn account<'a>(
        &mut self,
        reports: impl Iterator<Item = &'a Report> + Clone,
        pace: Pace,
        decided: bool,
    ) -> Next {
        let standings = reports.clone().map(|report| report.standing);
        let front = standings.clone().map(|it| it.progress).max().unwrap_or(0);
        let events = standings.clone().next().map(|it| it.events);
        let computing = |it: super::Standing| !it.at_call && Some(it.events) == events;
        let began = self.phase > 0;
        if began && standings.clone().all(computing) {
            self.spent = self.spent.saturating_add(front.saturating_sub(self.front));
        }
        self.front = front;
        self.unplaced += u8::from(began && reports.clone().any(|report| report.nowhere));
        self.nowhere = false;
        if pace.after(self.rounds).is_over(self.phase, self.spent) {
            self.rounds += 1;
            (self.phase, self.spent) = (0, 0);
        }
        let rounds = if decided { pace.rounds } else { pace.undecided };
        if self.rounds < rounds {
            self.phase += 1;
            self.phases += 1;
            return Next::Phase;
        }
        match u16::from(self.unplaced) * 2 > u16::from(self.phases) {
            true => Next::Unplaced,
            false => Next::Verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Standing;
    use super::super::board::Came;
    use super::*;
    use crate::ReplicaSet;

    const PACE: Pace = Pace {
        base: 1,
        most: 100,
        lag: 100,
        rounds: 2,
        undecided: 5,
        round: 50,
    };

    fn reports(progress: [u64; 2], at_call: bool, nowhere: bool) -> [Report; 2] {
        progress.map(|progress| Report {
            came: Came::Apart,
            alike: ReplicaSet::empty(),
            nowhere,
            standing: Standing {
                progress,
                at_call,
                ..Standing::default()
            },
        })
    }

    /// Phases until the attempt ends, each of which leads so far.
    fn run(lead: u64, at_call: bool, nowhere: bool) -> (u64, Next) {
        run_until(lead, at_call, nowhere, 0)
    }

    /// The same if it is not known who is right before this phase.
    fn run_until(lead: u64, at_call: bool, nowhere: bool, decided: u64) -> (u64, Next) {
        let mut effort = Effort::default();
        for phase in 0.. {
            let reports = reports([7, phase * lead], at_call, nowhere);
            let next = effort.account(reports.iter(), PACE, phase >= decided);
            if next != Next::Phase {
                return (phase, next);
            }
        }
        unreachable!("an attempt ends")
    }

    #[test]
    fn attempts_end_when_all_rounds_have_led_far_enough() {
        assert_eq!(run(20, false, false), (10, Next::Verdict));
        assert_eq!(run(10, false, false), (16, Next::Verdict));
        assert_eq!(run(0, false, false), (20, Next::Verdict));
    }

    #[test]
    fn an_attempt_goes_on_for_a_while_until_it_is_known_who_is_right() {
        let never = u64::MAX;
        assert_eq!(run_until(20, false, false, never), (40, Next::Verdict));
        assert_eq!(run_until(20, false, false, 13), (13, Next::Verdict));
        assert_eq!(run_until(20, false, false, 3), run(20, false, false));
        assert_eq!(run_until(0, false, false, never), (50, Next::Verdict));
    }

    #[test]
    fn the_way_to_a_call_counts_by_phases_only() {
        assert_eq!(run(20, true, false), (20, Next::Verdict));
    }

    #[test]
    fn targets_at_which_nobody_can_be_stopped_prove_nothing() {
        assert_eq!(run(20, false, true), (10, Next::Unplaced));
    }
}
