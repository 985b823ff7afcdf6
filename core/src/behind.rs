//! Who of those that vote stand at one point of the trace, or on the way there.
//!
//! Members join a vote where they wait, and one that gave up waiting for somebody who then came is
//! behind that one, not faulty. Where it stood the one ahead has left evidence: its signature at
//! the rendezvous, the primary's at the record, or that it performed the action there and was alike
//! at the rendezvous before.
//!
//! One that passed a point of actions before any was flagged has left none. It is believed as far
//! as what it says can be true: the next comparison tells, because nothing goes out before. It
//! also has to be seen further on by those who wait there; one that claims to be ahead at the same
//! place vote after vote is stuck.
//!
//! All of it follows from what members said and from what is known of the ring, which is read once
//! before: plain data, as in [`crate::majority`].

use crate::ballot::{At, Entry};
use crate::guards::{Bug, Guards};
use crate::majority::Count;
use crate::rendezvous::slot_of;
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// What members said, by which it is judged who stands where.
pub(crate) struct Standing<'a> {
    pub(crate) entries: &'a [Option<Entry>; MAX_REPLICAS],
    /// Members that wait in the stream where the primary has been, with their signature.
    pub(crate) vouched: ReplicaSet,
    /// Words of a ring.
    pub(crate) ring: u64,
    pub(crate) guards: Guards,
}

impl Standing<'_> {
    const fn entry(&self, peer: ReplicaId) -> Option<&Entry> {
        self.entries[peer.index()].as_ref()
    }

    /// What counts of it.
    pub(crate) fn count(&self, members: ReplicaSet, absent: ReplicaSet) -> Count {
        let accused = |entry: &Option<Entry>| entry.map_or(ReplicaSet::empty(), |it| it.accused);
        Count {
            members,
            absent,
            groups: self.groups(members),
            accused: self.entries.each_ref().map(accused),
        }
    }

    /// With whom of `members` each stands, or on the way to or from where it stands.
    fn groups(&self, members: ReplicaSet) -> [ReplicaSet; MAX_REPLICAS] {
        let mut groups = [ReplicaSet::empty(); MAX_REPLICAS];
        for candidate in members {
            groups[candidate.index()] = self.group_of(candidate, members);
        }
        groups
    }

    fn group_of(&self, candidate: ReplicaId, members: ReplicaSet) -> ReplicaSet {
        if self.entry(candidate).is_none() {
            return ReplicaSet::empty();
        }
        let belongs = |&peer: &ReplicaId| match self.entry(peer) {
            Some(_) => self.stand_together(candidate, peer),
            None => self.guards.off(Bug::AbsentAgrees),
        };
        let group = members.iter().filter(belongs);
        group.fold(ReplicaSet::empty(), ReplicaSet::with)
    }

    fn stand_together(&self, one: ReplicaId, other: ReplicaId) -> bool {
        let (Some(own), Some(its)) = (self.entry(one), self.entry(other)) else {
            return false;
        };
        own.equals(its) || self.is_on_the_way(one, other) || self.is_on_the_way(other, one)
    }

    fn is_on_the_way(&self, behind: ReplicaId, ahead: ReplicaId) -> bool {
        self.lags(behind, ahead) || self.passed(behind, ahead)
    }

    /// Where `peer` stands, events and position in the stream, if it is behind others of `group`,
    /// or claims to be ahead of those who wait for it.
    pub(crate) fn apart(&self, peer: ReplicaId, group: ReplicaSet) -> Option<(u64, u64)> {
        let own = self.entry(peer)?;
        let apart = group.without(peer).iter().any(|other| {
            let differs = self.entry(other).is_some_and(|its| !own.equals(its));
            differs && self.lags(peer, other) || self.passed(other, peer)
        });
        apart.then_some((own.signature.events, own.cursor))
    }

    /// Did `behind` join at a point that `ahead` passed with the same signature?
    fn lags(&self, behind: ReplicaId, ahead: ReplicaId) -> bool {
        let vouched = self.vouched.contains(behind);
        let (Some(behind), Some(ahead)) = (self.entry(behind), self.entry(ahead)) else {
            return false;
        };
        let before = ahead.signature.events >= behind.signature.events;
        if !before || self.guards.off(Bug::NoLag) {
            return false;
        }
        let slot = slot_of(behind.round, self.guards);
        match behind.at {
            At::Rendezvous => {
                let later = ahead.round == behind.round && ahead.at != At::Rendezvous
                    || ahead.round == behind.round + 1;
                later && ahead.slots[slot] == behind.signature.word()
            }
            At::Stream => ahead.cursor > behind.cursor && vouched,
            // Nobody meets others again before all have performed it.
            At::Action => {
                let near = ahead.round == behind.round || ahead.round == behind.round + 1;
                near && ahead.slots[slot] == behind.slots[slot]
                    && ahead.performed == behind.performed.wrapping_add(1)
                    && ahead.performed_at == behind.signature.events
            }
        }
    }

    /// Can `ahead` have passed the actions in which `behind` waits, before any was flagged? Then it
    /// has not performed them, is at most at the next rendezvous, and was alike at the last.
    fn passed(&self, behind: ReplicaId, ahead: ReplicaId) -> bool {
        let (Some(behind), Some(ahead)) = (self.entry(behind), self.entry(ahead)) else {
            return false;
        };
        if behind.at != At::Action || self.guards.off(Bug::NoPassing) {
            return false;
        }
        let (before, after) = (behind.signature, ahead.signature);
        let further = after.events > before.events || after == before && ahead.at != At::Action;
        let near = ahead.round == behind.round || ahead.round == behind.round + 1;
        let slot = slot_of(behind.round, self.guards);
        further
            && near
            && ahead.slots[slot] == behind.slots[slot]
            && ahead.performed == behind.performed
            && ahead.cursor >= behind.cursor
            && ahead.cursor - behind.cursor <= self.ring
    }
}

#[cfg(test)]
mod tests;
