//! The blocking API: what a sphere of replication calls.

mod env;
mod stream;

use crate::fences::Fences;
use crate::node::{Call, Done, Node, Ports, Step, port};
use crate::outbox::Outbox;
use crate::prompt::Meeting;
use crate::{Halt, Kind, Port, ReplicaId, ReplicaSet, Signature};

pub use self::env::{Env, Wait, Waited};
pub use self::stream::{Consumed, Placed};

/// How often a condition is tested again before a wait for it begins.
const GLANCES: u32 = 4;

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

    /// Where in the stream the next record begins.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.node.position()
    }

    /// Primary: have all others said that they have taken a record that begins at this position, or
    /// later? Each is then done with all before it.
    #[must_use]
    pub fn all_have_passed(&self, position: u64) -> bool {
        self.node.all_have_passed(&self.ports, position)
    }

    /// Follower: says how far it has come, which it otherwise does now and then.
    pub fn tell_position(&mut self) {
        self.node.tell_position(&self.ports);
        self.wake_sleepers();
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

    /// Who issues the fences of sleeping and waking? See [`Node::set_fences`].
    pub const fn set_fences(&mut self, fences: Fences) {
        self.node.set_fences(fences);
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
    #[inline(always)]
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
        self.rendezvous_inline()
    }

    /// The same within the caller.
    ///
    /// # Errors
    /// As [`Replica::rendezvous`].
    #[inline(always)]
    pub fn rendezvous_inline(&mut self) -> Result<(), Halt> {
        let Some(partner) = self.partner else {
            return self.rendezvous_of_all();
        };
        let (round, asleep) = self.node.arrive_for(self.own.outbox, partner.outbox);
        if asleep {
            self.env.wake(self.own.outbox);
        }
        let met = self.node.has_met_in(partner.outbox, round)
            || self.glance(|node, _| node.has_met_at(partner.outbox));
        if met { Ok(()) } else { self.await_others() }
    }

    /// The rest of a rendezvous to which somebody has not come yet.
    #[cold]
    #[inline(never)]
    fn await_others(&mut self) -> Result<(), Halt> {
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
            Meeting::Arrived => self.await_others(),
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
            self.wake_sleepers();
            match step {
                Step::Again => round = 0,
                Step::Ready(done) => return Ok(done),
                Step::Halted(halt) => return Err(self.founded(halt)),
                Step::Exclude(gone) => self.exclude(gone)?,
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

    /// Shuts others out, if most have confirmed that they are faulty. That is asked here, next to
    /// what cannot be undone: a flipped register may have led here past all that decides it.
    ///
    /// # Errors
    /// If they have not: this replica is broken.
    #[cold]
    #[inline(never)]
    pub fn exclude(&mut self, gone: ReplicaSet) -> Result<(), Halt> {
        match self.node.checked(Step::Exclude(gone), &self.ports) {
            Step::Halted(halt) => Err(halt),
            _ => {
                let primary = self.node.primary();
                self.env.exclude(self.outbox(), gone, primary);
                Ok(())
            }
        }
    }

    /// Why this replica goes no further, if that is what it has decided; else it is broken.
    #[cold]
    #[inline(never)]
    fn founded(&mut self, halt: Halt) -> Halt {
        match self.node.checked(Step::Halted(halt), &self.ports) {
            Step::Halted(halt) => halt,
            _ => halt,
        }
    }

    #[inline]
    fn wake_sleepers(&mut self) {
        if self.node.take_wake() {
            self.env.wake(self.outbox());
        }
    }
}
