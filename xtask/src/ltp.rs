//! LTP's system call tests as replicas, and the pages made from them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::{packages, shell};

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
    /// Replicas; several numbers are tried one after the other, and stand side by side.
    #[arg(short, long, value_delimiter = ',', default_values_t = [2])]
    n: Vec<u32>,
    /// Machines, or programs as replicas, at once.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Only tests whose names begin with one of these; the page is then left alone.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A file with results of earlier runs, which are not run again; those of this one are added.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Also print what tests that differ say as replicas.
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
    let [n, at_once] = [numbers(&options.n, ","), options.at_once.to_string()];
    let mut words = vec!["--n", &n, "--at-once", &at_once, "--sources", &sources];
    words.extend(["--sphere", options.sphere.word()]);
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
        write_page(options, tables.path(), counts)?;
    }
    Ok(succeeded)
}

/// Numbers, with that between them.
pub(crate) fn numbers(n: &[u32], between: &str) -> String {
    let words: Vec<String> = n.iter().map(u32::to_string).collect();
    words.join(between)
}

fn runner(words: &[&str]) -> Result<Command> {
    shell::runner("rcoe-ltp", words)
}

fn write_page(options: &Options, tables: &Path, counts: Counts) -> Result<()> {
    let tables = std::fs::read_to_string(tables)?;
    let failed = counts.failed;
    let Options { sphere, n, .. } = options;
    let mut flags = String::new();
    if *sphere != Sphere::System {
        flags += &format!(" --sphere {}", sphere.word());
    }
    if *n != [2] {
        flags += &format!(" -n {}", numbers(n, ","));
    }
    let n = numbers(n, " and -n ");
    let (place, how, file) = match sphere {
        Sphere::Process => ("as replicas", "rcoe run", "tests/ltp-process.toml"),
        Sphere::System => (
            "in the machine",
            "rcoe run --sphere system",
            "tests/ltp.toml",
        ),
    };
    let kept = match options.results {
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
