//! Runs one module natively and as replicas, and says in which cases they differ.
//!
//! A difference counts if it shows twice: cases that did not do what is expected of them are run
//! once more, alone, because many of CPython's own tests hang on time. What passes then is listed
//! as passed at the second attempt.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::plan::{Expected, Known, Plan};
use super::report::{self, Verdict, Verdicts};
use crate::launch::{self, Ended};
use crate::rcoe;

/// How modules are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Replicas.
    pub replicas: u32,
    /// Longest time of a native run; one under rcoe gets [`SLOWER`] times what that took, and this.
    pub limit: Duration,
}

/// A run under rcoe may take so many times longer: N replicas share the machine's cores, and all
/// threads of one share its own.
const SLOWER: u32 = 8;

/// A case that passed natively and is not simply passed under rcoe.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its name.
    pub case: String,
    /// What it came to.
    pub found: Found,
    /// The explanation in the plan, if there is one.
    pub known: Option<Known>,
}

/// What a case that passed natively came to under rcoe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It failed.
    Failed,
    /// It skipped itself.
    Skipped,
    /// The run ended or was stopped before.
    Missing,
    /// The run was stopped in it.
    Unfinished,
    /// It was left out, because it is known to hang.
    LeftOut,
    /// It failed, and passed when it was run again.
    PassedLater,
    /// It passed though the plan says it does not.
    Passed,
}

impl Difference {
    /// Does it say that something is wrong with rcoe, or with the plan?
    #[must_use]
    pub fn is_finding(&self) -> bool {
        let expected = self.known.as_ref().map(|known| known.outcome);
        let as_expected = match expected {
            None => false,
            Some(Expected::Fails) => self.found == Found::Failed,
            Some(Expected::Skips) => self.found == Found::Skipped,
            Some(Expected::Hangs) => self.found == Found::LeftOut,
            Some(Expected::Varies) => {
                matches!(self.found, Found::Failed | Found::Skipped | Found::Passed)
            }
        };
        !as_expected && self.found != Found::PassedLater
    }
}

/// What came of a module.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub module: String,
    /// Cases in the native report.
    pub cases: usize,
    /// Of these, passed.
    pub native: usize,
    /// Of these, passed under rcoe at the first attempt.
    pub replicated: usize,
    /// All others.
    pub differences: Vec<Difference>,
    /// Why nothing could be compared, if so.
    pub unusable: Option<String>,
    /// How long both runs took.
    pub took: [Duration; 2],
}

impl Row {
    /// Cases that count as failed.
    #[must_use]
    pub fn findings(&self) -> usize {
        let found = self.differences.iter().filter(|it| it.is_finding());
        found.count() + usize::from(self.unusable.is_some())
    }
}

/// One run of a module.
struct Ran {
    verdicts: Option<Verdicts>,
    ended: Ended,
    took: Duration,
    /// The case in which it was stopped.
    unfinished: Option<String>,
    survivors: usize,
}

/// How one run is to be made.
struct Job<'a> {
    plan: &'a Plan,
    module: &'a str,
    /// Replicas, or none for a native run.
    replicas: Option<u32>,
    limit: Duration,
    /// Only these cases, if any.
    only: &'a [String],
}

/// Runs one module both ways.
///
/// # Errors
/// If the test itself fails: a directory cannot be written, a process not started.
pub fn module(plan: &Plan, name: &str, settings: &Settings) -> Result<Row> {
    let native = Job {
        plan,
        module: name,
        replicas: None,
        limit: settings.limit,
        only: &[],
    };
    let plain = native.run()?;
    let mut row = Row {
        module: name.to_owned(),
        cases: 0,
        native: 0,
        replicated: 0,
        differences: Vec::new(),
        unusable: None,
        took: [plain.took, Duration::ZERO],
    };
    let Some(verdicts) = plain.verdicts else {
        row.unusable = Some(format!("the native run: {}", why(&plain)));
        return Ok(row);
    };
    row.cases = verdicts.len();
    let job = Job {
        replicas: Some(settings.replicas),
        limit: settings.limit + plain.took * SLOWER,
        ..native
    };
    let ran = job.run()?;
    row.took[1] = ran.took;
    if ran.survivors > 0 {
        row.unusable = Some(format!("{} processes were left behind", ran.survivors));
    }
    compare(plan, &verdicts, &ran, &mut row);
    again(&job, &mut row)?;
    Ok(row)
}

fn why(ran: &Ran) -> String {
    let place = ran.unfinished.as_deref().map(|case| format!(" in {case}"));
    format!("{:?}{}", ran.ended, place.unwrap_or_default())
}

/// Notes every case that passed natively in `row`.
fn compare(plan: &Plan, native: &Verdicts, ran: &Ran, row: &mut Row) {
    let known: BTreeMap<&str, &Known> = plan.known_of(&row.module).collect();
    let none = Verdicts::new();
    let found = ran.verdicts.as_ref().unwrap_or(&none);
    let passed = native.iter().filter(|(_, it)| **it == Verdict::Passed);
    for (case, _) in passed {
        row.native += 1;
        let known = known.get(case.as_str()).copied().cloned();
        let expected = known.as_ref().map(|known| known.outcome);
        let found = match found.get(case) {
            _ if expected == Some(Expected::Hangs) => Found::LeftOut,
            Some(Verdict::Passed) if expected.is_none() => {
                row.replicated += 1;
                continue;
            }
            Some(Verdict::Passed) => Found::Passed,
            Some(Verdict::Skipped) => Found::Skipped,
            Some(Verdict::Failed) => Found::Failed,
            None if ran.unfinished.as_ref() == Some(case) => Found::Unfinished,
            None => Found::Missing,
        };
        row.differences.push(Difference {
            case: case.clone(),
            found,
            known,
        });
    }
    row.replicated += count(row, Found::Passed);
    if ran.verdicts.is_none() {
        row.unusable = Some(format!("under rcoe: {}", why(ran)));
    }
}

fn count(row: &Row, found: Found) -> usize {
    row.differences
        .iter()
        .filter(|it| it.found == found)
        .count()
}

/// Runs the cases that failed unexpectedly once more.
fn again(job: &Job, row: &mut Row) -> Result<()> {
    let retried = |it: &Difference| it.found == Found::Failed && it.is_finding();
    let failed = row.differences.iter().filter(|it| retried(it));
    let only: Vec<String> = failed.map(|it| it.case.clone()).collect();
    if only.is_empty() {
        return Ok(());
    }
    let ran = Job {
        only: &only,
        ..*job
    }
    .run()?;
    let verdicts = ran.verdicts.unwrap_or_default();
    for difference in row.differences.iter_mut().filter(|it| retried(it)) {
        if verdicts.get(&difference.case) == Some(&Verdict::Passed) {
            difference.found = Found::PassedLater;
        }
    }
    Ok(())
}

impl Job<'_> {
    fn run(&self) -> Result<Ran> {
        let directory = tempfile::tempdir()?;
        let report = directory.path().join("report.xml");
        let argv = self.argv(directory.path(), &report)?;
        let outcome = launch::run(&argv, directory.path(), None, self.limit)?;
        let text = std::fs::read_to_string(&report).ok();
        let verdicts = text
            .map(|text| report::read(self.module, &text))
            .transpose()
            .with_context(|| self.module.to_owned())?;
        // The suite writes its results to one and its warnings to the other.
        let output = outcome.out() + &outcome.err();
        Ok(Ran {
            unfinished: verdicts
                .is_none()
                .then(|| report::unfinished(self.module, &output))
                .flatten(),
            verdicts,
            ended: outcome.ended,
            took: outcome.took,
            survivors: outcome.survivors,
        })
    }

    fn argv(&self, directory: &Path, report: &Path) -> Result<Vec<String>> {
        let mut argv = Vec::new();
        if let Some(replicas) = self.replicas {
            let rcoe = rcoe::binary()?.display().to_string();
            argv.extend([
                rcoe,
                "run".to_owned(),
                "-n".to_owned(),
                replicas.to_string(),
            ]);
            argv.push("--".to_owned());
        }
        let interpreter = &self.plan.interpreter;
        ensure!(Path::new(interpreter).exists(), "no {interpreter}");
        let fixed = [interpreter, "-m", "test", "-v", "--junit-xml"];
        argv.extend(fixed.map(str::to_owned));
        argv.push(report.display().to_string());
        argv.extend(["--tempdir".to_owned(), directory.display().to_string()]);
        for pattern in self.left_out() {
            argv.extend(["-i".to_owned(), pattern]);
        }
        for case in self.only {
            argv.extend(["-m".to_owned(), format!("*{case}")]);
        }
        argv.push(self.module.to_owned());
        Ok(argv)
    }

    /// Patterns of cases that are not run.
    fn left_out(&self) -> Vec<String> {
        let skips = self.plan.skips_of(self.module).map(str::to_owned);
        let hangs = self
            .plan
            .known_of(self.module)
            .filter(|(_, known)| self.replicas.is_some() && known.outcome == Expected::Hangs);
        skips
            .chain(hangs.map(|(case, _)| format!("*{case}")))
            .collect()
    }
}
