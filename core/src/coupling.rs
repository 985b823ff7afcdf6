//! Agreement on one point of execution between calls, for replicas that are interrupted anywhere.
//!
//! Intuition: a signal is due, a slice is over, and each replica is stopped wherever it is. The one
//! that is ahead becomes the *owner* of the *target*, its own state; the others run to it, each
//! looking for that state with what can be compared on the way (registers: the [`Stub`]), and
//! comparing the rest when they think they are there. Who does not come within its budget may have
//! been ahead: then its state is the next target, and budgets are six times as large. A call is a
//! point already, so if anybody comes to one, all go there.
//!
//! An attempt is a *generation*; it has phases, each with one target. A phase ends when all have
//! reported; all judge by the same reports, so all judge alike: agreed, another phase, or, after
//! [`LAST_PHASE`] of them, a verdict. Where that is to come soon it takes fewer phases, and budgets
//! grow less towards the end ([`Pace`]). A majority that stands at one target then is right, and
//! names the others; without one all stop. Who is missing is charged in a round of its own, in
//! which sets only grow. Who is left goes on in the next *epoch*, from the first phase.
//!
//! A *newcomer*, a copy that is to be taken in, comes to points with the others and is compared
//! with them, but has no vote: it may have what damaged the one it was copied from. Nobody heeds
//! what it concludes, and it goes if it is missing or differs.
//!
//! Contract: every wait is for one peer and ends when that is found overdue; phases, refusals and
//! budgets are bounded. Whoever acts at the point has seen that all have reached it, and says so
//! before it acts: a peer that judges later adopts that. A single fault in registers, memory, in a
//! stub, a list of pages or on a board makes no two healthy replicas act at different states.
//!
//! Not covered: flips behind the comparison, which the next event or point shows; two faults at
//! once; and how a sphere interrupts, patches code or finds which pages were written.

mod board;
mod compare;
mod counts;
mod effort;
mod owner;
mod post;
mod rounds;
mod runner;
mod time;
mod trend;
mod verdict;

use core::marker::PhantomData;

pub use board::{Board, Boards, PAGES, REGISTERS, SHEET, Shape};
pub use compare::{EVERYTHING, EXTRA, Extra, Machine, Stub, VECTORS, list_digest};
pub use counts::{Counted, way};
pub use post::Stamp;
pub use rounds::{VISITS, rounds};
pub use time::{Backend, Counter, LogicalTime, Pace, Standing, States};
pub use trend::{MOVING, Trend};

use crate::guards::{Bug, Guards};
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};
use board::{Came, Report};
use counts::Passes;
use effort::Effort;

/// The last phase of an attempt, unless some do not count, whoever is not with a majority is still
/// looked for, or there are more than three replicas.
pub const LAST_PHASE: u8 = 10;

/// Points at which a replica may be refused in one phase.
pub const REFUSALS: u8 = 60;

/// What is to be done, or awaited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Progress; step on.
    Again,
    /// Nothing until this peer has said something, or is found overdue.
    Wait(ReplicaId),
    /// Go on to a place where a search can stop others, or to the next call; then
    /// [`Coupler::placed`].
    Place,
    /// Go on until the state is that of [`Coupler::stub`], through calls before the events of
    /// [`Coupler::target`], up to the one there; then [`Coupler::ran`].
    Run {
        /// What may be spent, in the unit of [`Standing::progress`].
        budget: u64,
        /// Whether the present place is one that was refused.
        again: bool,
    },
    /// All stand at this point. The attempt is over.
    Agreed(Point),
    /// These are members no more: make sure that they have no effect, then step on.
    Removed(ReplicaSet),
    /// This replica stops for good.
    Halted(End),
    /// No attempt is under way.
    Idle,
}

/// A point that all agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// Of which attempt.
    pub generation: u32,
    /// Events up to there.
    pub events: u64,
    /// Whether it is a call, so that only signatures were compared.
    pub at_call: bool,
}

/// How a run to the target ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stop {
    /// The stub found all that it compares.
    Matched,
    /// The budget is spent.
    Overran,
    /// It was before the target, has looked for it all the time, and is behind it, as counts tell
    /// ([`Counted::is_before`]).
    Passed,
    /// At the call behind the target, or at the target if that is a call.
    Call,
}

/// Why a replica stops for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// A majority found it missing, or differing.
    Convicted,
    /// States differ, and too few agree to tell who is right.
    Diverged,
    /// Some are missing, and those left are no majority.
    Missing,
    /// Charges contradict each other.
    Disagreement,
    /// Its own account of what it has written, or of where it was, does not hold.
    Broken,
    /// The others have gone on without it.
    PassedOver,
    /// Most targets were where nobody can be stopped: that is no fault of anybody's.
    Unplaced,
}

/// How far an attempt is, for one replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Idle,
    /// About to say what came of the phase.
    Report,
    /// Waiting for all to say so.
    Gather,
    /// The owner looks for a place to be reached at.
    Place,
    /// It publishes its state.
    Publish,
    /// It answers questions until all have reported.
    Serve,
    /// Others wait for that state.
    Fetch,
    /// They run.
    Run {
        again: bool,
    },
    /// They have run.
    Ran(Stop),
    /// The answer with digests is awaited; this is the own one.
    Hear(u64),
    /// The answer with the words of an area is awaited.
    HearArea(u64),
    /// All have come, by what the owner says; this replica is about to say what it finds there.
    Seal,
    /// Waiting for all to say so.
    Compare,
    /// Somebody is charged; have the others heard who?
    Judge {
        told: bool,
    },
    Over(End),
}

/// One replica's part in the protocol: private state, and a machine that [`Coupler::step`]
/// advances.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coupler<T> {
    id: ReplicaId,
    members: ReplicaSet,
    /// Those of the members that conclude anything: all but a newcomer.
    voters: ReplicaSet,
    stamp: Stamp,
    stage: Stage,
    /// Which of two places its last report is in. Whoever leaves an attempt and begins another one
    /// must not overwrite what others have not read, whatever the numbers of their phases.
    other: bool,
    owner: ReplicaId,
    /// Of the present phase.
    came: Came,
    alike: ReplicaSet,
    target: Standing,
    /// This replica was before the target when it began to run, and has passed it since.
    was_before: bool,
    passed: bool,
    stub: Stub,
    left: u64,
    refused: u8,
    answered: [u8; MAX_REPLICAS],
    /// The last majority that stood at one target.
    joint: ReplicaSet,
    /// Phases in a row in which nobody came to the same owner.
    vain: u8,
    /// What counts have shown.
    passes: Passes,
    /// Of the attempt.
    effort: Effort,
    /// How far apart all were when it began.
    lag: u64,
    overdue: ReplicaSet,
    charged: ReplicaSet,
    pace: Pace,
    guards: Guards,
    backend: PhantomData<T>,
}

impl<T: Backend> Coupler<T> {
    /// A replica that takes part in no attempt yet.
    #[must_use]
    pub fn new(id: ReplicaId, members: ReplicaSet, pace: Pace) -> Self {
        Self {
            id,
            members,
            voters: members,
            stamp: Stamp::default(),
            stage: Stage::Idle,
            other: false,
            owner: id,
            came: Came::Apart,
            alike: ReplicaSet::empty(),
            target: Standing::default(),
            was_before: false,
            passed: false,
            stub: Stub::new(&[0; REGISTERS], 0),
            left: 0,
            refused: 0,
            answered: [0; MAX_REPLICAS],
            joint: ReplicaSet::empty(),
            vain: 0,
            passes: Passes::default(),
            effort: Effort::default(),
            lag: 0,
            overdue: ReplicaSet::empty(),
            charged: ReplicaSet::empty(),
            pace,
            guards: Guards::ON,
            backend: PhantomData,
        }
    }

    /// The copy of this replica that is to become `newcomer`.
    #[must_use]
    pub fn copy(&self, newcomer: ReplicaId) -> Self {
        Self {
            id: newcomer,
            ..self.clone()
        }
    }

    /// From now on it has this much time.
    pub const fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Takes guards away, for tests of the tests.
    #[cfg(feature = "planted")]
    pub const fn set_guards(&mut self, guards: Guards) {
        self.guards = guards;
    }

    /// The present members, a newcomer among them.
    #[must_use]
    pub const fn members(&self) -> ReplicaSet {
        self.members
    }

    /// The moment of the attempt, or of the last one.
    #[must_use]
    pub const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Is no attempt under way?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// Why this replica stopped, if it did.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        match self.stage {
            Stage::Over(end) => Some(end),
            _ => None,
        }
    }

    /// The last majority of the attempt that stood at one target without the others.
    #[must_use]
    pub const fn joint(&self) -> ReplicaSet {
        self.joint
    }

    /// What is looked for during [`Order::Run`].
    #[must_use]
    pub const fn stub(&self) -> &Stub {
        &self.stub
    }

    /// The same, for fault injection.
    pub const fn stub_mut(&mut self) -> &mut Stub {
        &mut self.stub
    }

    /// Where the target is: calls before its events are gone through.
    #[must_use]
    pub const fn target(&self) -> &Standing {
        &self.target
    }

    /// How far the last one was behind the first when the attempt began, in the unit of
    /// [`Standing::progress`]: work that it would have had to do without the attempt as well. 0 as
    /// long as not all have reported.
    #[must_use]
    pub const fn lag(&self) -> u64 {
        self.lag
    }

    /// Does a peer take part in an attempt that this replica does not know of yet? Then it is to be
    /// interrupted.
    #[must_use]
    pub fn is_wanted(&self, boards: &Boards<'_>) -> bool {
        self.is_idle() && self.newest(boards) > self.stamp.generation
    }

    /// The newest attempt of the present members.
    fn newest(&self, boards: &Boards<'_>) -> u32 {
        let newest = self.others().iter().map(|it| board(boards, it).newest());
        let now = newest.filter(|stamp| stamp.epoch == self.stamp.epoch);
        now.map(|stamp| stamp.generation).max().unwrap_or(0)
    }

    /// Takes part in the attempt of a peer, at whatever place, if there is one
    /// ([`Coupler::is_wanted`]).
    pub fn join(&mut self, boards: &Boards<'_>) {
        if self.is_wanted(boards) {
            self.stamp.generation = self.newest(boards);
            self.restart();
        }
    }

    /// Begins an attempt, at whatever place.
    ///
    /// # Panics
    /// If one is under way.
    pub fn begin(&mut self) {
        assert!(self.is_idle(), "one attempt at a time");
        self.stamp.generation += 1;
        self.restart();
    }

    /// The members have changed, at one event for all. An attempt under way begins anew.
    pub fn set_members(&mut self, members: ReplicaSet) {
        self.set_epoch(members, members, self.stamp.epoch.wrapping_add(1));
    }

    /// The same where others count the changes, and only these members have a vote.
    ///
    /// # Panics
    /// If somebody has a vote who is no member.
    pub fn set_epoch(&mut self, members: ReplicaSet, voters: ReplicaSet, epoch: u16) {
        assert!(voters.minus(members).is_empty(), "voters are members");
        self.members = members;
        self.voters = match self.guards.off(Bug::NewcomerVotes) {
            true => members,
            false => voters,
        };
        self.stamp.epoch = epoch;
        if !self.is_idle() && self.end().is_none() {
            self.restart();
        }
    }

    /// Leaves an attempt that came to no end, so that another one can begin. Whoever does so has
    /// agreed on nothing.
    pub const fn give_up(&mut self) {
        self.stage = Stage::Idle;
    }

    fn restart(&mut self) {
        self.stamp.phase = 0;
        self.stamp.turn = 0;
        self.stage = Stage::Report;
        self.came = Came::Apart;
        self.passed = false;
        self.alike = ReplicaSet::empty();
        self.joint = ReplicaSet::empty();
        self.vain = 0;
        self.passes = Passes::default();
        self.effort = Effort::default();
        self.lag = 0;
        self.overdue = ReplicaSet::empty();
        self.charged = ReplicaSet::empty();
    }

    /// The environment's judgement that `peer`, for whom this replica waits, is stopped, dead or
    /// too late.
    pub fn overdue(&mut self, peer: ReplicaId) {
        self.overdue = self.overdue.with(peer);
    }

    /// [`Order::Place`] is done.
    pub fn placed(&mut self) {
        assert!(self.stage == Stage::Place, "as ordered");
        self.stage = Stage::Publish;
    }

    /// [`Order::Place`] is done, and nobody will be stopped there.
    pub fn unplaced(&mut self) {
        self.placed();
        self.effort.nowhere = true;
    }

    /// [`Order::Run`] is done, at this cost.
    pub fn ran(&mut self, stop: Stop, spent: u64) {
        assert!(matches!(self.stage, Stage::Run { .. }), "as ordered");
        self.left = self.left.saturating_sub(spent);
        self.stage = Stage::Ran(stop);
    }

    fn others(&self) -> ReplicaSet {
        self.members.without(self.id)
    }

    /// Advances by at most one post.
    pub fn step(&mut self, boards: &Boards<'_>, machine: &mut impl Machine) -> Order {
        match self.stage {
            Stage::Idle => return Order::Idle,
            Stage::Over(end) => return Order::Halted(end),
            _ => {}
        }
        if let Some(order) = self.heed(boards) {
            return order;
        }
        match self.stage {
            Stage::Report => self.report(boards, machine),
            Stage::Gather => self.gather(boards),
            Stage::Place if machine.standing().at_call => {
                self.stage = Stage::Publish;
                Order::Again
            }
            Stage::Place => Order::Place,
            Stage::Publish => self.publish(boards, machine),
            Stage::Serve => self.serve(boards, machine),
            Stage::Fetch => self.fetch(boards, machine),
            Stage::Run { again } => Order::Run {
                budget: self.left,
                again,
            },
            Stage::Ran(stop) => self.look(stop, boards, machine),
            Stage::Hear(own) => self.hear(own, boards, machine),
            Stage::HearArea(area) => self.hear_area(area, boards, machine),
            Stage::Seal => self.seal(boards, machine),
            Stage::Compare => self.compare(boards),
            Stage::Judge { told } => self.judge(told, boards),
            Stage::Idle | Stage::Over(_) => Order::Idle,
        }
    }

    fn report(&mut self, boards: &Boards<'_>, machine: &impl Machine) -> Order {
        self.other = !self.other;
        let report = Report {
            came: self.came,
            alike: self.alike,
            nowhere: self.effort.nowhere,
            spoilt: self.effort.spoilt,
            passed: core::mem::take(&mut self.passed),
            standing: machine.standing(),
        };
        board(boards, self.id).put_report(self.other, self.moment(), &report);
        self.stage = Stage::Gather;
        Order::Again
    }

    /// The stamp of this phase, whatever was asked in it.
    const fn moment(&self) -> Stamp {
        Stamp {
            turn: 0,
            ..self.stamp
        }
    }

    /// The phase is over for this replica.
    const fn came(&mut self, came: Came) -> Order {
        self.came = came;
        self.stage = Stage::Report;
        Order::Again
    }

    /// Waits for `peer`, unless that is overdue: then it is charged.
    fn await_peer(&mut self, peer: ReplicaId) -> Order {
        if self.overdue.contains(peer) {
            return self.charge(ReplicaSet::empty().with(peer));
        }
        Order::Wait(peer)
    }

    const fn over(&mut self, end: End) -> Order {
        self.stage = Stage::Over(end);
        Order::Halted(end)
    }
}

/// The board of a member.
fn board<'a>(boards: &Boards<'a>, id: ReplicaId) -> Board<'a> {
    boards[id.index()].expect("every member has a board")
}
