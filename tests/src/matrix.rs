//! The compatibility matrix: each program natively twice, then under every mode of rcoe.
//!
//! A cell passes when standard output, standard error, exit status and all files (content and
//! mode) equal those of the native run; rcoe printing a word of its own is therefore a failure.
//! A program whose two native runs differ, or do not end as the catalogue says, is rejected: a
//! comparison with it could not fail for the right reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::cases::{Case, Scale, Sizes};
use crate::launch::{self, Ended, Outcome};
use crate::snapshot::{Snapshot, content_difference};
use crate::{data, rcoe};

/// One mode in which programs are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Number of replicas.
    pub replicas: u32,
    /// Value of `--compare`.
    pub compare: &'static str,
}

impl Mode {
    /// Every mode of the matrix.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let compares = ["io", "args", "every"];
        (1..=3)
            .flat_map(|replicas| compares.map(|compare| Self { replicas, compare }))
            .collect()
    }

    /// Short name, such as `n2-args`.
    #[must_use]
    pub fn name(self) -> String {
        format!("n{}-{}", self.replicas, self.compare)
    }
}

/// What came of one cell.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The mode.
    pub mode: Mode,
    /// The first difference, or nothing if the runs were identical.
    pub difference: Option<String>,
    /// Wall-clock time.
    pub took: Duration,
}

/// What came of one program.
#[derive(Debug, Clone)]
pub struct Row {
    /// Position in the catalogue.
    pub case: usize,
    /// Why the program could not be used, if so; then there are no cells.
    pub rejected: Option<String>,
    /// One cell for each mode.
    pub cells: Vec<Cell>,
    /// Wall-clock time of the first native run.
    pub native: Duration,
}

/// How programs are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Command put before the program's; `{n}` and `{compare}` are replaced.
    pub launcher: Vec<String>,
    /// Size of the inputs.
    pub scale: Scale,
    /// Longest time of one run.
    pub limit: Duration,
    /// Input sizes of the catalogue.
    pub sizes: Sizes,
    /// Modes to run.
    pub modes: Vec<Mode>,
}

impl Settings {
    /// The launcher that runs the built `rcoe`.
    ///
    /// # Errors
    /// If rcoe cannot be built.
    pub fn rcoe_launcher() -> Result<Vec<String>> {
        let words = ["run", "-n", "{n}", "--compare", "{compare}", "--"];
        let program = rcoe::binary()?.display().to_string();
        Ok(std::iter::once(program)
            .chain(words.map(str::to_owned))
            .collect())
    }
}

/// A run together with the files it left.
struct Observed {
    outcome: Outcome,
    files: Snapshot,
}

/// Runs one program natively and in every mode, in a directory of its own below `root`.
///
/// # Errors
/// If the test itself fails: the directory cannot be written, a process not started.
pub fn run_case(index: usize, case: &Case, settings: &Settings, root: &Path) -> Result<Row> {
    let mut row = Row {
        case: index,
        rejected: None,
        cells: Vec::new(),
        native: Duration::default(),
    };
    let bench = match Bench::set_up(case, settings, root) {
        Ok(bench) => bench,
        Err(error) => {
            row.rejected = Some(format!("{error:#}"));
            return Ok(row);
        }
    };
    let native = bench.observe(&[])?;
    row.native = native.outcome.took;
    row.rejected = bench.unfit(case, &native)?;
    if row.rejected.is_none() {
        for mode in &settings.modes {
            row.cells.push(bench.cell(*mode, settings, &native)?);
        }
    }
    Ok(row)
}

/// One program with its inputs, ready to run again and again from the same start.
struct Bench {
    command: Vec<String>,
    stdin: Option<PathBuf>,
    start: Snapshot,
    directory: PathBuf,
    limit: Duration,
}

impl Bench {
    fn set_up(case: &Case, settings: &Settings, root: &Path) -> Result<Self> {
        let directory = root.join(&case.name);
        let size = case.sizes.unwrap_or(settings.sizes).at(settings.scale);
        let mut start = Snapshot::default();
        for name in &case.inputs {
            start.add_file(name, data::generate(name, size)?);
        }
        for (name, content) in &case.files {
            start.add_file(name, content.clone().into_bytes());
        }
        start.lay_out(&directory)?;
        if let Some(script) = &case.prepare {
            start = prepare(script, &directory, settings.limit)?;
        }
        Ok(Self {
            command: case.command()?,
            stdin: case.stdin.as_ref().map(|name| directory.join(name)),
            start,
            directory,
            limit: settings.limit,
        })
    }

    fn observe(&self, launcher: &[String]) -> Result<Observed> {
        self.start.lay_out(&self.directory)?;
        let argv: Vec<String> = launcher.iter().chain(&self.command).cloned().collect();
        let outcome = launch::run(&argv, &self.directory, self.stdin.as_deref(), self.limit)?;
        remove_finds(&self.directory)?;
        Ok(Observed {
            outcome,
            files: Snapshot::take(&self.directory)?,
        })
    }

    /// Why this program cannot be compared, if so.
    fn unfit(&self, case: &Case, first: &Observed) -> Result<Option<String>> {
        if first.outcome.ended != Ended::Exit(case.status) {
            let errors = first.outcome.err();
            let line = errors.lines().next().unwrap_or_default().to_owned();
            return Ok(Some(format!(
                "native run: {:?} {line}",
                first.outcome.ended
            )));
        }
        if first.outcome.stdout.is_empty() && first.files == self.start {
            return Ok(Some(
                "native run: neither output nor a changed file".to_owned(),
            ));
        }
        let second = self.observe(&[])?;
        Ok(difference(first, &second).map(|text| format!("native runs differ: {text}")))
    }

    fn cell(&self, mode: Mode, settings: &Settings, native: &Observed) -> Result<Cell> {
        let launcher: Vec<String> = settings
            .launcher
            .iter()
            .map(|word| word.replace("{n}", &mode.replicas.to_string()))
            .map(|word| word.replace("{compare}", mode.compare))
            .collect();
        let observed = self.observe(&launcher)?;
        let difference = difference(native, &observed);
        Ok(Cell {
            mode,
            difference,
            took: observed.outcome.took,
        })
    }
}

/// Removes what rcoe keeps for its own next run in this home, and the folders if nothing else is in
/// them.
fn remove_finds(home: &Path) -> Result<()> {
    let cache = home.join(".cache");
    let own = cache.join("rcoe");
    if own.join("finds").exists() {
        fs::remove_file(own.join("finds"))?;
        // Whoever else keeps something there shows as a difference.
        let _ = fs::remove_dir(own).and_then(|()| fs::remove_dir(cache));
    }
    Ok(())
}

fn prepare(script: &str, directory: &Path, limit: Duration) -> Result<Snapshot> {
    let argv = ["sh", "-e", "-c", script].map(str::to_owned);
    let outcome = launch::run(&argv, directory, None, limit)?;
    let (ended, errors) = (outcome.ended, outcome.err());
    ensure!(
        ended == Ended::Exit(0),
        "preparation ended with {ended:?}: {errors}"
    );
    Snapshot::take(directory).context("after preparation")
}

fn difference(native: &Observed, other: &Observed) -> Option<String> {
    let (a, b) = (&native.outcome, &other.outcome);
    if b.ended == Ended::Late {
        return Some("did not end in time".to_owned());
    }
    if a.ended != b.ended {
        let errors = b.err();
        let line = errors
            .lines()
            .find(|line| line.contains("rcoe"))
            .unwrap_or_default();
        return Some(format!("ended {:?}, got {:?} {line}", a.ended, b.ended));
    }
    content_difference(&a.stderr, &b.stderr)
        .map(|text| format!("standard error: {text}"))
        .or_else(|| {
            content_difference(&a.stdout, &b.stdout).map(|text| format!("standard output: {text}"))
        })
        .or_else(|| native.files.difference(&other.files))
        .or_else(|| (b.survivors > 0).then(|| format!("{} processes left behind", b.survivors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::Link;
    use std::collections::BTreeMap;

    fn case(script: &str) -> Case {
        Case {
            name: "sample".to_owned(),
            package: "dash".to_owned(),
            needs: Vec::new(),
            link: Link::Dynamic,
            language: "shell".to_owned(),
            run: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            stdin: None,
            inputs: vec!["a.txt".to_owned()],
            sizes: None,
            files: BTreeMap::new(),
            prepare: None,
            status: 0,
        }
    }

    fn row(script: &str, launcher: &[&str]) -> Row {
        let root = tempfile::tempdir().unwrap();
        let settings = Settings {
            launcher: launcher.iter().map(|&word| word.to_owned()).collect(),
            scale: Scale::Ci,
            limit: Duration::from_secs(60),
            sizes: Sizes {
                ci: 1000,
                full: 1000,
            },
            modes: vec![Mode {
                replicas: 1,
                compare: "io",
            }],
        };
        run_case(0, &case(script), &settings, root.path()).unwrap()
    }

    fn verdict(script: &str, launcher: &[&str]) -> String {
        let row = row(script, launcher);
        assert_eq!(row.rejected, None);
        row.cells[0].difference.clone().unwrap_or_default()
    }

    #[test]
    fn an_equal_run_passes() {
        assert_eq!(verdict("cat a.txt; echo x >new", &["env"]), "");
    }

    #[test]
    fn every_kind_of_difference_fails_the_cell() {
        let shell = |script| {
            verdict(
                "echo ${WRONG:-right}; echo 1 >f",
                &["sh", "-c", script, "x"],
            )
        };
        assert!(shell("export WRONG=wrong; exec \"$@\"").contains("standard output"));
        assert!(shell("echo rcoe: note >&2; exec \"$@\"").contains("standard error"));
        assert!(shell("\"$@\"; exit 86").contains("Exit(86)"));
        assert!(shell("\"$@\"; echo 2 >f").contains("file f"));
        assert!(shell("\"$@\"; chmod 600 f").contains("mode"));
        assert!(shell("\"$@\"; : >g").contains("should not be there"));
        assert!(shell("\"$@\"; sleep 1000 & exit 0").contains("left behind"));
    }

    #[test]
    fn an_unfit_program_is_rejected() {
        assert!(
            row("date +%N", &["env"])
                .rejected
                .unwrap()
                .contains("native runs differ")
        );
        assert!(
            row("exit 3", &["env"])
                .rejected
                .unwrap()
                .contains("Exit(3)")
        );
        assert!(
            row(":", &["env"])
                .rejected
                .unwrap()
                .contains("neither output")
        );
    }
}
