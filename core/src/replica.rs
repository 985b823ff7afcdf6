//! The blocking API: what a sphere of replication calls.

use crate::node::{Call, Done, Node, Ports, Step, WaitFor, port};
use crate::outbox::Outbox;
use crate::pair::Taken;
use crate::primitive::AtomicU64;
use crate::prompt::Meeting;
use crate::ring::Checksum;
use crate::{Halt, Kind, Port, ReplicaId, ReplicaSet, Signature};

/// How often a condition is tested again before a wait for it begins.
const GLANCES: u32 = 4;

/// What the environment says of an awaited peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Test the condition again.
    Retry,
    /// The peer is stopped or too late by the sphere's judgement.
    Overdue,
    /// The peer is dead: what it has not published by now it never will. Only for a sphere that
    /// knows this for certain.
    Gone,
}

/// One wait of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Who is awaited.
    pub peer: ReplicaId,
    /// The peer's doorbell, read before the condition was last tested: the expected value of a
    /// futex wait.
    pub bell: u32,
    /// How often this wait was already asked for in a row, from 0.
    pub round: u32,
    /// What is awaited.
    pub reason: WaitFor,
}

/// Time, waiting, waking and stopping, which each sphere has in its own way.
pub trait Env {
    /// Passes time until the peer's doorbell may have moved off `w.bell`: spin, yield, sleep. A
    /// sleeper uses [`Outbox::begin_sleep`] on `own`. Must return in bounded time.
    fn wait(&mut self, own: &Outbox, w: &Wait) -> Waited;

    /// Passes a moment, as short as can be; false if that is not worth while.
    fn pause(&mut self) -> bool {
        false
    }

    /// Somebody sleeps on `own.doorbell()`.
    fn wake(&mut self, own: &Outbox);

    /// The members agreed that `gone` are faulty; all survivors call it. If `primary` is one of
    /// them, it has no outside effect any more when this returns. Followers have none anyway:
    /// nobody need wait for their end.
    fn exclude(&mut self, own: &Outbox, gone: ReplicaSet, primary: ReplicaId) {
        let _ = (own, gone, primary);
    }
}

/// What [`Replica::consume`] gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consumed {
    /// The next record; so many words of the buffer are its payload.
    Record(usize),
    /// The old primary is gone and this replica is the primary now: it does the call itself.
    TakeOver,
}

/// Actions to perform, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ActionSet(pub u64);

/// One replica and its surroundings.
///
/// After any [`Halt`] the caller parks for ever: the halt word is published, and every further call
/// returns the same halt.
#[derive(Debug)]
pub struct Replica<'a, E: Env> {
    node: Node,
    /// This replica's own published memory, one of `ports`.
    own: Port<'a>,
    /// The only other member's, if there is nothing else to be minded; see [`crate::pair`].
    partner: Option<Port<'a>>,
    ports: Ports<'a>,
    env: E,
}

impl<'a, E: Env> Replica<'a, E> {
    /// A replica at the start of its group.
    ///
    /// # Panics
    /// If `id` is no member, a member has no port, or rings are not of one power-of-two size.
    #[must_use]
    pub fn new(id: ReplicaId, members: ReplicaSet, ports: Ports<'a>, env: E) -> Self {
        let node = Node::new(id, members, &ports);
        let own = *port(&ports, id);
        let mut replica = Self {
            node,
            own,
            partner: None,
            ports,
            env,
        };
        replica.look_around();
        replica
    }

    /// Finds out anew who there is, after whatever may have changed it.
    fn look_around(&mut self) {
        let partner = self.node.partner();
        self.partner = partner.map(|id| *port(&self.ports, id));
    }

    /// This replica's number.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> ReplicaId {
        self.node.id()
    }

    /// The present members.
    #[must_use]
    #[inline]
    pub const fn members(&self) -> ReplicaSet {
        self.node.members()
    }

    /// The member that alone has outside effects.
    #[must_use]
    #[inline]
    pub const fn primary(&self) -> ReplicaId {
        self.node.primary()
    }

    /// Do effects fall to this replica? A new primary first consumes what the lost one left behind.
    #[must_use]
    #[inline]
    pub fn is_primary(&self) -> bool {
        self.node.is_primary()
    }

    /// How often the membership changed.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.node.epoch()
    }

    /// Signature of all events so far.
    #[must_use]
    #[inline]
    pub const fn signature(&self) -> Signature {
        self.node.signature()
    }

    /// Events so far.
    #[must_use]
    #[inline]
    pub const fn events(&self) -> u64 {
        self.node.signature().events
    }

    /// Records published or consumed so far.
    #[must_use]
    #[inline]
    pub const fn records(&self) -> u64 {
        self.node.records()
    }

    /// The surroundings.
    #[must_use]
    pub const fn env(&self) -> &E {
        &self.env
    }

    /// The surroundings, to change them.
    #[must_use]
    pub const fn env_mut(&mut self) -> &mut E {
        &mut self.env
    }

    /// Do members come to [`Replica::handle_action`] whatever they compute? See
    /// [`Node::set_punctual`].
    pub const fn set_punctual(&mut self, punctual: bool) {
        self.node.set_punctual(punctual);
    }

    /// The private state, for tests and fault injection.
    #[must_use]
    pub const fn node_mut(&mut self) -> &mut Node {
        self.partner = None;
        &mut self.node
    }

    /// This replica's own outbox.
    #[must_use]
    #[inline]
    pub const fn outbox(&self) -> &'a Outbox {
        self.own.outbox
    }

    /// Adds an event to the trace: local, no synchronisation. The same call must come in all
    /// replicas, in the same order, with the same arguments (EDCC'15, `add_event`).
    #[inline]
    pub fn add_event(&mut self, kind: Kind, value: u64) {
        self.node.add_event(self.own.outbox, kind, value);
    }

    /// Adds an event with several values, at most [`crate::WIDE`]. The flight recorder has each of
    /// them, so that it can be told which differs; the kinds from its own on, as many as there are
    /// values and one more, are not to be those of other events.
    #[inline]
    pub fn add_wide_event<const N: usize>(&mut self, kind: Kind, values: &[u64; N]) {
        self.node.add_wide_event(self.own.outbox, kind, values);
    }

    /// Meets all members at this point of the trace and compares signatures. May be called
    /// anywhere.
    ///
    /// # Errors
    /// A [`Halt`] if the group cannot go on, or this replica is not to.
    #[inline]
    pub fn rendezvous(&mut self) -> Result<(), Halt> {
        let Some(partner) = self.partner else {
            return self.rendezvous_of_all();
        };
        if self.node.arrive_for(self.own.outbox, partner.outbox) {
            self.env.wake(self.own.outbox);
        }
        if self.node.has_met_at(partner.outbox) {
            return Ok(());
        }
        self.await_partner(&partner)
    }

    /// The partner has not come yet.
    #[inline(never)]
    fn await_partner(&mut self, partner: &Port<'_>) -> Result<(), Halt> {
        if self.glance(|node, _| node.has_met_at(partner.outbox)) {
            return Ok(());
        }
        self.meet(self.node.begin_inspection())
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn rendezvous_of_all(&mut self) -> Result<(), Halt> {
        let met = self.node.try_meet_in(self.own.outbox, &self.ports);
        self.wake_sleepers();
        match met {
            Meeting::Met => Ok(()),
            Meeting::Arrived if self.glance(|node, ports| node.all_met(ports)) => Ok(()),
            Meeting::Arrived => self.meet(self.node.begin_inspection()),
            Meeting::Unable => self.meet(self.node.begin_rendezvous()),
        }
    }

    /// Tests a condition a few times more before this replica waits for it by all rules.
    #[inline(never)]
    fn glance(&mut self, mut condition: impl FnMut(&mut Node, &Ports<'a>) -> bool) -> bool {
        (0..GLANCES).any(|_| self.env.pause() && condition(&mut self.node, &self.ports))
    }

    /// A rendezvous, or the rest of one.
    #[cold]
    #[inline(never)]
    fn meet(&mut self, call: Call) -> Result<(), Halt> {
        match self.run(call, &mut [])? {
            Done::Met => Ok(()),
            other => unreachable!("a rendezvous ends in {other:?}"),
        }
    }

    /// Says, without waiting, that this replica has come to this point of its trace; the number of
    /// the post. At most [`crate::POSTS`] between two rendezvous.
    #[inline]
    pub fn post(&mut self) -> u64 {
        self.node.post(&self.ports)
    }

    /// Posts so far: the number of the next one.
    #[must_use]
    #[inline]
    pub const fn posted(&self) -> u64 {
        self.node.posted()
    }

    /// Have all other members posted the same as this one did at `index`? Then the effect that was
    /// asked for there is agreed before they meet. Only for posts since the last rendezvous, which
    /// has agreed on all before it.
    #[must_use]
    #[inline]
    pub fn is_posted_alike(&self, index: u64) -> bool {
        self.node.is_posted_alike(index, &self.ports)
    }

    /// Adds an event and compares (EDCC'15, `add_compare_event`).
    ///
    /// # Errors
    /// As [`Replica::rendezvous`].
    #[inline]
    pub fn add_compare_event(&mut self, kind: Kind, value: u64) -> Result<(), Halt> {
        self.add_event(kind, value);
        self.rendezvous()
    }

    /// A fault that this replica alone saw: its trace goes astray on purpose, and it calls for a
    /// vote in which it will be the odd one out. Returns an error unless the group has one member.
    ///
    /// # Errors
    /// As [`Replica::rendezvous`].
    pub fn accuse_self(&mut self, kind: Kind, value: u64) -> Result<(), Halt> {
        self.add_event(kind, value);
        self.raise_alarm()
    }

    /// Calls for a vote at this point of the trace, as a rendezvous that trusts nobody.
    ///
    /// # Errors
    /// As [`Replica::rendezvous`].
    pub fn raise_alarm(&mut self) -> Result<(), Halt> {
        if self.members().len() == 1 {
            return Ok(());
        }
        let call = self.node.begin_alarm();
        self.run(call, &mut []).map(|_| ())
    }

    /// Primary: about to have the outside effect whose result is the next record. `repeatable`:
    /// twice is as good as once, so that a new primary may do it again.
    ///
    /// # Panics
    /// If this replica is not the primary.
    #[inline]
    pub fn begin_effect(&mut self, repeatable: bool) {
        self.node.begin_effect_in(self.own.outbox, repeatable);
    }

    /// Primary: publishes the result of a call as the next record and ends the effect.
    ///
    /// The signature at this moment goes with it: the call's arguments are folded in, its result is
    /// not yet. That is where the followers stand when they wait for this record. `payload` is at
    /// most [`crate::MAX_RECORD`] words, and with its header no longer than the ring.
    ///
    /// # Errors
    /// A [`Halt`] found while waiting for room.
    ///
    /// # Panics
    /// If this replica is not the primary or the payload is too long.
    #[inline]
    pub fn publish(&mut self, payload: &[u64]) -> Result<(), Halt> {
        assert!(payload.len() <= crate::MAX_RECORD);
        self.await_room(payload.len())?;
        self.node.commit(&self.ports, payload);
        self.wake_sleepers();
        Ok(())
    }

    /// As [`Replica::publish`], for a payload of `len` words that `fill` writes into the ring
    /// itself: into one piece, or two where the ring wraps. Nobody reads them before `fill` is
    /// done, which gives the checksum of the words as it finds them in the ring.
    ///
    /// # Errors
    /// As [`Replica::publish`].
    ///
    /// # Panics
    /// As [`Replica::publish`].
    #[inline]
    pub fn publish_in_place(
        &mut self,
        len: usize,
        fill: impl FnOnce([&'a [AtomicU64]; 2]) -> Checksum,
    ) -> Result<(), Halt> {
        assert!(len <= crate::MAX_RECORD);
        self.await_room(len)?;
        let filled =
            (self.members().len() > 1).then(|| fill(self.node.payload_cells(&self.ports, len)));
        self.node.seal_filled(&self.ports, len, filled);
        self.node.end_effect(&self.ports);
        self.wake_sleepers();
        Ok(())
    }

    /// As [`Replica::publish_in_place`], if nothing has to be waited for, others read it, and the
    /// ring has a place for it in one piece. `fill` gives the checksum of the words as it finds
    /// them in the ring. False if any of that is not so or `fill` gives none; then nothing has
    /// happened.
    ///
    /// # Panics
    /// As [`Replica::publish`].
    #[inline]
    pub fn try_publish_in_place(
        &mut self,
        len: usize,
        fill: impl FnOnce(&'a [AtomicU64]) -> Option<Checksum>,
    ) -> bool {
        let Some(partner) = self.partner else {
            return self.try_publish_to_all(len, fill);
        };
        let own = self.own;
        let asleep = self.node.publish_for(&own, partner.outbox, len, fill);
        if asleep == Some(true) {
            self.env.wake(own.outbox);
        }
        asleep.is_some()
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn try_publish_to_all(
        &mut self,
        len: usize,
        fill: impl FnOnce(&'a [AtomicU64]) -> Option<Checksum>,
    ) -> bool {
        let published = self.node.try_publish_in(&self.own, &self.ports, len, fill);
        self.wake_sleepers();
        published
    }

    /// Primary: waits for room for a record of so many words.
    #[inline]
    fn await_room(&mut self, len: usize) -> Result<(), Halt> {
        if self.node.has_room(len) {
            return Ok(());
        }
        let call = self.node.begin_publish(len);
        self.run(call, &mut []).map(|_| ())
    }

    /// Follower: the next record of the primary, copied to `out`. See [`Replica::publish`] for
    /// where in the trace to call it. A record longer than `out` counts as a divergence.
    ///
    /// # Errors
    /// A [`Halt`] found while waiting.
    #[inline]
    pub fn consume(&mut self, out: &mut [u64]) -> Result<Consumed, Halt> {
        match self.consume_promptly(out) {
            Some(len) => Ok(Consumed::Record(len)),
            None => self.await_record(out),
        }
    }

    /// Follower: as [`Replica::consume`] if the record is there, or in a moment; how many words it
    /// has. Else nothing has happened, and [`Replica::await_record`] goes on.
    #[inline]
    pub fn consume_promptly(&mut self, out: &mut [u64]) -> Option<usize> {
        let Some(partner) = self.partner else {
            return self.consume_of_any(out);
        };
        let taken = self.consume_wanted(&partner, out, |_| true)?;
        Some(taken.len)
    }

    /// Follower: as [`Replica::consume_promptly`] of a record whose first word `is_wanted`; none
    /// also if that is not known, and nothing has happened then.
    #[inline]
    pub fn consume_promptly_if(
        &mut self,
        out: &mut [u64],
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<usize> {
        let partner = self.partner?;
        let taken = self.consume_wanted(&partner, out, is_wanted)?;
        Some(taken.len)
    }

    #[inline]
    fn consume_wanted(
        &mut self,
        partner: &Port<'a>,
        out: &mut [u64],
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<Taken> {
        if !self.node.sees_record_of(partner)
            && !self.glance(|node, _| node.sees_record_of(partner))
        {
            return None;
        }
        let own = self.own.outbox;
        let taken = self.node.consume_of(own, partner, out, is_wanted)?;
        if taken.asleep {
            self.env.wake(own);
        }
        Some(taken)
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn consume_of_any(&mut self, out: &mut [u64]) -> Option<usize> {
        let mut taken = None;
        let mut take = |node: &mut Node, ports: &Ports<'a>| {
            taken = node.try_consume(ports, out);
            taken.is_some()
        };
        if take(&mut self.node, &self.ports) || self.glance(take) {
            self.wake_sleepers();
        }
        taken
    }

    /// The same of a record of one word.
    #[inline]
    pub fn consume_word_promptly(&mut self) -> Option<u64> {
        let Some(partner) = self.partner else {
            return self.consume_word_of_any();
        };
        if !self.node.sees_record_of(&partner)
            && !self.glance(|node, _| node.sees_record_of(&partner))
        {
            return None;
        }
        let own = self.own.outbox;
        let (word, asleep) = self.node.consume_word_of(own, &partner)?;
        if asleep {
            self.env.wake(own);
        }
        Some(word)
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn consume_word_of_any(&mut self) -> Option<u64> {
        let mut taken = None;
        let mut take = |node: &mut Node, ports: &Ports<'a>| {
            taken = node.try_consume_word(ports);
            taken.is_some()
        };
        if take(&mut self.node, &self.ports) || self.glance(take) {
            self.wake_sleepers();
        }
        taken
    }

    /// Follower: waits for the next record as [`Replica::consume`] does.
    ///
    /// # Errors
    /// As [`Replica::consume`].
    #[cold]
    #[inline(never)]
    pub fn await_record(&mut self, out: &mut [u64]) -> Result<Consumed, Halt> {
        let call = self.node.begin_consume();
        match self.run(call, out)? {
            Done::Record(len) => Ok(Consumed::Record(len)),
            Done::TakeOver => Ok(Consumed::TakeOver),
            other => unreachable!("a consumption ends in {other:?}"),
        }
    }

    /// Primary: as [`Replica::publish`] of one word that is no effect's result, by a shorter way.
    ///
    /// # Errors
    /// As [`Replica::publish`].
    ///
    /// # Panics
    /// As [`Replica::publish`].
    #[inline]
    pub fn publish_word(&mut self, word: u64) -> Result<(), Halt> {
        let Some(partner) = self.partner else {
            return self.publish_word_to_all(word);
        };
        let own = self.own;
        match self.node.publish_word_for(&own, partner.outbox, word) {
            Some(asleep) if asleep => self.env.wake(own.outbox),
            Some(_) => {}
            None => return self.publish(&[word]),
        }
        Ok(())
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn publish_word_to_all(&mut self, word: u64) -> Result<(), Halt> {
        if self.node.try_publish_word(&self.ports, word) {
            self.wake_sleepers();
            return Ok(());
        }
        self.publish(&[word])
    }

    /// Follower: the next record if it is there already and is one word; else nothing has happened,
    /// and [`Replica::consume`] waits for it.
    #[inline]
    pub fn try_consume_word(&mut self) -> Option<u64> {
        let Some(partner) = self.partner else {
            let word = self.node.try_consume_word(&self.ports);
            self.wake_sleepers();
            return word;
        };
        let own = self.own.outbox;
        let (word, asleep) = self.node.consume_word_of(own, &partner)?;
        if asleep {
            self.env.wake(own);
        }
        Some(word)
    }

    /// Flags asynchronous actions, one bit each, for all replicas (EDCC'15, `trigger_action`).
    pub fn trigger_action(&mut self, actions: u64) {
        self.node.trigger_action(&self.ports, actions);
        self.wake_sleepers();
    }

    /// Does any member want actions performed? If [`Replica::handle_action`] gives none although
    /// this said so before, somebody has passed this point, is missing, or calls for a vote.
    #[must_use]
    #[inline]
    pub fn is_flagged(&self) -> bool {
        self.node.flagged(&self.ports) != 0
    }

    /// The actions to perform at this point of the trace; mostly none (EDCC'15, `handle_action`).
    /// The caller folds them into the trace.
    ///
    /// # Errors
    /// A [`Halt`] found while waiting.
    #[inline]
    pub fn handle_action(&mut self) -> Result<ActionSet, Halt> {
        let call = self.node.begin_action();
        match self.run(call, &mut [])? {
            Done::Actions(set) => Ok(ActionSet(set)),
            other => unreachable!("handling actions ends in {other:?}"),
        }
    }

    /// All members, at one point of the trace at which they have just met: one of them is about to
    /// be copied, and the copy will be `newcomer`.
    ///
    /// # Panics
    /// As [`Node::expect_newcomer`].
    pub fn expect_newcomer(&mut self, newcomer: ReplicaId) {
        self.node.expect_newcomer(newcomer);
        self.look_around();
    }

    /// The copy: it is the newcomer from here on, with these surroundings.
    ///
    /// # Panics
    /// As [`Node::become_newcomer`].
    pub fn become_newcomer(&mut self, env: E) {
        self.env = env;
        self.node.become_newcomer(&self.ports);
        self.own = *port(&self.ports, self.node.id());
        self.look_around();
    }

    /// Members, after a rendezvous: has the copy come to it as well? See [`Node::newcomer_came`].
    #[must_use]
    pub fn newcomer_came(&self) -> bool {
        self.node.newcomer_came(&self.ports)
    }

    /// Nothing comes of the admission.
    pub fn forget_newcomer(&mut self) {
        self.node.forget_newcomer();
        self.look_around();
    }

    /// Whom the members have in mind to take in, or who this newcomer is.
    #[must_use]
    pub fn newcomer(&self) -> Option<ReplicaId> {
        self.node.newcomer()
    }

    /// Newcomer: it cannot follow the group. Publishes [`Halt::NotAdmitted`].
    pub fn give_up(&mut self) -> Halt {
        let halt = Halt::NotAdmitted;
        self.node.halt(&self.ports, halt, ReplicaSet::empty());
        self.look_around();
        self.wake_sleepers();
        halt
    }

    /// Is this a copy that has not been taken in?
    #[must_use]
    pub const fn is_newcomer(&self) -> bool {
        self.node.is_newcomer()
    }

    /// Meets the members and takes the newcomer in, or not, in all of them alike.
    ///
    /// # Errors
    /// A [`Halt`] found while waiting; [`Halt::NotAdmitted`] in a newcomer that is refused.
    pub fn admit(&mut self) -> Result<bool, Halt> {
        self.rendezvous()?;
        let call = self.node.begin_admission();
        match self.run(call, &mut [])? {
            Done::Admitted => Ok(true),
            Done::Refused => Ok(false),
            other => unreachable!("an admission ends in {other:?}"),
        }
    }

    /// New primary: what the lost one did in its last effect cannot be found out, so nobody may go
    /// on. Publishes [`Halt::LostEffect`].
    pub fn lose_effect(&mut self) -> Halt {
        let halt = Halt::LostEffect;
        self.node.halt(&self.ports, halt, ReplicaSet::empty());
        self.look_around();
        self.wake_sleepers();
        halt
    }

    /// After a [`Halt`]: do enough others go on without this replica? If not, a sphere in which one
    /// replica can end all of the group does so.
    #[must_use]
    pub fn others_go_on(&self) -> bool {
        self.node.others_go_on(&self.ports)
    }

    #[inline]
    fn run(&mut self, call: Call, out: &mut [u64]) -> Result<Done, Halt> {
        let done = self.step_through(call, out);
        self.look_around();
        done
    }

    #[inline]
    fn step_through(&mut self, mut call: Call, out: &mut [u64]) -> Result<Done, Halt> {
        let mut round = 0;
        self.node.settle(&self.ports);
        loop {
            let step = self.node.step(&mut call, &self.ports, out);
            let step = self.node.checked(step, &self.ports);
            self.wake_sleepers();
            match step {
                Step::Again => round = 0,
                Step::Ready(done) => return Ok(done),
                Step::Halted(halt) => return Err(halt),
                Step::Exclude(gone) => {
                    let primary = self.node.primary();
                    self.env.exclude(self.outbox(), gone, primary);
                }
                Step::Pending(what) => {
                    let w = Wait {
                        peer: what.peer,
                        bell: what.bell,
                        round,
                        reason: what.reason,
                    };
                    match self.env.wait(self.outbox(), &w) {
                        Waited::Retry => {}
                        Waited::Overdue => call.overdue(what.peer),
                        Waited::Gone => call.gone(what.peer),
                    }
                    round = round.saturating_add(1);
                }
            }
        }
    }

    #[inline]
    fn wake_sleepers(&mut self) {
        if self.node.take_wake() {
            self.env.wake(self.outbox());
        }
    }
}
