//! What close coupling costs programs that compute, of what loose coupling does (DSN'19, tables II
//! and III), in the emulator's counted time at the usual tick.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use super::machine::{Arch, Bench, Clock, Run};
use super::{NS, Told, USUAL};
use crate::evidence::{Series, spread_of};

/// Programs that compute, with arguments for some ten ticks of one replica.
const PROGRAMS: [(&str, u64); 2] = [("hash", 40), ("float", 400)];

/// Rounds of the race, in each of which 32 threads add without a lock.
const ROUNDS: u64 = 1_000;

pub(super) fn measure(bench: &Bench, arch: Arch, out: &mut Told) -> Result<()> {
    ensure!(arch == Arch::Arm, "close coupling is for --arch aarch64");
    let _ = writeln!(
        out,
        "\n### Close coupling\n\n\
         | program | replicas | stopped by | loose | close | close : loose |\n\
         |---|---|---|---|---|---|"
    );
    for (program, argument) in PROGRAMS {
        for replicas in NS {
            let cycles = |how: &[&str]| {
                let options = [&["--no-reintegrate", "--coupling"], how].concat();
                let told = bench.run_with(run(replicas, USUAL), &options, program, argument)?;
                Ok::<f64, anyhow::Error>(told.cycles)
            };
            let loose = cycles(&["loose"])?;
            for (how, name) in [("counter", ""), ("breakpoint", " by breakpoints")] {
                let close = cycles(&["close", "--stop-by", how])?;
                let ratio = close / loose;
                let _ = writeln!(
                    out,
                    "| {program} | {replicas} | {how} | {loose:.0} | {close:.0} | {ratio:.4} |"
                );
                let what = format!("{program}, closely coupled{name}, of loosely coupled");
                note(out, what, replicas, close, Some(ratio));
            }
        }
    }
    for replicas in [2, 3] {
        let options = ["--coupling", "close"];
        let told = bench.run_with(run(replicas, "200us"), &options, "race", ROUNDS)?;
        let votes = told.votes.context("no rendezvous were told")?;
        let what = format!("race of {ROUNDS} rounds, a tick each 200 us: rendezvous");
        note(out, what, replicas, votes, None);
    }
    Ok(())
}

const fn run(replicas: usize, tick: &str) -> Run<'_> {
    Run {
        replicas,
        compare: "args",
        clock: Clock::Counted,
        tick,
        words: "",
    }
}

fn note(out: &mut Told, what: String, replicas: usize, value: f64, ratio: Option<f64>) {
    let unit = match ratio {
        Some(_) => out.counted,
        None => "times",
    };
    let series = Series {
        what: format!("{what}{}", out.machine),
        run: format!("n={replicas}"),
        unit: unit.to_owned(),
        n: Some(1),
        value: spread_of(&[value]),
        over: None,
        ratio: ratio.and_then(|ratio| spread_of(&[ratio])),
        share: None,
    };
    out.series.push(series);
}
