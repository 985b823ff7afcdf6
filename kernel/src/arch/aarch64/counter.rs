//! The counter of instructions that programs execute: the processor's, emulated or not; or of
//! branches, by their own code, if that is asked for.

mod compiler;
mod pmu;

use rcoe_core::counted::Nature;

use super::interrupts;
use crate::arch::Count;
use crate::arch::counter::Compiler;
use crate::config::Source;
use pmu::Pmu;

pub(in crate::arch) use compiler::own_count;

/// This core's counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    /// The processor's.
    Own(Pmu),
    /// The compiler's.
    Compiler(Compiler),
}

impl Counter {
    /// The counter. No emulator has another. A millisecond has so many units of the timer.
    ///
    /// # Errors
    /// What the processor lacks, if there is none.
    pub(crate) fn find(source: Source, units: u64) -> Result<Self, &'static str> {
        match source {
            Source::Compiler => Ok(Self::Compiler(Compiler::new(units))),
            _ => Pmu::own().map(Self::Own),
        }
    }
}

impl Count for Counter {
    fn nature(&self) -> Nature {
        match self {
            Self::Own(it) => it.nature(),
            Self::Compiler(it) => it.nature(),
        }
    }

    fn turns(&self) -> Option<Turns> {
        match self {
            Self::Own(it) => it.turns(),
            Self::Compiler(it) => it.turns(),
        }
    }

    fn begin(&mut self) {
        match self {
            Self::Own(it) => it.begin(),
            Self::Compiler(it) => it.begin(),
        }
    }

    fn copy(&mut self) {
        match self {
            Self::Own(it) => it.copy(),
            Self::Compiler(it) => it.copy(),
        }
    }

    fn arm(&mut self, counts: Option<u64>) {
        match self {
            Self::Own(it) => it.arm(counts),
            Self::Compiler(it) => it.arm(counts),
        }
    }

    fn executed(&mut self) -> u64 {
        match self {
            Self::Own(it) => it.executed(),
            Self::Compiler(it) => it.executed(),
        }
    }

    fn took_timer(&mut self) -> bool {
        match self {
            Self::Compiler(it) => it.took_timer(),
            Self::Own(it) => it.took_timer(),
        }
    }
}

/// What lets cores take turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns(());

impl Turns {
    /// Hands the baton on to another core.
    pub(crate) fn hand_on(self, core: u32) {
        interrupts::hand_on(core);
    }

    /// Waits until the baton is handed on, for at most so many cycles.
    pub(crate) fn doze(self, cycles: u64) {
        interrupts::doze(cycles);
    }

    /// Units of the timer until the next tick; 0 if it is due.
    pub(crate) fn rest_of_slice(self) -> u64 {
        interrupts::rest_of_slice()
    }

    /// This core's turn: its next tick comes after these units of the timer, or, if they are none,
    /// after a period.
    pub(crate) fn begin_slice(self, rest: u64) {
        interrupts::begin_slice(rest);
    }
}
