//! What the user asked for, validated.

use std::path::PathBuf;
use std::time::Duration;

use rcoe_core::Compare;
use rcoe_linux_abi::{CLOCK_CALLS, CLOCK_VDSO};
use rcoe_linux_sys::host::Event;

use crate::ledger::Ledger;
use crate::notify::NotifySettings;
use crate::program::Program;
use crate::scrub::ScrubRate;
use crate::status::MetricsAddress;

/// How the program reads clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// By a vDSO, without system calls.
    Vdso,
    /// By system calls only.
    Calls,
}

impl Clock {
    /// The word of the shared layout.
    #[must_use]
    pub const fn word(self) -> u32 {
        match self {
            Self::Vdso => CLOCK_VDSO,
            Self::Calls => CLOCK_CALLS,
        }
    }
}

/// How long a thread computes without a system call while others are ready, in CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Until its next call.
    Off,
    /// At least this long, and longer where agreeing on the end would cost much of that.
    Least(Duration),
    /// This long.
    Always(Duration),
}

/// How replicas that compute know where they are between two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// By their states alone.
    States,
    /// Also by how often they have come to the place of the last point.
    Milestones,
    /// Also by this event, which the processor counts.
    Counter(Event),
}

/// A run, validated: nothing in it can be wrong any more.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program and its arguments.
    pub program: Program,
    /// What is compared.
    pub compare: Compare,
    /// How the program reads clocks.
    pub clock: Clock,
    /// Whether a faulty replica may be removed and the run go on.
    pub mask: bool,
    /// Whether a lost replica is replaced by a copy of another.
    pub reintegrate: bool,
    /// How much memory replicas compare while nothing else makes them; `None` for none.
    pub scrub: Option<ScrubRate>,
    /// Whether an unsupported system call ends the run.
    pub strict: bool,
    /// Whether effects whose result is known may be released later.
    pub defer: bool,
    /// For how long a thread computes while others are ready.
    pub slice: Slice,
    /// CPU time after which a program that came to no vote agrees on its state; `None` for never.
    pub tick: Option<Duration>,
    /// How replicas that compute know where they are, with ticks.
    pub places: Places,
    /// CPU time a late replica may use beyond its siblings.
    pub timeout: Duration,
    /// Decides when the program's threads give way to each other: one seed, one interleaving.
    pub seed: u64,
    /// CPU of each replica; its length is the number of replicas.
    pub cores: Vec<u32>,
    /// CPUs that replicas may be moved to, those in use among them.
    pub allowed: Vec<u32>,
    /// Faults after which the ledger suspects a core; 0 for never.
    pub suspect_after: u32,
    /// CPUs that are not used because they are suspect.
    pub avoided: Vec<u32>,
    /// Where faults are charged to cores.
    pub ledger: Option<Ledger>,
    /// Where scrapers find metrics.
    pub metrics: Option<MetricsAddress>,
    /// Who is told that the run has started and gets on.
    pub notify: Option<NotifySettings>,
    /// Whether somebody is told where the program stood at a fault.
    pub events: bool,
    /// The folder for core files of replicas at a fault.
    pub dumps: Option<PathBuf>,
    /// The port of the loopback at which a debugger is waited for; 0 for any.
    pub gdb: Option<u16>,
    /// The folder in which `rcoe top` finds this run.
    pub jobs: Option<PathBuf>,
    /// The file that keeps what replicas find in the code of files.
    pub finds: Option<PathBuf>,
}

impl Settings {
    /// Whether replicas that differ are looked at.
    pub(crate) const fn scenes(&self) -> bool {
        self.events || self.dumps.is_some()
    }

    /// Whether replicas are stopped alike between calls.
    pub(crate) const fn points(&self) -> bool {
        !matches!(self.slice, Slice::Off) || self.tick.is_some() || self.gdb.is_some()
    }

    /// Whether what replicas find in the code of files is kept: a single one is never believed.
    pub(crate) const fn finds(&self) -> bool {
        self.finds.is_some() && self.replicas() > 1
    }

    /// Number of replicas.
    #[must_use]
    pub const fn replicas(&self) -> usize {
        self.cores.len()
    }

    /// Wall-clock time after which a late replica is given up, whatever its CPU time.
    #[must_use]
    pub const fn wall_cap(&self) -> Duration {
        self.timeout.saturating_mul(30)
    }

    /// Whether more replicas than CPUs run.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let mut cores = self.cores.clone();
        cores.sort_unstable();
        cores.dedup();
        cores.len() < self.cores.len()
    }
}
