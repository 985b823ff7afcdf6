//! The counter of branches that programs execute: where an emulator has one it is that, else the
//! processor's own; or their own code, if that is asked for.

mod compiler;
mod late;
mod plugin;
mod pmu;

use rcoe_core::counted::Nature;
use rcoe_core::counted::pmu::Unfit;

use crate::arch::Count;
use crate::arch::counter::Compiler;
use crate::config::Source;
use late::Late;
use plugin::Plugin;
use pmu::{Core, Own};

pub(in crate::arch) use compiler::own_count;

/// This core's counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counter {
    /// The emulator's.
    Plugin(Plugin),
    /// The processor's.
    Own(Own<Core>),
    /// The compiler's.
    Compiler(Compiler),
    /// For tests: the emulator's, as if it were a processor's.
    Late(Own<Late>),
}

impl Counter {
    /// The counter: the emulator's, if it has one, as the host told. A millisecond has so many
    /// units of the timer.
    ///
    /// # Errors
    /// What the processor lacks, if there is none.
    pub(crate) fn find(source: Source, units: u64) -> Result<Self, Unfit> {
        match source {
            Source::Plugin => Ok(Self::Plugin(Plugin::new())),
            Source::Compiler => Ok(Self::Compiler(Compiler::new(units))),
            Source::Processor => Own::find(Core).map(Self::Own),
            Source::Late => Own::find(Late::new()).map(Self::Late),
        }
    }
}

impl Count for Counter {
    fn nature(&self) -> Nature {
        match self {
            Self::Plugin(it) => it.nature(),
            Self::Own(it) => it.nature(),
            Self::Compiler(it) => it.nature(),
            Self::Late(it) => it.nature(),
        }
    }

    fn turns(&self) -> Option<Turns> {
        None
    }

    fn begin(&mut self) {
        match self {
            Self::Plugin(it) => it.begin(),
            Self::Own(it) => it.begin(),
            Self::Compiler(it) => it.begin(),
            Self::Late(it) => it.begin(),
        }
    }

    fn copy(&mut self) {
        match self {
            Self::Plugin(it) => it.copy(),
            Self::Own(it) => it.copy(),
            Self::Compiler(it) => it.copy(),
            Self::Late(it) => it.copy(),
        }
    }

    fn arm(&mut self, counts: Option<u64>) {
        match self {
            Self::Plugin(it) => it.arm(counts),
            Self::Own(it) => it.arm(counts),
            Self::Compiler(it) => it.arm(counts),
            Self::Late(it) => it.arm(counts),
        }
    }

    fn executed(&mut self) -> u64 {
        match self {
            Self::Plugin(it) => it.executed(),
            Self::Own(it) => it.executed(),
            Self::Compiler(it) => it.executed(),
            Self::Late(it) => it.executed(),
        }
    }

    fn took_timer(&mut self) -> bool {
        match self {
            Self::Compiler(it) => it.took_timer(),
            _ => false,
        }
    }
}

/// What lets cores take turns. There is none here, so all that would need one is never reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turns {}

impl Turns {
    /// Nobody waits for a turn.
    pub(crate) const fn hand_on(self, _core: u32) {
        match self {}
    }

    /// Nobody waits for a turn.
    pub(crate) const fn doze(self, _cycles: u64) {
        match self {}
    }

    /// Turns have no end.
    pub(crate) const fn rest_of_slice(self) -> u64 {
        match self {}
    }

    /// Nor a beginning.
    pub(crate) const fn begin_slice(self, _rest: u64) {
        match self {}
    }
}
