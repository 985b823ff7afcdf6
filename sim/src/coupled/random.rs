//! Runs in which a group agrees again and again, each a function of its seed.

use rcoe_core::coupling::{Backend, Counter, States};
use rcoe_core::{Guards, ReplicaId, ReplicaSet};

use super::check::Charge;
use super::fault::Fault;
use super::group::{Arena, Group, Moved, SOON};
use super::vm::{self, Meter, Replica};
use crate::random::{Failure as Found, Summary as Ended};
use crate::rng::Rng;

/// Moves after which a run counts as hung.
const LIMIT: u64 = 2_000_000;

/// A run that went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Moves.
    pub steps: u64,
    /// Points agreed on between calls.
    pub points: u64,
    /// Calls agreed on.
    pub calls: u64,
    /// The last phase that was needed for one.
    pub phases: u8,
    /// A replica was removed, or all stopped.
    pub noticed: bool,
    /// A copy was taken in.
    pub admitted: bool,
    /// That happened during an attempt.
    pub amid: bool,
    /// The replica that was copied had been hit, so that both have the same damage.
    pub copied: bool,
}

/// A run in which something does not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What.
    pub what: String,
    /// After so many moves.
    pub step: u64,
    /// Who was hit by what.
    pub fault: Option<(usize, Fault)>,
}

impl From<Summary> for Ended {
    fn from(summary: Summary) -> Self {
        Self {
            steps: summary.steps,
            fault: None,
            admitted: summary.admitted,
            noticed: summary.noticed,
        }
    }
}

impl From<Failure> for Found {
    fn from(failure: Failure) -> Self {
        Self {
            what: format!("{} (fault: {:?})", failure.what, failure.fault),
            step: failure.step,
            fault: None,
        }
    }
}

struct Run<T> {
    group: Group<T>,
    charge: Charge,
    rng: Rng,
    plan: Option<(Fault, usize, u64)>,
    /// That happens to a member of a majority that has met, amid an attempt, in this phase at the
    /// earliest.
    phase: Option<u8>,
    /// The most attempts, and whether one that was removed is ended at once.
    attempts: u32,
    prompt: bool,
    lost: Option<ReplicaId>,
    /// A copy that has no vote yet.
    newcomer: Option<usize>,
    /// What hits a replica just before it is copied.
    copied: Option<Fault>,
    summary: Summary,
    trace: bool,
}

/// Simulates the run of `seed` with `n` replicas, or a number that the seed gives.
///
/// # Errors
/// What does not hold.
pub fn simulate(
    seed: u64,
    n: Option<usize>,
    guards: Guards,
    trace: bool,
) -> Result<Summary, Failure> {
    match seed % 8 {
        7 => both::<Counter>(seed, n, guards, trace),
        _ => both::<States>(seed, n, guards, trace),
    }
}

/// Simulates a run of three in which one is hit amid an attempt, when another one has met it and
/// the third has not yet.
///
/// # Errors
/// What does not hold.
pub fn simulate_amid(seed: u64, guards: Guards, trace: bool) -> Result<Summary, Failure> {
    let mut run = Run::<States>::new(seed, Some(3), guards, trace);
    let mut rng = Rng::new(seed ^ 0x616d_6964);
    run.phase = Some(1 + u8::try_from(rng.below(8)).expect("few"));
    run.plan = Some((Fault::of_registers(&mut rng), rng.index(3), 0));
    run.copied = None;
    run.go()
}

/// The run, and, if a fault hits a board only, that without it: nothing must tell them apart.
fn both<T: Backend>(
    seed: u64,
    n: Option<usize>,
    guards: Guards,
    trace: bool,
) -> Result<Summary, Failure> {
    let run = Run::<T>::new(seed, n, guards, trace);
    let Some((fault @ (Fault::FlipBoard(..) | Fault::Garble(..)), victim, at)) = run.plan else {
        return run.go();
    };
    let summary = run.go()?;
    let mut other = Run::<T>::new(seed, n, guards, false);
    other.plan = None;
    let without = other.go()?;
    if summary == without {
        return Ok(summary);
    }
    Err(Failure {
        what: format!("damage to a board tells: {summary:?} but for it {without:?}"),
        step: at,
        fault: Some((victim, fault)),
    })
}

impl<T: Backend> Run<T> {
    fn new(seed: u64, n: Option<usize>, guards: Guards, trace: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0x636f_7570_6c65);
        let n = n.unwrap_or([2, 2, 3, 3, 4][rng.index(5)]);
        let program = vm::random(&mut rng);
        let mut group = Group::new(n, &program, guards);
        for process in &mut group.processes {
            process.replica.rate = 1 + rng.below(4);
            process.replica.visit = [0, 2, 12, 40][rng.index(4)];
            process.replica.meter = (seed % 4 < 2).then(|| Meter {
                others: rng.below(3),
                ..Meter::default()
            });
            if seed.is_multiple_of(3) {
                process.coupler.set_pace(SOON);
            }
        }
        let plan = (!rng.one_in(4)).then(|| {
            let late = [1, 1, 1, 20][rng.index(4)];
            let at = rng.below(80 * n as u64 * late);
            (Fault::random(&mut rng), rng.index(n), at)
        });
        if trace {
            println!("{n} replicas, plan {plan:?}, program {program:?}");
        }
        Self {
            group,
            charge: Charge::new(Replica::new(&program, T::EXACT)),
            plan,
            phase: None,
            attempts: u32::try_from(3 + rng.below(6)).expect("few"),
            prompt: rng.one_in(2),
            copied: rng.one_in(4).then(|| Fault::of_registers(&mut rng)),
            rng,
            lost: None,
            newcomer: None,
            summary: Summary::default(),
            trace,
        }
    }

    fn go(mut self) -> Result<Summary, Failure> {
        let mut arena = Arena::new(self.group.processes.len());
        while !self.is_over() {
            self.summary.steps += 1;
            if self.summary.steps > LIMIT {
                return Err(self.failure("hangs".into()));
            }
            self.strike();
            self.copy();
            self.admit();
            let index = self.rng.index(self.group.processes.len());
            self.turn(&mut arena, index)
                .and_then(|()| self.charge.always(&self.group))
                .map_err(|what| self.failure(what))?;
        }
        let end = self.finally();
        match end {
            Ok(()) => Ok(self.summary),
            Err(what) => Err(self.failure(what)),
        }
    }

    fn failure(&self, what: String) -> Failure {
        Failure {
            what,
            step: self.summary.steps,
            fault: self.charge.struck,
        }
    }

    fn members(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.group.processes.len()).filter(|&index| self.group.runs(index))
    }

    /// All that still run are at the end of the program, or nobody runs.
    fn is_over(&self) -> bool {
        let mut members = self.members();
        let done = |index: usize| {
            let process = &self.group.processes[index];
            process.coupler.is_idle() && process.replica.at_exit() && !process.slow
        };
        let attempts = self.charge.last().map_or(0, |last| last.point.generation);
        let alike = self
            .members()
            .all(|index| self.group.processes[index].coupler.stamp().generation == attempts);
        members.all(done) && alike
    }

    /// The healthy ones have done the same, all of it.
    fn finally(&mut self) -> Result<(), String> {
        let mut ends = Vec::new();
        for index in (0..self.group.processes.len()).filter(|&i| self.charge.is_healthy(i)) {
            let process = &self.group.processes[index];
            self.summary.noticed |= process.end().is_some();
            if process.end().is_none() {
                ends.push((index, process.replica.vm.clone()));
            }
        }
        match ends.windows(2).find(|pair| pair[0].1 != pair[1].1) {
            Some(pair) => Err(format!("in the end healthy ones differ: {pair:?}")),
            None => Ok(()),
        }
    }

    fn strike(&mut self) {
        let Some((fault, victim, at)) = self.plan else {
            return;
        };
        let coupler = &self.group.processes[victim].coupler;
        let generation = coupler.stamp().generation;
        let has_met = self.phase.is_none_or(|phase| {
            let joint = coupler.joint().iter().any(|id| id.index() == victim);
            joint && coupler.stamp().phase >= phase
        });
        if self.summary.steps >= at && has_met && fault.strike(&mut self.group, victim) {
            self.charge.struck = Some((victim, fault));
            self.charge.generation = generation;
            self.plan = None;
            if self.trace {
                println!("{:5} R{victim} is hit: {fault:?}", self.summary.steps);
            }
        }
    }

    /// Has a copy take the place of the lost one, if all stand at one call.
    fn copy(&mut self) {
        let Some(lost) = self.lost else {
            return;
        };
        let members: Vec<usize> = self.members().filter(|&at| at != lost.index()).collect();
        let forgotten = members.iter().all(|&at| {
            let coupler = &self.group.processes[at].coupler;
            !coupler.members().contains(lost)
        });
        if !forgotten || !self.have_met(&members) || !self.rng.one_in(2) {
            return;
        }
        let donor = members[self.rng.index(members.len())];
        self.summary.amid |= !self.group.processes[donor].coupler.is_idle();
        self.strike_donor(donor, lost);
        self.group.copy(lost.index(), donor);
        self.lost = None;
        self.newcomer = Some(lost.index());
        self.charge.replaced = true;
    }

    /// Do these stand at one call, with nothing under way or with the same?
    fn have_met(&self, members: &[usize]) -> bool {
        let place = |at: usize| {
            let process = &self.group.processes[at];
            let (coupler, stamp) = (&process.coupler, process.coupler.stamp());
            let moment = (stamp.generation, stamp.epoch, coupler.is_idle());
            let replica = &process.replica;
            (replica.at_call(), replica.events(), moment)
        };
        let Some(&first) = members.first() else {
            return false;
        };
        place(first).0 && members.iter().all(|&at| place(at) == place(first))
    }

    /// What is copied may be damaged.
    fn strike_donor(&mut self, donor: usize, newcomer: ReplicaId) {
        let Some(fault) = self.copied.take() else {
            return;
        };
        if !fault.strike(&mut self.group, donor) {
            return;
        }
        let all = ReplicaSet::all(self.group.processes.len());
        let donor = all.iter().nth(donor).expect("a member");
        self.charge.copied = ReplicaSet::empty().with(donor).with(newcomer);
        self.summary.copied = true;
        self.summary.noticed = true;
        if self.trace {
            println!(
                "{:5} {donor} is hit, and copied: {fault:?}",
                self.summary.steps
            );
        }
    }

    /// Gives the copy a vote, if all stand at one call.
    fn admit(&mut self) {
        let Some(newcomer) = self.newcomer else {
            return;
        };
        let members: Vec<usize> = self.members().collect();
        let known = |&at: &usize| {
            let mut members = self.group.processes[at].coupler.members().iter();
            members.any(|id| id.index() == newcomer)
        };
        if !members.contains(&newcomer) || !members.iter().all(known) {
            self.newcomer = None;
        } else if self.charge.copied.is_empty() && self.have_met(&members) && self.rng.one_in(8) {
            self.group.admit(newcomer);
            self.newcomer = None;
            self.summary.admitted = true;
        }
    }

    fn turn(&mut self, arena: &mut Arena, index: usize) -> Result<(), String> {
        if !self.group.runs(index) {
            return Ok(());
        }
        if self.group.processes[index].slow {
            self.group.processes[index].slow = !self.rng.one_in(64);
            return Ok(());
        }
        if self.group.processes[index].coupler.is_idle() {
            self.wander(arena, index);
            return Ok(());
        }
        let steps = 1 + self.rng.index(400);
        let phase = self.group.processes[index].coupler.stamp().phase;
        let moved = self.group.advance(arena, index, steps);
        self.show(index, moved);
        match moved {
            Moved::Waits(peer) => self.wait(index, peer),
            Moved::Acted => {
                let acted = self.group.processes[index].acted.clone();
                let acted = acted.expect("it has just acted");
                self.summary.phases = self.summary.phases.max(phase);
                self.summary.points += u64::from(!acted.point.at_call);
                self.summary.calls += u64::from(acted.point.at_call);
                self.charge.acted(index, &acted)?;
            }
            Moved::Removed(gone) => {
                self.charge.removed(index, gone)?;
                self.summary.noticed = true;
                self.remove(gone);
            }
            Moved::On | Moved::Rests => {}
        }
        Ok(())
    }

    fn show(&self, index: usize, moved: Moved) {
        if self.trace && !matches!(moved, Moved::Waits(_)) {
            let process = &self.group.processes[index];
            let (ip, events) = (process.replica.vm.ip, process.replica.events());
            let (stamp, end) = (process.coupler.stamp(), process.end());
            println!(
                "{:5} R{index} {moved:?} at {ip} event {events}, {stamp:?} {end:?}",
                self.summary.steps
            );
        }
    }

    fn remove(&mut self, gone: ReplicaSet) {
        for id in gone {
            self.lost = Some(id);
            if self.prompt {
                self.group.processes[id.index()].alive = false;
            }
        }
    }

    /// Between attempts: goes on with the program, or begins one.
    fn wander(&mut self, arena: &mut Arena, index: usize) {
        if self.group.is_wanted(arena, index) && self.rng.one_in(2) {
            self.group.processes[index].coupler.begin();
            return;
        }
        let process = &mut self.group.processes[index];
        let spins = matches!(process.replica.next(), vm::Ins::Spin(_));
        let more = process.coupler.stamp().generation < self.attempts;
        if (more || spins) && self.rng.one_in(12) {
            process.coupler.begin();
            return;
        }
        for _ in 0..self.rng.below(60) {
            match process.replica.at_call() {
                true => {
                    process.replica.call();
                    return;
                }
                false => process.replica.step(),
            }
        }
    }

    /// Who waits for somebody that will not come is told so in the end.
    fn wait(&mut self, index: usize, peer: ReplicaId) {
        let other = &self.group.processes[peer.index()];
        let gone = !self.group.runs(peer.index()) || !other.coupler.members().contains(peer);
        if gone && self.rng.one_in(4) || other.slow && self.rng.one_in(16) {
            self.group.processes[index].coupler.overdue(peer);
        }
    }
}
