//! Every developer task: `cargo xtask TASK`.
//!
//! `demo` shows the system at work, `test` proves it; the rest are parts of these or keep generated
//! files fresh. A task only starts programs and reads text: whatever can be tested as Rust stands
//! in the crate it belongs to.
#![forbid(unsafe_code)]

mod beside;
mod busybox;
mod cargo_tests;
mod compat;
mod count;
mod counted;
mod cpython;
mod demo;
mod dist;
mod docs;
mod failures;
mod image;
mod lines;
mod ltp;
mod packages;
mod part;
mod pool;
mod programs;
mod prove;
mod shell;
mod shots;
mod slow;
mod soak;
mod stages;
mod tidy;
mod trial;
mod users;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Developer tasks of rcoe.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run real programs as replicas, flip a bit in one, and show what happened.
    Demo,
    /// Run every check and test, and end with counts.
    Test(stages::Choice),
    /// Run all test programs many times, many at once, to find tests that seldom fail.
    Soak(soak::Options),
    /// What CI runs: `test`, with the machine's facts printed first.
    Ci,
    /// Measure costs as ratios; further arguments go to rcoe-bench.
    Bench {
        /// Arguments for rcoe-bench.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Carry out long campaigns and suites, going on where they were left, and write evidence/;
    /// further arguments (--list, --only, --minutes) go to rcoe-bench prove.
    Prove {
        /// Arguments for rcoe-bench prove.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Run the papers' data race with many seeds; further arguments go to rcoe-faultlab.
    Race {
        /// Arguments for rcoe-faultlab.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the compatibility matrix and write docs/COMPATIBILITY.md.
    Compat(compat::Options),
    /// Run CPython's own tests as replicas and write docs/CPYTHON.md.
    Cpython(cpython::Options),
    /// Run busybox's own tests in machines and write docs/BUSYBOX.md.
    Busybox(busybox::Options),
    /// Run LTP's system call tests as replicas and write docs/LTP.md or docs/LTP-PROCESS.md.
    Ltp(ltp::Options),
    /// Run whole programs in scenes and write docs/PROGRAMS.md.
    Programs(programs::Options),
    /// Build the kernel and the programs of the system sphere.
    Image,
    /// Build a program of the system sphere that counts its own branches, for --count-by compiler.
    Counted(counted::Options),
    /// Make a tarball and a Debian package.
    Dist,
    /// Take pictures of a page in Chromium: light, dark and narrow.
    Shots(shots::Options),
    /// Count the lines of the system sphere.
    Lines,
    /// Check the house rules.
    Tidy,
    /// Format all sources.
    Fmt {
        /// Only check.
        #[arg(long)]
        check: bool,
    },
    /// Regenerate what is generated in the documentation.
    Docs {
        /// Only check that it is fresh.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let task = Options::parse().task;
    match shell::ensure_checkout().and_then(|()| perform(task)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Performs one task; tells whether everything was as it should be.
fn perform(task: Task) -> Result<bool> {
    match task {
        Task::Demo => demo::run(),
        Task::Test(choice) => stages::run(&choice),
        Task::Soak(options) => soak::run(&options),
        Task::Ci => {
            shell::print_machine();
            stages::run(&stages::Choice::default())
        }
        Task::Bench { arguments } => {
            shell::build_commands(&["rcoe-bench", "rcoe", "rcoe-faultlab"])?;
            let bench = std::process::Command::new(shell::built("rcoe-bench"));
            shell::succeeds(shell::with(bench, &arguments))
        }
        Task::Prove { arguments } => prove::run(&arguments),
        Task::Race { arguments } => {
            shell::build_commands(&["rcoe", "rcoe-faultlab"])?;
            let mut command = std::process::Command::new(shell::built("rcoe-faultlab"));
            command.arg("race").args(arguments);
            shell::succeeds(command)
        }
        Task::Compat(options) => compat::run(&options),
        Task::Cpython(options) => cpython::run(&options),
        Task::Busybox(options) => busybox::run(&options),
        Task::Ltp(options) => ltp::run(&options),
        Task::Programs(options) => programs::run(&options),
        Task::Image => image::run(),
        Task::Counted(options) => counted::run(&options),
        Task::Dist => dist::run(),
        Task::Shots(options) => shots::take(&options),
        Task::Lines => lines::run(),
        Task::Tidy => tidy::run().map(|counts| counts.failed == 0),
        Task::Fmt { check } => {
            let flags: &[&str] = if check { &["--check"] } else { &[] };
            shell::succeeds(shell::with(shell::cargo(["fmt", "--all"]), flags))
        }
        Task::Docs { check } => docs::run(check).map(|counts| counts.failed == 0),
    }
}
