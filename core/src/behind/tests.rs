//! Members at all places between two rendezvous, of up to three histories.

use std::vec::Vec;

use super::*;
use crate::Signature;

/// Where a member joined, in the order in which it comes there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Rendezvous,
    /// It waits for a record.
    Record,
    /// It waits for others, to perform an action.
    Action,
    /// It has performed the action.
    Next,
}

const PLACES: [Place; 4] = [Place::Rendezvous, Place::Record, Place::Action, Place::Next];

/// What a member did, by a number, and how far it came. The primary's history is 0.
type Past = (u64, Place);

const ROUND: u64 = 4;
const PERFORMED: u16 = u16::MAX;

const fn signature(history: u64, events: u64) -> Signature {
    Signature {
        events,
        a: 1000 + history,
        b: history,
    }
}

fn entry((history, place): Past) -> Entry {
    let [first, record, action, next] = [10, 12, 14, 16].map(|at| signature(history, at));
    let has_met_again = place == Place::Next;
    Entry {
        signature: match place {
            Place::Rendezvous => first,
            Place::Record => record,
            Place::Action => action,
            Place::Next => next,
        },
        cursor: if place < Place::Action { 50 } else { 60 },
        round: ROUND + u64::from(has_met_again),
        at: match place {
            Place::Rendezvous | Place::Next => At::Rendezvous,
            Place::Record => At::Stream,
            Place::Action => At::Action,
        },
        accused: ReplicaSet::empty(),
        invites: None,
        performed: PERFORMED.wrapping_add(u16::from(has_met_again)),
        performed_at: if has_met_again { 14 } else { 3 },
        slots: [first.word(), if has_met_again { next.word() } else { 7 }],
    }
}

fn id(number: usize) -> ReplicaId {
    ReplicaId::new(u8::try_from(number).unwrap())
}

/// Has `judge` judge members with these pasts, of whom those without one are absent.
fn with_standing<T>(pasts: &[Option<Past>], judge: impl FnOnce(&Standing<'_>) -> T) -> T {
    let mut entries = [None; MAX_REPLICAS];
    let mut vouched = ReplicaSet::empty();
    for (number, past) in pasts.iter().enumerate() {
        entries[number] = past.map(entry);
        if *past == Some((0, Place::Record)) {
            vouched = vouched.with(id(number));
        }
    }
    judge(&Standing {
        entries: &entries,
        vouched,
        ring: 64,
        guards: Guards::ON,
    })
}

/// Is a member there that the evidence of another history does not contradict?
fn is_believed(behind: Past, ahead: Past) -> bool {
    match behind.1 {
        // The primary's record is what it waits for; what others made of it the next comparison
        // tells.
        Place::Record => behind.0 == 0 && ahead.1 >= Place::Action,
        // The action was performed at that event, and the last rendezvous was alike.
        Place::Action => behind.0 == ahead.0 && ahead.1 == Place::Next,
        Place::Rendezvous | Place::Next => false,
    }
}

/// Does the one ahead show where the one behind stood?
fn leaves_evidence(behind: Past, ahead: Past) -> bool {
    let alike = behind.0 == ahead.0;
    match behind.1 {
        Place::Rendezvous => alike && ahead.1 > behind.1,
        _ => is_believed(behind, ahead),
    }
}

fn all_pasts() -> Vec<Past> {
    let histories = 0..3;
    let all = histories.flat_map(|history| PLACES.map(|place| (history, place)));
    all.collect()
}

#[test]
fn two_stand_together_if_the_one_ahead_shows_it_was_there() {
    for one in all_pasts() {
        for other in all_pasts() {
            let groups = with_standing(&[Some(one), Some(other)], |standing| {
                standing.groups(ReplicaSet::all(2))
            });
            let together =
                one == other || leaves_evidence(one, other) || leaves_evidence(other, one);
            let expected = |own| {
                let both = ReplicaSet::all(2);
                if together {
                    both
                } else {
                    ReplicaSet::empty().with(id(own))
                }
            };
            assert_eq!(groups[..2], [0, 1].map(expected), "{one:?} {other:?}");
        }
    }
}

#[test]
fn all_of_the_primary_s_history_are_one_group_wherever_they_stand() {
    for members in 1..=5_usize {
        for number in 0..4_usize.pow(u32::try_from(members).unwrap()) {
            let place = |member| PLACES[number >> (2 * member) & 3];
            let pasts: Vec<_> = (0..members).map(|it| Some((0, place(it)))).collect();
            let all = ReplicaSet::all(members);
            let groups = with_standing(&pasts, |standing| standing.groups(all));
            assert_eq!(groups[..members], std::vec![all; members], "{pasts:?}");
        }
    }
}

#[test]
fn who_is_behind_or_claims_to_be_ahead_is_apart_and_who_is_followed_is_not() {
    let group = ReplicaSet::all(2);
    for behind in PLACES {
        for ahead in PLACES.into_iter().filter(|&ahead| ahead > behind) {
            let pasts = [Some((0, behind)), Some((0, ahead))];
            let apart = with_standing(&pasts, |standing| {
                [0, 1].map(|peer| standing.apart(id(peer), group))
            });
            let own = entry((0, behind));
            assert_eq!(apart, [Some((own.signature.events, own.cursor)), None]);
        }
    }
    let same = [Some((0, Place::Action)); 2];
    let apart = with_standing(&same, |standing| standing.apart(id(0), group));
    assert_eq!(apart, None);
}

/// One that passed an action which was not flagged yet, where another waits in it.
fn passer(change: impl FnOnce(&mut Entry)) -> bool {
    let mut passer = Entry {
        signature: signature(0, 15),
        cursor: 70,
        at: At::Stream,
        ..entry((0, Place::Action))
    };
    change(&mut passer);
    let mut entries = [None; MAX_REPLICAS];
    entries[0] = Some(entry((0, Place::Action)));
    entries[1] = Some(passer);
    let standing = Standing {
        entries: &entries,
        vouched: ReplicaSet::empty(),
        ring: 64,
        guards: Guards::ON,
    };
    let together = standing.stand_together(id(0), id(1));
    // A claim like that is watched.
    assert_eq!(
        together,
        standing.apart(id(1), ReplicaSet::all(2)).is_some()
    );
    together
}

#[test]
fn who_passed_an_action_unflagged_is_believed_so_far_as_it_can_be() {
    assert!(passer(|_| {}));
    assert!(passer(|it| it.cursor = 60));
    assert!(passer(|it| it.round += 1));
    assert!(!passer(|it| it.signature.events = 13), "it is not further");
    assert!(!passer(|it| it.round += 2), "others would have met it");
    assert!(!passer(|it| it.slots[0] ^= 1), "it was another one before");
    assert!(!passer(|it| it.performed = 1), "it was in other actions");
    assert!(!passer(|it| it.cursor = 59), "the stream goes forward");
    assert!(!passer(|it| it.cursor = 60 + 65), "no ring is as large");
}

/// All votes of so many members, each absent or with one of these pasts.
fn all_votes(members: usize, pasts: &[Past]) -> impl Iterator<Item = Vec<Option<Past>>> {
    let count = pasts.len() + 1;
    (0..count.pow(u32::try_from(members).unwrap())).map(move |mut number| {
        let mut next = || {
            let past = pasts.get(number % count).copied();
            number /= count;
            past
        };
        (0..members).map(|_| next()).collect()
    })
}

fn healthy_go_on(pasts: &[Option<Past>]) {
    let members = ReplicaSet::all(pasts.len());
    let of = |is: &dyn Fn(&Option<Past>) -> bool| {
        let who = (0..pasts.len())
            .filter(|&member| is(&pasts[member]))
            .map(id);
        who.fold(ReplicaSet::empty(), ReplicaSet::with)
    };
    let healthy = of(&|past| past.is_some_and(|(history, _)| history == 0));
    if healthy.len() * 2 <= members.len() {
        return;
    }
    let absent = of(&Option::is_none);
    let count = with_standing(pasts, |standing| standing.count(members, absent));
    let majority = count.majority(Guards::ON).unwrap();
    assert!(healthy.is_subset(majority), "{pasts:?} {majority:?}");
    assert!(count.absent.is_subset(members.minus(majority)));
    for own in healthy {
        let verdict = count.convict(own, majority, ReplicaSet::empty());
        assert_eq!(verdict.unwrap().faulty, members.minus(majority));
    }
}

#[test]
fn a_majority_of_one_history_goes_on_wherever_its_members_stand() {
    for members in 1..=4 {
        all_votes(members, &all_pasts()).for_each(|pasts| healthy_go_on(&pasts));
    }
}

/// Not covered: two that went wrong alike. They can count a healthy member out that is behind the
/// others.
#[test]
fn five_members_do_without_two_that_went_wrong_in_two_ways() {
    let is_covered = |pasts: &Vec<Option<Past>>| {
        let wrong = |of: u64| pasts.iter().flatten().filter(|past| past.0 == of).count();
        wrong(1) < 2 && wrong(2) < 2
    };
    let pasts = all_pasts();
    let votes = all_votes(5, &pasts).filter(is_covered);
    votes.for_each(|pasts| healthy_go_on(&pasts));
}
