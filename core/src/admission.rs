//! Re-integration: a copy of a member becomes a member (no paper has it; DSN'19 names it future
//! work).
//!
//! 1. *Copy.* All members meet at one point of the trace, where one of them, the donor, is copied.
//!    The copy is the *newcomer*. It has a number, an outbox and all that the donor had, but no
//!    vote: no vote waits for it, and it waits only for records. It follows the stream as a member
//!    does, so it stays at the heels of the group, and every record compares its signature. Only
//!    where it is a whole ring behind the primary waits, for as long as the sphere thinks fit, and
//!    then never again for this copy: one that is overrun sees it and gives up.
//! 2. *Verification* is the sphere's: it compares what was copied with the other members and then
//!    has the members take the last step, at one point of the trace.
//! 3. *Admission.* Membership changes in votes only. The members meet and call for a vote in which
//!    each says whom it takes in. If all of them say the same and nobody is found faulty, all take
//!    the newcomer in when the vote is confirmed. The newcomer reads the same ballots and takes
//!    itself in if it sees every member confirm.
//!
//! An admission belongs to the number of votes at the copy. Any vote in between, whatever it finds,
//! ends it: members refuse, and the newcomer gives up. So a member that takes part in a vote from
//! behind the others comes to the same conclusion as they when it gets there.
//!
//! Not covered: actions. A newcomer performs none, so one that is performed before it is admitted
//! leaves it with another signature, and the next record finds it out.

use crate::ballot::Entry;
use crate::guards::Bug;
use crate::halt::Halt;
use crate::laggards::Laggards;
use crate::node::{Await, Call, Done, Node, Ports, Step, Task, WaitFor, port};
use crate::outbox::{FINGERPRINT, SNAPSHOT_WORDS};
use crate::posts::POSTS;
use crate::primitive::Ordering;
use crate::vote::Vote;
use crate::{ReplicaId, ReplicaSet};

/// An admission under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Admission {
    /// Who is to be taken in.
    pub(crate) newcomer: ReplicaId,
    /// Votes completed when it was copied.
    votes: u32,
    /// Where in the stream it was copied.
    start: u64,
    /// Primary: it was waited for in vain once.
    left_behind: bool,
}

/// How far an admission call is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    Start,
    /// Member: the vote runs, or is over without an admission.
    Vote,
    /// Newcomer: about to look at this member's ballot.
    Observe(ReplicaId),
}

impl Node {
    /// All members, at one point of the trace at which they have just met: one of them is about to
    /// be copied, and the copy will be `newcomer`.
    ///
    /// # Panics
    /// If `newcomer` is a member, or a lost primary's records are still to be taken.
    pub fn expect_newcomer(&mut self, newcomer: ReplicaId) {
        assert!(
            !self.members.contains(newcomer),
            "a newcomer is no member yet"
        );
        assert!(
            self.source() == self.primary,
            "a lost primary's records come first"
        );
        self.former = None;
        self.admission = Some(Admission {
            newcomer,
            votes: self.votes,
            start: self.cursor,
            left_behind: false,
        });
        self.limit = self.cursor;
    }

    /// Primary: how many words of the stream the newcomer has yet to take; `None` if there is none,
    /// or it is not waited for any more. Before it begins, its outbox tells of somebody who was
    /// lost.
    pub(crate) fn newcomer_lag(&self, ports: &Ports<'_>) -> Option<u64> {
        let admission = self.admission.filter(|it| !it.left_behind)?;
        let outbox = port(ports, admission.newcomer).outbox;
        let told = outbox.cursor.load(Ordering::Acquire);
        let since = self.cursor.wrapping_sub(admission.start);
        let taken = told.wrapping_sub(admission.start);
        Some(if taken <= since { since - taken } else { since })
    }

    /// Primary, for which all members leave room for `words`: waits for the newcomer's room too, or
    /// leaves it behind.
    pub(crate) fn await_newcomer(
        &mut self,
        call: &mut Call,
        words: u64,
        ports: &Ports<'_>,
    ) -> Option<Await> {
        let peer = self.newcomer()?;
        let bell = port(ports, peer).outbox.bell();
        let len = port(ports, self.id).ring.len() as u64;
        if self.newcomer_lag(ports)? + words <= len {
            return None;
        }
        if call.is_missed(peer) || self.alarmed(ports) {
            call.forget_missing();
            if let Some(admission) = &mut self.admission {
                admission.left_behind = true;
            }
            return None;
        }
        Some(Await {
            peer,
            bell,
            reason: WaitFor::Newcomer,
        })
    }

    /// The copy of a member, made after [`Node::expect_newcomer`]: takes its number, and writes its
    /// own outbox, in which somebody who was lost may have left anything.
    ///
    /// # Panics
    /// If no newcomer is expected.
    pub fn become_newcomer(&mut self, ports: &Ports<'_>) {
        let admission = self.admission.expect("a newcomer is expected");
        self.id = admission.newcomer;
        self.set_members(self.members);
        self.effect = 0;
        self.wake = false;
        self.spurious = (0, 0);
        self.actions.forget_own();
        let own = port(ports, self.id).outbox;
        if !self.guards.off(Bug::StaleOutbox) {
            own.restore(&[0; SNAPSHOT_WORDS]);
            own.restore_posts([0; POSTS]);
        }
        own.fingerprint.store(FINGERPRINT, Ordering::Relaxed);
        self.scrub(ports);
    }

    /// Whom the members have in mind to take in, or who this newcomer is.
    #[must_use]
    pub fn newcomer(&self) -> Option<ReplicaId> {
        self.admission.map(|admission| admission.newcomer)
    }

    /// Is this a copy that has not been taken in?
    #[must_use]
    #[inline]
    pub const fn is_newcomer(&self) -> bool {
        !self.members.contains(self.id)
    }

    /// Members, after a rendezvous that the copy is to come to as well: has it? Until it has, its
    /// outbox holds what somebody who was lost left there. A member with that is found missing at
    /// once, so who cannot be sure that the copy runs asks this before the admission.
    #[must_use]
    pub fn newcomer_came(&self, ports: &Ports<'_>) -> bool {
        self.admission.is_some_and(|admission| {
            let outbox = port(ports, admission.newcomer).outbox;
            let arrived = outbox.arrived.load(Ordering::Acquire);
            arrived == self.round && outbox.halt.load(Ordering::Acquire) == 0
        })
    }

    /// Members: nothing comes of the admission.
    pub const fn forget_newcomer(&mut self) {
        self.admission = None;
    }

    /// An admission to step through; all members and the newcomer begin it at the same point of the
    /// trace, having met there.
    #[must_use]
    pub const fn begin_admission(&self) -> Call {
        Call::new(Task::Admit(Stage::Start))
    }

    pub(crate) fn step_admit(&mut self, call: &mut Call, stage: Stage, ports: &Ports<'_>) -> Step {
        match stage {
            Stage::Start => self.start_admission(call, ports),
            Stage::Vote => self.refuse(),
            Stage::Observe(peer) => self.observe(call, peer, ports),
        }
    }

    fn start_admission(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let Some(admission) = self.admission else {
            return Step::Ready(Done::Refused);
        };
        if self.guards.off(Bug::AdmitUnvoted) {
            return self.take_in(admission.newcomer, ports);
        }
        if self.is_newcomer() {
            if self.guards.off(Bug::AdmitUnseen) {
                return self.take_in(self.id, ports);
            }
            let first = self.members.lowest().expect("a newcomer was copied");
            call.task = Task::Admit(Stage::Observe(first));
            return Step::Again;
        }
        if self.votes != admission.votes {
            // The newcomer has given up, or will.
            return self.refuse();
        }
        call.task = Task::Admit(Stage::Vote);
        self.enter_vote(call)
    }

    fn refuse(&mut self) -> Step {
        self.admission = None;
        Step::Ready(Done::Refused)
    }

    /// Whom this member asks to take in by the call in which it votes.
    pub(crate) fn invites(&self, call: &Call) -> Option<ReplicaId> {
        match call.task {
            Task::Admit(_) => self.newcomer(),
            _ => None,
        }
    }

    /// Whom a vote that found nobody takes in: the one whom all members invite.
    pub(crate) fn invited(&self, vote: &Vote) -> Option<ReplicaId> {
        let invited = |peer: ReplicaId| vote.entry(peer).and_then(|entry| entry.invites);
        let newcomer = self.members.iter().find_map(invited)?;
        let all = self
            .members
            .iter()
            .all(|peer| invited(peer) == Some(newcomer));
        let fits = !self.members.contains(newcomer);
        (fits && (all || self.guards.off(Bug::AdmitPartly))).then_some(newcomer)
    }

    /// The vote is over, or was seen by the newcomer: one more member from here on.
    pub(crate) fn take_in(&mut self, newcomer: ReplicaId, ports: &Ports<'_>) -> Step {
        let own = port(ports, self.id).outbox;
        if self.is_newcomer() {
            self.votes = self.next_vote();
            own.alarm.store(self.votes, Ordering::Relaxed);
        }
        self.set_members(self.members.with(newcomer));
        self.epoch += 1;
        self.admission = None;
        self.laggards = Laggards::default();
        self.spurious = (0, 0);
        // A newcomer that is still behind is waited for from here on.
        self.limit = self.cursor;
        if self.guards.off(Bug::NewcomerLeads) {
            self.primary = self.members.lowest().unwrap_or(self.primary);
        }
        own.membership.store(self.membership(), Ordering::Release);
        self.publish_bell(ports);
        Step::Ready(Done::Admitted)
    }

    /// Newcomer: looks whether `peer` has confirmed a vote that takes this one in. A member goes on
    /// only after it has seen all confirm, so who sees that sees what they saw.
    fn observe(&mut self, call: &mut Call, peer: ReplicaId, ports: &Ports<'_>) -> Step {
        let outbox = port(ports, peer).outbox;
        let bell = outbox.bell();
        // Ballots last for one vote more; and what was said before a halt was said.
        let later = outbox.alarm.load(Ordering::Acquire) > self.next_vote().wrapping_add(1);
        let hopeless = later || Self::missing(call, ports, peer);
        match self.ballot(peer, ports) {
            Some(word) if word.phase == 3 => {
                let entry = Entry::read(ports, peer, self.parity());
                let invited = entry.is_some_and(|entry| entry.invites == Some(self.id));
                if !invited || !word.verdict.faulty.is_empty() {
                    return self.give_up(ports);
                }
                match self.members.after(peer) {
                    Some(next) => call.task = Task::Admit(Stage::Observe(next)),
                    None => return self.take_in(self.id, ports),
                }
                Step::Again
            }
            _ if hopeless => self.give_up(ports),
            _ => Step::Pending(Await {
                peer,
                bell,
                reason: WaitFor::Vote,
            }),
        }
    }

    /// Newcomer: the group does something else than to take it in, or it cannot follow.
    #[cold]
    pub(crate) fn give_up(&mut self, ports: &Ports<'_>) -> Step {
        self.halt(ports, Halt::NotAdmitted, ReplicaSet::empty())
    }
}
