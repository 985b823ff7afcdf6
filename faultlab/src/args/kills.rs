//! What is asked of the commands that harm replicas of a workload: `kills` and `service`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rcoe_faultlab::kills::{self, Fault, Workload};

use super::RcoeArgs;

#[derive(Args, Debug)]
pub(crate) struct KillsArgs {
    /// Number of replicas to be killed.
    #[arg(long, default_value_t = 1000)]
    pub(crate) count: u64,
    /// Stop replicas (SIGSTOP) instead of killing them (SIGKILL).
    #[arg(long)]
    pub(crate) stop: bool,
    /// Replicas of so many processes, each of another one, are lost at once; for programs of
    /// several processes.
    #[arg(long, default_value_t = 1)]
    pub(crate) at_once: u64,
    /// What the replicas do: pipe, socket, edge, datagram, file, names, numbers; or whole programs:
    /// shell (a pipeline), python (threads), nginx; and programs whose processes share memory: pool
    /// (Python's multiprocessing), postgres (with pgbench; root runs it as user postgres); and
    /// users (programs of three users, which only root can run). nginx and PostgreSQL must be
    /// installed.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "pipe,socket,edge,datagram,file,names,numbers"
    )]
    pub(crate) workload: Vec<Workload>,
    /// Most kills in one run.
    #[arg(long, default_value_t = 50)]
    pub(crate) per_run: u64,
    /// Number of replicas.
    #[arg(short = 'n', long, default_value_t = 3)]
    pub(crate) replicas: usize,
    /// What rcoe compares: io, args or every.
    #[arg(long, default_value = "args")]
    pub(crate) compare: String,
    /// Campaign seed.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where runs are appended, one JSON line each; a campaign of the same settings goes on there.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Print a summary as JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) common: RcoeArgs,
}

impl KillsArgs {
    pub(crate) fn campaign(&self) -> kills::Campaign {
        kills::Campaign {
            seed: self.seed,
            replicas: self.replicas,
            compare: self.compare.clone(),
            timeout: self.common.timeout.clone(),
            faults: vec![if self.stop { Fault::Stop } else { Fault::Kill }],
            at_once: self.at_once,
            every_ms: 0,
            per_run: self.per_run,
            workloads: self.workload.clone(),
        }
    }

    pub(crate) const fn output(&self) -> (Option<&PathBuf>, bool) {
        (self.journal.as_ref(), self.json)
    }
}

#[derive(Args, Debug)]
pub(crate) struct ServiceArgs {
    /// What serves: redis, web (nginx with a master and two workers), postgres (which root runs as
    /// user postgres), or another workload of `kills`.
    #[arg(long, default_value = "redis")]
    pub(crate) program: Workload,
    /// Number of faults.
    #[arg(long, default_value_t = 1000)]
    pub(crate) faults: u64,
    /// Kinds of faults: kill, stop, register, memory.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kill,stop,register,memory"
    )]
    pub(crate) kinds: Vec<Fault>,
    /// Seconds from one fault to the next; it also waits until the last one is over.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) every: f64,
    /// Faults after which the server is started afresh.
    #[arg(long, default_value_t = 1000)]
    pub(crate) per_run: u64,
    /// Number of replicas.
    #[arg(short = 'n', long, default_value_t = 3)]
    pub(crate) replicas: usize,
    /// Campaign seed.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where runs are appended, one JSON line each; a campaign of the same settings goes on there.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Print a summary as JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    pub(crate) rcoe: Option<PathBuf>,
    /// Seconds that a lost replica may take to be back, and the server to end.
    #[arg(long, default_value_t = 60)]
    pub(crate) deadline: u64,
}

impl ServiceArgs {
    /// The same by `kills`, with rcoe's own defaults.
    pub(crate) fn campaign(&self) -> kills::Campaign {
        kills::Campaign {
            seed: self.seed,
            replicas: self.replicas,
            compare: "default".into(),
            timeout: "default".into(),
            faults: self.kinds.clone(),
            at_once: 1,
            every_ms: Duration::from_secs_f64(self.every.clamp(0.0, 3600.0))
                .as_millis()
                .try_into()
                .unwrap_or(u64::MAX),
            per_run: self.per_run,
            workloads: vec![self.program],
        }
    }

    pub(crate) fn common(&self) -> RcoeArgs {
        RcoeArgs {
            rcoe: self.rcoe.clone(),
            timeout: "default".into(),
            deadline: self.deadline,
        }
    }

    pub(crate) const fn output(&self) -> (Option<&PathBuf>, bool) {
        (self.journal.as_ref(), self.json)
    }
}
