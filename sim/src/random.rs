//! The seeded simulator: random program, schedule and fault, all a function of one seed.

use rcoe_core::{Guards, POSTS, ReplicaId};

use crate::check::{self, Charge};
use crate::fault::Fault;
use crate::group::{Arena, Group};
use crate::process::Outcome;
use crate::program::{self, Op};
use crate::rng::Rng;

/// Steps after which a run counts as hung.
pub const STEP_LIMIT: u64 = 40_000;

/// One run, as a pure function of its seed.
#[derive(Debug)]
pub struct Run {
    group: Group,
    charge: Charge,
    rng: Rng,
    plan: Option<(Fault, usize, u64)>,
    /// When each process began its present wait, and for whom.
    since: Vec<Option<(u64, usize)>>,
    /// Each process's last step was a vain one since anything changed.
    stalled: Vec<bool>,
    clock: u64,
    trace: bool,
}

/// A run that went well.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Steps taken.
    pub steps: u64,
    /// Who was hit by what.
    pub fault: Option<(usize, Fault)>,
    /// Whether a copy was taken in.
    pub admitted: bool,
    /// Whether the fault struck, and a replica was removed or all stopped.
    pub noticed: bool,
}

/// A run in which a checker found something.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// After how many steps.
    pub step: u64,
    /// Who was hit by what.
    pub fault: Option<(usize, Fault)>,
}

/// Simulates the run of `seed` with `n` replicas, or a number of them that the seed gives.
///
/// # Errors
/// What a checker found.
pub fn simulate(
    seed: u64,
    n: Option<usize>,
    guards: Guards,
    trace: bool,
) -> Result<Summary, Failure> {
    let mut rng = Rng::new(seed);
    let n = n.unwrap_or(2 + rng.index(4));
    let len = 3 + rng.index(12);
    let program = program::random(&mut rng, len);
    let mut group = Group::new(n, &program, guards);
    group.triggers = u8::try_from(rng.below(3)).expect("below 3");
    for process in &mut group.processes {
        process.node.set_punctual(seed & 1 != 0);
    }
    let plan = (!rng.one_in(8)).then(|| {
        let at = rng.below(20 * (len * n) as u64);
        (Fault::random(&mut rng), rng.index(n), at)
    });
    if trace {
        println!("{n} replicas, plan {plan:?}, program {program:?}");
    }
    Run::new(group, rng, plan, trace).go()
}

/// The same with a group that has lost a replica and gets a copy of another in its place.
///
/// # Errors
/// What a checker found.
pub fn simulate_reduced(
    seed: u64,
    n: Option<usize>,
    guards: Guards,
    trace: bool,
) -> Result<Summary, Failure> {
    let mut rng = Rng::new(seed ^ 0x7265_6475_6365);
    let n = n.unwrap_or(3 + rng.index(3));
    let len = 3 + rng.index(10);
    let mut program = program::random(&mut rng, len);
    for op in [Op::Orders, Op::Orders, Op::Orders, Op::Recall] {
        program.insert(rng.index(program.len()), op);
    }
    let id = |index| ReplicaId::new(u8::try_from(index).expect("below eight"));
    let lost = rng.index(n);
    let donor = (lost + 1 + rng.index(n - 1)) % n;
    let group = Group::reduced(n, id(lost), id(donor), &program, guards);
    let plan = (!rng.one_in(4)).then(|| {
        let at = rng.below(24 * (program.len() * n) as u64);
        let fault = match rng.below(6) {
            0 => Fault::FlipAtRest(9),
            _ => Fault::random(&mut rng),
        };
        (fault, rng.index(n), at)
    });
    if trace {
        println!("{n} replicas, R{lost} from R{donor}, plan {plan:?}, program {program:?}");
    }
    Run::new(group, rng, plan, trace).go()
}

/// The same with a group of two that defers effects, by a generator of its own.
///
/// # Errors
/// What a checker found.
pub fn simulate_deferring(seed: u64, guards: Guards, trace: bool) -> Result<Summary, Failure> {
    let mut rng = Rng::new(seed ^ 0x6465_6665_7272_6564);
    let n = [2, 2, 3, 4][rng.index(4)];
    let len = 3 + rng.index(12);
    let program = program::random_deferring(&mut rng, len);
    let room = [1, 2, 3, 5, POSTS][rng.index(5)];
    let mut group = Group::new(n, &program, guards);
    group.triggers = u8::try_from(rng.below(3)).expect("below 3");
    for process in &mut group.processes {
        process.node.set_punctual(seed & 1 != 0);
        process.deferred.room = room;
    }
    let plan = (!rng.one_in(6)).then(|| {
        let at = rng.below(6 * (program.len() * n) as u64);
        (Fault::random_deferring(&mut rng), rng.index(n), at)
    });
    if trace {
        println!("room for {room}, plan {plan:?}, program {program:?}");
    }
    Run::new(group, rng, plan, trace).go()
}

/// The same with a group that reads a file, which somebody may change.
///
/// # Errors
/// What a checker found.
pub fn simulate_reading(seed: u64, guards: Guards, trace: bool) -> Result<Summary, Failure> {
    let mut rng = Rng::new(seed ^ 0x7265_6164_696e_6773);
    let n = [2, 2, 2, 3][rng.index(4)];
    let len = 2 + rng.index(8);
    let program = program::random_reading(&mut rng, len);
    let group = Group::new(n, &program, guards);
    let plan = (!rng.one_in(8)).then(|| {
        let at = rng.below(8 * (program.len() * n) as u64);
        (Fault::random_reading(&mut rng), rng.index(n), at)
    });
    if trace {
        println!("{n} replicas, plan {plan:?}, program {program:?}");
    }
    Run::new(group, rng, plan, trace).go()
}

impl Run {
    fn new(group: Group, rng: Rng, plan: Option<(Fault, usize, u64)>, trace: bool) -> Self {
        let n = group.processes.len();
        Self {
            charge: Charge::new(&group.program),
            group,
            rng,
            plan,
            since: vec![None; n],
            stalled: vec![false; n],
            clock: 0,
            trace,
        }
    }

    fn go(mut self) -> Result<Summary, Failure> {
        let mut arena = Arena::new();
        while (0..self.group.processes.len()).any(|index| self.group.runs(index)) {
            if self.clock >= STEP_LIMIT {
                return Err(self.failure("hangs".into()));
            }
            self.clock += 1;
            self.strike();
            if self.group.is_verifiable() && self.rng.one_in(8) {
                self.group.verify();
            }
            self.turn(&mut arena);
            if let Err(what) = check::always(&self.group, &self.charge) {
                return Err(self.failure(what));
            }
        }
        match check::finally(&self.group, &self.charge) {
            Ok(()) => Ok(self.summary()),
            Err(what) => Err(self.failure(what)),
        }
    }

    fn struck(&self) -> Option<(usize, Fault)> {
        self.charge.victim.zip(self.charge.fault)
    }

    fn failure(&self, what: String) -> Failure {
        Failure {
            what,
            step: self.clock,
            fault: self.struck(),
        }
    }

    fn summary(&self) -> Summary {
        let stopped = self
            .group
            .processes
            .iter()
            .any(|process| process.halt().is_some());
        let noticed = stopped || !self.group.world.excluded.is_empty();
        let taken_in = |index: usize| {
            let process = &self.group.processes[index];
            process.born && !process.node.is_newcomer()
        };
        Summary {
            admitted: self.group.lost.is_some_and(taken_in),
            steps: self.clock,
            fault: self.struck(),
            noticed,
        }
    }

    /// Lets the planned fault happen when its time has come.
    fn strike(&mut self) {
        let Some((fault, victim, at)) = self.plan else {
            return;
        };
        if self.clock >= at && fault.strike(&mut self.group, victim) {
            self.charge.strike(&self.group, victim, fault);
            self.plan = None;
            self.stalled.fill(false);
            if self.trace {
                println!("{:5} R{victim} is hit: {fault:?}", self.clock);
            }
        }
    }

    fn turn(&mut self, arena: &mut Arena) {
        let index = self.rng.index(self.group.processes.len());
        if self.group.processes[index].slow {
            // It wakes some time; if nothing else happens, then now.
            self.stalled[index] = true;
            if self.rng.one_in(256) || self.all_stalled() {
                self.group.processes[index].slow = false;
                self.stalled.fill(false);
            }
            return;
        }
        if self.group.triggers > 0 && self.rng.one_in(40) && self.group.runs(index) {
            self.group.trigger(arena, index);
        }
        self.release(arena, index);
        let before = self.group.processes[index].clone();
        match self.group.step(arena, index) {
            Outcome::Progress => self.progress(index),
            Outcome::Over => {
                self.stalled[index] = true;
                if before.halt().is_none() && self.group.processes[index].halt().is_some() {
                    self.progress(index);
                }
            }
            Outcome::Waiting(what) => self.wait(index, what.peer),
        }
        if self.trace && before != self.group.processes[index] {
            let process = &self.group.processes[index];
            let (at, stage, halt) = (process.at, process.stage, process.halt());
            let call = process
                .call
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            println!(
                "{:5} R{index} at {at} {stage:?} {halt:?} {call}",
                self.clock
            );
        }
    }

    /// Before its own steps, at random, the primary releases what it has deferred.
    fn release(&mut self, arena: &mut Arena, index: usize) {
        if self.group.processes[index].deferred.is_out() {
            return;
        }
        while self.rng.one_in(3) && self.group.release(arena, index) {
            if self.trace {
                println!("{:5} R{index} releases", self.clock);
            }
        }
    }

    fn progress(&mut self, index: usize) {
        self.since[index] = None;
        self.stalled.fill(false);
    }

    fn all_stalled(&self) -> bool {
        self.stalled.iter().all(|&stalled| stalled)
    }

    /// A process waits: the sphere's clock may find its peer overdue. That is so at random for
    /// peers that are gone or stopped. If nobody gets on at all, the oldest wait runs out first; a
    /// wait for somebody who is gone is never younger than the waits that hang on it.
    fn wait(&mut self, index: usize, awaited: ReplicaId) {
        let peer = awaited.index();
        let (began, _) = *self.since[index].get_or_insert((self.clock, peer));
        self.stalled[index] = true;
        let gone = !self.group.runs(peer);
        let late = self.group.processes[peer].slow;
        let lively = |other: usize| self.group.runs(other) && !self.group.processes[other].slow;
        let first = self
            .since
            .iter()
            .flatten()
            .all(|&(since, other)| since >= began && lively(other));
        let expired = self.all_stalled() && first && !late;
        if gone && self.rng.one_in(4) || late && self.rng.one_in(16) || expired {
            self.group.miss(index, awaited);
            self.progress(index);
        }
    }
}
