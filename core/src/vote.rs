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

use core::fmt;

use crate::ballot::{At, BallotWord, Entry};
use crate::guards::Bug;
use crate::halt::{Cause, Halt};
use crate::node::{Await, Call, Node, Ports, Step, Task, WaitFor, port};
use crate::primitive::Ordering;
use crate::rendezvous::Stage as Rendezvous;
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// Votes in a row without a verdict and without own progress before a replica gives up.
pub const SPURIOUS_LIMIT: u32 = 64;

/// A vote in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Vote {
    stage: Stage,
    entries: [Option<Entry>; MAX_REPLICAS],
    absent: ReplicaSet,
    faulty: ReplicaSet,
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
            self.stage, self.absent, self.faulty
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
            absent: ReplicaSet::empty(),
            faulty: ReplicaSet::empty(),
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
            absent: vote.absent,
            faulty: vote.faulty,
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
            vote.absent = vote.absent.with(peer);
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

    /// Counts, as Listing 5 does: the verdict, or a fail-stop.
    fn decide(&mut self, vote: &mut Vote, ports: &Ports<'_>) -> Step {
        let mut best = ReplicaSet::empty();
        for candidate in self.members {
            let group = self.group_of(vote, candidate, ports);
            if group.len() > best.len() {
                best = group;
            }
        }
        let outside = self.members.minus(best);
        if best.len() * 2 <= self.members.len() && !self.guards.off(Bug::AcceptMinority) {
            return self.halt(
                ports,
                Halt::FailStop(no_majority(outside, vote.absent)),
                outside,
            );
        }
        let stuck = self.stuck(vote, best, ports);
        if best.minus(stuck).len() * 2 <= self.members.len() && !stuck.is_empty() {
            return self.halt(ports, Halt::FailStop(Cause::Livelock), stuck);
        }
        vote.faulty = outside.union(self.condemned(vote)).union(stuck);
        if vote.faulty.contains(self.id) {
            return self.halt(ports, Halt::Convicted, vote.faulty);
        }
        vote.stage = Stage::Propose;
        Step::Again
    }

    /// Members in whose outbox a majority found what no healthy replica writes.
    fn condemned(&self, vote: &Vote) -> ReplicaSet {
        let accusers = |accused: ReplicaId| {
            let accuses = |entry: &&Entry| entry.accused.contains(accused);
            vote.entries.iter().flatten().filter(accuses).count()
        };
        self.members
            .iter()
            .filter(|&peer| accusers(peer) * 2 > self.members.len())
            .fold(ReplicaSet::empty(), ReplicaSet::with)
    }

    /// Phase 2: publishes the verdict and starts to compare.
    fn propose(&mut self, vote: &mut Vote, ports: &Ports<'_>) -> Step {
        self.publish_phase(vote, 2, ports);
        self.publish_bell(ports);
        let first = self.others().minus(vote.faulty).lowest();
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
        if theirs.faulty == vote.faulty {
            let rest = self.others().minus(vote.faulty);
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
        let more = theirs.faulty.minus(vote.faulty);
        let fewer = vote.faulty.minus(theirs.faulty);
        let sane = theirs.faulty.is_subset(self.members) && !theirs.faulty.contains(wait.peer);
        let resolvable = sane && more.is_subset(theirs.absent) && fewer.is_subset(vote.absent);
        if !resolvable || self.guards.off(Bug::NoAdopt) {
            let culprits = vote.faulty.union(theirs.faulty);
            return self.halt(ports, Halt::FailStop(Cause::Disagreement), culprits);
        }
        if !more.is_empty() {
            return self.grow(vote, more, ports);
        }
        if Self::missing(call, ports, wait.peer) {
            return self.grow(vote, ReplicaSet::empty().with(wait.peer), ports);
        }
        Step::Pending(wait)
    }

    /// Adds absent members to the verdict and proposes it anew, if a majority remains.
    fn grow(&mut self, vote: &mut Vote, absent: ReplicaSet, ports: &Ports<'_>) -> Step {
        vote.absent = vote.absent.union(absent);
        vote.faulty = vote.faulty.union(absent);
        if vote.faulty.contains(self.id) {
            return self.halt(ports, Halt::Convicted, vote.faulty);
        }
        let rest = self.members.minus(vote.faulty);
        if rest.len() * 2 <= self.members.len() {
            return self.halt(ports, Halt::FailStop(Cause::Timeout), vote.faulty);
        }
        vote.stage = Stage::Propose;
        Step::Again
    }

    /// Phase 3: publishes the confirmation.
    fn confirm(&mut self, vote: &mut Vote, ports: &Ports<'_>) -> Step {
        self.publish_phase(vote, 3, ports);
        self.publish_bell(ports);
        let first = self.others().minus(vote.faulty).lowest();
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
            return self.halt(ports, Halt::FailStop(Cause::Disagreement), vote.faulty);
        };
        if theirs.faulty != vote.faulty {
            if theirs.phase < 3 && vote.faulty.is_subset(theirs.faulty) {
                return self.reconcile(vote, call, theirs, wait, ports);
            }
            return self.halt(ports, Halt::FailStop(Cause::Disagreement), vote.faulty);
        }
        if theirs.phase == 3 {
            let rest = self.others().minus(vote.faulty);
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
                vote.faulty.with(peer),
            );
        }
        Step::Pending(wait)
    }

    fn finish(&self, vote: &mut Vote) -> Step {
        vote.stage = Stage::Adopt;
        if vote.faulty.is_empty() {
            Step::Again
        } else {
            Step::Exclude(vote.faulty)
        }
    }

    /// The verdict holds and those in it are excluded: changes the membership and takes up the call
    /// again.
    fn adopt(&mut self, vote: &Vote, call: &mut Call, ports: &Ports<'_>) -> Step {
        self.votes = self.next_vote();
        call.forget_missing();
        call.accused = ReplicaSet::empty();
        if vote.faulty.is_empty() {
            return match self.invited(vote) {
                Some(newcomer) => self.take_in(newcomer, ports),
                None => self.nobody(call, ports),
            };
        }
        self.spurious = (0, 0);
        self.set_members(self.members.minus(vote.faulty));
        assert!(
            self.members.contains(self.id),
            "a convicted replica halts before"
        );
        self.epoch += 1;
        let own = port(ports, self.id).outbox;
        own.membership.store(self.membership(), Ordering::Release);
        let lost = self.primary;
        if vote.faulty.contains(lost) {
            let until = self.furthest(vote);
            if self.effect_is_lost(ports, lost, until) {
                return self.halt(ports, Halt::LostEffect, vote.faulty);
            }
            self.former = Some((lost, until));
            self.primary = self.members.lowest().unwrap_or(self.id);
            self.limit = self.cursor;
        }
        self.resume(call, ports)
    }

    /// The position in the stream that some survivor has reached, and to which all will follow it.
    fn furthest(&self, vote: &Vote) -> u64 {
        let entries = self
            .members
            .iter()
            .filter_map(|peer| vote.entries[peer.index()].as_ref());
        entries
            .map(|entry| entry.cursor)
            .max()
            .unwrap_or(self.cursor)
    }

    /// A vote that found nobody: fine a few times, a livelock if it goes on.
    fn nobody(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        let here = self.trace.events();
        let (count, place) = self.spurious;
        self.spurious = if place == here {
            (count + 1, here)
        } else {
            (1, here)
        };
        if self.spurious.0 > SPURIOUS_LIMIT {
            return self.halt(ports, Halt::FailStop(Cause::Livelock), ReplicaSet::empty());
        }
        self.resume(call, ports)
    }

    fn resume(&mut self, call: &mut Call, ports: &Ports<'_>) -> Step {
        match call.task {
            Task::Rendezvous(_) => self.inspect_first(call),
            Task::Room { words, .. } => {
                call.task = Task::Room { words, next: None };
                Step::Again
            }
            Task::Consume => Step::Again,
            Task::Action(_) => self.resume_action(call, ports),
            // Another vote than the one that was asked for, or one that took nobody in.
            Task::Admit(_) => Step::Again,
        }
    }
}

/// Which kind of no majority it is, for the report.
fn no_majority(outside: ReplicaSet, absent: ReplicaSet) -> Cause {
    if outside == absent {
        Cause::Timeout
    } else if absent.is_empty() {
        Cause::Mismatch
    } else {
        Cause::NoMajority
    }
}
