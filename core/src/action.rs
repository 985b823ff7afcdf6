//! Actions: asynchronous events (an interrupt, a completed I/O, a signal) performed by all at one
//! point of the trace.
//!
//! EDCC'15, `trigger_action` and `handle_action`. An action is performed when all members are
//! inside `handle_action` at the same point of the trace and have seen a flag. The leader waits for
//! the others; who is behind passes by. The wait is given up when somebody has passed that point:
//! in `handle_action` further on, in a later rendezvous, or waiting for a record of the leader's.
//! Once all were seen inside, all go through a *ready* phase from which nobody turns back unless
//! somebody never became ready, so that the first to leave after performing leaves nobody behind.
//!
//! Where an interrupt brings all members here however they compute ([`Node::set_punctual`]), one
//! that stays away while all others are here, or has halted, is voted out.

use crate::ReplicaId;
use crate::guards::Bug;
use crate::node::{Await, Call, Done, Node, Ports, Step, Task, WaitFor, port};
use crate::outbox::Outbox;
use crate::primitive::Ordering;

/// Private state of the action protocol.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct ActionState {
    /// Actions triggered here and not yet performed.
    triggered: u64,
    /// Those of them that readiness has taken off the list, until they are performed.
    ready: u64,
    /// Times that actions were performed.
    performed: u64,
    /// Events at the last time.
    pub(crate) performed_at: u64,
    /// Copies of the published words, from which a vote restores them.
    word: u64,
    point: u64,
    seen: [u64; 2],
}

impl ActionState {
    /// Times that actions were performed, modulo 2^16.
    #[expect(clippy::cast_possible_truncation, reason = "that is what is asked for")]
    pub(crate) const fn performed_low(&self) -> u16 {
        self.performed as u16
    }

    /// For a copy: what its original had triggered is its original's.
    pub(crate) const fn forget_own(&mut self) {
        self.triggered = 0;
        self.ready = 0;
        self.seen = [0; 2];
        self.word = self.performed << 2 | OUTSIDE;
    }
}

/// How far a `handle_action` is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    Enter,
    /// Inside; about to look for this member inside.
    Inside(ReplicaId),
    /// All were seen inside; about to look for this member's readiness.
    Ready(ReplicaId),
}

/// States of the action word, above the number of actions performed.
const OUTSIDE: u64 = 0;
const INSIDE: u64 = 1;
const READY: u64 = 2;
/// Not in `handle_action` but in a wait for a record.
const STREAM: u64 = 3;

/// Where a peer is, relative to the point at which this replica waits.
enum Peer {
    /// Not there yet, or nowhere in particular.
    Behind,
    /// Inside at the same point.
    Here,
    /// Ready at the same point.
    Ready,
    /// Past it without an action.
    Ahead,
    /// Past it after performing this action.
    Performed,
    /// Inside at the same point by one word and further on by another: its outbox is damaged.
    Torn,
}

impl Node {
    /// Flags actions, one bit each, for all replicas. Not folded into the trace; performing them
    /// is.
    pub fn trigger_action(&mut self, ports: &Ports<'_>, actions: u64) {
        self.actions.triggered |= actions;
        let own = port(ports, self.id).outbox;
        own.triggered
            .store(self.actions.triggered, Ordering::Release);
        self.publish_bell(ports);
    }

    /// All actions flagged by any member.
    #[inline]
    pub(crate) fn flagged(&self, ports: &Ports<'_>) -> u64 {
        let others = self.others;
        others.iter().fold(self.actions.triggered, |flags, peer| {
            flags | port(ports, peer).outbox.triggered.load(Ordering::Acquire)
        })
    }

    #[inline]
    pub(crate) fn step_action(&mut self, call: &mut Call, stage: Stage, ports: &Ports<'_>) -> Step {
        match stage {
            Stage::Enter => self.enter_action(call, ports),
            Stage::Inside(peer) => self.inside(call, peer, ports),
            Stage::Ready(peer) => self.ready(call, peer, ports),
        }
    }

    fn enter_action(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let seen = self.flagged(ports);
        if seen == 0 || self.is_newcomer() {
            // One that comes here again after a vote said that it is inside.
            if self.actions.word & 3 == INSIDE {
                return self.leave_action(ports);
            }
            return Step::Ready(Done::Actions(0));
        }
        let Some(first) = self.others.lowest() else {
            self.actions.triggered = 0;
            return Step::Ready(Done::Actions(seen));
        };
        if self.actions.word & 3 != INSIDE && self.is_behind(ports) {
            // Who is behind comes here at each point until it is there: it passes by unsaid.
            return Step::Ready(Done::Actions(0));
        }
        let parity = self.action_parity();
        self.actions.seen[parity] = seen;
        port(ports, self.id).outbox.action_seen[parity].store(seen, Ordering::Relaxed);
        self.publish_action(INSIDE, ports);
        call.task = Task::Action(Stage::Inside(first));
        Step::Again
    }

    const fn action_parity(&self) -> usize {
        (self.actions.performed & 1) as usize
    }

    fn publish_action(&mut self, state: u64, ports: &Ports<'_>) {
        let own = port(ports, self.id).outbox;
        self.actions.word = self.actions.performed << 2 | state;
        self.actions.point = self.trace.events();
        own.action_point
            .store(self.actions.point, Ordering::Release);
        own.action.store(self.actions.word, Ordering::Release);
        self.publish_bell(ports);
    }

    /// Rewrites the action words of the own outbox from private state.
    pub(crate) fn scrub_action(&self, own: &Outbox) {
        own.triggered
            .store(self.actions.triggered, Ordering::Relaxed);
        for (cell, &seen) in own.action_seen.iter().zip(&self.actions.seen) {
            cell.store(seen, Ordering::Relaxed);
        }
        own.action_point
            .store(self.actions.point, Ordering::Relaxed);
        own.action.store(self.actions.word, Ordering::Release);
    }

    fn inside(&mut self, call: &mut Call, peer: ReplicaId, ports: &Ports<'_>) -> Step {
        let outbox = port(ports, peer).outbox;
        let bell = outbox.bell();
        match self.locate(peer, ports) {
            Peer::Here | Peer::Ready => {
                let next = self.others.after(peer);
                match next {
                    Some(next) => call.task = Task::Action(Stage::Inside(next)),
                    None => return self.become_ready(call, ports),
                }
                Step::Again
            }
            // Nobody performs without this replica.
            Peer::Ahead | Peer::Performed | Peer::Torn => self.leave_action(ports),
            // Whoever is behind passes by, however long this peer is behind it.
            Peer::Behind if self.is_behind(ports) => self.leave_action(ports),
            Peer::Behind if self.misses_halted(ports) => self.vote_with_the_rest(call, ports),
            Peer::Behind if self.alarmed(ports) || Self::missing(call, ports, peer) => {
                self.leave_or_vote(call, ports)
            }
            Peer::Behind => Step::Pending(Await {
                peer,
                bell,
                reason: WaitFor::Action,
            }),
        }
    }

    fn has_halted(ports: &Ports<'_>, peer: ReplicaId) -> bool {
        port(ports, peer).outbox.halt.load(Ordering::Acquire) != 0
    }

    /// Are members punctual, and one of them has halted? It may have called for a vote before.
    fn misses_halted(&self, ports: &Ports<'_>) -> bool {
        let mut others = self.others.iter();
        self.punctual && others.any(|peer| Self::has_halted(ports, peer))
    }

    /// A punctual member has halted. All others come here, or call for the vote from elsewhere: who
    /// left before they have would leave each time, and so would they. One that calls waits for
    /// this replica, and does not come.
    fn vote_with_the_rest(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let here = |id| matches!(self.locate(id, ports), Peer::Here | Peer::Ready);
        let calls = |id| port(ports, id).outbox.alarm.load(Ordering::Acquire) > self.votes;
        let absent = |id| !here(id) && !Self::missing(call, ports, id);
        let awaited = |&id: &ReplicaId| absent(id) && !calls(id);
        match self.others.iter().find(awaited) {
            None => self.enter_vote(call),
            Some(peer) => Step::Pending(Await {
                peer,
                bell: port(ports, peer).outbox.bell(),
                reason: WaitFor::Action,
            }),
        }
    }

    /// Is any member past the point at which this replica waits?
    fn is_behind(&self, ports: &Ports<'_>) -> bool {
        let past = |peer| matches!(self.locate(peer, ports), Peer::Ahead | Peer::Performed);
        self.others.iter().any(past)
    }

    /// Where `peer` is. One that halted ahead comes to nobody, and members that come here whatever
    /// they do may never come to it: so it is missing here.
    fn locate(&self, peer: ReplicaId, ports: &Ports<'_>) -> Peer {
        match self.told_place(peer, ports) {
            Peer::Ahead if self.punctual && Self::has_halted(ports, peer) => Peer::Behind,
            place => place,
        }
    }

    /// Where `peer` says that it is.
    fn told_place(&self, peer: ReplicaId, ports: &Ports<'_>) -> Peer {
        let outbox = port(ports, peer).outbox;
        // A peer arrives elsewhere only after it has said what it did here: so this is read first.
        let further = outbox.arrived.load(Ordering::Acquire) > self.round;
        let word = outbox.action.load(Ordering::Acquire);
        let (performed, state) = (word >> 2, word & 3);
        let point = outbox.action_point.load(Ordering::Acquire);
        if outbox.action.load(Ordering::Acquire) != word {
            // It moves, so its bell rings: looked at again at once.
            return Peer::Behind;
        }
        let here = self.trace.events();
        if performed == self.actions.performed.wrapping_add(1) {
            return Peer::Performed;
        }
        if further && !self.guards.off(Bug::ActionNoAbort) {
            let inside = matches!(state, INSIDE | READY) && point == here;
            return if inside { Peer::Torn } else { Peer::Ahead };
        }
        match state {
            INSIDE if point == here => Peer::Here,
            READY if point == here => Peer::Ready,
            STREAM if point == here && self.needs_me(peer, outbox) => Peer::Ahead,
            INSIDE | READY | STREAM if point > here => Peer::Ahead,
            _ => Peer::Behind,
        }
    }

    /// Is `peer`, which waits on the stream, stuck until this replica moves: a follower that has
    /// consumed all of this primary's records, or the primary, for whose room this follower must
    /// consume?
    fn needs_me(&self, peer: ReplicaId, outbox: &Outbox) -> bool {
        let drained = outbox.cursor.load(Ordering::Acquire) == self.cursor;
        peer == self.primary || self.id == self.primary && drained
    }

    fn become_ready(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let Some(first) = self.others.lowest() else {
            return self.leave_action(ports);
        };
        let own = port(ports, self.id).outbox;
        let seen = self.actions.seen[self.action_parity()];
        self.actions.ready = self.actions.triggered & seen;
        self.actions.triggered &= !seen;
        own.triggered
            .store(self.actions.triggered, Ordering::Relaxed);
        self.publish_action(READY, ports);
        if self.guards.off(Bug::ActionNoReady) {
            return self.perform(ports);
        }
        call.task = Task::Action(Stage::Ready(first));
        Step::Again
    }

    fn ready(&mut self, call: &mut Call, peer: ReplicaId, ports: &Ports<'_>) -> Step {
        let outbox = port(ports, peer).outbox;
        let bell = outbox.bell();
        match self.locate(peer, ports) {
            Peer::Ready | Peer::Performed => {
                match self.others.after(peer) {
                    Some(next) => call.task = Task::Action(Stage::Ready(next)),
                    None => return self.perform(ports),
                }
                Step::Again
            }
            // It left before it was ready, so nobody has performed: everybody leaves.
            Peer::Ahead => self.leave_action(ports),
            // Others may have seen it ready, and have performed. In a vote it puts its words right.
            Peer::Torn => self.enter_vote(call),
            _ if self.alarmed(ports) || Self::missing(call, ports, peer) => self.enter_vote(call),
            _ => Step::Pending(Await {
                peer,
                bell,
                reason: WaitFor::Action,
            }),
        }
    }

    /// The union of what the members had seen, which all read from the same frozen words.
    fn perform(&mut self, ports: &Ports<'_>) -> Step {
        let parity = self.action_parity();
        let set = self.members.iter().fold(0, |set, peer| {
            set | port(ports, peer).outbox.action_seen[parity].load(Ordering::Relaxed)
        });
        self.actions.performed += 1;
        self.actions.ready = 0;
        self.actions.performed_at = self.trace.events();
        self.publish_action(OUTSIDE, ports);
        Step::Ready(Done::Actions(set))
    }

    fn leave_action(&mut self, ports: &Ports<'_>) -> Step {
        self.actions.triggered |= core::mem::take(&mut self.actions.ready);
        port(ports, self.id)
            .outbox
            .triggered
            .store(self.actions.triggered, Ordering::Relaxed);
        self.publish_action(OUTSIDE, ports);
        Step::Ready(Done::Actions(0))
    }

    /// Somebody is missing, or called for a vote. Who stands here for a while only stands anywhere
    /// in the others' view, so the vote is left to the next rendezvous or record; but not if
    /// somebody is ready, for that one cannot leave, nor if members come here whatever they do.
    fn leave_or_vote(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let ready = |id: ReplicaId| matches!(self.locate(id, ports), Peer::Ready);
        if self.others.iter().any(ready) || self.votes_here(call, ports) {
            return self.enter_vote(call);
        }
        self.leave_action(ports)
    }

    /// Where members are punctual: is everybody here but those who do not come, or does somebody
    /// call for a vote from here?
    fn votes_here(&self, call: &Call, ports: &Ports<'_>) -> bool {
        if !self.punctual {
            return false;
        }
        let here = |id| matches!(self.locate(id, ports), Peer::Here | Peer::Ready);
        let calls = |id| port(ports, id).outbox.alarm.load(Ordering::Acquire) > self.votes;
        let mut others = self.others.iter();
        let called = others.any(|id| here(id) && calls(id));
        let mut others = self.others.iter();
        called || others.all(|id| here(id) || Self::missing(call, ports, id))
    }

    /// Before a wait on the stream: if the awaited peer leads inside `handle_action`, tells it that
    /// this replica has passed there and is stuck. The peer rings its bell on entry, so none of its
    /// entries goes unseen.
    pub(crate) fn release_leader(&mut self, peer: ReplicaId, ports: &Ports<'_>) {
        let word = port(ports, peer).outbox.action.load(Ordering::Acquire);
        let leads = matches!(word & 3, INSIDE | READY);
        let said = self.actions.word & 3 == STREAM && self.actions.point == self.trace.events();
        if leads && !said {
            self.publish_action(STREAM, ports);
        }
    }

    /// After a vote a ready replica looks for readiness again; nobody has turned back from there.
    pub(crate) fn resume_action(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let Some(first) = self.others.lowest() else {
            return self.perform(ports);
        };
        call.task = Task::Action(match call.task {
            Task::Action(Stage::Ready(_)) => Stage::Ready(first),
            _ => Stage::Enter,
        });
        Step::Again
    }
}
