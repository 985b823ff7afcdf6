//! The rendezvous: all members meet at one point of the trace and compare signatures (EDCC'15,
//! `add_compare_event`).
//!
//! Arrival is a counter in one's own outbox; the signature lies in one of two slots by the round's
//! parity. A member enters round r + 2, and overwrites the slot of round r, only after all have
//! arrived at r + 1, hence have finished comparing r. So each slot is stable as long as anybody may
//! read it, with one barrier per rendezvous.

use crate::ReplicaId;
use crate::fences::Fences;
use crate::guards::{Bug, Guards};
use crate::node::{Await, Call, Done, Node, Ports, Step, Task, WaitFor, port};
use crate::outbox::Outbox;
use crate::primitive::Ordering;

/// How far a rendezvous is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    /// About to publish the own signature.
    Arrive,
    /// About to look at this member.
    Inspect(ReplicaId),
}

/// Which slot holds the signature of `round`.
#[inline(always)]
pub(crate) const fn slot_of(round: u64, guards: Guards) -> usize {
    if guards.off(Bug::SingleBuffer) {
        0
    } else {
        (round & 1) as usize
    }
}

impl Node {
    #[inline]
    pub(crate) fn step_rendezvous(
        &mut self,
        call: &mut Call,
        stage: Stage,
        ports: &Ports<'_>,
    ) -> Step {
        match stage {
            Stage::Arrive => {
                self.arrive(port(ports, self.id).outbox, ports);
                if self.is_newcomer() {
                    // It has no vote, and its signature is compared in the stream.
                    return Step::Ready(Done::Met);
                }
                self.inspect_first(call)
            }
            Stage::Inspect(peer) => self.inspect(call, peer, ports),
        }
    }

    /// Starts the comparison anew, after arrival or after a vote.
    #[inline]
    pub(crate) fn inspect_first(&self, call: &mut Call) -> Step {
        match self.others.lowest() {
            None => Step::Ready(Done::Met),
            Some(peer) => {
                call.task = Task::Rendezvous(Stage::Inspect(peer));
                Step::Again
            }
        }
    }

    #[inline]
    pub(crate) fn arrive(&mut self, own: &Outbox, ports: &Ports<'_>) {
        self.arrive_unheard(own);
        self.ring_bell(own, ports, Fences::Each);
    }

    /// The same without the bell.
    #[inline(always)]
    pub(crate) fn arrive_unheard(&mut self, own: &Outbox) {
        self.round += 1;
        let slot = self.slot_of(self.round);
        let signature = self.trace.signature().word();
        self.slots[slot] = signature;
        if self.guards.off(Bug::DoorbellFirst) {
            own.ring();
        }
        own.slots[slot].store(signature, Ordering::Relaxed);
        own.arrived.store(self.round, Ordering::Release);
    }

    /// Which slot holds the signature of `round`.
    #[inline(always)]
    pub(crate) fn slot_of(&self, round: u64) -> usize {
        slot_of(round, self.guards)
    }

    #[inline]
    fn inspect(&mut self, call: &mut Call, peer: ReplicaId, ports: &Ports<'_>) -> Step {
        let outbox = port(ports, peer).outbox;
        let bell = outbox.bell();
        let arrived = outbox.arrived.load(Ordering::Acquire);
        // A peer one round ahead has found all signatures of this round equal, and keeps its own
        // readable.
        if arrived == self.round || arrived == self.round.wrapping_add(1) {
            let slot = self.slot_of(self.round);
            let same = outbox.slots[slot].load(Ordering::Relaxed) == self.slots[slot];
            if same || self.guards.off(Bug::SkipCompare) {
                return self.inspect_next(call, peer);
            }
            return self.enter_vote(call);
        }
        let absurd = arrived > self.round;
        if absurd || self.alarmed(ports) || Self::missing(call, ports, peer) {
            return self.enter_vote(call);
        }
        Step::Pending(Await {
            peer,
            bell,
            reason: WaitFor::Arrival,
        })
    }

    #[inline]
    fn inspect_next(&self, call: &mut Call, peer: ReplicaId) -> Step {
        match self.others.after(peer) {
            None => Step::Ready(Done::Met),
            Some(next) => {
                call.task = Task::Rendezvous(Stage::Inspect(next));
                Step::Again
            }
        }
    }
}
