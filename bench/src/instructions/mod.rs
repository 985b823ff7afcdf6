//! Instructions of one call, counted one by one.
//!
//! Times differ from machine to machine and from minute to minute; the instructions that a process
//! executes between two visits of one address of its program do not. They are counted by
//! single-stepping (ptrace), so neither performance counters nor a quiet machine are needed.
//!
//! **What is counted.** A static program makes one kind of call in a loop. After a warm-up, in
//! which its sites are rewritten and rings are made, it waits for input; there all its replicas are
//! seized, and from then on each of them only goes on by single steps. An iteration is what a
//! replica executes from one visit of the loop's mark to its next, in user mode, with libc's
//! wrapper and the loop itself. *Host calls* are those of its instructions that were `syscall`.
//!
//! **With several replicas** counts must not depend on who gets a CPU when. So replicas take turns:
//! a turn lasts until the replica reaches the mark or waits, which shows as a `pause` instruction,
//! as `sched_yield`, or as sleep. The primary goes first, so a follower finds what the primary can
//! have published by then. Whoever has to wait all the same looks once *in vain*, however long the
//! wait would be otherwise: what a vote makes replicas wait for is seen as the number of looks, and
//! not as time. All replicas are counted, and the one that executes more is told.
//!
//! Re-integration and scrubbing are off, and the way threads take turns has a fixed seed. What
//! comes up only once in many calls is left out by the median, and shows in the largest value.
//!
//! Not covered: the host's own part of a call, caches, and everything else that instructions do not
//! show.

mod bounds;
mod profile;
mod session;
mod tracee;

use std::fmt::Write as _;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use rcoe_faultlab::stats::to_f64;

pub use self::bounds::{Bounds, Verdict};
use self::tracee::Sample;
use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop};

/// The looping program.
const LOOP: &str = include_str!("loop.c");
/// Begin the names of what is counted beside instructions.
pub(crate) const HOST_CALLS: &str = "host calls of ";
pub(crate) const LOOKS: &str = "looks in vain of ";
/// Replicas of the configurations that have bounds.
const REPLICAS: [usize; 2] = [1, 2];

/// One row of the table.
struct Cell {
    /// As the loop knows it.
    kind: &'static str,
    /// In words.
    what: &'static str,
}

const fn cell(kind: &'static str, what: &'static str) -> Cell {
    Cell { kind, what }
}

const CELLS: [Cell; 13] = [
    cell("write", "write 64 B to /dev/null"),
    cell("write-threads", "the same, five threads"),
    cell("write-shared", "the same, memory shared with a child"),
    cell("read", "read 64 B of /dev/zero"),
    cell("read-file", "read 4 KiB of a file"),
    cell("clock", "clock_gettime"),
    cell("getppid", "getppid"),
    cell("epoll", "epoll_wait, nothing ready"),
    cell("pair", "write and read, socket pair"),
    cell("sendto", "sendto and recvfrom, socket pair"),
    cell("futex-wake", "futex wake, no waiter"),
    cell("stat", "stat of a path"),
    cell("open-close", "open, fstat and close a file"),
];

/// Instructions, host calls and looks in vain of one iteration of each kind.
///
/// # Errors
///
/// If a run fails, or if processes may not be traced here.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    workshop.compile("loop", LOOP, &["-static", "-pthread"])?;
    let _one = OneCpu::take()?;
    let mut collector = Collector::default();
    for cell in &CELLS {
        for configuration in configurations() {
            let samples = worst(workshop, configuration, cell.kind, scale.iterations)?;
            for sample in samples {
                let what = cell.what;
                let mut add = |what: &str, unit, value| {
                    collector.add(what, configuration, unit, to_f64(value));
                };
                add(what, "instructions", sample.instructions);
                add(&format!("{HOST_CALLS}{what}"), "", sample.host_calls);
                add(&format!("{LOOKS}{what}"), "", sample.looks);
            }
        }
    }
    Ok(collector.finish())
}

/// Where the instructions of one call of this kind go, in each replica, as markdown.
///
/// # Errors
///
/// As [`measure`]; if there is no such kind.
pub fn profile(workshop: &Workshop, kind: &str) -> Result<String> {
    let known = CELLS.iter().find(|cell| cell.kind == kind);
    let what = known.with_context(|| {
        let kinds: Vec<_> = CELLS.iter().map(|cell| cell.kind).collect();
        format!("unknown kind of call; known: {}", kinds.join(", "))
    })?;
    workshop.compile("loop", LOOP, &["-static", "-pthread"])?;
    let _one = OneCpu::take()?;
    let mut out = format!("# Instructions by function: {}\n", what.what);
    for configuration in configurations().filter(|it| it.replicas > 0) {
        let profiles = session::profiles(workshop, configuration, kind)?;
        for (replica, profile) in profiles.iter().enumerate() {
            let count = configuration.replicas;
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "\n## n={count}, replica {replica}\n\n{}",
                profile.table()
            );
        }
    }
    Ok(out)
}

/// This thread and what it starts has a single CPU until this is dropped: stepping is handing a CPU
/// to and fro, which between two takes longer.
struct OneCpu(CpuSet);

impl OneCpu {
    fn take() -> Result<Self> {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this)?;
        let mut one = CpuSet::new();
        one.set(sched_getcpu()?)?;
        sched_setaffinity(this, &one).context("cannot choose a CPU")?;
        Ok(Self(allowed))
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        // What was allowed before is allowed again.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.0);
    }
}

fn configurations() -> impl Iterator<Item = Configuration> {
    let protected = REPLICAS.map(|replicas| Configuration {
        reintegrate: false,
        // Replicas that are stepped are late in any clock.
        timeout: Some("1h"),
        ..protected(replicas, "args")
    });
    std::iter::once(NATIVE).chain(protected)
}

/// The samples of the replica whose median is larger.
fn worst(
    workshop: &Workshop,
    configuration: Configuration,
    kind: &str,
    count: usize,
) -> Result<Vec<Sample>> {
    let each = session::samples(workshop, configuration, kind, count)?;
    let middle = |samples: &Vec<Sample>| {
        let mut sorted: Vec<u64> = samples.iter().map(|sample| sample.instructions).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    };
    each.into_iter().max_by_key(middle).context("no replica")
}

/// Median, least and most of one cell; `prefix` says of what.
fn spread(series: &[Series], prefix: &str, what: &str, replicas: usize) -> Option<[f64; 3]> {
    let found = series.iter().find(|series| {
        series.configuration.replicas == replicas && series.what.strip_prefix(prefix) == Some(what)
    })?;
    let least = found.values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = found.values.iter().copied().fold(0.0, f64::max);
    Some([found.value().median, least, most])
}

/// The table: a row for each kind, medians with least and most where these differ, and host calls
/// and looks in vain behind them.
#[must_use]
pub fn table(series: &[Series]) -> String {
    let mut out = String::from(
        "Instructions of one iteration: median (least to most); *h* host calls, \
         *v* looks in vain.\n\n\
         | one iteration of | native | n=1 | n=2, the worse replica |\n\
         |---|---|---|---|\n",
    );
    for cell in &CELLS {
        let [native, one, two] = [0, 1, 2].map(|replicas| entry(series, cell.what, replicas));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| {} | {native} | {one} | {two} |", cell.what);
    }
    out
}

fn entry(series: &[Series], what: &str, replicas: usize) -> String {
    let Some([median, least, most]) = spread(series, "", what, replicas) else {
        return "-".into();
    };
    let mut text = format!("{median:.0}");
    if least < most {
        // Writing to a string cannot fail.
        let _ = write!(text, " ({least:.0} to {most:.0})");
    }
    for (prefix, letter) in [(HOST_CALLS, 'h'), (LOOKS, 'v')] {
        if let Some([count, ..]) = spread(series, prefix, what, replicas)
            && (count > 0.0 || letter == 'h')
        {
            // Writing to a string cannot fail.
            let _ = write!(text, ", {count:.0}{letter}");
        }
    }
    text
}
