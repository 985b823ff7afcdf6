//! The system call tests of LTP, the Linux Test Project, on Linux and as replicas: of processes, or
//! of a machine's system.
//!
//! The tests come from a given source tree and stay outside this repository: they are under its
//! licence. They are compiled there, statically. A script of ours runs them one after the other
//! (`driver.sh`), in busybox's shell, as a process on Linux and as replicas. A test says of each of
//! its checks whether it passed, failed, broke or left itself out. One that passes on Linux has to
//! say the same there; the exceptions stand in `tests/ltp.toml` and `tests/ltp-process.toml`, each
//! with its reason.
//!
//! * [`plan`] reads these files; [`source`] builds tests; `places` lays them out where they run;
//!   [`told`] reads what the script tells; [`run`] runs tests and compares; [`results`] keeps what
//!   came of them; [`page`] makes the tables.
//!
//! Not covered: tests that do not pass on Linux here, whatever the cause: they need a device, a
//! file system, a newer kernel. The page names them. What a check looks at is LTP's affair; here
//! its checks are counted, not told apart.

pub mod page;
mod places;
pub mod plan;
pub mod results;
pub mod run;
pub mod source;
pub mod told;
