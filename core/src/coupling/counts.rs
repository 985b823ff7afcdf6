//! What a counter of the processor tells beside the state: who is ahead, and who has passed a
//! target without having had its state.
//!
//! Intuition: replicas that have agreed on a point count branches from there. Whoever was before
//! the target, looked for its state all the way, and is behind it, does not come to that state: a
//! run that finds nothing proves something. Of two replicas, each of which has so passed the other,
//! one was hit, and nothing more need be tried.
//!
//! A run proves that the one that made it and the owner of its target differ, if neither was hit.
//! Of three or more, who is outside of a majority goes only if both ways were passed, and not with
//! one and the same member of the majority: if that one lies, the run with the other one is between
//! two that do not, so that the one outside was hit after all. And if that one did not see the
//! target in a run because the code of its stub was hit, the way back is between two that are well.
//!
//! A count is told as bounds, since not all branches that the processor counts are the program's.
//! Places are still met by equality of states ([`super::States`]): a count alone lets nobody agree.
//!
//! Contract: counts are compared that begin at the same point, with no event since. Runs that
//! should have shown something and have not make all go by CPU time for the rest of the attempt.
//!
//! Not covered: two replicas whose counts lie without being hit, as a processor that loses some:
//! they may end an attempt without agreement. So nothing is counted where counters are not exact.

use super::board::{Came, Report};
use super::time::Standing;
use crate::guards::{Bug, Guards};
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// Phases after which counts are not gone by any more, if in each somebody has neither come to the
/// target nor passed it. One may be too short.
const SILENT: u8 = 3;

/// Branches of the program since a point on which all agreed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counted {
    /// The attempt that found the point; 0 if nothing is counted since.
    pub since: u32,
    /// There are as many at least.
    pub least: u64,
    /// And at most.
    pub most: u64,
}

impl Counted {
    /// Are these the same stretch of the program?
    const fn shares(&self, other: &Self) -> bool {
        self.since != 0 && self.since == other.since
    }

    /// Is this place before that one for certain?
    #[must_use]
    pub const fn is_before(&self, other: &Self) -> bool {
        self.shares(other) && self.most < other.least
    }
}

/// How far the target is from there, in the unit of [`Standing::progress`], if both have counted
/// and progress of the one that runs shows how long a branch takes it.
#[must_use]
pub fn way(own: &Standing, target: &Standing) -> Option<u64> {
    if own.events != target.events || !own.counted.is_before(&target.counted) {
        return None;
    }
    let branches = u128::from(target.counted.most - own.counted.least);
    let rate = if own.counted.most > 0 { own } else { target };
    let way = branches * u128::from(rate.progress) / u128::from(rate.counted.most.max(1));
    Some(u64::try_from(way).unwrap_or(u64::MAX))
}

/// Who is furthest for certain, if all have counted from the same point, and make no call: those of
/// `joint` are at one place.
fn first(
    reports: &[Option<Report>; MAX_REPLICAS],
    candidates: ReplicaSet,
    joint: ReplicaSet,
) -> Option<ReplicaId> {
    let standings = || reports.iter().flatten().map(|report| report.standing);
    let one = standings().next()?;
    let alike =
        |it: &Standing| it.events == one.events && !it.at_call && it.counted.shares(&one.counted);
    let least = |id: ReplicaId| reports[id.index()].map(|it| it.standing.counted.least);
    let mut best = candidates.lowest()?;
    for id in candidates {
        if least(id) > least(best) {
            best = id;
        }
    }
    let furthest = reports[best.index()]?.standing.counted;
    let others = ReplicaSet::all(MAX_REPLICAS).without(best);
    let others = match joint.contains(best) {
        true => others.minus(joint),
        false => others,
    };
    let before = |id: ReplicaId| {
        reports[id.index()].is_none_or(|it| it.standing.counted.is_before(&furthest))
    };
    // What holds of one of them holds of all.
    let behind = |id: ReplicaId| match joint.contains(id) {
        true => joint.iter().any(before),
        false => before(id),
    };
    let certain = standings().all(|it| alike(&it)) && others.iter().all(behind);
    certain.then_some(best)
}

/// Who has passed whom in an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Passes {
    /// Of each replica: whose targets it has passed.
    of: [ReplicaSet; MAX_REPLICAS],
    /// Phases in which a run has not shown what it should have.
    silent: u8,
    /// By counts the owner of the present target is ahead.
    told: bool,
}

impl Passes {
    /// Who is to own the next target, as far as counts tell and may be trusted.
    pub(super) fn choose(
        &mut self,
        reports: &[Option<Report>; MAX_REPLICAS],
        candidates: ReplicaSet,
        joint: ReplicaSet,
    ) -> Option<ReplicaId> {
        let first = first(reports, candidates, joint).filter(|_| self.silent < SILENT);
        self.told = first.is_some();
        first
    }

    /// A phase is over in which `owner` had the target. True if counts are doubted from here on.
    pub(super) fn note(
        &mut self,
        reports: &[Option<Report>; MAX_REPLICAS],
        owner: ReplicaId,
    ) -> bool {
        let target = reports[owner.index()];
        let is_placed = target.is_some_and(|it| !it.nowhere && !it.standing.at_call);
        for (passed, report) in self.of.iter_mut().zip(reports) {
            if report.is_some_and(|it| it.passed) {
                *passed = passed.with(owner);
            }
        }
        let silent = |id: ReplicaId| {
            reports[id.index()].is_some_and(|it| {
                it.came == Came::Apart && !it.passed && !it.spoilt && !it.standing.at_call
            })
        };
        let others = ReplicaSet::all(MAX_REPLICAS).without(owner);
        let nothing = is_placed && others.iter().any(silent);
        let counts = self.told && nothing;
        self.silent += u8::from(counts);
        counts && self.silent == SILENT
    }

    /// Are all of these that are not together known to have had other states, each than each, with
    /// `joint` as one of them?
    pub(super) fn tell_apart(
        &self,
        members: ReplicaSet,
        joint: ReplicaSet,
        guards: Guards,
    ) -> bool {
        let single = |id| ReplicaSet::empty().with(id);
        let rest = members.minus(joint);
        let pairs = |one: ReplicaId| {
            let mut others = rest.iter().filter(|&other| other > one);
            others.all(|other| self.differ(one, single(other), guards))
        };
        let alone = rest.iter().all(pairs);
        let from_joint = |one| joint.is_empty() || self.differ(one, joint, guards);
        members.len() > 1 && !rest.is_empty() && alone && rest.iter().all(from_joint)
    }

    /// Has `one` passed these and have they passed it, and not the same one both times, if they are
    /// several?
    fn differ(&self, one: ReplicaId, others: ReplicaSet, guards: Guards) -> bool {
        let set = |of: &dyn Fn(ReplicaId) -> bool| {
            let some = others.iter().filter(|&id| of(id));
            some.fold(ReplicaSet::empty(), ReplicaSet::with)
        };
        let there = set(&|other| self.of[one.index()].contains(other));
        let back = set(&|other| self.of[other.index()].contains(one));
        if guards.off(Bug::PassUnreturned) {
            return !there.union(back).is_empty();
        }
        let witnesses = match guards.off(Bug::PassOfOne) {
            true => 1,
            false => others.len().min(2),
        };
        !there.is_empty() && !back.is_empty() && there.union(back).len() >= witnesses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(since: u32, least: u64, most: u64) -> Standing {
        Standing {
            progress: 1000,
            counted: Counted { since, least, most },
            ..Standing::default()
        }
    }

    fn id(number: u8) -> ReplicaId {
        ReplicaId::new(number)
    }

    fn report(standing: Standing, passed: bool) -> Option<Report> {
        Some(Report {
            came: Came::Apart,
            alike: ReplicaSet::empty(),
            nowhere: false,
            spoilt: false,
            passed,
            standing,
        })
    }

    fn reports(all: [(u64, bool); 3]) -> [Option<Report>; MAX_REPLICAS] {
        let mut reports = [None; MAX_REPLICAS];
        for (place, (count, passed)) in reports.iter_mut().zip(all) {
            *place = report(at(4, count, count + 2), passed);
        }
        reports
    }

    #[test]
    fn bounds_that_meet_order_nothing() {
        let before = |one: Standing, other: Standing| one.counted.is_before(&other.counted);
        assert!(before(at(4, 1, 3), at(4, 4, 9)));
        assert!(!before(at(4, 1, 4), at(4, 4, 9)));
        assert!(!before(at(4, 1, 3), at(5, 4, 9)), "from another point");
        assert!(!before(at(0, 1, 3), at(0, 4, 9)), "not counted");
    }

    #[test]
    fn a_way_is_as_long_as_branches_have_taken() {
        assert_eq!(way(&at(4, 98, 100), &at(4, 148, 150)), Some(520));
        assert_eq!(way(&at(4, 0, 0), &at(4, 100, 100)), Some(1000));
        assert_eq!(way(&at(4, 98, 100), &at(4, 99, 150)), None);
        let far = at(4, u64::MAX - 1, u64::MAX);
        assert_eq!(way(&at(4, 0, 1), &far), Some(u64::MAX));
    }

    #[test]
    fn the_furthest_is_known_if_all_have_counted() {
        let all = ReplicaSet::all(3);
        let mut told = reports([(5, false), (12, false), (8, false)]);
        let nobody = ReplicaSet::empty();
        assert_eq!(first(&told, all, nobody), Some(id(1)));
        let passed_over = all.without(id(1));
        assert_eq!(first(&told, passed_over, nobody), None, "it is not");
        let close = reports([(5, false), (12, false), (11, false)]);
        assert_eq!(first(&close, all, nobody), None, "or the third");
        let joint = all.without(id(0));
        assert_eq!(first(&close, all, joint), Some(id(1)), "both are there");
        let apart = reports([(8, false), (12, false), (11, false)]);
        let mut wide = apart;
        wide[0] = report(at(4, 8, 12), false);
        assert_eq!(first(&wide, all, nobody), None);
        assert_eq!(first(&wide, all, all.without(id(2))), None);
        for spoil in [
            |it: &mut Standing| it.at_call = true,
            |it: &mut Standing| it.events = 3,
            |it: &mut Standing| it.counted.since = 3,
        ] {
            let mut other = told;
            spoil(&mut other[2].as_mut().expect("there").standing);
            assert_eq!(first(&other, all, nobody), None);
        }
        told[2] = report(at(0, 0, 0), false);
        assert_eq!(first(&told, all, nobody), None);
    }

    #[test]
    fn two_are_apart_once_each_has_passed_the_other() {
        let mut passes = Passes::default();
        let (both, nobody) = (ReplicaSet::all(2), ReplicaSet::empty());
        passes.note(&reports([(5, false), (9, true), (0, true)]), id(0));
        assert!(!passes.tell_apart(both, nobody, Guards::ON));
        passes.note(&reports([(11, true), (9, false), (0, false)]), id(1));
        assert!(passes.tell_apart(both, nobody, Guards::ON));
        assert!(!passes.tell_apart(ReplicaSet::all(3), nobody, Guards::ON));
    }

    /// Two of three have met. Who has passed whom in phases that follow, and is the third apart?
    fn third_is_apart(phases: &[(u8, &[u8])]) -> bool {
        let mut passes = Passes::default();
        for &(owner, passed) in phases {
            let mut told = reports([(5, false); 3]);
            for &one in passed {
                told[usize::from(one)] = report(at(4, 9, 11), true);
            }
            passes.note(&told, id(owner));
        }
        let (all, joint) = (ReplicaSet::all(3), ReplicaSet::all(2));
        assert!(!passes.tell_apart(all, all, Guards::ON), "nobody is left");
        passes.tell_apart(all, joint, Guards::ON)
    }

    #[test]
    fn the_third_is_apart_from_two_that_have_met_if_both_have_shown_it() {
        assert!(third_is_apart(&[(0, &[2]), (2, &[1])]));
        assert!(third_is_apart(&[(2, &[0, 1]), (0, &[2])]));
        assert!(third_is_apart(&[(2, &[0]), (0, &[2]), (1, &[2])]));
        assert!(!third_is_apart(&[(0, &[2]), (1, &[2])]), "nobody came back");
        assert!(!third_is_apart(&[(2, &[0, 1])]));
        for liar in [0, 1] {
            assert!(!third_is_apart(&[(liar, &[2]), (2, &[liar])]));
        }
    }

    #[test]
    fn a_run_that_shows_nothing_makes_counts_doubtful() {
        let all = ReplicaSet::all(2);
        let of = |passed| {
            let mut reports = reports([(5, passed), (9, false), (0, false)]);
            reports[2] = None;
            reports
        };
        let mut passes = Passes::default();
        let nobody = ReplicaSet::empty();
        assert_eq!(passes.choose(&of(false), all, nobody), Some(id(1)));
        assert!(!passes.note(&of(true), id(1)));
        assert_eq!(passes.choose(&of(true), all, nobody), Some(id(1)));
        for silent in 1..=SILENT {
            assert_eq!(passes.choose(&of(false), all, nobody), Some(id(1)));
            assert_eq!(passes.note(&of(false), id(1)), silent == SILENT);
        }
        assert_eq!(passes.choose(&of(false), all, nobody), None);
    }
}
