//! The vote: every replica finds out independently who differs, and no agreement means fail-stop.
//!
//! Listing 5 of DSN'19 for any number of members of which some may be absent. Each phase is a word
//! that every member publishes and all others wait for; a member that stays away is absent.
//!
//! 1. *Entry.* Signature and position. Each replica counts whom it agrees with. The largest group
//!    must be a strict majority of the members, present or not; all others are faulty. So 3 and 4
//!    members tolerate one faulty at a time (2 : 2 is fail-stop), 5 tolerate two, and 2 tolerate
//!    none.
//! 2. *Verdict.* The faulty and the absent. Verdicts must come out equal. One difference is
//!    resolved: a member that some found absent and others not is absent for all, as long as a
//!    majority remains. Anything else is fail-stop.
//! 3. *Confirmation.* Who confirmed a verdict never takes it back unless somebody has not
//!    confirmed; who saw all confirm is done. A member that died unconfirmed joins the faulty; one
//!    that is merely missing means fail-stop. The membership is the rest; the lowest living id is
//!    the primary.
//!
//! A replica that voted at an earlier point of the same trace is *lagging*, not faulty: it gave up
//! waiting for somebody who then came. It counts with those ahead; afterwards all take up their
//! waits again, and the one behind catches up, if need be from the ring of a primary that was
//! removed.
//!
//! Here is what is published and waited for. The counting is in [`crate::majority`], what a verdict
//! brings in [`crate::outcome`].

use core::fmt;

use crate::ballot::{At, BallotWord, Entry};
use crate::behind::Standing;
use crate::guards::Bug;
use crate::halt::{Cause, Halt};
use crate::majority::{Difference, Stop, Verdict};
use crate::node::{Await, Call, Node, Ports, Step, Task, WaitFor, port};
use crate::primitive::Ordering;
use crate::rendezvous::Stage as Rendezvous;
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// A vote in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Vote {
    stage: Stage,
    entries: [Option<Entry>; MAX_REPLICAS],
    pub(crate) verdict: Verdict,
}

/// Where a vote is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Enter,
    Gather(ReplicaId),
    Decide,
    /// Publish the verdict.
    Propose,
    /// Compare it with this member's.
    Compare(ReplicaId),
    /// Publish the confirmation.
    Confirm,
    /// Wait for this member's.
    Await(ReplicaId),
    Finish,
    /// The faulty are excluded; drop them.
    Adopt,
}

impl Vote {
    /// What `peer` said when it joined.
    pub(crate) const fn entry(&self, peer: ReplicaId) -> Option<&Entry> {
        self.entries[peer.index()].as_ref()
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "vote {:?} absent {:?} faulty {:?}",
            self.stage, self.verdict.absent, self.verdict.faulty
        )?;
        for (number, entry) in self.entries.iter().enumerate() {
            if let Some(Entry {
                signature,
                cursor,
                round,
                at,
                ..
            }) = entry
            {
                let events = signature.events;
                write!(f, " R{number}:{events}/{:04x}", signature.a & 0xffff)?;
                write!(f, "@{cursor},{round},{at:?}")?;
            }
        }
        Ok(())
    }
}

impl Node {
    /// From now on `call` votes; the wait is taken up again afterwards.
    #[cold]
    pub(crate) fn enter_vote(&mut self, call: &mut Call) -> Step {
        call.vote = Some(Vote {
            stage: Stage::Enter,
            entries: [None; MAX_REPLICAS],
            verdict: Verdict {
                absent: ReplicaSet::empty(),
                faulty: ReplicaSet::empty(),
            },
        });
        Step::Again
    }

    #[cold]
    pub(crate) fn step_vote(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let Some(mut vote) = call.vote.take() else {
            return Step::Again;
        };
        let step = match vote.stage {
            Stage::Enter => self.enter(&mut vote, call, ports),
            Stage::Gather(peer) => self.gather(&mut vote, call, peer, ports),
            Stage::Decide => self.decide(&mut vote, ports),
            Stage::Propose => self.propose(&mut vote, ports),
            Stage::Compare(peer) => self.compare(&mut vote, call, peer, ports),
            Stage::Confirm => self.confirm(&mut vote, ports),
            Stage::Await(peer) => self.await_confirmation(&mut vote, call, peer, ports),
            Stage::Finish => self.finish(&mut vote),
            Stage::Adopt => return self.adopt(&vote, call, ports),
        };
        call.vote = Some(vote);
        step
    }

    /// Phase 1: rewrites the outbox from private state, so that damage to it heals, and publishes
    /// the entry.
    fn enter(&mut self, vote: &mut Vote, call: &mut Call, ports: &Ports<'_>) -> Step {
        let own = port(ports, self.id).outbox;
        if let Task::Rendezvous(Rendezvous::Inspect(_)) = call.task {
            // The trace has not moved since, so its copy is made anew, in case that was damaged.
            let slot = self.slot_of(self.round);
            self.slots[slot] = self.trace.signature().word();
        }
        if !self.guards.off(Bug::NoScrub) {
            self.scrub(ports);
        }
        let at = match call.task {
            // An admission follows on a rendezvous, whose signature is still there to be seen.
            Task::Rendezvous(_) | Task::Admit(_) => At::Rendezvous,
            Task::Room { .. } | Task::Consume => At::Stream,
            Task::Action(_) => At::Action,
        };
        let entry = Entry {
            signature: self.trace.signature(),
            cursor: self.cursor,
            round: self.round & 0xffff_ffff,
            at,
            accused: call.accused,
            invites: self.invites(call),
            performed: self.actions.performed_low(),
            performed_at: self.actions.performed_at,
            slots: self.slots,
        };
        let ballot = &own.ballots[self.parity()];
        ballot.signature.store(entry.signature);
        ballot.cursor.store(entry.cursor, Ordering::Relaxed);
        ballot.context.store(entry.context(), Ordering::Relaxed);
        ballot
            .performed_at
            .store(entry.performed_at, Ordering::Relaxed);
        vote.entries[self.id.index()] = Some(entry);
        call.forget_missing();
        self.publish_phase(vote, 1, ports);
        own.alarm.store(self.next_vote(), Ordering::Release);
        self.publish_bell(ports);
        vote.stage = self.others().lowest().map_or(Stage::Decide, Stage::Gather);
        Step::Again
    }

    pub(crate) fn scrub(&self, ports: &Ports<'_>) {
        let own = port(ports, self.id).outbox;
        for (slot, &signature) in own.slots.iter().zip(&self.slots) {
            slot.store(signature, Ordering::Relaxed);
        }
        own.posted.store(self.posted, Ordering::Relaxed);
        own.effect.store(self.effect, Ordering::Relaxed);
        own.halt.store(0, Ordering::Relaxed);
        own.membership.store(self.membership(), Ordering::Relaxed);
        self.scrub_action(own);
        own.cursor.store(self.cursor, Ordering::Release);
        own.arrived.store(self.round, Ordering::Release);
    }

    pub(crate) fn membership(&self) -> u64 {
        self.epoch << 8 | u64::from(self.members.bits())
    }

    fn others(&self) -> ReplicaSet {
        self.others
    }

    pub(crate) const fn parity(&self) -> usize {
        (self.next_vote() & 1) as usize
    }

    fn publish_phase(&self, vote: &Vote, phase: u8, ports: &Ports<'_>) {
        let word = BallotWord {
            vote: self.next_vote(),
            phase,
            verdict: vote.verdict,
        };
        let ballot = &port(ports, self.id).outbox.ballots[self.parity()];
        ballot.word.store(word.encode(), Ordering::Release);
    }

    /// The ballot of `peer` in this vote, if it has joined it.
    pub(crate) fn ballot(&self, peer: ReplicaId, ports: &Ports<'_>) -> Option<BallotWord> {
        let ballot = &port(ports, peer).outbox.ballots[self.parity()];
        let word = BallotWord::decode(ballot.word.load(Ordering::Acquire));
        let same = word.vote == self.next_vote() || self.guards.off(Bug::IgnoreVoteNumber);
        (same && (1..=3).contains(&word.phase)).then_some(word)
    }

    /// Phase 1, the others: reads one member's entry or finds it absent.
    fn gather(&self, vote: &mut Vote, call: &mut Call, peer: ReplicaId, ports: &Ports<'_>) -> Step {
        let bell = port(ports, peer).outbox.bell();
        // A ballot without a sound entry is damage: its writer, when it joins, puts both right.
        let joined = self.ballot(peer, ports).is_some();
        let entry = Entry::read(ports, peer, self.parity()).filter(|_| joined);
        if entry.is_some() {
            vote.entries[peer.index()] = entry;
            call.overdue = call.overdue.without(peer);
        } else if Self::missing(call, ports, peer) {
            vote.verdict.absent = vote.verdict.absent.with(peer);
        } else {
            return Step::Pending(Await {
                peer,
                bell,
                reason: WaitFor::Vote,
            });
        }
        vote.stage = self
            .others()
            .after(peer)
            .map_or(Stage::Decide, Stage::Gather);
        Step::Again
    }

    /// Counts: the verdict, or a halt.
    fn decide(&mut self, vote: &mut Vote, ports: &Ports<'_>) -> Step {
        let standing = self.standing(vote, ports);
        let count = standing.count(self.members, vote.verdict.absent);
        let verdict = count.majority(self.guards).and_then(|majority| {
            let apart = |peer| standing.apart(peer, majority);
            let stuck = self.laggards.note_all(self.members, apart);
            count.convict(self.id, majority, stuck)
        });
        self.propose_if(vote, verdict, ports)
    }

    /// What is known of where members stand.
    fn standing<'a>(&self, vote: &'a Vote, ports: &Ports<'_>) -> Standing<'a> {
        let vouched = |&peer: &ReplicaId| {
            let waits = vote.entry(peer).filter(|entry| entry.at == At::Stream);
            waits.is_some_and(|entry| self.vouched(ports, entry.cursor, entry.signature))
        };
        let vouched = self.members.iter().filter(vouched);
        Standing {
            entries: &vote.entries,
            vouched: vouched.fold(ReplicaSet::empty(), ReplicaSet::with),
            ring: port(ports, self.id).ring.len() as u64,
            guards: self.guards,
        }
    }

    /// The verdict is to be published, unless there is none.
    fn propose_if(
        &mut self,
        vote: &mut Vote,
        verdict: Result<Verdict, Stop>,
        ports: &Ports<'_>,
    ) -> Step {
        match verdict {
            Ok(verdict) => {
                vote.verdict = verdict;
                vote.stage = Stage::Propose;
                Step::Again
            }
            Err(stop) => self.halt(ports, stop.halt, stop.culprits),
        }
    }

    /// Phase 2: publishes the verdict and starts to compare.
    fn propose(&mut self, vote: &mut Vote, ports: &Ports<'_>) -> Step {
        self.publish_phase(vote, 2, ports);
        self.publish_bell(ports);
        let first = self.others().minus(vote.verdict.faulty).lowest();
        vote.stage = match first {
            Some(peer) if !self.guards.off(Bug::SkipPhase2) => Stage::Compare(peer),
            _ => Stage::Confirm,
        };
        Step::Again
    }

    /// Phase 2, the others: waits until `peer` has the same verdict.
    fn compare(
        &mut self,
        vote: &mut Vote,
        call: &mut Call,
        peer: ReplicaId,
        ports: &Ports<'_>,
    ) -> Step {
        let bell = port(ports, peer).outbox.bell();
        let theirs = self.ballot(peer, ports).filter(|word| word.phase >= 2);
        let Some(theirs) = theirs else {
            if Self::missing(call, ports, peer) {
                return self.grow(vote, ReplicaSet::empty().with(peer), ports);
            }
            return Step::Pending(Await {
                peer,
                bell,
                reason: WaitFor::Vote,
            });
        };
        // It came after all; being late for one phase says nothing about the next.
        call.overdue = call.overdue.without(peer);
        if theirs.verdict.faulty == vote.verdict.faulty {
            let rest = self.others().minus(vote.verdict.faulty);
            vote.stage = rest.after(peer).map_or(Stage::Confirm, Stage::Compare);
            return Step::Again;
        }
        self.reconcile(
            vote,
            call,
            theirs,
            Await {
                peer,
                bell,
                reason: WaitFor::Vote,
            },
            ports,
        )
    }

    /// The verdict of a peer differs: takes over absences, waits for the peer to take over mine, or
    /// stops.
    fn reconcile(
        &mut self,
        vote: &mut Vote,
        call: &Call,
        theirs: BallotWord,
        wait: Await,
        ports: &Ports<'_>,
    ) -> Step {
        let own = vote.verdict;
        match own.differs(self.members, wait.peer, theirs.verdict, self.guards) {
            Difference::Disagreement => {
                let culprits = own.faulty.union(theirs.verdict.faulty);
                self.halt(ports, Halt::FailStop(Cause::Disagreement), culprits)
            }
            Difference::Adopt(more) => self.grow(vote, more, ports),
            Difference::Await if Self::missing(call, ports, wait.peer) => {
                self.grow(vote, ReplicaSet::empty().with(wait.peer), ports)
            }
            Difference::Await => Step::Pending(wait),
        }
    }

    /// Adds absent members to the verdict and proposes it anew, if a majority remains.
    fn grow(&mut self, vote: &mut Vote, absent: ReplicaSet, ports: &Ports<'_>) -> Step {
        let grown = vote.verdict.with_absent(self.id, self.members, absent);
        self.propose_if(vote, grown, ports)
    }

    /// Phase 3: publishes the confirmation.
    fn confirm(&mut self, vote: &mut Vote, ports: &Ports<'_>) -> Step {
        self.publish_phase(vote, 3, ports);
        self.publish_bell(ports);
        let first = self.others().minus(vote.verdict.faulty).lowest();
        vote.stage = match first {
            Some(peer) if !self.guards.off(Bug::SkipPhase3) => Stage::Await(peer),
            _ => Stage::Finish,
        };
        Step::Again
    }

    /// Phase 3, the others. Here a member that is late is no longer voted out: it may confirm yet,
    /// and some may have seen all confirm and have left, so that another verdict could split the
    /// group. One that died before it confirmed never will: nobody has left, nor can, and it is
    /// added to the verdict. Its word is read after its death is known.
    fn await_confirmation(
        &mut self,
        vote: &mut Vote,
        call: &mut Call,
        peer: ReplicaId,
        ports: &Ports<'_>,
    ) -> Step {
        let bell = port(ports, peer).outbox.bell();
        let wait = Await {
            peer,
            bell,
            reason: WaitFor::Vote,
        };
        let Some(theirs) = self.ballot(peer, ports) else {
            return self.halt(
                ports,
                Halt::FailStop(Cause::Disagreement),
                vote.verdict.faulty,
            );
        };
        if theirs.verdict.faulty != vote.verdict.faulty {
            if theirs.phase < 3 && vote.verdict.faulty.is_subset(theirs.verdict.faulty) {
                return self.reconcile(vote, call, theirs, wait, ports);
            }
            return self.halt(
                ports,
                Halt::FailStop(Cause::Disagreement),
                vote.verdict.faulty,
            );
        }
        if theirs.phase == 3 {
            let rest = self.others().minus(vote.verdict.faulty);
            vote.stage = rest.after(peer).map_or(Stage::Finish, Stage::Await);
            return Step::Again;
        }
        if call.gone.contains(peer) {
            return self.grow(vote, ReplicaSet::empty().with(peer), ports);
        }
        if Self::missing(call, ports, peer) {
            return self.halt(
                ports,
                Halt::FailStop(Cause::Timeout),
                vote.verdict.faulty.with(peer),
            );
        }
        Step::Pending(wait)
    }

    fn finish(&self, vote: &mut Vote) -> Step {
        vote.stage = Stage::Adopt;
        if vote.verdict.faulty.is_empty() {
            Step::Again
        } else {
            Step::Exclude(vote.verdict.faulty)
        }
    }
}
