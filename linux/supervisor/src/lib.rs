//! Starts, watches and reaps the replicas of a Linux program.
//!
//! 1. The supervisor is outside the sphere of replication: it computes nothing of the program and
//!    passes none of its data. It gives the replicas memory to talk through, tells them what only
//!    a parent process learns (a death, a stop, a signal), and carries out their verdicts.
//! 2. It decides nothing that the replicas can decide themselves: who is faulty is their vote.
//! 3. Whatever happens, every replica is reaped before [`run`] returns.
//!
//! Not covered here: the command line (`cli/`), and everything inside a replica (`linux/agent/`).
#![forbid(unsafe_code)]

mod accuse;
mod agent;
mod cores;
mod cpu_limit;
mod doorman;
mod dumps;
mod elf;
mod error;
mod events;
mod family;
mod finds;
mod folders;
mod gdb;
mod group;
mod judge;
mod ledger;
mod limits;
mod memory;
mod notes;
mod notify;
mod numbers;
mod program;
mod protocol;
mod reaper;
mod recovery;
mod reintegration;
mod reunion;
mod scene;
mod scrub;
mod settings;
mod slices;
mod spinning;
mod stats;
mod status;
mod stuck;
mod supervise;
mod tally;
mod team;
mod times;
mod twins;

pub use cores::{
    allowed_cores, assign_cores, avoid, choose_cores, format_core_list, parse_core_list,
};
pub use dumps::{CORE_BYTES, CORE_FAULTS, check_folder};
pub use error::{
    EXIT_FAIL_STOP, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_OWN_FAILURE, ProgramError, RunError,
};
pub use events::{
    Counts, DivergenceKind, Event, Observer, Reintegrated, ReplicaInfo, SCHEMA, Stamped,
};
pub use finds::finds_file;
pub use ledger::{
    Blame, Charge, Clearing, Content, CoreRecord, Entry, Ledger, SUSPECT_AFTER, WINDOW_DAYS,
    host_name, seconds_of, suspects, tally,
};
pub use notify::NotifySettings;
pub use program::Program;
pub use rcoe_linux_abi::{Ending, MAX_REPLICAS};
pub use scene::{CallSeen, Mapping, Registers, Seen, Word};
pub use scrub::ScrubRate;
pub use settings::{Clock, Places, Settings, Slice};
pub use stats::Stats;
pub use status::{
    CpuView, FaultCounts, Happening, MetricsAddress, ProcessView, ReplicaView, Snapshot, Totals,
    find_job, find_jobs, jobs_folder,
};
pub use supervise::{Outcome, run};
