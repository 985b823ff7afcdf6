//! The private state of one replica, and the calls it makes as explicit step machines.
//!
//! A [`Call`] is one blocking operation in progress. [`Node::step`] advances it by a bounded number
//! of reads of one peer's outbox and at most one publication, then says what it waits for. The
//! blocking API ([`crate::Replica`]), the simulator and the model checker all drive the same code,
//! each with its own idea of time.

use core::fmt;

use crate::action::ActionState;
use crate::admission::Admission;
use crate::fences::Fences;
use crate::guards::Guards;
use crate::halt;
use crate::laggards::Laggards;
use crate::outbox::{FINGERPRINT, Outbox};
use crate::primitive::Ordering;
use crate::vote::Vote;
use crate::word::Seen;
use crate::{Bug, Halt, Kind, MAX_REPLICAS, Port, ReplicaId, ReplicaSet, Signature, Trace};

/// The published memory of all replicas of a group, indexed by id.
pub type Ports<'a> = [Option<Port<'a>>; MAX_REPLICAS];

/// What a replica waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitFor {
    /// The peer's arrival at a rendezvous.
    Arrival,
    /// The primary's next record.
    Record,
    /// Room in the ring, which this follower holds up.
    Room,
    /// The peer's part in a vote.
    Vote,
    /// The peer's entry to `handle_action`.
    Action,
    /// Room in the ring, which a newcomer holds up. It is no member: once it is overdue it is left
    /// behind.
    Newcomer,
}

impl WaitFor {
    /// Is it told by a ring on the stream, for which [`Fences`] may leave the fence to sleepers?
    #[must_use]
    pub const fn is_on_stream(self) -> bool {
        matches!(self, Self::Record | Self::Room | Self::Newcomer)
    }
}

/// An unfulfilled condition: which peer can fulfil it, and its doorbell's value before the
/// condition was tested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Await {
    /// Who is awaited.
    pub peer: ReplicaId,
    /// The peer's doorbell, read before the condition: if it still has this value, sleeping is
    /// right.
    pub bell: u32,
    /// What is awaited.
    pub reason: WaitFor,
}

/// Outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Progress; step on.
    Again,
    /// Nothing to do until the peer's doorbell rings or it is overdue.
    Pending(Await),
    /// The vote removed these: make sure that they have no effect any more, then step on.
    Exclude(ReplicaSet),
    /// The call is complete.
    Ready(Done),
    /// This replica stops for good.
    Halted(Halt),
}

/// Result of a complete call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Done {
    /// All members met with equal signatures.
    Met,
    /// The ring has the room asked for.
    Room,
    /// A record of this many words was consumed.
    Record(usize),
    /// This replica is the primary and has to do the call itself.
    TakeOver,
    /// These actions are to be performed now.
    Actions(u64),
    /// The newcomer is a member.
    Admitted,
    /// Nothing came of the admission.
    Refused,
}

/// Which operation, and how far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Task {
    Rendezvous(crate::rendezvous::Stage),
    Room { words: u64, next: Option<ReplicaId> },
    Consume,
    Action(crate::action::Stage),
    Admit(crate::admission::Stage),
}

/// One blocking operation in progress.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    pub(crate) task: Task,
    pub(crate) vote: Option<Vote>,
    /// Peers that the environment called overdue since the last vote.
    pub(crate) overdue: ReplicaSet,
    /// Those of them that it knows to be dead.
    pub(crate) gone: ReplicaSet,
    /// Peers in whose outbox this replica found what no healthy one writes.
    pub(crate) accused: ReplicaSet,
}

impl Call {
    pub(crate) const fn new(task: Task) -> Self {
        Self {
            task,
            vote: None,
            overdue: ReplicaSet::empty(),
            gone: ReplicaSet::empty(),
            accused: ReplicaSet::empty(),
        }
    }

    /// The environment's judgement that `peer` is stopped or too late. Counts for the present
    /// wait.
    pub fn overdue(&mut self, peer: ReplicaId) {
        self.overdue = self.overdue.with(peer);
    }

    /// The environment's knowledge that `peer` is dead and publishes nothing any more.
    pub fn gone(&mut self, peer: ReplicaId) {
        self.overdue(peer);
        self.gone = self.gone.with(peer);
    }

    /// Does the environment say that `peer` is stopped or too late?
    pub(crate) const fn is_missed(&self, peer: ReplicaId) -> bool {
        self.overdue.contains(peer)
    }

    /// A vote begins, or is over: whoever is missing is to be found missing anew.
    pub(crate) fn forget_missing(&mut self) {
        self.overdue = ReplicaSet::empty();
        self.gone = ReplicaSet::empty();
    }

    /// Does the call take part in a vote?
    #[must_use]
    pub const fn in_vote(&self) -> bool {
        self.vote.is_some()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.task)?;
        if !self.overdue.is_empty() {
            write!(f, " overdue {:?}", self.overdue)?;
        }
        self.vote
            .as_ref()
            .map_or(Ok(()), |vote| write!(f, " {vote}"))
    }
}

/// Private state of one replica: nothing here is shared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    pub(crate) id: ReplicaId,
    pub(crate) members: ReplicaSet,
    /// The members without this replica.
    pub(crate) others: ReplicaSet,
    pub(crate) primary: ReplicaId,
    pub(crate) epoch: u64,
    pub(crate) trace: Trace,
    /// Rendezvous entered so far.
    pub(crate) round: u64,
    /// Signatures of the last two rendezvous, by parity.
    pub(crate) slots: [u64; 2],
    /// Posts so far; see [`crate::posts`].
    pub(crate) posted: u64,
    /// Votes completed.
    pub(crate) votes: u32,
    /// Votes in a row that removed nobody while this replica stood still, and where it stood.
    pub(crate) spurious: (u32, u64),
    /// Who was behind in the last votes.
    pub(crate) laggards: Laggards,
    /// Records published or consumed.
    pub(crate) records: u64,
    /// Words of the stream published or consumed.
    pub(crate) cursor: u64,
    /// The primary may publish up to this position without looking at the followers.
    pub(crate) limit: u64,
    /// The last primary that was lost, and the position up to which its ring is still the stream.
    pub(crate) former: Option<(ReplicaId, u64)>,
    pub(crate) effect: u64,
    pub(crate) actions: ActionState,
    /// A newcomer that is to be taken in.
    pub(crate) admission: Option<Admission>,
    pub(crate) halted: Option<Halt>,
    /// A peer sleeps on this replica's doorbell and is to be woken.
    pub(crate) wake: bool,
    /// Do members come to `handle_action` whatever they compute?
    pub(crate) punctual: bool,
    /// Who issues the fences of sleeping and waking on the stream.
    pub(crate) fences: Fences,
    /// How far the primary's ring is known to be filled; see [`crate::word`].
    pub(crate) seen: Seen,
    pub(crate) guards: Guards,
}

impl Node {
    /// A replica at the start of its group. Writes the layout version into its outbox.
    ///
    /// # Panics
    /// If `id` is no member, a member has no port, or rings are not of one power-of-two size.
    #[must_use]
    pub fn new(id: ReplicaId, members: ReplicaSet, ports: &Ports<'_>) -> Self {
        assert!(members.contains(id), "a replica belongs to its own group");
        let own = port(ports, id);
        assert!(own.ring.len().is_power_of_two());
        assert!(
            u32::try_from(own.ring.len()).is_ok(),
            "see `Port::start_of`"
        );
        for member in members {
            assert!(
                port(ports, member).ring.len() == own.ring.len(),
                "rings are of one size"
            );
        }
        own.outbox.fingerprint.store(FINGERPRINT, Ordering::Relaxed);
        own.outbox
            .membership
            .store(u64::from(members.bits()), Ordering::Release);
        Self {
            id,
            members,
            others: members.without(id),
            primary: members.lowest().unwrap_or(id),
            epoch: 0,
            trace: Trace::new(),
            round: 0,
            slots: [0; 2],
            posted: 0,
            votes: 0,
            spurious: (0, 0),
            laggards: Laggards::default(),
            records: 0,
            cursor: 0,
            limit: own.ring.len() as u64,
            former: None,
            effect: 0,
            actions: ActionState::default(),
            admission: None,
            halted: None,
            wake: false,
            punctual: false,
            fences: Fences::Each,
            seen: Seen::default(),
            guards: Guards::ON,
        }
    }

    /// This replica.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> ReplicaId {
        self.id
    }

    /// The present members.
    #[must_use]
    #[inline]
    pub const fn members(&self) -> ReplicaSet {
        self.members
    }

    /// Is this replica the primary, and has it taken all that a lost primary before it left behind?
    /// Only then do effects fall to it.
    #[must_use]
    #[inline]
    pub fn is_primary(&self) -> bool {
        self.primary == self.id && self.has_drained()
    }

    /// Has it taken all that a lost primary left behind?
    #[inline]
    pub(crate) fn has_drained(&self) -> bool {
        match self.former {
            Some((_, until)) => self.cursor >= until,
            None => true,
        }
    }

    /// Whose ring holds the next record.
    #[inline]
    pub(crate) fn source(&self) -> ReplicaId {
        self.holder(self.cursor)
    }

    /// Whose ring holds the record at `position`, which is not far behind.
    #[inline]
    pub(crate) fn holder(&self, position: u64) -> ReplicaId {
        match self.former {
            Some((former, until)) if position < until => former,
            _ => self.primary,
        }
    }

    /// Where in the stream the next record begins.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.cursor
    }

    /// The member that alone has outside effects.
    #[must_use]
    #[inline]
    pub const fn primary(&self) -> ReplicaId {
        self.primary
    }

    /// How often the membership changed.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Signature of all events so far.
    #[must_use]
    #[inline]
    pub const fn signature(&self) -> Signature {
        self.trace.signature()
    }

    /// Records published or consumed so far.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Why this replica stopped, if it did.
    #[must_use]
    pub const fn halted(&self) -> Option<Halt> {
        self.halted
    }

    /// Says whether members come to `handle_action` whatever they compute, because an interrupt
    /// brings them there. Then one that stays away is missing, and is voted out there. All members
    /// say the same.
    pub const fn set_punctual(&mut self, punctual: bool) {
        self.punctual = punctual;
    }

    /// Says who issues the fences of sleeping and waking on the stream, [`Fences::Each`] in the
    /// beginning.
    pub const fn set_fences(&mut self, fences: Fences) {
        self.fences = fences;
    }

    /// Takes guards away, for tests of the tests.
    #[cfg(feature = "planted")]
    pub const fn set_guards(&mut self, guards: Guards) {
        self.guards = guards;
    }

    /// Does a peer sleep on this replica's doorbell? Clears the mark.
    #[inline]
    pub const fn take_wake(&mut self) -> bool {
        core::mem::replace(&mut self.wake, false)
    }

    /// Folds an event into the trace and notes it in the flight recorder; see
    /// [`crate::Replica::add_event`].
    #[inline]
    pub fn add_event(&mut self, own: &Outbox, kind: Kind, value: u64) {
        self.trace.add(kind, value);
        own.recorder.note(self.trace.events(), kind, &[value]);
    }

    /// The same of an event with several values; see [`crate::Replica::add_wide_event`].
    #[inline]
    pub fn add_wide_event<const N: usize>(&mut self, own: &Outbox, kind: Kind, values: &[u64; N]) {
        self.trace.add_wide(kind, values);
        own.recorder.note(self.trace.events(), kind, values);
    }

    /// Flips one bit of what this replica keeps of its signature at the last rendezvous, for fault
    /// injection.
    pub const fn flip_slot(&mut self, bit: u32) {
        let slot = (self.round & 1) as usize;
        self.slots[slot] ^= 1 << (bit % 64);
    }

    /// Flips one bit of the trace, for fault injection.
    pub fn flip_trace(&mut self, bit: u32) {
        let mut signature = self.trace.signature();
        signature.a ^= 1 << (bit % 64);
        self.trace = Trace::resume(signature);
    }

    /// A rendezvous to step through.
    #[must_use]
    #[inline]
    pub const fn begin_rendezvous(&self) -> Call {
        Call::new(Task::Rendezvous(crate::rendezvous::Stage::Arrive))
    }

    /// A vote without a cause to step through; all members start one at the same point.
    #[must_use]
    pub fn begin_alarm(&mut self) -> Call {
        let mut call = self.begin_rendezvous();
        self.enter_vote(&mut call);
        call
    }

    /// A consumption to step through.
    #[must_use]
    #[inline]
    pub const fn begin_consume(&self) -> Call {
        Call::new(Task::Consume)
    }

    /// A wait for room for a record of `payload` words, after which [`Node::commit`] cannot fail.
    #[must_use]
    #[inline]
    pub const fn begin_publish(&self, payload: usize) -> Call {
        Call::new(Task::Room {
            words: crate::ring::record_words(payload),
            next: None,
        })
    }

    /// The same, which also waits until [`Node::all_have_passed`] this position.
    ///
    /// # Panics
    /// If no record has been published since: nobody could pass it.
    #[must_use]
    pub fn begin_publish_past(&self, ports: &Ports<'_>, payload: usize, position: u64) -> Call {
        let passed = position + self.passing();
        assert!(passed <= self.cursor, "there is a record to pass it by");
        // As if the ring were to be free up to there.
        let len = port(ports, self.id).ring.len() as u64;
        let beyond = len.saturating_sub(self.cursor - passed);
        Call::new(Task::Room {
            words: beyond.max(crate::ring::record_words(payload)),
            next: None,
        })
    }

    /// A `handle_action` to step through.
    #[must_use]
    #[inline]
    pub const fn begin_action(&self) -> Call {
        Call::new(Task::Action(crate::action::Stage::Enter))
    }

    /// Advances `call`. `out` receives the payload of a consumed record.
    #[inline]
    pub fn step(&mut self, call: &mut Call, ports: &Ports<'_>, out: &mut [u64]) -> Step {
        if let Some(halt) = self.halted {
            return Step::Halted(halt);
        }
        if call.vote.is_some() {
            if self.is_newcomer() {
                return self.give_up(ports);
            }
            return self.step_vote(call, ports);
        }
        match call.task {
            Task::Rendezvous(stage) => self.step_rendezvous(call, stage, ports),
            Task::Room { words, next } => self.step_room(call, words, next, ports),
            Task::Consume => self.step_consume(call, ports, out),
            Task::Action(stage) => self.step_action(call, stage, ports),
            Task::Admit(stage) => self.step_admit(call, stage, ports),
        }
    }

    /// Rings the own doorbell and notes whether somebody sleeps on it (publisher's half of the
    /// handshake).
    #[inline]
    pub(crate) fn publish_bell(&mut self, ports: &Ports<'_>) {
        self.ring_bell(port(ports, self.id).outbox, ports, Fences::Each);
    }

    /// The same for what others await on the stream.
    #[inline]
    pub(crate) fn publish_bell_of_stream(&mut self, ports: &Ports<'_>) {
        self.ring_bell(port(ports, self.id).outbox, ports, self.fences);
    }

    /// The same with the own outbox at hand, and these fences.
    #[inline]
    pub(crate) fn ring_bell(&mut self, own: &Outbox, ports: &Ports<'_>, fences: Fences) {
        let early = self.guards.off(Bug::SkipReread) && self.is_slept_on(ports);
        if !self.guards.off(Bug::DoorbellFirst) && !self.guards.off(Bug::NoBell) {
            own.ring();
        }
        if self.guards.off(Bug::SkipReread) {
            self.wake |= early;
            return;
        }
        if !self.guards.off(Bug::NoFence) {
            fences.after_ring();
        }
        self.wake |= self.is_slept_on(ports);
    }

    /// Does a member sleep on the own doorbell, or a newcomer?
    #[inline]
    fn is_slept_on(&self, ports: &Ports<'_>) -> bool {
        let audience = match self.admission {
            Some(admission) => self.others.with(admission.newcomer).without(self.id),
            None => self.others,
        };
        let bells = |peer| port(ports, peer).outbox.sleeping_on();
        audience
            .iter()
            .map(bells)
            .fold(ReplicaSet::empty(), ReplicaSet::union)
            .contains(self.id)
    }

    /// The members are these from here on.
    pub(crate) fn set_members(&mut self, members: ReplicaSet) {
        self.members = members;
        self.others = members.without(self.id);
    }

    /// Stops for good and says so.
    #[cold]
    pub(crate) fn halt(&mut self, ports: &Ports<'_>, halt: Halt, culprits: ReplicaSet) -> Step {
        port(ports, self.id)
            .outbox
            .halt
            .store(halt::encode(halt, culprits), Ordering::Release);
        self.halted = Some(halt);
        self.publish_bell(ports);
        Step::Halted(halt)
    }

    /// The number of the vote that is running or comes next.
    #[inline]
    pub(crate) const fn next_vote(&self) -> u32 {
        self.votes.wrapping_add(1)
    }

    /// Has any other member called for a vote that is not over? An absurd number counts as a call:
    /// the vote makes its writer put it right.
    #[inline]
    pub(crate) fn alarmed(&self, ports: &Ports<'_>) -> bool {
        if self.guards.off(Bug::SkipAlarmCheck) {
            return false;
        }
        self.others
            .iter()
            .any(|peer| port(ports, peer).outbox.alarm.load(Ordering::Acquire) > self.votes)
    }

    /// Will `peer` never fulfil what is awaited: halted, or overdue by the environment's judgement?
    #[inline]
    pub(crate) fn missing(call: &Call, ports: &Ports<'_>, peer: ReplicaId) -> bool {
        call.overdue.contains(peer) || port(ports, peer).outbox.halt.load(Ordering::Acquire) != 0
    }
}

/// The port of a member; members without one are refused by [`Node::new`].
#[inline]
pub(crate) fn port<'p, 'a>(ports: &'p Ports<'a>, id: ReplicaId) -> &'p Port<'a> {
    match &ports[id.index()] {
        Some(port) => port,
        None => panic!("a member has a port"),
    }
}
