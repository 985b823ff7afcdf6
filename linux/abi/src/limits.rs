//! Limits of resources, as the program sees them.
//!
//! The host counts what replicas use: N processes where the program is one, each with the agent's
//! memory. So most limits of the program are counted by the agent, and the host's stay at their
//! hard value. Each pair is the soft limit and the hard one, as in `struct rlimit64`.

use core::sync::atomic::AtomicU64;

/// Number of resources that have a limit.
pub const RESOURCES: usize = 16;

/// No limit at all.
pub const UNLIMITED: u64 = u64::MAX;

/// CPU time of a process, in seconds.
pub const CPU: usize = 0;
/// Size of a file that is written, in bytes.
pub const FSIZE: usize = 1;
/// Private writable memory of a process, in bytes.
pub const DATA: usize = 2;
/// Bytes that the stack may grow to.
pub const STACK: usize = 3;
/// Processes and threads of a user.
pub const NPROC: usize = 6;
/// One more than the highest descriptor.
pub const NOFILE: usize = 7;
/// All that a process has mapped, in bytes.
pub const AS: usize = 9;
/// Locks of files; has had no effect since Linux 2.4.
pub const LOCKS: usize = 10;
/// Signals that wait, of a user.
pub const SIGPENDING: usize = 11;
/// CPU time of a real-time thread without a wait, in microseconds.
pub const RTTIME: usize = 15;

/// Limits that the agent keeps for the program, because the host would count replicas.
#[must_use]
pub const fn is_kept(resource: usize) -> bool {
    matches!(
        resource,
        CPU | DATA | NPROC | AS | LOCKS | SIGPENDING | RTTIME
    )
}

/// Soft and hard limit of each resource.
pub type LimitCells = [[AtomicU64; 2]; RESOURCES];
