//! busybox's own tests in machines, and the page made from them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::ltp::numbers;
use crate::{packages, shell};

/// Where the tables go.
const PAGE: &str = "docs/BUSYBOX.md";

/// Options of `cargo xtask busybox`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// A source tree of busybox, of the version that is installed.
    #[arg(long)]
    source: PathBuf,
    /// Replicas; several numbers are tried, and stand side by side.
    #[arg(short, long, value_delimiter = ',', default_values_t = [2])]
    n: Vec<u32>,
    /// Machines at once.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// A file with results of earlier runs, which are not run again; those of this one are added.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Only tests whose names begin with one of these; the page is then left alone.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Also print what tests that differ tell, and what rcoe tells.
    #[arg(long)]
    verbose: bool,
}

/// The Debian packages of the binary and of what compiles the tests' helpers.
pub(crate) fn packages() -> Result<Vec<String>> {
    let text = shell::output(runner(&["--packages"])?)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Runs all or some tests and, if all, writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    packages::ensure(&packages()?)?;
    shell::build_commands(&["rcoe"])?;
    let source = options.source.canonicalize();
    let source = source.with_context(|| options.source.display().to_string())?;
    let tables = tempfile::NamedTempFile::new()?;
    let [path, source] = [tables.path(), &source].map(|it| it.display().to_string());
    let [n, at_once] = [numbers(&options.n, ","), options.at_once.to_string()];
    let mut words = vec!["--n", &n, "--source", &source, "--markdown", &path];
    words.extend(["--at-once", &at_once]);
    words.extend(options.only.iter().flat_map(|only| ["--only", only]));
    words.extend(options.verbose.then_some("--verbose"));
    let results = options.results.as_ref();
    let results = results.map(std::path::absolute).transpose()?;
    let results = results.map(|it| it.display().to_string());
    words.extend(results.iter().flat_map(|it| ["--results", it]));
    let mut counts = Counts::default();
    let succeeded = shell::stream(runner(&words)?, |line| {
        if let Some(found) = count::parse(line, count::BUSYBOX) {
            counts.add(found);
        }
    })?;
    if options.only.is_empty() {
        write_page(tables.path(), &options.n, counts)?;
    }
    Ok(succeeded)
}

fn runner(words: &[&str]) -> Result<Command> {
    shell::runner("rcoe-busybox", words)
}

fn write_page(tables: &Path, n: &[u32], counts: Counts) -> Result<()> {
    let tables = std::fs::read_to_string(tables)?;
    let failed = counts.failed;
    let flag = if n == [2] {
        String::new()
    } else {
        format!(" -n {}", numbers(n, ","))
    };
    let n = numbers(n, " and\n-n ");
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
