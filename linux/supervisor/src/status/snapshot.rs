//! What a run looks like at one moment, as `rcoe top`, `--metrics` and scripts see it.

use serde::{Deserialize, Serialize};

/// One replica of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// Its number.
    pub id: usize,
    /// Its process, or 0 if it has none yet.
    pub pid: u32,
    /// The CPU it is bound to.
    pub core: u32,
    /// `starting`, `running`, `stopped`, `ended` or `removed`.
    pub state: String,
    /// Whether it carries out the effects.
    pub primary: bool,
    /// CPU time used, in seconds.
    pub cpu_seconds: f64,
    /// System calls and trapped instructions.
    pub calls: u64,
    /// Rendezvous entered.
    pub rendezvous: u64,
    /// Rendezvous by which it is behind the first of its siblings.
    pub lag_rendezvous: u64,
    /// Bytes of the results stream that it has yet to take.
    pub lag_bytes: u64,
    /// Bytes of the results stream that it has put out or taken.
    #[serde(default)]
    pub stream_bytes: u64,
    /// The system call whose host part it is in, if any.
    pub in_call: Option<String>,
}

/// One process of the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessView {
    /// Its id, as the program knows it.
    pub pid: u32,
    /// Its replicas that count.
    pub members: usize,
    /// All its replicas.
    pub replicas: Vec<ReplicaView>,
}

/// CPU time of all replicas of one number on one core, those of ended processes included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuView {
    /// Number of the replicas.
    pub replica: usize,
    /// The core.
    pub core: u32,
    /// CPU time in seconds.
    pub seconds: f64,
}

/// Detected faults by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCounts {
    /// Signatures differed.
    pub mismatch: u64,
    /// A replica did not come in time.
    pub timeout: u64,
    /// A processor exception or an agent failure in one replica only.
    pub fault: u64,
    /// A replica's process ended.
    pub death: u64,
}

impl FaultCounts {
    /// All kinds together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.mismatch + self.timeout + self.fault + self.death
    }
}

/// Sums over all processes, ended ones included. They never go down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Processes that the program has had.
    pub processes: u64,
    /// System calls and trapped instructions of the primaries.
    pub calls: u64,
    /// Rendezvous: points at which the signatures were compared.
    pub rendezvous: u64,
    /// Full votes, which only a suspicion calls for.
    pub votes: u64,
    /// Bytes of output content that were voted.
    pub bytes_voted: u64,
    /// Detected faults.
    pub faults: FaultCounts,
    /// Replicas removed.
    pub removals: u64,
    /// Replicas brought back.
    pub reintegrations: u64,
    /// Pages of memory repaired.
    #[serde(default)]
    pub repairs: u64,
    /// Removed replicas that were the primary.
    pub takeovers: u64,
    /// CPU time.
    pub cpu: Vec<CpuView>,
}

/// A fault, or what followed from one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Happening {
    /// Seconds since the start, on a monotonic clock.
    pub t: f64,
    /// The kind of a fault (`mismatch`, `timeout`, `fault`, `death`), or `removal`, `takeover`,
    /// `return`, `scrub`, `relocation`.
    pub what: String,
    /// The process, as the program knows it.
    pub process: u32,
    /// The replica that it is about, if that is known.
    pub replica: Option<usize>,
    /// The core that it is about, if that is known.
    pub core: Option<u32>,
    /// More about it, in words.
    pub detail: String,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of rcoe.
    pub version: String,
    /// Process id of rcoe.
    pub pid: u32,
    /// The file that is run.
    pub program: String,
    /// Its arguments, the zeroth included.
    pub arguments: Vec<String>,
    /// Replicas asked for.
    pub configured: usize,
    /// Members of the process that has the fewest.
    pub live: usize,
    /// Seconds since the start, on a monotonic clock.
    pub uptime_seconds: f64,
    /// When it was started, in seconds since 1970.
    pub started_at: f64,
    /// Sums since the start.
    pub totals: Totals,
    /// The processes that live.
    pub processes: Vec<ProcessView>,
    /// The last faults, and what followed from them, in order.
    #[serde(default)]
    pub recent: Vec<Happening>,
}
