//! Who of those that vote stand at one point of the trace, or on the way there.
//!
//! Members join a vote where they wait, and one that gave up waiting for somebody who then came is
//! behind that one, not faulty. Where it stood the one ahead has left evidence: its signature at
//! the rendezvous, the primary's at the record, or that it performed the action there.
//!
//! One that passed a point of actions before any was flagged has left none. It is believed as far
//! as what it says can be true: the next comparison tells, because nothing goes out before. It
//! also has to be seen further on by those who wait there; one that claims to be ahead at the same
//! place vote after vote is stuck.

use crate::ballot::{At, Entry};
use crate::guards::Bug;
use crate::node::{Node, Ports, port};
use crate::vote::Vote;
use crate::{ReplicaId, ReplicaSet};

impl Node {
    /// All members that stand where `candidate` stands, or on the way there.
    pub(crate) fn group_of(
        &self,
        vote: &Vote,
        candidate: ReplicaId,
        ports: &Ports<'_>,
    ) -> ReplicaSet {
        let Some(entry) = vote.entry(candidate) else {
            return ReplicaSet::empty();
        };
        let belongs = |other: &Entry| {
            entry.equals(other)
                || self.is_on_the_way(entry, other, ports)
                || self.is_on_the_way(other, entry, ports)
        };
        self.members
            .iter()
            .filter(|&peer| match vote.entry(peer) {
                Some(other) => belongs(other),
                None => self.guards.off(Bug::AbsentAgrees),
            })
            .fold(ReplicaSet::empty(), ReplicaSet::with)
    }

    fn is_on_the_way(&self, behind: &Entry, ahead: &Entry, ports: &Ports<'_>) -> bool {
        self.lags(behind, ahead, ports) || self.passed(behind, ahead, ports)
    }

    /// Members of `group` that are behind, or claim to be ahead of those who wait for them, and
    /// have been at the same place for too long.
    pub(crate) fn stuck(
        &mut self,
        vote: &Vote,
        group: ReplicaSet,
        ports: &Ports<'_>,
    ) -> ReplicaSet {
        let mut stuck = ReplicaSet::empty();
        for peer in self.members {
            let place = vote.entry(peer).filter(|own| {
                let others = group.without(peer).iter();
                let mut others = others.filter_map(|other| vote.entry(other));
                others.any(|other| {
                    let lags = !own.equals(other) && self.lags(own, other, ports);
                    lags || self.passed(other, own, ports)
                })
            });
            let place = place.map(|entry| (entry.signature.events, entry.cursor));
            if self.laggards.note(peer, place) {
                stuck = stuck.with(peer);
            }
        }
        stuck
    }

    /// Did `behind` join at a point that `ahead` passed with the same signature?
    fn lags(&self, behind: &Entry, ahead: &Entry, ports: &Ports<'_>) -> bool {
        let before = ahead.signature.events >= behind.signature.events;
        if !before || self.guards.off(Bug::NoLag) {
            return false;
        }
        match behind.at {
            At::Rendezvous => {
                let later = ahead.round == behind.round && ahead.at != At::Rendezvous
                    || ahead.round == behind.round + 1;
                later && ahead.slots[self.slot_of(behind.round)] == behind.signature.word()
            }
            At::Stream => {
                ahead.cursor > behind.cursor && self.vouched(ports, behind.cursor, behind.signature)
            }
            At::Action => {
                ahead.performed == behind.performed.wrapping_add(1)
                    && ahead.performed_at == behind.signature.events
            }
        }
    }

    /// Can `ahead` have passed the actions in which `behind` waits, before any was flagged? Then it
    /// has not performed them, is at most at the next rendezvous, and was alike at the last.
    fn passed(&self, behind: &Entry, ahead: &Entry, ports: &Ports<'_>) -> bool {
        if behind.at != At::Action || self.guards.off(Bug::NoPassing) {
            return false;
        }
        let (before, after) = (behind.signature, ahead.signature);
        let further = after.events > before.events || after == before && ahead.at != At::Action;
        let near = ahead.round == behind.round || ahead.round == behind.round + 1;
        let slot = self.slot_of(behind.round);
        let most = port(ports, self.id).ring.len() as u64;
        further
            && near
            && ahead.slots[slot] == behind.slots[slot]
            && ahead.performed == behind.performed
            && ahead.cursor >= behind.cursor
            && ahead.cursor - behind.cursor <= most
    }
}
