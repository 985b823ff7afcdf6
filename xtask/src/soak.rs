//! `cargo xtask soak`: the test programs of the workspace many times, many of them at once.
//!
//! A test that fails once in a hundred on a loaded machine is as good as broken: it costs somebody
//! a whole run of all tests. Here they are each other's load, in another order each time, and each
//! time another half of what is [sampled](stages::seed) is tried. A failure is not tried again, and
//! what the program said is shown; of those that pass only how many there are.
//!
//! Not covered: tests of documentation, and stages that are no test programs.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::beside::{self, Program};
use crate::cargo_tests::Run;
use crate::count::Counts;
use crate::pool::{self, lock};
use crate::slow::Watch;
use crate::stages;

/// How often, and how many at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each program runs.
    #[arg(long, default_value_t = 10)]
    times: u64,
    /// Programs that run at once; about what the load of the machine will be.
    #[arg(long, default_value_t = 10)]
    at_once: usize,
    /// Only these programs, which are named as their sources in tests/ are.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// One run of a program, and how it is told.
struct Turn {
    command: Command,
    name: String,
}

/// What came of all that have run.
struct Came {
    counts: Counts,
    programs: usize,
    /// Tests that failed, or programs that ended without naming one: how often.
    failed: BTreeMap<String, u64>,
}

/// Builds everything and runs it; tells whether nothing failed.
///
/// # Errors
///
/// If the programs do not build, one cannot be started, or none has a given name.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(
        options.times > 0 && options.at_once > 0,
        "nothing would run"
    );
    ensure!(stages::build()?.failed == 0, "the workspace does not build");
    let turns = turns(options)?;
    let (all, started) = (turns.len(), Instant::now());
    println!("{all} turns of test programs, {} at once", options.at_once);
    let came = Mutex::new(Came {
        counts: Counts::default(),
        programs: 0,
        failed: BTreeMap::new(),
    });
    pool::work(turns, options.at_once, |it| take(it, &came, all, started))?;
    let came = pool::into_inner(came);
    for (name, times) in &came.failed {
        println!("failed {times} of {} times: {name}", options.times);
    }
    let Counts { passed, failed } = came.counts.judged(came.failed.is_empty());
    println!("soak: {passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// All turns: in each round every program, for both processors where it has tests of both.
fn turns(options: &Options) -> Result<Vec<Turn>> {
    let makes: [fn() -> Command; 2] = [stages::tests, stages::tests_of_aarch64];
    let mut sets = Vec::new();
    for make in makes {
        let mut programs = beside::build(make())?;
        programs.retain(|it| options.only.is_empty() || options.only.contains(&it.name));
        sets.push((make, programs));
    }
    let known = |name: &String| {
        sets.iter()
            .any(|set| set.1.iter().any(|it| it.name == *name))
    };
    for name in &options.only {
        ensure!(known(name), "no test program is called {name}");
    }
    let seed: u64 = stages::seed()?.parse()?;
    let mut turns = Vec::new();
    for round in 0..options.times {
        let mut of_round: Vec<Turn> = Vec::new();
        for (make, programs) in &sets {
            of_round.extend(programs.iter().map(|it| turn(it, &make(), seed + round)));
        }
        turns.extend(rotated(of_round, round));
    }
    Ok(turns)
}

/// One program, with the sample of this seed.
fn turn(program: &Program, cargo: &Command, seed: u64) -> Turn {
    let mut command = beside::command(program, cargo);
    command.env("RCOE_SAMPLE", seed.to_string());
    Turn {
        command,
        name: format!("{} (RCOE_SAMPLE={seed})", program.name),
    }
}

/// Begins elsewhere in each round, so that programs have other neighbours.
fn rotated<T>(mut all: Vec<T>, round: u64) -> Vec<T> {
    let step = all.len() / 3 + 1;
    let by = usize::try_from(round).unwrap_or(0).wrapping_mul(step) % all.len().max(1);
    all.rotate_left(by);
    all
}

/// One turn.
fn take(turn: Turn, came: &Mutex<Came>, all: usize, started: Instant) -> Result<()> {
    let (text, run) = beside::one(turn.command, &mut Watch::new(1))?;
    let mut came = lock(came);
    came.add(&turn.name, &run);
    if !run.succeeded {
        println!("\n     Running {}\n{text}", turn.name);
    }
    if came.programs.is_multiple_of(20) || !run.succeeded {
        let seconds = started.elapsed().as_secs();
        let (done, failed) = (came.programs, came.failed.len());
        println!("soak: {done} of {all} turns in {seconds} s, {failed} tests failed");
    }
    Ok(())
}

impl Came {
    fn add(&mut self, name: &str, run: &Run) {
        self.programs += 1;
        self.counts.add(run.counts());
        for test in run.failed() {
            *self.failed.entry(test.clone()).or_default() += 1;
        }
        if !run.succeeded && run.failed().is_empty() {
            self.counts.add(Counts::one(false));
            *self.failed.entry(name.to_owned()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_have_the_same_turns_in_another_order() {
        let all: Vec<u32> = (0..10).collect();
        assert_eq!(rotated(all.clone(), 0), all);
        for round in 1..5 {
            let mut other = rotated(all.clone(), round);
            assert_ne!(other, all, "{round}");
            other.sort_unstable();
            assert_eq!(other, all);
        }
        assert!(rotated(Vec::<u32>::new(), 3).is_empty());
    }

    #[test]
    fn what_fails_is_kept_by_its_name_and_a_program_that_dies_by_its_own() {
        let mut came = Came {
            counts: Counts::default(),
            programs: 0,
            failed: BTreeMap::new(),
        };
        let mut wrong = Run::default();
        wrong.line("test a::b ... FAILED");
        wrong.line("test result: FAILED. 2 passed; 1 failed; 0 ignored");
        wrong.succeeded = false;
        let mut dead = Run::default();
        dead.succeeded = false;
        let mut good = Run::default();
        good.line("test result: ok. 5 passed; 0 failed; 0 ignored");
        for run in [&wrong, &dead, &good, &wrong] {
            came.add("program", run);
        }
        let failed: Vec<_> = came.failed.iter().collect();
        assert_eq!(
            failed,
            [(&"a::b".to_owned(), &2), (&"program".to_owned(), &1)]
        );
        assert_eq!((came.counts.passed, came.programs), (9, 4));
        assert_eq!(came.counts.failed, 3);
    }
}
