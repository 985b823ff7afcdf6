//! What failed, and what it said last: told once more at the end of a run.
//!
//! A run of all stages says tens of thousands of lines, and who looks at its end wants to know what
//! failed, not in which stage. Whoever runs a check that fails [keeps](keep) it here; the end of
//! the run [tells](tell) all of them.
//!
//! Not covered: what else a check said; it stands further up.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Mutex;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::count::Counts;
use crate::pool::lock;
use crate::shell;

/// Lines that are kept of what a check said.
const KEPT: usize = 20;

/// What failed in this process since it was last asked for.
static FAILURES: Mutex<Vec<Failure>> = Mutex::new(Vec::new());

/// What a check that failed is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// It fails the run.
    Failed,
    /// It passed when it was tried once more, and is to be looked at.
    Flaky,
}

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    /// Its name, or the command that was it.
    pub(crate) name: String,
    /// Its last lines.
    pub(crate) said: Tail,
}

/// The last lines of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tail(VecDeque<String>);

impl Tail {
    /// One more line.
    pub(crate) fn line(&mut self, line: &str) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    /// Those of a whole text.
    pub(crate) fn of(text: &str) -> Self {
        let mut tail = Self::default();
        text.lines().for_each(|line| tail.line(line));
        tail
    }
}

impl Failure {
    /// One that fails the run.
    pub(crate) fn new(name: impl Into<String>, said: Tail) -> Self {
        Self {
            kind: Kind::Failed,
            name: name.into(),
            said,
        }
    }
}

/// Keeps what has failed.
pub(crate) fn keep(failure: Failure) {
    lock(&FAILURES).push(failure);
}

/// All that was kept since this was last asked.
pub(crate) fn take() -> Vec<Failure> {
    std::mem::take(&mut *lock(&FAILURES))
}

/// Prints them, each with the stage that it belongs to.
pub(crate) fn tell(stage: &str, failures: &[Failure]) {
    for Failure { kind, name, said } in failures {
        let kind = match kind {
            Kind::Failed => "failed",
            Kind::Flaky => "flaky",
        };
        println!("\n{kind} in {stage}: {name}");
        said.0.iter().for_each(|line| println!("  | {line}"));
    }
}

/// Runs a command that is one check and goes by this name.
///
/// # Errors
///
/// If it cannot be started.
pub(crate) fn check(name: &str, command: &Command) -> Result<Counts> {
    let failure = run(name, command)?;
    let succeeded = failure.is_none();
    failure.into_iter().for_each(keep);
    Ok(Counts::one(succeeded))
}

/// Runs a command that is one check and tried twice: by a first command, then by another one if
/// that fails. One that passes then is kept as flaky.
///
/// # Errors
///
/// If one cannot be started.
pub(crate) fn check_twice(name: &str, commands: [Command; 2]) -> Result<Counts> {
    let [first, second] = commands;
    let Some(mut failure) = run(name, &first)? else {
        return Ok(Counts::one(true));
    };
    println!("once more: {name}");
    let again = run(name, &second)?;
    if again.is_none() {
        println!("flaky: {name} failed once and passed when it was tried again");
        failure.kind = Kind::Flaky;
    }
    let passed = again.is_none();
    [Some(failure), again].into_iter().flatten().for_each(keep);
    Ok(Counts::one(passed))
}

/// Runs a command; what there is to tell if it fails.
fn run(name: &str, command: &Command) -> Result<Option<Failure>> {
    let mut tail = Tail::default();
    let succeeded = shell::stream(shell::joined(command), |line| tail.line(line))?;
    Ok((!succeeded).then(|| Failure::new(name, tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_text_the_last_lines_are_kept() {
        let text: String = (1..=30).map(|line| format!("{line}\n")).collect();
        let kept: Vec<String> = Tail::of(&text).0.into();
        let last: Vec<String> = (11..=30).map(|line| line.to_string()).collect();
        assert_eq!(kept, last);
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("RCOE_GIVEN", "given");
        command
    }

    #[test]
    fn what_fails_is_kept_with_both_of_its_outputs() {
        let failure = |script| run("a", &shell(script)).unwrap();
        assert_eq!(failure("echo fine"), None);
        let failed = failure("echo out; echo err $RCOE_GIVEN >&2; exit 1");
        assert_eq!(failed, Some(Failure::new("a", Tail::of("out\nerr given"))));
    }

    #[test]
    fn what_passes_when_tried_again_is_flaky_and_what_does_not_has_failed() {
        let twice = |name: &str, scripts: [&str; 2]| {
            let counts = check_twice(name, scripts.map(shell)).unwrap();
            let mut all = lock(&FAILURES);
            // Other tests of this process keep theirs.
            let own = all.extract_if(.., |it| it.name == name);
            (counts, own.map(|it| it.kind).collect::<Vec<_>>())
        };
        let (good, bad) = (Counts::one(true), Counts::one(false));
        assert_eq!(twice("good at once", ["exit 0", "exit 1"]), (good, vec![]));
        assert_eq!(
            twice("good at last", ["exit 1", "exit 0"]),
            (good, vec![Kind::Flaky])
        );
        let both = vec![Kind::Failed, Kind::Failed];
        assert_eq!(twice("never good", ["exit 1", "exit 1"]), (bad, both));
    }
}
