//! The scenes of whole programs and the page made from them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::{packages, shell};

/// Where the table goes.
const PAGE: &str = "docs/PROGRAMS.md";

/// Options of `cargo xtask programs`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Options {
    /// Numbers of replicas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    n: Vec<u32>,
    /// Only the quick subset; the page is then left alone.
    #[arg(long)]
    quick: bool,
    /// Only these scenes; the page is then left alone.
    names: Vec<String>,
}

/// Plays the scenes and, if it was all of them, writes the page.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let table = tempfile::NamedTempFile::new()?;
    let path = table.path().display().to_string();
    let n: Vec<String> = options.n.iter().map(u32::to_string).collect();
    let n = n.join(",");
    let mut words = vec!["--n", &n, "--markdown", &path];
    words.extend(options.quick.then_some("--quick"));
    words.extend(options.names.iter().map(String::as_str));
    let mut counts = Counts::default();
    let succeeded = play(&words, &mut counts)?;
    if options.names.is_empty() && !options.quick {
        write_page(table.path(), counts)?;
    }
    Ok(succeeded)
}

/// Plays scenes and gathers their counts.
pub(crate) fn play(words: &[&str], counts: &mut Counts) -> Result<bool> {
    shell::build_commands(&["rcoe"])?;
    packages::ensure(&packages(words)?)?;
    shell::stream(runner(words)?, |line| {
        if let Some(found) = count::parse(line, count::PROGRAMS) {
            counts.add(found);
        }
    })
}

/// The Debian packages that the scenes chosen by `words` miss.
pub(crate) fn packages(words: &[&str]) -> Result<Vec<String>> {
    let missing = shell::output(shell::with(runner(&["--packages"])?, words))?;
    Ok(missing.split_whitespace().map(str::to_owned).collect())
}

fn runner(words: &[&str]) -> Result<Command> {
    shell::runner("rcoe-programs", words)
}

fn write_page(table: &Path, counts: Counts) -> Result<()> {
    let table = std::fs::read_to_string(table)?;
    let Counts { passed, failed } = counts;
    let page = format!(
        "# Whole programs known to run unchanged\n\n\
         Made by `cargo xtask programs`; the scenes stand in `tests/programs.toml` and\n\
         `tests/programs/`. Each cell is one run under `rcoe run -n N --compare MODE` whose\n\
         standard output, exit status and files were like those of a run without rcoe, and that\n\
         left no process behind; a column says what that comparison covers. Servers are driven by\n\
         clients outside rcoe, over the loopback interface. A scene whose two plain runs differ\n\
         is rejected. The times are of one run each, on a machine that was not kept quiet, and\n\
         include clients and start; they are no measurement (see [BENCH.md](BENCH.md)).\n\
         \n{passed} runs like the plain one, {failed} not.\n\n{table}"
    );
    std::fs::write(shell::root().join(PAGE), page).context(PAGE)
}
