//! How much an attempt has taken, by the reports of all: so all see it end alike.
//!
//! Where a verdict is to come soon only phases count that tell something. The way through a call
//! does not: who waits there has its own patience. Nor do the first phases in which somebody is on
//! the way to a call, at which others are or which they are past: how far it has yet to go is known
//! less well than the way to a place between calls. But whoever computes, phase after phase, and
//! comes to no call has taken another way. Nor does a phase count in which nobody can be stopped at
//! the target. A phase in which damage kept somebody from finding the target never counts.
//!
//! Whoever is left outside of a majority that has met may only be ahead of it, or behind. So each
//! time that others meet, some phases follow in which it is looked for.
//!
//! A member of the majority may be hit while that is done, and then keep others from the one that
//! is looked for. So there is a verdict only as the majority stands together: until then it has not
//! been hit, and if the one outside were not either, all those phases would have been without a
//! fault, and without a fault all meet in fewer. How many phases are enough if somebody has been
//! hit between them need not be known.

use super::Pace;
use super::board::Report;

/// What an attempt has taken so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Effort {
    /// The present phase, from 1; 0 before the first. Where a verdict is to come soon, without
    /// those in which nobody could be stopped at the target.
    pub(super) phase: u8,
    /// Phases that are over, and those of them that count.
    made: u8,
    counted: u8,
    /// Those in which somebody was on the way to a call.
    ways: u8,
    unplaced: u8,
    /// Those that counted when the search began for whoever was not with the others.
    since: u8,
    /// Events of whoever is behind all others, and computes.
    behind: Option<u64>,
    /// What this replica looked for in the present phase was damaged.
    pub(super) spoilt: bool,
    /// This replica owns the target of the present phase, and nobody can be stopped there.
    pub(super) nowhere: bool,
}

/// What follows from what an attempt has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Phase,
    Verdict,
    /// A majority has met that does not meet any more: nobody knows who is right.
    Doubted,
    /// The attempt proves nothing.
    Unplaced,
}

/// What is known of who is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// A majority stands at the present target, or more phases would not tell.
    Right,
    /// A majority stood at one before, and one of it may have been hit since.
    Before,
    /// No majority has met.
    Undecided,
}

/// Phases that an attempt has at most, if some of them do not count, and those that follow until a
/// majority that has met stands together: somebody else may own the target in two of three.
const MOST: u8 = 16;
const MORE: u8 = 4;

/// Phases in which those are looked for who are not where a majority has met: each of them owns a
/// target in one, and runs in another, with the budget that makes up for the wrong one of both.
const SEARCH: u8 = 3;

/// So many phases in which somebody is on the way to a call do not count.
const WAYS: u8 = 2;

/// Phases that count as made, and by which budgets have grown, as an attempt begins anew.
const ASTRAY: u8 = 2;

impl Effort {
    /// What was made so far tells nothing. What it has led astray is less than the last phases
    /// search, and the attempt is not to take longer by larger ones than without.
    pub(super) fn begin_anew(&mut self) {
        *self = Self {
            phase: self.phase.min(ASTRAY),
            made: ASTRAY,
            counted: ASTRAY,
            spoilt: self.spoilt,
            nowhere: self.nowhere,
            ..Self::default()
        };
    }

    /// In the phase that is over a majority has met that is not the one before.
    pub(super) fn begin_search(&mut self) {
        self.since = self.told() + 1;
    }

    /// A phase is over in which not all have come to the target, or none has begun yet.
    pub(super) fn account<'a>(
        &mut self,
        reports: impl Iterator<Item = &'a Report> + Clone,
        pace: Pace,
        known: Known,
    ) -> Next {
        let again = self.add_phase(reports.clone(), pace);
        let phases = match known {
            Known::Undecided => pace.undecided,
            Known::Right | Known::Before => pace.phases,
        };
        let phases = phases + more_of(reports.count());
        let told = self.told();
        let searched = self.since == 0 || told >= self.since + SEARCH;
        let proven = known != Known::Before;
        let most = if proven { MOST } else { MOST + MORE };
        if !(told >= phases && searched && proven) && self.made < most {
            self.phase += u8::from(!again);
            return Next::Phase;
        }
        match self.unplaced * 2 > self.made {
            true => Next::Unplaced,
            false if proven => Next::Verdict,
            false => Next::Doubted,
        }
    }

    /// Adds the phase that is over, if there was one. Is it to be made again?
    fn add_phase<'a>(
        &mut self,
        reports: impl Iterator<Item = &'a Report> + Clone,
        pace: Pace,
    ) -> bool {
        let nowhere = reports.clone().any(|report| report.nowhere);
        let spoilt = reports.clone().any(|report| report.spoilt);
        let events = reports.clone().next().map(|it| it.standing.events);
        let computes = |it: &Report| !it.standing.at_call && Some(it.standing.events) == events;
        let telling = !pace.is_short() || !nowhere && reports.clone().all(computes);
        let is_way = self.is_way(reports) && !telling && !nowhere;
        (self.nowhere, self.spoilt) = (false, false);
        if self.phase == 0 {
            return false;
        }
        self.made += 1;
        self.counted += u8::from(telling && !spoilt);
        self.ways += u8::from(is_way && !spoilt);
        self.unplaced += u8::from(nowhere);
        spoilt || nowhere && pace.is_short()
    }

    /// Did whoever is behind all others, maybe only since they are at a call, compute, as in the
    /// phase before, and come to no call?
    fn is_way<'a>(&mut self, reports: impl Iterator<Item = &'a Report> + Clone) -> bool {
        let places = reports.map(|it| (it.standing.events, it.standing.at_call));
        let behind = places.min().filter(|&(_, at_call)| !at_call);
        let before = core::mem::replace(&mut self.behind, behind.map(|(events, _)| events));
        before.is_some() && before == self.behind
    }

    /// Phases that tell something.
    fn told(&self) -> u8 {
        self.counted + self.ways.saturating_sub(WAYS)
    }
}

/// Phases that more than three take in addition: it is longer until the same one has the target
/// again.
fn more_of(replicas: usize) -> u8 {
    u8::try_from(replicas.saturating_sub(3)).expect("few")
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
        phases: 4,
        undecided: 9,
        steep: 50,
    };
    const LONG: Pace = Pace {
        steep: u64::MAX,
        ..PACE
    };

    /// Where the one that is further is.
    #[derive(Clone, Copy)]
    enum Further {
        Computes,
        AtCall,
        BehindCall,
    }
    use Further::{AtCall, BehindCall, Computes};

    fn reports(further: Further, nowhere: bool) -> [Report; 2] {
        [Computes, further].map(|place| Report {
            came: Came::Apart,
            alike: ReplicaSet::empty(),
            nowhere,
            spoilt: false,
            passed: false,
            standing: Standing {
                events: u64::from(matches!(place, BehindCall)),
                at_call: matches!(place, AtCall),
                ..Standing::default()
            },
        })
    }

    /// Phases until the attempt ends if it is not known who is right before this one.
    fn run(pace: Pace, further: Further, nowhere: bool, decided: u8) -> (u8, Next) {
        let mut effort = Effort::default();
        for phase in 0.. {
            let reports = reports(further, nowhere);
            let known = match phase >= decided {
                true => Known::Right,
                false => Known::Undecided,
            };
            let next = effort.account(reports.iter(), pace, known);
            if next != Next::Phase {
                return (phase, next);
            }
        }
        unreachable!("an attempt ends")
    }

    #[test]
    fn an_attempt_goes_on_for_a_while_until_it_is_known_who_is_right() {
        for (decided, end) in [(0, 4), (3, 4), (4, 4), (6, 6), (u8::MAX, 9)] {
            assert_eq!(run(PACE, Computes, false, decided), (end, Next::Verdict));
        }
    }

    #[test]
    fn the_way_to_a_call_takes_some_phases_more_where_there_is_little_time() {
        for further in [AtCall, BehindCall] {
            assert_eq!(run(PACE, further, false, 0), (4 + WAYS, Next::Verdict));
            assert_eq!(run(LONG, further, false, 0), (4, Next::Verdict));
        }
    }

    #[test]
    fn whoever_comes_to_calls_or_waits_there_is_waited_for() {
        for waits in [false, true] {
            let mut effort = Effort::default();
            let mut nexts = (0..).map(|phase| {
                let mut reports = reports(BehindCall, false);
                reports[0].standing.at_call = waits;
                if !waits {
                    reports[0].standing.events = phase;
                    reports[1].standing.events = phase + 1;
                }
                (phase, effort.account(reports.iter(), PACE, Known::Right))
            });
            let last = nexts.find(|&(_, next)| next != Next::Phase);
            assert_eq!(last, Some((u64::from(MOST), Next::Verdict)), "{waits}");
        }
    }

    #[test]
    fn a_search_with_a_damaged_stub_does_not_count() {
        let mut reports = reports(Computes, false);
        let mut effort = Effort::default();
        reports[1].spoilt = true;
        for pace in [PACE, LONG] {
            effort = Effort::default();
            effort.account(reports.iter(), pace, Known::Right);
            effort.account(reports.iter(), pace, Known::Right);
            assert_eq!((effort.phase, effort.counted), (1, 0));
        }
        let next = (0..MOST).map(|_| effort.account(reports.iter(), PACE, Known::Right));
        assert_eq!(
            next.last(),
            Some(Next::Verdict),
            "an attempt ends all the same"
        );
    }

    #[test]
    fn an_attempt_that_begins_anew_searches_as_far_as_another() {
        let reports = reports(Computes, false);
        for misled in 1..PACE.phases {
            let mut effort = Effort::default();
            for _ in 0..misled {
                effort.account(reports.iter(), PACE, Known::Right);
            }
            effort.begin_anew();
            let mut phases = 0;
            while effort.account(reports.iter(), PACE, Known::Right) == Next::Phase {
                phases += 1;
            }
            assert_eq!(phases, PACE.phases - ASTRAY - 1, "{misled}");
            assert_eq!(effort.phase, misled.min(ASTRAY) + phases, "{misled}");
        }
    }

    #[test]
    fn who_was_not_where_a_majority_met_is_looked_for() {
        let reports = reports(Computes, false);
        let mut effort = Effort::default();
        let mut phases = (0..MOST).take_while(|&phase| {
            if phase == PACE.phases {
                effort.begin_search();
            }
            effort.account(reports.iter(), PACE, Known::Right) == Next::Phase
        });
        assert_eq!(phases.by_ref().last(), Some(PACE.phases + SEARCH - 1));
    }

    #[test]
    fn there_is_no_verdict_while_the_majority_that_met_is_apart() {
        let reports = reports(Computes, false);
        for (apart, end) in [
            (0..3, (PACE.phases, Next::Verdict)),
            (3..6, (6, Next::Verdict)),
            (3..MOST + 2, (MOST + 2, Next::Verdict)),
            (3..u8::MAX, (MOST + MORE, Next::Doubted)),
        ] {
            let mut effort = Effort::default();
            let mut nexts = (0..).map(|phase| {
                let known = match apart.contains(&phase) {
                    true => Known::Before,
                    false => Known::Right,
                };
                (phase, effort.account(reports.iter(), PACE, known))
            });
            let last = nexts.find(|&(_, next)| next != Next::Phase);
            assert_eq!(last, Some(end), "{apart:?}");
        }
    }

    #[test]
    fn targets_at_which_nobody_can_be_stopped_prove_nothing() {
        assert_eq!(run(PACE, Computes, true, 0), (MOST, Next::Unplaced));
        assert_eq!(run(LONG, Computes, true, 0), (4, Next::Unplaced));
    }
}
