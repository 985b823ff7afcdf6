//! All votes of small groups, counted out against what the rules say in words.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const NOBODY: ReplicaSet = ReplicaSet::empty();

fn id(number: usize) -> ReplicaId {
    ReplicaId::new(u8::try_from(number).unwrap())
}

fn set(ids: impl Iterator<Item = usize>) -> ReplicaSet {
    ids.map(id).fold(NOBODY, ReplicaSet::with)
}

/// What each member of a group voted for; `None` did not join.
type Votes = [Option<u8>];

fn count(votes: &Votes) -> Count {
    let with = |value| set((0..votes.len()).filter(move |&peer| votes[peer] == value));
    let mut groups = [NOBODY; MAX_REPLICAS];
    for (number, &vote) in votes.iter().enumerate() {
        groups[number] = vote.map_or(NOBODY, |_| with(vote));
    }
    Count {
        members: ReplicaSet::all(votes.len()),
        absent: with(None),
        groups,
        accused: [NOBODY; MAX_REPLICAS],
    }
}

/// All votes of `members` for up to three values.
fn all_votes(members: u32) -> impl Iterator<Item = Vec<Option<u8>>> {
    (0..4_usize.pow(members)).map(move |number| {
        let digit = |place| u8::try_from(number / 4_usize.pow(place) % 4).unwrap();
        (0..members)
            .map(|place| digit(place).checked_sub(1))
            .collect()
    })
}

fn verdict_of(count: &Count, own: ReplicaId) -> Result<Verdict, Stop> {
    let majority = count.majority(Guards::ON)?;
    count.convict(own, majority, NOBODY)
}

/// The value for which more than half of all members voted.
fn winner(votes: &Votes) -> Option<u8> {
    let voters = |value| votes.iter().filter(|&&vote| vote == Some(value)).count();
    (0..3).find(|&value| voters(value) > votes.len() / 2)
}

#[test]
fn more_than_half_win_and_all_others_are_faulty() {
    for votes in (1..=5).flat_map(all_votes) {
        let Some(winner) = winner(&votes) else {
            continue;
        };
        let losers = set((0..votes.len()).filter(|&peer| votes[peer] != Some(winner)));
        for (number, vote) in votes.iter().enumerate() {
            let verdict = verdict_of(&count(&votes), id(number));
            if *vote == Some(winner) {
                let verdict = verdict.unwrap();
                assert_eq!(verdict.faulty, losers, "{votes:?}");
                assert!(verdict.absent.is_subset(losers));
            } else {
                let convicted = Stop {
                    halt: Halt::Convicted,
                    culprits: losers,
                };
                assert_eq!(verdict, Err(convicted), "{votes:?} {number}");
            }
        }
    }
}

#[test]
fn without_a_majority_all_stop_for_one_cause() {
    for votes in (1..=5).flat_map(all_votes) {
        if winner(&votes).is_some() {
            continue;
        }
        let mut values: Vec<_> = votes.iter().flatten().collect();
        values.sort_unstable();
        values.dedup();
        let cause = match (values.len(), votes.contains(&None)) {
            (0 | 1, _) => Cause::Timeout,
            (_, false) => Cause::Mismatch,
            (_, true) => Cause::NoMajority,
        };
        let count = count(&votes);
        let stops: Vec<_> = (0..votes.len())
            .map(|own| verdict_of(&count, id(own)).unwrap_err())
            .collect();
        assert!(stops.iter().all(|stop| *stop == stops[0]), "{votes:?}");
        assert_eq!(stops[0].halt, Halt::FailStop(cause), "{votes:?}");
        // At most half of the members are not to blame.
        assert!(stops[0].culprits.len() * 2 >= votes.len());
    }
}

#[test]
fn a_tie_has_no_winner() {
    let of = |votes: &[u8]| {
        let votes: Vec<_> = votes.iter().map(|&vote| Some(vote)).collect();
        verdict_of(&count(&votes), id(0)).map(|verdict| verdict.faulty)
    };
    let mismatch = |culprits| Err(Stop::fail(Cause::Mismatch, set(culprits)));
    assert_eq!(of(&[0, 1]), mismatch(1..2));
    assert_eq!(of(&[0, 0, 1, 1]), mismatch(2..4));
    assert_eq!(of(&[0, 1, 2]), mismatch(1..3));
    assert_eq!(of(&[0, 0, 1, 1, 2]), mismatch(2..5));
    assert_eq!(of(&[0, 0, 1, 1, 0]), Ok(set(2..4)));
}

/// What a bug test leaves out is what holds a minority back.
#[cfg(feature = "planted")]
#[test]
fn a_guard_taken_away_lets_a_minority_win() {
    let votes = count(&[Some(0), Some(1)]);
    assert!(votes.majority(Guards::ON).is_err());
    let guards = Guards::without(Bug::AcceptMinority);
    assert_eq!(votes.majority(guards), Ok(set(0..1)));
}

/// All accusations in groups of this size; with five, of three of them.
fn all_accusations(members: usize) -> impl Iterator<Item = [ReplicaSet; MAX_REPLICAS]> {
    let accused = members.min(3);
    (0..1_usize << (members * accused)).map(move |bits| {
        let mut all = [NOBODY; MAX_REPLICAS];
        for (number, set) in all[..members].iter_mut().enumerate() {
            let bits = bits >> (number * accused) & ((1 << accused) - 1);
            *set = ReplicaSet::from_bits(u8::try_from(bits).unwrap());
        }
        all
    })
}

#[test]
fn only_a_majority_of_accusers_condemns() {
    for members in 1..=5 {
        let votes = std::vec![Some(0); members];
        for accused in all_accusations(members) {
            let count = Count {
                accused,
                ..count(&votes)
            };
            let condemned = set((0..members).filter(|&peer| {
                let accusers = accused.iter().filter(|set| set.contains(id(peer))).count();
                accusers > members / 2
            }));
            for own in 0..members {
                let faulty = verdict_of(&count, id(own)).map(|verdict| verdict.faulty);
                if condemned.contains(id(own)) {
                    assert_eq!(faulty.unwrap_err().halt, Halt::Convicted);
                } else {
                    assert_eq!(faulty, Ok(condemned), "{accused:?}");
                }
            }
        }
    }
}

#[test]
fn who_is_stuck_goes_if_a_majority_goes_on() {
    for members in 1..=5 {
        let votes = count(&std::vec![Some(0); members]);
        for bits in 0..1 << members {
            let stuck = ReplicaSet::from_bits(bits);
            let left = votes.members.minus(stuck);
            for own in votes.members {
                let verdict = votes.convict(own, votes.members, stuck);
                if !stuck.is_empty() && left.len() <= members / 2 {
                    assert_eq!(verdict, Err(Stop::fail(Cause::Livelock, stuck)));
                } else if stuck.contains(own) {
                    assert_eq!(verdict.unwrap_err().halt, Halt::Convicted);
                } else {
                    assert_eq!(verdict.unwrap().faulty, stuck);
                }
            }
        }
    }
}

/// All verdicts that a healthy member of a group can have: those found absent are faulty.
fn all_verdicts(members: usize) -> impl Iterator<Item = Verdict> {
    let sets = move || (0..1 << members).map(ReplicaSet::from_bits);
    sets().flat_map(move |faulty| {
        let absences = sets().filter(move |absent| absent.is_subset(faulty));
        absences.map(move |absent| Verdict { absent, faulty })
    })
}

#[test]
fn two_verdicts_that_differ_in_absences_become_one() {
    for members in 1..=4 {
        let all = ReplicaSet::all(members);
        for (own, theirs) in
            all_verdicts(members).flat_map(|own| all_verdicts(members).map(move |its| (own, its)))
        {
            let (me, peer) = (id(0), id(members - 1));
            let fails = |verdict: Verdict| verdict.faulty.minus(verdict.absent);
            let either = own.faulty.union(theirs.faulty);
            if own.faulty == theirs.faulty || either.contains(me) || either.contains(peer) {
                continue;
            }
            let mine = own.differs(all, peer, theirs, Guards::ON);
            let its = theirs.differs(all, me, own, Guards::ON);
            // Both see alike whether it can be resolved.
            let disagree = mine == Difference::Disagreement;
            assert_eq!(
                disagree,
                its == Difference::Disagreement,
                "{own:?} {theirs:?}"
            );
            // Who differs in what is not an absence has another opinion of who is right.
            if fails(own).is_subset(theirs.faulty) && fails(theirs).is_subset(own.faulty) {
                assert!(!disagree, "{own:?} {theirs:?}");
            } else {
                assert!(disagree, "{own:?} {theirs:?}");
                continue;
            }
            // Each takes over what it lacks, and then they have one verdict, if a majority is left.
            let grown = |verdict: Verdict, whose, difference| match difference {
                Difference::Adopt(more) => verdict.with_absent(whose, all, more),
                _ => Ok(verdict),
            };
            assert!(mine != Difference::Await || its != Difference::Await);
            match (grown(own, me, mine), grown(theirs, peer, its)) {
                (Ok(mine), Ok(its)) => {
                    assert_eq!(mine.faulty, its.faulty);
                    assert_eq!(mine.faulty, either);
                }
                (mine, its) => {
                    let timeout = Err(Stop::fail(Cause::Timeout, either));
                    assert!(mine == timeout || its == timeout, "{own:?} {theirs:?}");
                }
            }
        }
    }
}

#[test]
fn a_peer_that_convicts_itself_or_a_stranger_is_disagreed_with() {
    let own = Verdict {
        absent: NOBODY,
        faulty: NOBODY,
    };
    let theirs = |faulty| Verdict {
        absent: faulty,
        faulty,
    };
    let differs = |faulty| own.differs(ReplicaSet::all(3), id(1), theirs(faulty), Guards::ON);
    assert_eq!(differs(set(1..2)), Difference::Disagreement);
    assert_eq!(differs(set(3..4)), Difference::Disagreement);
    assert_eq!(differs(set(2..3)), Difference::Adopt(set(2..3)));
}

/// Sets by number, each with its members at other places.
fn moved(set: ReplicaSet, places: &[usize]) -> ReplicaSet {
    set.iter()
        .map(|peer| id(places[peer.index()]))
        .fold(NOBODY, ReplicaSet::with)
}

fn moved_all(sets: [ReplicaSet; MAX_REPLICAS], places: &[usize]) -> [ReplicaSet; MAX_REPLICAS] {
    let mut all = [NOBODY; MAX_REPLICAS];
    for (number, &set) in sets.iter().enumerate() {
        all[places[number]] = moved(set, places);
    }
    all
}

proptest! {
    /// Whatever faulty members say, who goes on has found a majority, and blames none of it but for
    /// what a majority says or what holds it up.
    #[test]
    fn whatever_is_said_who_goes_on_is_of_a_majority(
        members in 1_u8..,
        absent: u8,
        groups: [u8; 8],
        accused: [u8; 8],
        stuck: u8,
        own in 0_u8..8,
    ) {
        let set = |bits| ReplicaSet::from_bits(bits & members);
        let count = Count {
            members: set(members),
            absent: set(absent),
            groups: groups.map(set),
            accused: accused.map(set),
        };
        let Ok(majority) = count.majority(Guards::ON) else {
            return Ok(());
        };
        prop_assert!(majority.is_subset(count.members));
        prop_assert!(majority.len() * 2 > count.members.len());
        let own = ReplicaId::new(own);
        if let Ok(verdict) = count.convict(own, majority, set(stuck)) {
            prop_assert!(!verdict.faulty.contains(own));
            let outside = count.members.minus(majority);
            let blamed = count.condemned().union(set(stuck)).union(outside);
            prop_assert_eq!(verdict.faulty, blamed);
        }
    }

    /// Numbers are names: a majority does not depend on who has which.
    #[test]
    fn numbers_do_not_count(
        votes in prop::collection::vec(prop::option::of(0_u8..3), 8),
        accused: [u8; 8],
        places in Just([0, 1, 2, 3, 4, 5, 6, 7]).prop_shuffle(),
    ) {
        let plain = Count { accused: accused.map(ReplicaSet::from_bits), ..count(&votes) };
        let other = Count {
            members: plain.members,
            absent: moved(plain.absent, &places),
            groups: moved_all(plain.groups, &places),
            accused: moved_all(plain.accused, &places),
        };
        for own in plain.members {
            let there = verdict_of(&other, id(places[own.index()]));
            match verdict_of(&plain, own) {
                Ok(verdict) => {
                    let faulty = moved(verdict.faulty, &places);
                    prop_assert_eq!(there.map(|it| it.faulty), Ok(faulty));
                }
                // Which of groups of one size is not to blame is a matter of numbers.
                Err(stop) => prop_assert_eq!(there.unwrap_err().halt, stop.halt),
            }
        }
    }
}
