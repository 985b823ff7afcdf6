//! What replication costs the system sphere, in processor cycles, beside the papers' figures.
//!
//! The unreplicated system (n = 1) is the base, and ratios to it are the result: the machine is an
//! emulated one. Single calls are measured as the difference of a long and a short run. A clock
//! that counts instructions gives exact figures, which say nothing of caches and real
//! inter-processor interrupts; the host's clock gives a median and a spread.

mod machine;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::sample::Spread;
use machine::{Bench, Clock, Run};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Order {
    /// Repetitions of what is measured by the host's clock.
    #[arg(long, default_value_t = 7)]
    pub repetitions: usize,
    /// Also copy memory with a thread of the host for each core: worth something where nothing
    /// else runs.
    #[arg(long)]
    pub copy: bool,
}

const NS: [usize; 3] = [1, 2, 3];
const MODES: [&str; 3] = ["io", "args", "every"];
/// Longer than any run: no tick disturbs.
const SELDOM: &str = "1s";
const USUAL: &str = "10ms";

/// Values of one thing for n = 1, 2, 3, by repetition.
type Row = [Vec<f64>; 3];

/// All tables in markdown.
///
/// # Errors
/// If a machine does not run.
pub fn measure(rcoe: &Path, order: &Order) -> Result<String> {
    let bench = Bench::new(rcoe);
    let mut out = String::new();
    eprintln!("measuring: programs that compute");
    computing(&bench, &mut out)?;
    for (clock, repetitions) in [(Clock::Counted, 1), (Clock::Host, order.repetitions)] {
        let title = match clock {
            Clock::Counted => "Instructions, exact".to_owned(),
            _ => format!("Cycles of the host, median (10 % to 90 %) of {repetitions}"),
        };
        eprintln!("measuring: {title}");
        let _ = writeln!(out, "\n### {title}\n");
        head(&mut out);
        calls(&bench, clock, repetitions, &mut out)?;
        seldom(&bench, clock, repetitions, &mut out)?;
    }
    if order.copy {
        copying(&bench, order.repetitions, &mut out)?;
    }
    Ok(out)
}

fn head(out: &mut String) {
    let _ = writeln!(
        out,
        "| what | compare | n = 1 | n = 2 | n = 3 | 2 : 1 | 3 : 1 |\n|---|---|---|---|---|---|---|"
    );
}

fn cell(values: &[f64]) -> String {
    let Spread { low, median, high } = Spread::of(values);
    match values.len() {
        0 => "-".to_owned(),
        1 => format!("{median:.0}"),
        _ => format!("{median:.0} ({low:.0} to {high:.0})"),
    }
}

fn row(out: &mut String, what: &str, compare: &str, row: &Row, digits: usize) {
    let base = Spread::of(&row[0]).median;
    let ratio = |values: &[f64]| {
        if values.is_empty() || row[0].is_empty() {
            return "-".to_owned();
        }
        format!("{:.digits$}", Spread::of(values).median / base)
    };
    let [one, two, three] = row.each_ref().map(|values| cell(values));
    let (second, third) = (ratio(&row[1]), ratio(&row[2]));
    let _ = writeln!(
        out,
        "| {what} | {compare} | {one} | {two} | {three} | {second} | {third} |"
    );
}

/// Each repetition goes through all numbers of replicas.
fn collect(repetitions: usize, mut measure: impl FnMut(usize) -> Result<f64>) -> Result<Row> {
    let mut row = Row::default();
    for repetition in 0..repetitions {
        for at in 0..NS.len() {
            let at = (at + repetition) % NS.len();
            row[at].push(measure(NS[at])?);
        }
    }
    Ok(row)
}

/// Null call, call and reply, and what a rendezvous adds to a null call.
fn calls(bench: &Bench, clock: Clock, repetitions: usize, out: &mut String) -> Result<()> {
    let mut null: Vec<Row> = Vec::new();
    for (what, program, rounds) in [
        ("null system call", "null", [1_000, 5_000]),
        ("IPC call and reply", "pingpong", [500, 2_500]),
    ] {
        for compare in MODES {
            let figures = collect(repetitions, |replicas| {
                let run = Run {
                    replicas,
                    compare,
                    clock,
                    tick: SELDOM,
                    words: "",
                };
                bench.per_round(run, program, rounds)
            })?;
            row(out, what, compare, &figures, 2);
            if program == "null" {
                null.push(figures);
            }
        }
    }
    let mut met = Row::default();
    for (at, met) in met.iter_mut().enumerate() {
        let pairs = null[2][at].iter().zip(&null[1][at]);
        *met = pairs.map(|(every, args)| every - args).collect();
    }
    row(out, "rendezvous (every less args)", "", &met, 2);
    Ok(())
}

/// Interrupts, and the removal of replicas: elapsed cycles, as the primary's kernel counts them.
fn seldom(bench: &Bench, clock: Clock, repetitions: usize, out: &mut String) -> Result<()> {
    let run = |replicas, words| Run {
        replicas,
        compare: "args",
        clock,
        tick: USUAL,
        words,
    };
    let figures = collect(repetitions, |replicas| {
        let told = bench.run(run(replicas, ""), "sleep", 100)?;
        told.interrupt.context("no interrupt was counted")
    })?;
    row(out, "interrupt to driver (elapsed)", "args", &figures, 2);
    for (what, words) in [
        ("removal of a follower (elapsed)", "probe=astray victim=2"),
        ("removal of the primary (elapsed)", "probe=astray victim=0"),
    ] {
        let mut figures = Row::default();
        for _ in 0..repetitions {
            let told = bench.run(run(3, words), "float", 1_000)?;
            figures[2].push(told.removal.context("no removal was counted")?);
        }
        row(out, what, "args", &figures, 2);
    }
    Ok(())
}

/// The goal for programs that compute.
const GOAL: f64 = 1.02;

fn computing(bench: &Bench, out: &mut String) -> Result<()> {
    let _ = writeln!(out, "\n### Programs that compute, instructions a round\n");
    head(out);
    let mut worst = 0.0_f64;
    for (program, rounds) in [("float", [200, 400]), ("hash", [2, 6]), ("copy", [2, 6])] {
        let figures = collect(1, |replicas| {
            let run = Run {
                replicas,
                compare: "args",
                clock: Clock::Counted,
                tick: USUAL,
                words: "",
            };
            bench.per_round(run, program, rounds)
        })?;
        row(out, program, "args", &figures, 4);
        worst = worst.max(figures[1][0] / figures[0][0]);
        worst = worst.max(figures[2][0] / figures[0][0]);
    }
    let met = if worst <= GOAL { "met" } else { "**not met**" };
    let _ = writeln!(
        out,
        "\nGoal: at most {GOAL} times n = 1; {worst:.4}, {met}."
    );
    Ok(())
}

/// What remains of the bandwidth of copying memory (DSN'19, table V), where each replica has a CPU.
fn copying(bench: &Bench, repetitions: usize, out: &mut String) -> Result<()> {
    let _ = writeln!(
        out,
        "\n### Copying memory, each core a thread of the host, median of {repetitions}\n\n\
         | n | share of the bandwidth of n = 1 |\n|---|---|"
    );
    let cpus = std::thread::available_parallelism()?.get();
    let mut figures = Row::default();
    for _ in 0..repetitions {
        for (row, replicas) in figures.iter_mut().zip(NS) {
            if replicas > cpus {
                continue;
            }
            let run = Run {
                replicas,
                compare: "args",
                clock: Clock::Threads,
                tick: USUAL,
                words: "",
            };
            row.push(bench.per_round(run, "copy", [4, 24])?);
        }
    }
    let base = Spread::of(&figures[0]).median;
    for (values, replicas) in figures.iter().zip(NS) {
        let share = if values.is_empty() {
            format!("not measured: {cpus} CPUs")
        } else {
            format!("{:.0} %", 100.0 * base / Spread::of(values).median)
        };
        let _ = writeln!(out, "| {replicas} | {share} |");
    }
    Ok(())
}
