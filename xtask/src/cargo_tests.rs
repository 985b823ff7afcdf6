//! Cargo's test programs: what they count, and the second try of a test that fails.
//!
//! Tests of replicas run on whatever machine there is, however loaded. One that fails by the
//! machine's doing is run once more, alone; if it passes then, it counts as passed and is named as
//! flaky, so that it is looked at. A fault of the code fails twice.
//!
//! Not tried again: more than [`MOST`] failures, and programs that end without naming what failed.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use crate::beside;
use crate::count::{self, Counts};
use crate::failures::{self, Failure, Kind, Tail};
use crate::shell;
use crate::slow::Watch;

/// Failed tests of one run that get a second try; more are no accident.
const MOST: usize = 3;

/// What one run came to.
#[derive(Debug)]
pub(crate) struct Run {
    counts: Counts,
    pub(crate) succeeded: bool,
    /// The tests that failed, by name.
    failed: Vec<String>,
    /// What the test said whose report is being read.
    saying: Option<Failure>,
    /// What others said that failed.
    said: Vec<Failure>,
}

impl Default for Run {
    /// Of nothing.
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            succeeded: true,
            failed: Vec::new(),
            saying: None,
            said: Vec::new(),
        }
    }
}

impl Run {
    /// A line of what it said.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(found) = count::parse(line, count::CARGO) {
            self.counts.add(found);
        }
        self.failed.extend(failure(line).map(str::to_owned));
        self.report(line);
    }

    /// The same of a line of the reports that follow upon tests that failed.
    fn report(&mut self, line: &str) {
        if let Some(name) = reported(line) {
            let new = Failure::new(name, Tail::default());
            self.said.extend(self.saying.replace(new));
        } else if line == "failures:" || line.starts_with(count::CARGO) {
            self.said.extend(self.saying.take());
        } else if let Some(saying) = &mut self.saying {
            saying.said.line(line);
        }
    }

    /// Keeps what failed for the end of all, as this.
    fn keep(&self, kind: Kind) {
        for name in &self.failed {
            let said = self.said.iter().find(|it| it.name == *name);
            let said = said.map(|it| it.said.clone()).unwrap_or_default();
            let failure = Failure::new(name, said);
            failures::keep(Failure { kind, ..failure });
        }
    }

    /// What it is worth without a second try.
    pub(crate) const fn judged(&self) -> Counts {
        self.counts.judged(self.succeeded)
    }

    /// Together with another one.
    pub(crate) fn add(&mut self, other: Self) {
        self.counts.add(other.counts);
        self.succeeded &= other.succeeded;
        self.failed.extend(other.failed);
        self.said.extend(other.said);
    }

    /// What its lines told.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// The tests that failed, by name.
    pub(crate) fn failed(&self) -> &[String] {
        &self.failed
    }

    /// Whether a second try can tell more.
    fn is_worth_a_second(&self) -> bool {
        let named = self.failed.len() as u64 == self.counts.failed;
        !self.failed.is_empty() && named && self.failed.len() <= MOST
    }
}

/// Runs the test programs of the command that `make` makes, sums their closing lines, and keeps
/// which tests were [slowest](crate::slow).
///
/// # Errors
///
/// If the command cannot be started.
pub(crate) fn run(make: impl Fn() -> Command) -> Result<Counts> {
    let mut watch = Watch::of_this_machine();
    let first = once(make(), |line| watch.line(line, Instant::now()))?;
    watch.keep();
    judge(&first, make)
}

/// The same, but programs run [beside] one another, and then those that `others` makes.
///
/// # Errors
///
/// If they do not build, or one cannot be started.
pub(crate) fn run_beside(make: impl Fn() -> Command, others: Option<Command>) -> Result<Counts> {
    let mut watch = Watch::of_this_machine();
    let mut first = beside::run(&make, &mut watch)?;
    if let Some(others) = others {
        first.add(once(others, |_| {})?);
    }
    watch.keep();
    judge(&first, make)
}

/// What a first run is worth, after a second one where that can tell more.
fn judge(first: &Run, make: impl Fn() -> Command) -> Result<Counts> {
    if first.succeeded {
        return Ok(first.judged());
    }
    if !first.is_worth_a_second() {
        first.keep(Kind::Failed);
        return Ok(first.judged());
    }
    println!("once more, alone: {}", first.failed.join(" "));
    let mut command = make();
    command.args(["--", "--exact", "--test-threads=1"]);
    let second = once(shell::with(command, &first.failed), |_| {})?;
    Ok(settle(first, &second))
}

/// The counts of a first run, its failed tests judged by the second.
fn settle(first: &Run, second: &Run) -> Counts {
    let all = second.counts.passed >= first.counts.failed;
    if !(second.succeeded && all) {
        first.keep(Kind::Failed);
        return first.counts.judged(false);
    }
    first.keep(Kind::Flaky);
    for name in &first.failed {
        println!("flaky: {name} failed once and passed when it ran alone");
    }
    Counts {
        passed: first.counts.passed + first.counts.failed,
        failed: 0,
    }
}

fn once(command: Command, mut look: impl FnMut(&str)) -> Result<Run> {
    let mut run = Run::default();
    run.succeeded = shell::stream(command, |line| {
        look(line);
        run.line(line);
    })?;
    Ok(run)
}

/// The test whose report begins with a line.
fn reported(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The test that a line says has failed.
fn failure(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    // The name of a documentation test is a place: it has blanks and is no filter.
    (!name.contains(' ')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for cargo: runs `script`, whose arguments are those of the second try.
    fn counts(script: &str) -> Counts {
        run(|| {
            let mut command = Command::new("sh");
            command.args(["-c", script, "cargo"]);
            command
        })
        .unwrap()
    }

    /// Two of three tests pass at first; `second` is what the second try does.
    fn second_try(second: &str) -> Counts {
        counts(&format!(
            "if [ $# -gt 0 ]; then {second}; fi
             echo 'test a::b ... FAILED'
             echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'
             exit 1"
        ))
    }

    #[test]
    fn a_planted_failure_fails() {
        let passed = |passed, failed| Counts { passed, failed };
        let good = counts("echo 'test result: ok. 5 passed; 0 failed; 0 ignored'");
        assert_eq!(good, passed(5, 0));
        let bad = counts("echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'");
        assert_eq!(bad, passed(2, 1));
        let dead = counts("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 1");
        assert_eq!(dead, passed(2, 1));
        let empty = counts("echo compat: 2 passed, 0 failed");
        assert_eq!(empty, passed(0, 1));
    }

    #[test]
    fn what_fails_twice_has_failed() {
        let again = "echo 'test a::b ... FAILED'
                     echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 1";
        let none = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'; exit 0";
        let other = "[ \"$4\" = a::b ] || exit 0; exit 1";
        for second in [again, none, other] {
            let expected = Counts {
                passed: 2,
                failed: 1,
            };
            assert_eq!(second_try(second), expected, "{second}");
        }
    }

    #[test]
    fn what_passes_alone_is_flaky() {
        let second = "[ \"$*\" = '-- --exact --test-threads=1 a::b' ] &&
                      echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit 0";
        let expected = Counts {
            passed: 3,
            failed: 0,
        };
        assert_eq!(second_try(second), expected);
    }

    #[test]
    fn many_failures_are_no_accident() {
        let lines = "for test in a b c d; do echo \"test $test ... FAILED\"; done";
        let end = "echo 'test result: FAILED. 0 passed; 4 failed; 0 ignored'; exit 1";
        let expected = Counts {
            passed: 0,
            failed: 4,
        };
        let script = format!("[ $# = 0 ] || exit 9; {lines}; {end}");
        assert_eq!(counts(&script), expected);
    }

    #[test]
    fn what_a_test_said_that_failed_is_known() {
        let mut run = Run::default();
        let lines = "test a::b ... FAILED\ntest c ... FAILED\nfailures:\n\n---- a::b stdout ----\n\
                     left: 1\n\n---- c stdout ----\nright: 2\n\nfailures:\n    a::b\n    c\n\
                     test result: FAILED. 0 passed; 2 failed; 0 ignored\nlater";
        lines.lines().for_each(|line| run.line(line));
        let said: Vec<(&str, &Tail)> = run.said.iter().map(|it| (&*it.name, &it.said)).collect();
        let expected = [
            ("a::b", Tail::of("left: 1\n\n")),
            ("c", Tail::of("right: 2\n\n")),
        ];
        assert_eq!(said, expected.each_ref().map(|(name, tail)| (*name, tail)));
    }

    #[test]
    fn lines_that_tell_of_a_failure_are_read() {
        assert_eq!(failure("test a::b ... FAILED"), Some("a::b"));
        for line in [
            "test a::b ... ok",
            "test src/lib.rs - place (line 3) ... FAILED",
            "a::b ... FAILED",
        ] {
            assert_eq!(failure(line), None, "{line}");
        }
    }
}
