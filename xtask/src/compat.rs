//! The compatibility matrix and the page made from it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::{packages, shell};

/// Where the table goes.
const PAGE: &str = "docs/COMPATIBILITY.md";

/// Options of `cargo xtask compat`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Options {
    /// Inputs that take about a second each, in place of CI's small ones.
    #[arg(long)]
    full: bool,
    /// Only programs whose name contains this; the page is then left alone.
    #[arg(long)]
    filter: Option<String>,
    /// Programs run at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
}

/// The Debian packages of the matrix.
pub(crate) fn packages() -> Result<Vec<String>> {
    let text = shell::output(runner(&["--packages"])?)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Runs the matrix and, unless filtered, writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    packages::ensure(&packages()?)?;
    let table = tempfile::NamedTempFile::new()?;
    let path = table.path().display().to_string();
    let jobs = options.jobs.to_string();
    let scale = if options.full { "full" } else { "ci" };
    let mut words = vec!["--scale", scale, "--jobs", &jobs, "--markdown", &path];
    if let Some(filter) = &options.filter {
        words.extend(["--filter", filter]);
    }
    let mut counts = Counts::default();
    let succeeded = matrix(&words, &mut counts)?;
    if options.filter.is_none() {
        write_page(table.path(), scale, counts)?;
    }
    Ok(succeeded)
}

/// Runs the matrix and gathers its counts.
pub(crate) fn matrix(words: &[&str], counts: &mut Counts) -> Result<bool> {
    shell::build_commands(&["rcoe"])?;
    shell::stream(runner(words)?, |line| {
        if let Some(found) = count::parse(line, count::COMPAT) {
            counts.add(found);
        }
    })
}

fn runner(words: &[&str]) -> Result<Command> {
    shell::runner("rcoe-compat", words)
}

fn write_page(table: &Path, scale: &str, counts: Counts) -> Result<()> {
    let table = std::fs::read_to_string(table)?;
    let Counts { passed, failed } = counts;
    let flag = if scale == "full" { " --full" } else { "" };
    let page = format!(
        "# Programs known to run unchanged\n\n\
         Made by `cargo xtask compat{flag}`; the programs and what they are asked to do stand in\n\
         `tests/compat.toml`. Each cell is one run under `rcoe run -n N --compare MODE` (in the\n\
         column nN-MODE) whose standard output, standard error, exit status and files (content\n\
         and mode) were compared with those of a run without rcoe: `ok` means byte-identical,\n\
         with not a word of rcoe's own. A program whose two plain runs differ is rejected (`-`).\n\
         \n{passed} cells identical, {failed} not.\n\n{table}"
    );
    std::fs::write(shell::root().join(PAGE), page).context(PAGE)
}
