//! Fault-free hours: real programs with threads and children, run one after the other for a stated
//! time; nothing may be reported.
//!
//! Contract: every run ends as a bare run did, with the same output, and reports nothing. Time is
//! counted only while a program runs as replicas.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::child::{Finished, Running, Setup};
use crate::interrupt;
use crate::program::{self, Program};
use crate::taxonomy::{Expected, Verdict, classify};

/// What is run in turn: one thread, several threads, children.
const MIX: &str = "md5sum,bzip2,sqlite3,awk,pigz,mutex,workers,pipeline,shell,make";
/// Modes of comparison in turn.
const MODES: [&str; 3] = ["args", "io", "every"];

/// What was done so far.
#[derive(Clone, Debug, Default)]
pub struct Hours {
    /// Runs as replicas.
    pub runs: u64,
    /// Runs in which something was reported, or that ended otherwise than they should.
    pub alarms: Vec<String>,
    /// Those of them that had no end.
    pub unfinished: u64,
    /// Time in these runs.
    pub time: Duration,
}

/// A program and what a bare run of it does.
struct Entry {
    program: Program,
    expected: Expected,
}

/// Runs the mix for `length`, with each of `replicas` in turn; `tell` hears of every run.
///
/// # Errors
///
/// If a program cannot be run.
pub fn run(
    setup: &Setup,
    replicas: &[usize],
    length: Duration,
    mut tell: impl FnMut(&Hours),
) -> Result<Hours> {
    let entries = program::select(MIX)?.into_iter();
    let entries = entries.map(|program| expect(setup, program));
    let entries = entries.collect::<Result<Vec<_>>>()?;
    let mut hours = Hours::default();
    let end = Instant::now() + length;
    for number in 0.. {
        if Instant::now() >= end || interrupt::is_due() {
            break;
        }
        let round = number / entries.len();
        let setup = Setup {
            replicas: replicas[round % replicas.len()],
            compare: MODES[round / replicas.len() % MODES.len()].into(),
            ..setup.clone()
        };
        let entry = &entries[number % entries.len()];
        let run = Running::start(&setup, &entry.program, 0)?.finish()?;
        hours.runs += 1;
        hours.time += run.wall;
        let alarm = alarm(&setup, entry, &run);
        hours.unfinished += u64::from(alarm.is_some() && run.exit.is_none());
        hours.alarms.extend(alarm);
        tell(&hours);
    }
    Ok(hours)
}

fn expect(setup: &Setup, program: Program) -> Result<Entry> {
    let bare = Setup {
        replicas: 0,
        ..setup.clone()
    };
    let run = Running::start(&bare, &program, 0)?.finish()?;
    let exit = run
        .exit
        .ok_or_else(|| anyhow::anyhow!("{} hangs when run bare", program.name))?;
    let expected = Expected {
        exit,
        stdout: run.stdout,
    };
    Ok(Entry { program, expected })
}

/// What was wrong with a run, in words.
fn alarm(setup: &Setup, entry: &Entry, run: &Finished) -> Option<String> {
    let verdict = classify(setup.replicas, false, &entry.expected, run);
    let well = verdict == Verdict::NotApplied && run.leftovers == 0 && run.stderr.is_empty();
    (!well).then(|| {
        format!(
            "{} n={} compare {}: {}: {}",
            entry.program.name,
            setup.replicas,
            setup.compare,
            verdict.label(),
            run.stderr.trim()
        )
    })
}
