//! busybox's own tests of its shell and its tools, on Linux and in the machine of the system
//! sphere.
//!
//! The tests come from a given source tree of busybox and stay outside this repository: they are
//! under its licence. The binary is the host's, which is static. A script of ours runs the tests
//! one after the other (`driver.sh`), in busybox's shell, as a process on Linux and as replicas in
//! a machine. A case that passes on Linux has to pass there too; the exceptions stand in
//! `tests/busybox.toml`, each with its reason.
//!
//! * [`plan`] reads that file; [`tree`] lays out what the tests need; [`verdicts`] reads what the
//!   script tells; [`run`] runs tests and compares; [`results`] keeps what came of them; [`page`]
//!   makes the tables.
//!
//! Not covered: cases that do not pass on Linux here, whatever the cause. That is so of those for
//! features that the binary was built without, as its configuration is not at hand.

pub mod page;
pub mod plan;
pub mod results;
pub mod run;
pub mod tree;
pub mod verdicts;
