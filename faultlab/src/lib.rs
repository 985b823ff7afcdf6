//! Fault lab: flips bits in running replicas and finds out what became of them.
//!
//! Principles:
//!
//! 1. *Outside.* The injector is a separate process: it stops a replica by ptrace, changes one bit
//!    of a register or of memory, and lets go. Nothing in rcoe helps it or knows of it.
//! 2. *Seeded.* What is flipped, where and when is a pure function of (campaign seed, index,
//!    attempt); see [`plan`]. The moment is a share of a fault-free run's duration, which an
//!    outside observer can only reach within the resolution of timers and scheduling: two runs of
//!    the same index flip the same bit of the same register of the same replica, a little earlier
//!    or later.
//!    What was really hit is recorded (instruction address, CPU time, old and new value).
//! 3. *One taxonomy.* Every injection ends in exactly one [`taxonomy::Verdict`].
//! 4. *Nothing is lost.* Each result is one line appended to a journal, and a campaign goes on
//!    where the last one was killed.
//!
//! Not covered: flips inside the host kernel and in the supervisor (both outside the sphere of
//! replication), upper halves of AVX registers, multi-bit and permanent faults.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod child;
pub mod counted;
pub mod entry;
pub mod events;
pub mod fuzz;
pub mod host;
pub mod hours;
pub mod html;
pub mod inject;
pub mod interrupt;
pub mod journal;
pub mod kills;
pub mod maps;
pub mod plan;
pub mod points;
pub mod program;
pub mod race;
pub mod report;
pub mod stats;
pub mod steady;
mod stepping;
pub mod system;
pub mod target;
pub mod taxonomy;
