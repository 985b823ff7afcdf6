//! LTP's system call tests as replicas, and the pages made from them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::count;
use crate::shell;
use crate::trial::{Runner, Trial, numbers};

const RUNNER: Runner = Runner {
    program: "rcoe-ltp",
    source: "--sources",
    count: count::LTP,
};

/// Which of rcoe's spheres runs the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sphere {
    /// Replicas of processes on Linux.
    Process,
    /// Replicas of a machine's system.
    System,
}

impl Sphere {
    const fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::System => "system",
        }
    }

    /// Where the tables go.
    const fn page(self) -> &'static str {
        match self {
            Self::Process => "docs/LTP-PROCESS.md",
            Self::System => "docs/LTP.md",
        }
    }
}

/// Options of `cargo xtask ltp`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// A source tree of LTP, in which its tests are built.
    #[arg(long)]
    sources: PathBuf,
    /// Which of rcoe's spheres.
    #[arg(long, value_enum, default_value_t = Sphere::System)]
    sphere: Sphere,
    #[command(flatten)]
    trial: Trial,
}

/// Builds and runs all or some tests and, if all, writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let sphere = ["--sphere", options.sphere.word()];
    let tried = RUNNER.run(&options.trial, &options.sources, &sphere)?;
    if let Some(tables) = &tried.tables {
        write_page(options, tables, tried.counts.failed)?;
    }
    Ok(tried.succeeded)
}

fn write_page(options: &Options, tables: &str, failed: u64) -> Result<()> {
    let Options { sphere, trial, .. } = options;
    let mut flags = String::new();
    if *sphere != Sphere::System {
        flags += &format!(" --sphere {}", sphere.word());
    }
    flags += &trial.flag();
    let n = numbers(&trial.n, " and -n ");
    let (place, how, file) = match sphere {
        Sphere::Process => ("as replicas", "rcoe run", "tests/ltp-process.toml"),
        Sphere::System => (
            "in the machine",
            "rcoe run --sphere system",
            "tests/ltp.toml",
        ),
    };
    let kept = match trial.results {
        Some(_) => "\n\nWhat earlier runs had found was not run again (`--results`).",
        None => "",
    };
    let page = format!(
        "# LTP's system call tests {place}\n\n\
         Made by `cargo xtask ltp --sources FOLDER{flags}`, where FOLDER is a source tree of\n\
         the Linux Test Project, of which this repository has no part. The same script ran\n\
         each test of the calls below once on Linux, as the superuser in namespaces of its\n\
         own, and once {place} (`{how} -n {n}`): the same static binary. A test that\n\
         passes on Linux and does not say the same of as many checks there is a failure,\n\
         unless `{file}` explains it; an explanation of a test that does is one too.{kept}\n\n\
         {failed} tests are not as they should be.\n\n\
         {tables}"
    );
    let path = sphere.page();
    std::fs::write(shell::root().join(path), page).context(path)
}
