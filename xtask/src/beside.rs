//! Cargo's test programs side by side, each with one thread.
//!
//! Cargo runs one program after the other: while the last test of each runs, other cores have
//! nothing to do, and there are more than a hundred programs. Here the next program begins where
//! one has ended, and one more runs than there are cores, because tests of replicas wait for much
//! of their time. Those of [`LONG`] begin first.
//!
//! A program has the folder and the variables that cargo gives it. What it says is told when it
//! ends, as one piece. Those of [`ALONE`] come last, one by one.
//!
//! Not covered: tests of documentation, which are no programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::cargo_tests::Run;
use crate::pool::{self, lock};
use crate::shell;
use crate::slow::Watch;

/// Programs that compute longest: none of them is to be what all others have to be waited for.
const LONG: &[&str] = &[
    "system_coupling",
    "reintegration",
    "model",
    "loss",
    "sharing",
];

/// Programs whose replicas keep all cores busy, and for which time decides how far they are.
const ALONE: &[&str] = &["ticks"];

/// A line of cargo's about what it has built.
#[derive(Deserialize)]
struct Artifact {
    #[serde(default)]
    manifest_path: PathBuf,
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: String,
    path: PathBuf,
    /// The folder of its package.
    folder: PathBuf,
}

/// Builds the test programs of the command that `make` makes, and runs all of them.
///
/// # Errors
///
/// If they do not build, or one cannot be started.
pub(crate) fn run(make: impl Fn() -> Command, watch: &mut Watch) -> Result<Run> {
    let (alone, beside): (Vec<Program>, Vec<Program>) = build(make())?
        .into_iter()
        .partition(|it| ALONE.contains(&it.name.as_str()));
    let cores = shell::cores();
    let mut run = Run::default();
    for (programs, workers) in [(beside, cores + 1), (alone, 1)] {
        run.add(all(programs, workers, &make, watch)?);
    }
    Ok(run)
}

/// Builds the test programs of a command of cargo's; those that take longest come first.
///
/// # Errors
///
/// If they do not build.
pub(crate) fn build(cargo: Command) -> Result<Vec<Program>> {
    let words = ["--no-run", "--message-format=json-render-diagnostics"];
    let told = shell::output(shell::with(cargo, &words))?;
    let mut programs = programs(&told)?;
    programs.sort_by_key(|it| !LONG.contains(&it.name.as_str()));
    Ok(programs)
}

/// The programs that cargo tells of.
fn programs(told: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in told.lines() {
        let artifact: Artifact = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let is_test = artifact.profile.is_some_and(|it| it.test);
        let (Some(path), Some(target), true) = (artifact.executable, artifact.target, is_test)
        else {
            continue;
        };
        let folder = artifact.manifest_path.parent().map(Path::to_path_buf);
        programs.push(Program {
            name: target.name,
            path,
            folder: folder.context("a program of no package")?,
        });
    }
    Ok(programs)
}

/// Runs these, so many at once.
fn all(
    programs: Vec<Program>,
    workers: usize,
    make: &impl Fn() -> Command,
    watch: &mut Watch,
) -> Result<Run> {
    // Each has its command from here: what makes commands is no thing to share.
    let commands = programs.into_iter().map(|it| (command(&it, &make()), it));
    let commands: Vec<(Command, Program)> = commands.collect();
    let finished = Mutex::new((Run::default(), watch));
    pool::work(commands, workers, |(command, program)| {
        let mut own = Watch::new(1);
        let (text, run) = one(command, &mut own).with_context(|| program.name.clone())?;
        let mut finished = lock(&finished);
        let path = program.path.display();
        println!("\n     Running {} ({path})\n{text}", program.name);
        finished.0.add(run);
        finished.1.join(own);
        Ok(())
    })?;
    Ok(pool::into_inner(finished).0)
}

/// Runs one program; what it said, and what came of it.
pub(crate) fn one(command: Command, watch: &mut Watch) -> Result<(String, Run)> {
    let (mut text, mut run) = (String::new(), Run::default());
    run.succeeded = shell::read(command, |line| {
        watch.line(line, Instant::now());
        run.line(line);
        text.push_str(line);
        text.push('\n');
    })?;
    Ok((text, run))
}

/// The command that runs a program with the variables of cargo's command.
pub(crate) fn command(program: &Program, cargo: &Command) -> Command {
    let mut command = Command::new(&program.path);
    command.arg("--test-threads=1");
    command.current_dir(&program.folder);
    shell::copy_variables(cargo, &mut command);
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    shell::joined(&command)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::count::Counts;

    /// A program that is this script.
    fn program(folder: &Path, name: &str, script: &str) -> Program {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Program {
            name: name.to_owned(),
            path,
            folder: folder.to_owned(),
        }
    }

    fn counts(programs: Vec<Program>, workers: usize) -> Counts {
        let make = || {
            let mut command = Command::new("true");
            command.env("RCOE_GIVEN", "1");
            command
        };
        let run = all(programs, workers, &make, &mut Watch::new(1)).unwrap();
        run.judged()
    }

    const PASSED: &str = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";

    #[test]
    fn programs_run_side_by_side_and_all_of_them_count() {
        let folder = tempfile::tempdir().unwrap();
        // Each waits until the other one runs.
        let meet = |own: &str, other: &str| {
            let wait = format!("for _ in $(seq 600); do [ -e {other} ] && break; sleep 0.1; done");
            format!("touch {own}; {wait}; [ -e {other} ] && {PASSED}")
        };
        let [one, other] = [meet("one", "other"), meet("other", "one")];
        let programs = vec![
            program(folder.path(), "a", &one),
            program(folder.path(), "b", &other),
            program(folder.path(), "c", PASSED),
        ];
        let all = Counts {
            passed: 6,
            failed: 0,
        };
        assert_eq!(counts(programs, 2), all);
    }

    #[test]
    fn a_program_that_fails_or_dies_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        for last in ["exit 1", "kill -9 $$", "echo 'test a ... FAILED'; exit 101"] {
            let programs = vec![
                program(folder.path(), "first", last),
                program(folder.path(), "second", PASSED),
            ];
            let found = Counts {
                passed: 2,
                failed: 1,
            };
            assert_eq!(counts(programs, 2), found, "{last}");
        }
    }

    #[test]
    fn a_program_is_run_as_cargo_does_with_one_thread() {
        let folder = tempfile::tempdir().unwrap();
        let asked = "[ \"$*\" = --test-threads=1 ] && [ \"$RCOE_GIVEN\" = 1 ]";
        let place = "[ \"$PWD\" = \"$CARGO_MANIFEST_DIR\" ] && [ -x only ]";
        let programs = vec![program(
            folder.path(),
            "only",
            &format!("{asked} && {place} && {PASSED}"),
        )];
        assert_eq!(
            counts(programs, 1),
            Counts {
                passed: 2,
                failed: 0
            }
        );
    }

    #[test]
    fn of_what_cargo_builds_only_tests_are_run() {
        let line = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/x/core/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"test\"],\"name\":\"word\"}},\
                 \"profile\":{{\"opt_level\":\"0\",\"test\":{test}}},\"executable\":{executable}}}"
            )
        };
        let told = [
            line(true, "\"/x/target/debug/deps/word-1\""),
            line(false, "\"/x/target/debug/rcoe\""),
            line(true, "null"),
            "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
        ];
        let word = Program {
            name: "word".to_owned(),
            path: "/x/target/debug/deps/word-1".into(),
            folder: "/x/core".into(),
        };
        assert_eq!(programs(&told.join("\n")).unwrap(), [word]);
        assert!(programs("no line of cargo's").is_err());
    }

    #[test]
    fn programs_with_a_rule_of_their_own_are_there() {
        for name in [LONG, ALONE].concat() {
            let file = |package: &&str| {
                let path = shell::root().join(format!("{package}/tests/{name}.rs"));
                path.is_file()
            };
            assert!(["tests", "sim"].iter().any(file), "{name}");
        }
    }
}
