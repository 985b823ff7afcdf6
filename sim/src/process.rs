//! One replica that runs a program: private state only, advanced one shared access at a time.
//!
//! Every other operation, another half in each replica, tries the way without a step machine
//! first, as the agent does in all: that one is a single step here, and whoever has to wait goes on
//! with the step machine.

mod deferring;
mod reading;

use rcoe_core::primitive::Ordering;
use rcoe_core::{
    Await, Bug, Call, Cause, Checksum, Done, Guards, Halt, Kind, Meeting, Node, Outbox, Ports,
    ReplicaId, ReplicaSet, Step,
};

use crate::deferred::Deferred;
use crate::program::{AT_REST, Op, absorb, answer};
use crate::reading::{Reading, content};
use crate::supervisor::{Order, Supervisor};

const COMPUTE: Kind = Kind(1);
const INPUT: Kind = Kind(2);
const OUTPUT: Kind = Kind(3);
const COMPARE: Kind = Kind(4);
const RESULT: Kind = Kind(5);
const ACTION: Kind = Kind(6);
const ORDER: Kind = Kind(7);
const RECALL: Kind = Kind(8);
const DEFERRED: Kind = Kind(9);
const READ: Kind = Kind(10);
const DIFFERENCE: Kind = Kind(11);

/// The surroundings of a group: what went out and who was shut out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct World {
    /// Outputs in the order in which they happened: operation and value.
    pub outputs: Vec<(usize, u64)>,
    /// Operations that read from the world, in order.
    pub inputs: Vec<usize>,
    /// Replicas that the group excluded.
    pub excluded: ReplicaSet,
    /// Deferred effects among the outputs.
    pub released: u64,
    /// Those of them that were the primary: they are gone before anybody goes on. A follower has no
    /// effects and may run on for a while.
    pub stopped: ReplicaSet,
    /// Who copies replicas and has the copies admitted.
    pub supervisor: Supervisor,
    /// A donor that has met the others and is to be copied.
    pub donor: Option<usize>,
    /// Version of the file that each replica reads by itself.
    pub version: u8,
    /// What was read of it: operation and piece, the last one of an operation counts.
    pub pieces: Vec<(usize, u64)>,
    /// The piece that the primary keeps for its sibling.
    pub kept: u64,
    /// Somebody who halted ended all, as one core ends a machine. The others run on here, so that
    /// what they would have done can be seen.
    pub ended: bool,
}

/// What a broken replica takes the next step of the protocol for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Misstep {
    /// A vote has removed these.
    Exclude(ReplicaSet),
    /// The group cannot go on.
    Stop,
}

impl Misstep {
    const fn step(self) -> Step {
        match self {
            Self::Exclude(gone) => Step::Exclude(gone),
            Self::Stop => Step::Halted(Halt::FailStop(Cause::Timeout)),
        }
    }
}

/// Where in an operation a process is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// At its start.
    Start,
    /// In a call of the protocol.
    Called,
    /// Meeting the others to carry out an order.
    Ordered(Order),
    /// In the admission of a newcomer.
    Admitting,
    /// Primary: about to announce an effect.
    Announce,
    /// Primary: about to have it.
    Perform,
    /// Primary: about to publish the result.
    Commit,
    /// Primary: about to end the effect.
    Settle,
    /// About to post that a deferred effect was asked for.
    Post,
    /// Primary, all have met: about to release what is deferred.
    Flush,
    /// Follower: about to read a piece of the file by itself.
    Read,
    /// Follower: about to compare it with what the primary tells.
    Digest,
    /// Follower, whose piece is another: about to look whether the file was changed.
    Look,
    /// Follower: about to compare the piece that the primary keeps.
    Kept,
}

/// Instead of an answer: something deferred is not out yet, so all meet first.
const MEET: u64 = u64::MAX;

/// A replica and its program counter.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// The protocol's private state.
    pub node: Node,
    /// Next operation.
    pub at: usize,
    /// How far in it.
    pub stage: Stage,
    /// The protocol call in progress.
    pub call: Option<Call>,
    /// The program's state in use.
    pub accumulator: u64,
    /// The program's data at rest.
    pub at_rest: u64,
    /// Both as they were when a replica was copied: what the supervisor compares.
    pub frozen: Option<[u64; 2]>,
    /// False for a number that nobody has had so far.
    pub born: bool,
    /// Result of an effect that is not yet published.
    pub result: u64,
    /// Effects that were asked for and are to be had later.
    pub deferred: Deferred,
    /// What it keeps of reading files by itself.
    pub reading: Reading,
    /// False once it died or was shut out.
    pub alive: bool,
    /// Stopped for the time being.
    pub slow: bool,
    /// It takes the next step of the protocol for this.
    pub misstep: Option<Misstep>,
}

/// What a step of a process was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It got on.
    Progress,
    /// It waits.
    Waiting(Await),
    /// It will never step again: finished, halted or dead.
    Over,
}

impl Process {
    /// A process at the start of its program.
    #[must_use]
    pub const fn new(node: Node, guards: Guards) -> Self {
        Self {
            node,
            at: 0,
            stage: Stage::Start,
            call: None,
            accumulator: 0,
            at_rest: AT_REST,
            frozen: None,
            born: true,
            result: 0,
            deferred: Deferred::new(guards),
            reading: Reading::new(guards),
            alive: true,
            slow: false,
            misstep: None,
        }
    }

    /// Why it stopped.
    #[must_use]
    pub const fn halt(&self) -> Option<Halt> {
        self.node.halted()
    }

    /// Did it run to the end of a program of this length?
    #[must_use]
    pub const fn finished(&self, len: usize) -> bool {
        self.at >= len
    }

    /// Can it still step?
    #[must_use]
    pub const fn runs(&self, len: usize) -> bool {
        self.alive && self.halt().is_none() && !self.finished(len)
    }

    /// One step.
    pub fn step(&mut self, program: &[Op], ports: &Ports<'_>, world: &mut World) -> Outcome {
        if !self.runs(program.len()) {
            return Outcome::Over;
        }
        match self.call.take() {
            Some(call) => self.step_call(call, program, ports, world),
            None => self.step_program(program, ports, world),
        }
    }

    fn step_call(
        &mut self,
        mut call: Call,
        program: &[Op],
        ports: &Ports<'_>,
        world: &mut World,
    ) -> Outcome {
        let mut out = [0];
        let step = self.node.step(&mut call, ports, &mut out);
        let step = self.misstep.take().map_or(step, Misstep::step);
        match self.node.checked(step, ports) {
            Step::Again => self.call = Some(call),
            Step::Pending(what) => {
                self.call = Some(call);
                return Outcome::Waiting(what);
            }
            Step::Exclude(gone) => {
                world.excluded = world.excluded.union(gone);
                if gone.contains(self.node.primary()) {
                    world.stopped = world.stopped.with(self.node.primary());
                }
                self.call = Some(call);
            }
            Step::Halted(halt) => {
                let ends = !matches!(halt, Halt::Convicted | Halt::NotAdmitted);
                world.ended |= ends && !self.node.others_go_on(ports);
                // Who only believes that it has halted does nothing more either.
                self.alive &= self.halt().is_some();
                return Outcome::Over;
            }
            Step::Ready(done) => match self.stage {
                Stage::Ordered(order) => self.carry_out(order, world),
                Stage::Admitting => self.next(),
                _ => self.complete(done, out[0], program[self.at], ports),
            },
        }
        Outcome::Progress
    }

    /// All have met to carry out an order.
    fn carry_out(&mut self, order: Order, world: &mut World) {
        match order {
            Order::Copy { newcomer, donor } => {
                self.node.expect_newcomer(number(newcomer));
                self.frozen = Some([self.accumulator, self.at_rest]);
                self.next();
                if self.node.id().index() == usize::from(donor) {
                    world.donor = Some(usize::from(donor));
                }
            }
            Order::Admit => {
                self.call = Some(self.node.begin_admission());
                self.stage = Stage::Admitting;
            }
        }
    }

    /// The copy of a donor begins as the newcomer.
    pub fn become_newcomer(&mut self, ports: &Ports<'_>) {
        self.node.become_newcomer(ports);
        self.deferred.disown();
        self.slow = false;
        self.misstep = None;
    }

    /// A protocol call is over: on with the operation.
    fn complete(&mut self, done: Done, record: u64, op: Op, ports: &Ports<'_>) {
        match done {
            Done::Admitted | Done::Refused => unreachable!("no admission is under way"),
            // A vote without a cause compares nobody who comes too late for it.
            Done::Met if op == Op::Alarm => self.next(),
            Done::Met if op == Op::Read => self.use_piece(ports),
            Done::Met => self.met(op, ports),
            Done::Room => self.stage = Stage::Commit,
            Done::Record(_) => self.take(record, op, ports),
            Done::TakeOver if self.deferred.is_settling() => self.stage = Stage::Flush,
            Done::TakeOver => self.stage = Stage::Announce,
            Done::Actions(0) => self.next(),
            Done::Actions(set) => {
                self.event(ACTION, set, ports);
                self.next();
            }
        }
    }

    fn step_program(&mut self, program: &[Op], ports: &Ports<'_>, world: &mut World) -> Outcome {
        let op = program[self.at];
        match self.stage {
            Stage::Start => self.start(op, ports, world),
            Stage::Called | Stage::Ordered(_) | Stage::Admitting => {
                unreachable!("a call is in progress")
            }
            Stage::Announce => self.announce(op, ports),
            Stage::Perform if op == Op::Look && self.must_meet() => {
                self.result = MEET;
                self.called(self.node.begin_publish(1));
            }
            Stage::Perform if matches!(op, Op::Reply | Op::Look) && !self.deferred.is_out() => {
                return Outcome::Waiting(self.await_reply());
            }
            Stage::Perform => self.perform(op, ports, world),
            Stage::Commit => {
                if op == Op::Read {
                    self.result = self.tell_piece(ports, world).word();
                }
                if self.is_prompt() && self.publish_promptly(ports) {
                    self.own(op, ports);
                } else {
                    self.node.commit_record(ports, &[self.result]);
                    self.stage = Stage::Settle;
                }
            }
            Stage::Settle => {
                self.node.end_effect(ports);
                self.own(op, ports);
            }
            Stage::Post => {
                self.deferred.post(&mut self.node, ports);
                self.absorb(answer(self.at), ports);
            }
            Stage::Flush => {
                self.release(ports, world);
                if self.deferred.is_out() {
                    self.tell_settled(op, ports);
                }
            }
            Stage::Read => self.read_own(world, ports),
            Stage::Digest => self.compare_piece(ports),
            Stage::Look => self.look(world, ports),
            Stage::Kept => self.compare_kept(ports),
        }
        Outcome::Progress
    }

    /// Publishes the result and ends the effect, if the ring holds the record in one piece.
    fn publish_promptly(&mut self, ports: &Ports<'_>) -> bool {
        let Some(place) = self.node.place(ports, 1) else {
            return false;
        };
        let [cell] = place.payload() else {
            return false;
        };
        cell.store(self.result, Ordering::Relaxed);
        let checksum = Checksum::EMPTY.add(cell.load(Ordering::Relaxed));
        self.node.publish_at(ports, &place, checksum);
        true
    }

    fn announce(&mut self, op: Op, ports: &Ports<'_>) {
        let repeatable = match op {
            Op::Input { repeatable } | Op::Output { repeatable } => repeatable,
            Op::Orders | Op::Read => true,
            Op::Reply | Op::Look => false,
            _ => unreachable!("only inputs and outputs have effects"),
        };
        self.node.begin_effect(ports, repeatable);
        self.stage = Stage::Perform;
    }

    fn perform(&mut self, op: Op, ports: &Ports<'_>, world: &mut World) {
        match op {
            Op::Output { .. } => world.outputs.push((self.at, self.accumulator)),
            Op::Orders => {}
            Op::Read => {
                self.read_piece(world);
                world
                    .pieces
                    .push((self.at, content(self.at, world.version)));
            }
            _ => world.inputs.push(self.at),
        }
        self.result = match op {
            Op::Orders => Order::encode(world.supervisor.order(self.node.members())),
            _ => answer(self.at),
        };
        let call = match op {
            Op::Read => self.await_place(ports),
            _ => self.node.begin_publish(1),
        };
        self.called(call);
    }

    fn start(&mut self, op: Op, ports: &Ports<'_>, world: &mut World) {
        match op {
            Op::Compute(value) => {
                self.event(COMPUTE, self.accumulator ^ self.label(), ports);
                self.accumulator = absorb(self.accumulator, value);
                self.next();
            }
            Op::Recall => {
                self.accumulator = absorb(self.accumulator, self.at_rest);
                self.event(RECALL, self.accumulator ^ self.label(), ports);
                self.next();
            }
            Op::Input { .. } | Op::Orders | Op::Read => {
                self.event(INPUT, self.accumulator ^ self.label(), ports);
                self.fetch(op, ports);
            }
            Op::Output { .. } | Op::Compare => {
                let kind = if op == Op::Compare { COMPARE } else { OUTPUT };
                self.event(kind, self.accumulator ^ self.label(), ports);
                self.meet(op, ports, world);
            }
            Op::Reply | Op::Look => {
                self.event(INPUT, self.accumulator ^ self.label(), ports);
                let waits = op == Op::Reply || self.deferred.masks;
                if waits && self.deferred.is_pending() {
                    self.meet(op, ports, world);
                } else {
                    self.fetch(op, ports);
                }
            }
            Op::Deferred if self.deferred.is_full() => self.meet(op, ports, world),
            Op::Deferred => self.ask(ports),
            Op::Act => self.called(self.node.begin_action()),
            Op::Alarm => {
                let call = self.node.begin_alarm();
                self.called(call);
            }
        }
    }

    /// Whether it tries this operation without a step machine first.
    const fn is_prompt(&self) -> bool {
        (self.at + self.node.id().index()).is_multiple_of(2)
    }

    /// Meets the others before an operation.
    fn meet(&mut self, op: Op, ports: &Ports<'_>, world: &mut World) {
        while self.deferred.guards.off(Bug::ReleaseUnmet) && self.alive && !self.deferred.is_out() {
            self.release(ports, world);
        }
        let met = match self.is_prompt() {
            true => self.node.try_meet(ports),
            false => Meeting::Unable,
        };
        match met {
            Meeting::Met => self.complete(Done::Met, 0, op, ports),
            Meeting::Arrived => self.called(self.node.begin_inspection()),
            Meeting::Unable => self.called(self.node.begin_rendezvous()),
        }
    }

    /// Gets the answer to an input or output: by doing it or from the stream.
    fn fetch(&mut self, op: Op, ports: &Ports<'_>) {
        if self.node.is_primary() {
            self.stage = Stage::Announce;
        } else {
            self.listen(op, ports);
        }
    }

    /// Takes the next record from the stream.
    fn listen(&mut self, op: Op, ports: &Ports<'_>) {
        let mut record = [0];
        if self.is_prompt() && self.node.try_consume(ports, &mut record).is_some() {
            self.take(record[0], op, ports);
        } else {
            self.called(self.node.begin_consume());
        }
    }

    fn called(&mut self, call: Call) {
        self.call = Some(call);
        self.stage = Stage::Called;
    }

    /// Primary: the record of its effect is there.
    fn own(&mut self, op: Op, ports: &Ports<'_>) {
        match op {
            Op::Read => self.told_piece(ports),
            _ => self.take(self.result, op, ports),
        }
    }

    /// The answer to an input, an output or a question for orders.
    fn take(&mut self, value: u64, op: Op, ports: &Ports<'_>) {
        if self.deferred.hear() {
            return self.act(op, ports);
        }
        if op == Op::Look && self.deferred.is_open() && value == MEET {
            return self.called(self.node.begin_rendezvous());
        }
        if op == Op::Look {
            self.deferred.went_out();
        }
        if op == Op::Read {
            return self.hear_piece(value, ports);
        }
        if op != Op::Orders {
            return self.absorb(value, ports);
        }
        self.event(ORDER, value, ports);
        self.result = 0;
        match Order::decode(value) {
            None => self.next(),
            Some(order) => {
                self.call = Some(self.node.begin_rendezvous());
                self.stage = Stage::Ordered(order);
            }
        }
    }

    fn absorb(&mut self, value: u64, ports: &Ports<'_>) {
        self.event(RESULT, value, ports);
        self.accumulator = absorb(self.accumulator, value);
        self.next();
    }

    fn next(&mut self) {
        self.at += 1;
        self.stage = Stage::Start;
        self.result = 0;
    }

    /// Tells operations apart in the trace, as call numbers and arguments do.
    const fn label(&self) -> u64 {
        (self.at as u64) << 48
    }

    fn event(&mut self, kind: Kind, value: u64, ports: &Ports<'_>) {
        let own = self.outbox(ports);
        self.node.add_event(own, kind, value);
    }

    fn outbox<'a>(&self, ports: &Ports<'a>) -> &'a Outbox {
        let own = ports[self.node.id().index()].as_ref();
        own.expect("an own port").outbox
    }
}

/// The replica with this number.
fn number(index: u8) -> ReplicaId {
    ReplicaId::new(index)
}
