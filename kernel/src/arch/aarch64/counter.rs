//! The counter of instructions that programs execute: the processor's, emulated or not.

mod pmu;

use super::interrupts;

use crate::config::Source;

pub(crate) use pmu::Pmu as Counter;

impl Counter {
    /// The counter. No emulator has another.
    ///
    /// # Errors
    /// What the processor lacks, if there is none.
    pub(crate) fn find(_source: Source) -> Result<Self, &'static str> {
        Self::own()
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
