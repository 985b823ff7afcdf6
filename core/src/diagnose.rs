//! Diagnosis from outside: what the outboxes alone tell about a group that stopped or diverged.
//!
//! The reader is the supervisor. It has no replica's private state, and the replicas may be dead;
//! nothing found here is trusted for anything but a report.

use crate::ballot::BallotWord;
use crate::halt::{HaltState, decode};
use crate::outbox::Outbox;
use crate::primitive::Ordering;
use crate::recorder::{Noted, RECORDED, WIDE};
use crate::{Kind, MAX_REPLICAS, ReplicaSet};

/// What one replica's outbox says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Rendezvous entered.
    pub rendezvous: u64,
    /// Number of the last vote it called for or joined; 0 for none.
    pub votes: u32,
    /// The members that its last vote found faulty.
    pub verdict: ReplicaSet,
    /// Those of them that were absent rather than different.
    pub absent: ReplicaSet,
    /// Phase that its last vote reached: 3 is complete.
    pub phase: u8,
    /// Membership as it sees it.
    pub members: ReplicaSet,
    /// Membership changes so far.
    pub epoch: u64,
    /// Records that it published as primary.
    pub records: u64,
    /// Words of the stream published or taken: where it stands in the stream.
    pub cursor: u64,
    /// Halted, and why.
    pub halt: HaltState,
    /// Is it inside an effect whose record is not published?
    pub in_effect: bool,
}

/// Reads one outbox.
#[must_use]
pub fn report(outbox: &Outbox) -> Report {
    let votes = outbox.alarm.load(Ordering::Acquire);
    let ballot = &outbox.ballots[(votes & 1) as usize];
    let ballot = BallotWord::decode(ballot.word.load(Ordering::Acquire));
    let membership = outbox.membership.load(Ordering::Acquire);
    Report {
        rendezvous: outbox.arrived.load(Ordering::Acquire),
        votes,
        verdict: ballot.verdict.faulty,
        absent: ballot.verdict.absent,
        phase: ballot.phase,
        members: ReplicaSet::from_bits(membership.to_le_bytes()[0]),
        epoch: membership >> 8,
        records: outbox.records.load(Ordering::Relaxed),
        cursor: outbox.cursor.load(Ordering::Relaxed),
        halt: decode(outbox.halt.load(Ordering::Acquire)),
        in_effect: outbox.effect.load(Ordering::Acquire) != 0,
    }
}

/// The first event at which the flight recorders differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// Number of the event, from 1.
    pub event: u64,
    /// What each replica recorded under this number; `None` where it has not got so far, or has no
    /// outbox. Of an event with several values this is the first that differs, and its kind is so
    /// many more than that of the event; [`WIDE`] more if these are not events of one kind.
    pub recorded: [Option<(Kind, u64)>; MAX_REPLICAS],
}

/// An event as a recorder keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// Its kind.
    pub kind: Kind,
    /// How many values it has; the rest are zeroes.
    pub len: usize,
    /// The values.
    pub values: [u64; WIDE],
}

/// What a replica has recorded under this number, if it still keeps it.
#[must_use]
pub fn recorded(outbox: &Outbox, event: u64) -> Option<Recorded> {
    let noted = outbox.recorder.get(event)?;
    Some(Recorded {
        kind: noted.kind,
        len: noted.len,
        values: noted.values,
    })
}

/// Finds the first event of which two recorders keep different versions. Searches the window that
/// recorders still hold around `near`, an event number not far behind the divergence (for instance
/// the largest in any signature).
#[must_use]
pub fn first_divergence(
    outboxes: &[Option<&Outbox>; MAX_REPLICAS],
    near: u64,
) -> Option<Divergence> {
    let window = RECORDED as u64;
    let mut events = near.saturating_sub(2 * window).max(1)..=near.saturating_add(window);
    events.find_map(|event| difference_at(outboxes, event))
}

/// The same behind `agreed`, the number of events at which the replicas are known to have had the
/// same trace; and whether it is the first at which they differ for sure: recorders still hold all
/// that precedes it.
#[must_use]
pub fn first_divergence_behind(
    outboxes: &[Option<&Outbox>; MAX_REPLICAS],
    agreed: u64,
    near: u64,
) -> Option<(Divergence, bool)> {
    let window = RECORDED as u64;
    let from = agreed
        .max(near.saturating_sub(2 * window))
        .saturating_add(1);
    let to = near.saturating_add(window);
    let difference = (from..=to).find_map(|event| difference_at(outboxes, event))?;
    let holds = |outbox: &&Outbox| outbox.recorder.get(agreed.saturating_add(1)).is_some();
    let holders = outboxes.iter().flatten().filter(|outbox| holds(outbox));
    let all = outboxes.iter().flatten().count();
    Some((difference, holders.count() == all))
}

/// What recorders keep of an event, if two of them keep different versions of it.
fn difference_at(outboxes: &[Option<&Outbox>; MAX_REPLICAS], event: u64) -> Option<Divergence> {
    let noted = outboxes.map(|outbox| outbox.and_then(|it| it.recorder.get(event)));
    let mut known = noted.iter().flatten();
    let first = known.next()?;
    let other = known.find(|other| *other != first)?;
    let at = first_difference(first, other);
    let recorded = noted.map(|noted| noted.map(|noted| value_of(&noted, at)));
    Some(Divergence { event, recorded })
}

/// Which values of two events of one kind differ; none if they are not of one kind.
fn first_difference(one: &Noted, other: &Noted) -> Option<usize> {
    if (one.kind, one.len) != (other.kind, other.len) {
        return None;
    }
    one.values
        .iter()
        .zip(&other.values)
        .position(|(a, b)| a != b)
}

/// This value of an event, or what stands for all of them.
fn value_of(noted: &Noted, at: Option<usize>) -> (Kind, u64) {
    let Kind(kind) = noted.kind;
    if noted.len == 1 {
        return (noted.kind, noted.values[0]);
    }
    let value = at.and_then(|at| noted.values.get(at).copied());
    let beyond = u32::try_from(at.unwrap_or(WIDE)).unwrap_or(u32::MAX);
    (Kind(kind.wrapping_add(beyond)), value.unwrap_or(0))
}

/// The largest event count with which any of these voted: where to look for a divergence.
#[must_use]
pub fn latest_event(outboxes: &[Option<&Outbox>; MAX_REPLICAS]) -> u64 {
    let events = |outbox: &Outbox| {
        let ballots = outbox.ballots.iter();
        let events = ballots.map(|ballot| ballot.signature.load().events);
        events.max().unwrap_or(0)
    };
    outboxes
        .iter()
        .flatten()
        .map(|outbox| events(outbox))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica that recorded these values, one event each, after so many that are alike.
    fn recorded_by(agreed: u64, values: &[u64]) -> Outbox {
        let outbox = Outbox::new();
        let alike = (1..=agreed).map(|number| (number, 7));
        let own = (agreed + 1..).zip(values.iter().copied());
        for (number, value) in alike.chain(own) {
            outbox.recorder.note(number, Kind(5), &[value]);
        }
        outbox
    }

    fn find(agreed: u64, all: [&Outbox; 2]) -> Option<(u64, bool)> {
        let mut outboxes = [None; MAX_REPLICAS];
        outboxes[..2].copy_from_slice(&all.map(Some));
        let found = first_divergence_behind(&outboxes, agreed, agreed + 40)?;
        Some((found.0.event, found.1))
    }

    #[test]
    fn the_first_difference_behind_what_was_agreed_is_known_to_be_the_first() {
        let one = recorded_by(100, &[1, 2, 3, 4]);
        let other = recorded_by(100, &[1, 2, 9, 8]);
        assert_eq!(find(100, [&one, &other]), Some((103, true)));
        assert_eq!(find(100, [&one, &one]), None);
        // What they recorded before that is of no concern, though it differs.
        assert_eq!(find(103, [&one, &other]), Some((104, true)));
    }

    #[test]
    fn a_difference_that_follows_on_what_is_forgotten_may_be_a_later_one() {
        let mut values = [1; RECORDED + 2];
        let one = recorded_by(100, &values);
        values[0] = 2;
        let other = recorded_by(100, &values);
        assert_eq!(find(100, [&one, &other]), None, "it is forgotten");
        values[RECORDED] = 3;
        let other = recorded_by(100, &values);
        let event = 101 + RECORDED as u64;
        assert_eq!(find(100, [&one, &other]), Some((event, false)));
    }
}
