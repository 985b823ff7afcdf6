//! Stages beside one another, each as a process of its own.
//!
//! Most stages keep no two cores busy: they wait for replicas, for a linker, or for one long
//! compilation. Those that need nothing of each other therefore run as many at once as there are
//! cores. What a stage says goes to a pipe and is told as one piece when it ends; its last line is
//! what came of it. A stage that ends without such a line has failed.
//!
//! Contract: stages start commands from where [`shell::build_commands`] has them, and all build one
//! alike that another stage starts, too.
//!
//! Not covered: stopping the others because one has failed; all of them are carried out.

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::count::Counts;
use crate::failures::{Failure, Tail};
use crate::pool::{self, lock};
use crate::shell;

/// Begins the line that tells what came of a stage.
const CAME: &str = "stage: ";

/// What came of one stage.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Came {
    pub(crate) counts: Counts,
    pub(crate) took: Duration,
    /// Its slowest tests.
    pub(crate) slowest: Vec<(Duration, String)>,
    /// What failed in it, as far as it has names.
    pub(crate) failures: Vec<Failure>,
}

impl Came {
    /// A stage that failed as a whole.
    const fn failed(took: Duration) -> Self {
        Self {
            counts: Counts::one(false),
            took,
            slowest: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// One that failed without a name of what did is told with the end of what it `said`.
    fn named(mut self, said: &str) -> Self {
        if self.counts.failed > 0 && self.failures.is_empty() {
            let name = "the stage, which said last";
            self.failures.push(Failure::new(name, Tail::of(said)));
        }
        self
    }
}

/// Prints what came of the stage that this process was.
///
/// # Errors
///
/// If it cannot be written down.
pub(crate) fn tell(came: &Came) -> Result<()> {
    println!("{CAME}{}", serde_json::to_string(came)?);
    Ok(())
}

/// Carries out these stages, so many at once, by the commands that `make` makes of their names;
/// what came of each, in the order in which they were given.
///
/// # Errors
///
/// If one cannot be started.
pub(crate) fn run(
    names: &[&'static str],
    workers: usize,
    make: impl Fn(&str) -> Command + Sync,
) -> Result<Vec<Came>> {
    let came: Mutex<Vec<Option<Came>>> = Mutex::new(names.iter().map(|_| None).collect());
    pool::work(names.iter().enumerate(), workers, |(index, name)| {
        println!("{name} begins");
        let (text, of_stage) = one(make(name)).with_context(|| (*name).to_owned())?;
        let mut came = lock(&came);
        println!("\n-- {name}\n{text}");
        came[index] = Some(of_stage);
        Ok(())
    })?;
    let came = pool::into_inner(came);
    came.into_iter()
        .collect::<Option<_>>()
        .context("a stage that nobody took")
}

/// Runs one; what it said, and what came of it.
fn one(stage: Command) -> Result<(String, Came)> {
    let started = Instant::now();
    let (mut text, mut came) = (String::new(), None);
    shell::read(shell::joined(&stage), |line| {
        match line.strip_prefix(CAME) {
            Some(told) => came = serde_json::from_str(told).ok(),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    })?;
    let came = came.unwrap_or_else(|| Came::failed(started.elapsed()));
    let came = came.named(&text);
    Ok((text, came))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a script.
    fn counts(scripts: &[&'static str], workers: usize) -> Vec<Counts> {
        let came = run(scripts, workers, |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        });
        came.unwrap().into_iter().map(|it| it.counts).collect()
    }

    const PASSED: &str = "echo said; echo 'stage: {\"counts\":{\"passed\":3,\"failed\":0},\
                          \"took\":{\"secs\":1,\"nanos\":0},\"slowest\":[],\"failures\":[]}'";

    #[test]
    fn each_stage_has_its_counts_in_the_order_of_stages() {
        let passed = Counts {
            passed: 3,
            failed: 0,
        };
        let failed = Counts::one(false);
        for workers in [1, 2, 5] {
            let found = counts(&["echo no word", PASSED, "exit 1", PASSED], workers);
            assert_eq!(found, [failed, passed, failed, passed]);
        }
    }

    #[test]
    fn a_stage_that_tells_nonsense_or_dies_has_failed() {
        for script in ["echo stage: 3 passed", "echo stage: {}", "kill -9 $$", ""] {
            assert_eq!(counts(&[script], 1), [Counts::one(false)], "{script}");
        }
    }

    #[test]
    fn what_is_told_is_read() {
        let came = Came {
            counts: Counts::one(true),
            took: Duration::from_millis(1_500),
            slowest: vec![(Duration::from_secs(2), "a::b".to_owned())],
            failures: vec![Failure::new("a::c", Tail::of("why"))],
        };
        let text = serde_json::to_string(&came).unwrap();
        let script: &'static str = Box::leak(format!("echo '{CAME}{text}'").into_boxed_str());
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let (said, read) = one(command).unwrap();
        assert_eq!(said, "");
        assert_eq!(read.counts, came.counts);
        assert_eq!((read.took, read.slowest), (came.took, came.slowest));
        assert_eq!(read.failures, came.failures);
    }

    #[test]
    fn what_failed_without_a_name_is_told_by_its_end() {
        let failures = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            one(command).unwrap().1.failures
        };
        assert_eq!(failures("echo why; exit 1")[0].said, Tail::of("why"));
        assert_eq!(failures(PASSED), []);
    }
}
