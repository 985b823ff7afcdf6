//! A program is stopped at a place by a scripted counter ([`rcoe_core::counted`]).
//!
//! One seed gives a program, a processor with its faults ([`Script`]), and some places that it is
//! to be stopped at in turn, each so many instructions behind the last. What enters the kernel on
//! the way are overflows, late ones and lost ones, the breakpoint, ticks and faults.
//!
//! What must hold: the program is stopped at that very instruction, as a copy of it is that has
//! executed as many; or the run says that the place was missed, which is allowed only where an
//! interrupt was later than the run allows for, or lost, and only behind the place.
//!
//! * [`vm`]: what the program is.
//! * [`core`]: the processor.
//!
//! Not covered: more than one core, calls of the program, and which target is chosen.

pub mod core;
pub mod vm;

use rcoe_core::Guards;
use rcoe_core::counted::pmu::{self, Pmu};
use rcoe_core::counted::{Aim, Approach, Run, Way};
use rcoe_core::coupling::Stop;

use self::core::{Core, Kind, Script};
use self::vm::{Program, Vm};
use crate::rng::Rng;

/// Places of one seed.
const PLACES: usize = 4;

/// Kernel entries on the way to one place, at most: a breakpoint in a tight loop makes many.
const ENTRIES: u64 = 400_000;

/// What came of a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stopped {
    /// Places at which the program was stopped.
    pub exactly: u64,
    /// Places that were missed.
    pub missed: u64,
    /// Kernel entries.
    pub entries: u64,
}

impl Stopped {
    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            exactly: self.exactly + other.exactly,
            missed: self.missed + other.missed,
            entries: self.entries + other.entries,
        }
    }
}

/// A program on a core that counts it.
#[derive(Debug)]
struct Replica {
    core: Core,
    vm: Vm,
    pmu: Pmu,
    way: Way,
    /// Branches since the start, as counted.
    progress: u64,
    entries: u64,
}

impl Replica {
    /// The kernel leaves the program alone until it is entered again.
    fn run(&mut self, limit: Option<u64>, aim: Aim) {
        self.core.leave();
        self.pmu.arm(&mut self.core, limit);
        (self.core.watch, self.core.resume) = match aim {
            Aim::None => (None, false),
            Aim::At(place) => (Some(place), false),
            Aim::Past(place) => (Some(place), true),
        };
        self.core.enter_from(&mut self.vm);
        self.progress += self.pmu.executed(&self.core);
        self.entries += 1;
    }

    /// Branches that the program has executed, as its processor is to count them.
    const fn counts(kind: Kind, vm: &Vm) -> u64 {
        match kind {
            Kind::Intel(_) | Kind::IntelHalf(_) => vm.total.branches,
            Kind::Amd | Kind::AmdSecond => vm.total.taken,
        }
    }

    /// Goes to where this copy of the program is. Was that place missed?
    fn go_to(&mut self, target: &Vm, kind: Kind) -> Result<bool, String> {
        let end = Self::counts(kind, target);
        let to = (self.progress, end);
        let run = Run::to(to, (Stop::Matched, target.ip), &self.way, true);
        (self.core.late, self.core.lost) = (0, 0);
        let began = self.entries;
        let missed = loop {
            if let Some(missed) = run.over(self.progress, self.vm.ip) {
                break missed;
            }
            if self.entries - began > ENTRIES {
                return Err("comes to no end".to_owned());
            }
            let (limit, aim) = (run.limit(self.progress), run.aim(self.progress, self.vm.ip));
            self.run(Some(limit), aim);
            if let Some(flaw) = self.core.flaw {
                return Err(flaw.to_owned());
            }
        };
        self.check(target, missed)?;
        Ok(missed)
    }

    /// Is it where it says that it is?
    fn check(&mut self, target: &Vm, missed: bool) -> Result<(), String> {
        let (steps, wanted) = (self.vm.total.steps, target.total.steps);
        let excused = self.core.late > self.way.early() || self.core.lost > 0;
        let flaw = match missed {
            false if steps != wanted || self.vm.state != target.state => "stopped elsewhere",
            true if steps <= wanted => "says that it has missed where it has yet to come",
            true if !excused => "misses it without a reason",
            _ => return Ok(()),
        };
        Err(format!("{flaw}: {steps} steps, not {wanted}"))
    }
}

/// What a seed makes of a processor.
fn script(rng: &mut Rng, skid: u64, long: bool) -> Script {
    let quick = !long;
    Script {
        skid: match rng.below(4) {
            0 => 0,
            1 => 1 + rng.below(8),
            2 => skid,
            // Later than is allowed for.
            _ => skid * (1 + rng.below(4)),
        },
        loses: if rng.one_in(4) { 3 } else { 0 },
        far: rng.below(3),
        kernel: rng.below(20),
        ticks: match rng.below(3) {
            0 => 0,
            1 if quick => 50 + rng.below(2_000),
            _ => 1 << 30,
        },
        faults: if quick && rng.one_in(3) { 40 } else { 0 },
    }
}

/// How many instructions it is to a place.
fn distance(rng: &mut Rng, long: bool) -> u64 {
    match rng.below(4) {
        0 => rng.below(4),
        1 => rng.below(300),
        _ if long => rng.below(1 << 34),
        _ => rng.below(60_000),
    }
}

/// One run that is a function of its seed.
///
/// # Errors
/// What does not hold.
pub fn simulate(seed: u64, guards: Guards) -> Result<Stopped, String> {
    let mut rng = Rng::new(seed);
    let kind = Kind::ALL[rng.index(Kind::ALL.len())];
    let long = rng.one_in(4);
    let program = Program::random(&mut rng, long);
    let vm = Vm::new(program, rng.draw());
    let probe = Core::new(kind, Script::default(), rng.clone());
    let plan = pmu::find(&probe).map_err(|why| why.to_string())?;
    let script = script(&mut rng, plan.skid(), long);
    let mut core = Core::new(kind, script, Rng::new(rng.draw()));
    let mut pmu = Pmu::new(plan, guards);
    pmu.begin(&mut core);
    let mut replica = Replica {
        core,
        vm,
        way: Way::new(pmu.nature(), Approach::Counter, guards),
        pmu,
        progress: 0,
        entries: 0,
    };
    let mut stopped = Stopped::default();
    for _ in 0..PLACES {
        let told = format!("seed {seed}, {kind:?}, {script:?}");
        if script.ticks > 0 && rng.one_in(2) {
            replica.run(None, Aim::None);
        }
        let mut target = replica.vm.clone();
        target.execute(distance(&mut rng, long));
        let missed = replica.go_to(&target, kind);
        if missed.map_err(|flaw| format!("{flaw}, by {told}"))? {
            replica.way.missed();
            stopped.missed += 1;
        } else {
            stopped.exactly += 1;
        }
    }
    stopped.entries = replica.entries;
    Ok(stopped)
}
