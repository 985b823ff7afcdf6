//! What is asked of `system-service` and `system-errors`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rcoe_faultlab::host;
use rcoe_faultlab::system::service::{Campaign, Header, Kind, Setup, errors};

pub(crate) const EXAMPLES: &str = "\
Examples:
  rcoe-faultlab system-service --faults 20 --kinds stop,stuck
  rcoe-faultlab system-service --faults 100 --kinds flip --bound 1
  rcoe-faultlab system-service --faults 200 --per-run 50 --json > losses.json

Needs redis-server. Ends with 1 if an answer was wrong, a count was lost or made twice, a connection
broke, or a replica was not back.";

#[derive(Args, Debug)]
pub(crate) struct SystemServiceArgs {
    /// Number of faults.
    #[arg(long, default_value_t = 20)]
    pub(crate) faults: usize,
    /// Kinds of faults, in turn, each with every replica: stop (the kernel finds itself broken),
    /// stuck (the core jumps to where it is), flip (a bit of a register or of memory).
    #[arg(long, value_delimiter = ',', default_value = "stop,stuck,flip")]
    kinds: Vec<Kind>,
    /// Faults after which another machine is started.
    #[arg(long, default_value_t = 50)]
    per_run: usize,
    /// Seconds at most from one fault being over to the next; by chance less.
    #[arg(long, default_value_t = 1.0)]
    every: f64,
    /// Seconds after which a flip of which nothing was told counts as without effect.
    #[arg(long, default_value_t = 2.0)]
    bound: f64,
    /// Flips of one replica until one has an effect; then its kernel is made to stop.
    #[arg(long, default_value_t = 8)]
    flips: usize,
    /// Number of replicas: 3 or 4.
    #[arg(short = 'n', long, default_value_t = 3)]
    replicas: usize,
    /// What rcoe compares: io, args or every.
    #[arg(long, default_value = "args")]
    compare: String,
    /// Campaign seed: it decides what is flipped, and pauses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print everything as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    rcoe: Option<PathBuf>,
    /// Seconds that an answer, a loss and a return may take.
    #[arg(long, default_value_t = 120)]
    deadline: u64,
}

/// Whole milliseconds of so many seconds, an hour at most.
fn milliseconds(seconds: f64) -> u64 {
    let time = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl SystemServiceArgs {
    pub(crate) fn campaign(&self) -> Campaign {
        Campaign {
            seed: self.seed,
            replicas: self.replicas,
            compare: self.compare.clone(),
            kinds: self.kinds.clone(),
            pause_ms: milliseconds(self.every),
            bound_ms: milliseconds(self.bound),
            flips: self.flips,
            per_run: self.per_run.max(1),
        }
    }

    pub(crate) fn setup(&self, folder: &Path) -> Result<Setup> {
        Ok(Setup {
            rcoe: super::rcoe(self.rcoe.as_deref())?,
            folder: folder.to_owned(),
            deadline: Duration::from_secs(self.deadline),
        })
    }

    pub(crate) fn header(&self) -> Header {
        Header {
            campaign: self.campaign(),
            commit: host::commit(),
            machine: host::machine(),
        }
    }
}

pub(crate) const ERRORS: &str = "\
Examples:
  rcoe-faultlab system-errors -n 2 --errors 100
  rcoe-faultlab system-errors -n 3 --errors 1000 --bound 0.25 --journal errors.ndjson
  rcoe-faultlab system-errors -n 3 --transfer --machines 10

Needs redis-server. A journal is gone on with if it is there. Ends with 1 if a replica was not back,
or an error was uncontrolled: a wrong answer, a connection that broke in a machine that did not stop
for a fault, or an end with another status.";

#[derive(Args, Debug)]
pub(crate) struct SystemErrorsArgs {
    /// Number of errors to observe.
    #[arg(long, default_value_t = 20)]
    pub(crate) errors: usize,
    /// Machines at most, however few errors they show.
    #[arg(long, default_value_t = 1000)]
    machines: usize,
    /// Number of replicas, 2 to 4.
    #[arg(short = 'n', long, default_value_t = 3)]
    replicas: usize,
    /// What rcoe compares: io, args or every.
    #[arg(long, default_value = "args")]
    compare: String,
    /// Hit transfer memory alone, which devices read and write, and which is not replicated.
    #[arg(long)]
    transfer: bool,
    /// Seconds for which an error is waited for before the next bit is flipped.
    #[arg(long, default_value_t = 0.5)]
    bound: f64,
    /// Most flips in one machine.
    #[arg(long, default_value_t = 100)]
    flips: usize,
    /// Campaign seed: it decides what is flipped.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where results are appended, one JSON line for each machine.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Print everything as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    rcoe: Option<PathBuf>,
    /// Seconds that an answer, and a return, may take.
    #[arg(long, default_value_t = 60)]
    deadline: u64,
}

impl SystemErrorsArgs {
    /// Errors and machines, at most.
    pub(crate) const fn most(&self) -> (usize, usize) {
        (self.errors, self.machines)
    }

    pub(crate) fn setup(&self, folder: &Path) -> Result<Setup> {
        Ok(Setup {
            rcoe: super::rcoe(self.rcoe.as_deref())?,
            folder: folder.to_owned(),
            deadline: Duration::from_secs(self.deadline),
        })
    }

    pub(crate) fn header(&self) -> errors::Header {
        errors::Header {
            campaign: errors::Campaign {
                seed: self.seed,
                replicas: self.replicas,
                compare: self.compare.clone(),
                transfer: self.transfer,
                bound_ms: milliseconds(self.bound),
                flips: self.flips.max(1),
            },
            commit: host::commit(),
            machine: host::machine(),
        }
    }
}
