//! busybox's own tests in machines, and the page made from them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::count;
use crate::shell;
use crate::trial::{Runner, Trial, numbers};

/// Where the tables go.
const PAGE: &str = "docs/BUSYBOX.md";

const RUNNER: Runner = Runner {
    program: "rcoe-busybox",
    source: "--source",
    count: count::BUSYBOX,
};

/// Options of `cargo xtask busybox`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// A source tree of busybox, of the version that is installed.
    #[arg(long)]
    source: PathBuf,
    #[command(flatten)]
    trial: Trial,
}

/// Runs all or some tests and, if all, writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let tried = RUNNER.run(&options.trial, &options.source, &[])?;
    if let Some(tables) = &tried.tables {
        write_page(tables, &options.trial, tried.counts.failed)?;
    }
    Ok(tried.succeeded)
}

fn write_page(tables: &str, trial: &Trial, failed: u64) -> Result<()> {
    let flag = trial.flag();
    let n = numbers(&trial.n, " and\n-n ");
    let page = format!(
        "# busybox's own tests\n\n\
         Made by `cargo xtask busybox --source FOLDER{flag}`, where FOLDER is a source tree of\n\
         busybox 1.35.0, of which this repository has no part. The binary is Debian's\n\
         `busybox-static`. The same script ran each test of the shell (`shell/ash_test`) and of\n\
         the tools (`testsuite`) once on Linux and once in a machine (`rcoe run --sphere system\n\
         -n {n}`). A case that passes on Linux and not there is a failure, unless\n\
         `tests/busybox.toml` explains it; an explanation of a case that passes is one too.\n\n\
         {failed} cases are not as they should be. {tables}"
    );
    std::fs::write(shell::root().join(PAGE), page).context(PAGE)
}
