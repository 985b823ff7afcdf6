//! End-to-end tests of the `rcoe` command, the compatibility matrix, and CPython's own tests.
//!
//! Everything here looks at rcoe from outside: it starts the built binary as a user would and
//! compares what comes out (standard output and error, exit status, files) with a run of the same
//! program without rcoe. Nothing here links against the protocol or the agent.
//!
//! * [`cases`] reads the declarative list of programs, `tests/compat.toml`; [`data`] makes their
//!   inputs; [`matrix`] runs them and [`report`] prints what came of it.
//! * [`cpython`] does the like with CPython's own test suite, `tests/cpython.toml`.
//! * [`busybox`] does so with that of busybox, in the system sphere, `tests/busybox.toml`.
//! * [`ltp`] does so with the system call tests of the Linux Test Project, `tests/ltp.toml`.
//!   What either found is [`kept`] while it runs.
//! * [`scenes`] plays whole programs, listed in `tests/programs.toml`: servers, tools, runtimes.
//! * [`launch`] starts one command in a session of its own with a deadline, and [`proc`] tells
//!   which processes of that session still live; [`postmortem`] tells of them when a test fails.
//! * [`terminal`] runs one on a terminal, for those who type.
//! * [`rcoe`] is what the behaviour tests in `tests/tests/` share; [`victim`] is a program to harm,
//!   and [`watched`] has jobs to look at; [`system`] starts whole systems in QEMU, and [`machine`]
//!   reaches into their memory; [`linux`] is for programs of Linux in them, and [`network`] for
//!   their clients on the host.
//!
//! Not covered: the inside of the agent and the protocol (unit tests and the simulator), faults in
//! memory and registers (the fault lab), and cost (the bench).
#![forbid(unsafe_code)]

pub mod busybox;
pub mod cases;
pub mod cpython;
pub mod data;
pub mod kept;
pub mod launch;
pub mod linux;
pub mod ltp;
pub mod machine;
pub mod matrix;
pub mod memory;
pub mod network;
pub mod postmortem;
pub mod proc;
pub mod rcoe;
pub mod report;
pub mod sample;
pub mod scenes;
pub mod site;
pub mod snapshot;
pub mod system;
pub mod terminal;
pub mod victim;
pub mod watched;
