//! CPython's own tests as replicas, and the page made from them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::{packages, shell};

/// Where the tables go.
const PAGE: &str = "docs/CPYTHON.md";

/// Options of `cargo xtask cpython`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Replicas.
    #[arg(long, default_value_t = 2)]
    n: u32,
    /// Modules run at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Only these modules; the page is then left alone.
    modules: Vec<String>,
}

/// The Debian packages of the interpreter and its tests.
pub(crate) fn packages() -> Result<Vec<String>> {
    let text = shell::output(runner(&["--packages"])?)?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Runs all or some modules and, if all, writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    packages::ensure(&packages()?)?;
    let tables = tempfile::NamedTempFile::new()?;
    let path = tables.path().display().to_string();
    let (n, jobs) = (options.n.to_string(), options.jobs.to_string());
    let mut words = vec!["--n", &n, "--jobs", &jobs, "--markdown", &path];
    words.extend(options.modules.iter().map(String::as_str));
    let mut counts = Counts::default();
    let succeeded = tests(&words, &mut counts)?;
    if options.modules.is_empty() {
        write_page(tables.path(), options.n, counts)?;
    }
    Ok(succeeded)
}

/// A sample of the short modules, for CI.
pub(crate) fn sample(seed: &str) -> Result<Counts> {
    let mut counts = Counts::default();
    println!("rcoe-cpython --sample {seed}");
    let words = ["--sample", seed, "--jobs", &shell::cores().to_string()];
    let succeeded = tests(&words, &mut counts)?;
    Ok(counts.judged(succeeded))
}

fn tests(words: &[&str], counts: &mut Counts) -> Result<bool> {
    shell::build_commands(&["rcoe"])?;
    shell::stream(runner(words)?, |line| {
        if let Some(found) = count::parse(line, count::CPYTHON) {
            counts.add(found);
        }
    })
}

fn runner(words: &[&str]) -> Result<Command> {
    shell::runner("rcoe-cpython", words)
}

fn write_page(tables: &Path, n: u32, counts: Counts) -> Result<()> {
    let tables = std::fs::read_to_string(tables)?;
    let Counts { passed, failed } = counts;
    let flag = if n == 2 {
        String::new()
    } else {
        format!(" --n {n}")
    };
    let page = format!(
        "# CPython's own tests\n\n\
         Made by `cargo xtask cpython{flag}`. Each module of CPython's test suite (Debian's\n\
         `libpython3.11-testsuite`) was run once without rcoe and once under `rcoe run -n {n}`;\n\
         what each case came to was read from the report that the suite writes. A case that\n\
         passes natively and not under rcoe is a failure, unless `tests/cpython.toml` explains\n\
         it; an explanation of a case that passes is a failure too.\n\n\
         {passed} cases pass under rcoe; {failed} are not as they should be.\n\n{tables}"
    );
    std::fs::write(shell::root().join(PAGE), page).context(PAGE)
}
