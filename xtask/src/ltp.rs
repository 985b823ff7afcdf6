//! LTP's system call tests in machines, and the page made from them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::{packages, shell};

/// Where the tables go.
const PAGE: &str = "docs/LTP.md";

/// Options of `cargo xtask ltp`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// A source tree of LTP, in which its tests are built.
    #[arg(long)]
    sources: PathBuf,
    /// Replicas.
    #[arg(short, long, default_value_t = 2)]
    n: u32,
    /// Machines at once.
    #[arg(long, default_value_t = 1)]
    machines: usize,
    /// Only tests whose names begin with one of these; the page is then left alone.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A file with results of earlier runs, which are not run again; those of this one are added.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Also print what tests that differ say in the machine.
    #[arg(long)]
    verbose: bool,
}

/// The Debian packages of what builds the tests, and of the shell that runs them.
pub(crate) fn packages() -> Result<Vec<String>> {
    let text = shell::output(runner(&["--packages"])?)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Builds and runs all or some tests and, if all, writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    packages::ensure(&packages()?)?;
    shell::build_commands(&["rcoe"])?;
    let sources = options.sources.canonicalize();
    let sources = sources.with_context(|| options.sources.display().to_string())?;
    let tables = tempfile::NamedTempFile::new()?;
    let [path, sources] = [tables.path(), &sources].map(|it| it.display().to_string());
    let [n, machines] = [options.n.to_string(), options.machines.to_string()];
    let mut words = vec!["--n", &n, "--machines", &machines, "--sources", &sources];
    words.extend(["--markdown", &path]);
    words.extend(options.only.iter().flat_map(|only| ["--only", only]));
    words.extend(options.verbose.then_some("--verbose"));
    let results = options
        .results
        .as_ref()
        .map(std::path::absolute)
        .transpose()?;
    let results = results.map(|it| it.display().to_string());
    words.extend(results.iter().flat_map(|it| ["--results", it]));
    let mut counts = Counts::default();
    let succeeded = shell::stream(runner(&words)?, |line| {
        if let Some(found) = count::parse(line, count::LTP) {
            counts.add(found);
        }
    })?;
    if options.only.is_empty() {
        write_page(tables.path(), options.n, counts)?;
    }
    Ok(succeeded)
}

fn runner(words: &[&str]) -> Result<Command> {
    shell::runner("rcoe-ltp", words)
}

fn write_page(tables: &Path, n: u32, counts: Counts) -> Result<()> {
    let tables = std::fs::read_to_string(tables)?;
    let Counts { passed, failed } = counts;
    let flag = if n == 2 {
        String::new()
    } else {
        format!(" -n {n}")
    };
    let page = format!(
        "# LTP's system call tests\n\n\
         Made by `cargo xtask ltp --sources FOLDER{flag}`, where FOLDER is a source tree of\n\
         the Linux Test Project, of which this repository has no part. The same script ran\n\
         each test of the calls below once on Linux, as the superuser in namespaces of its\n\
         own, and once in a machine (`rcoe run --sphere system -n {n}`): the same static\n\
         binary. A test that passes on Linux and does not say the same of as many checks\n\
         there is a failure, unless `tests/ltp.toml` explains it; an explanation of a test\n\
         that does is one too.\n\n\
         {passed} tests say the same in the machine; {failed} are not as they should be.\n\n\
         {tables}"
    );
    std::fs::write(shell::root().join(PAGE), page).context(PAGE)
}
