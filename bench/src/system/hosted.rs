//! What closely coupled replicas take by the host's clock, of one that is loosely coupled (DSN'19,
//! table II).
//!
//! All cores of the machine are in turns on one thread of the host, so of n replicas each has an
//! n-th of the time. What start and end take cancels: a short run is taken from a long one. Unlike
//! what is counted, this holds what the emulator's plugin takes, and what the emulator does itself.
//! On AArch64 the machine's own clock counts instructions all the same, without which replicas are
//! not closely coupled there.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Result;

use super::coupling::HOWS;
use super::machine::{Arch, Bench, Clock, Run};
use super::{NS, Told, USUAL};
use crate::evidence::{Series, spread_of};
use crate::sample::Spread;

/// Programs that compute, with the rounds of a short and of a long run.
const ROUNDS_OF: [(&str, [u64; 2]); 2] = [("hash", [10, 210]), ("float", [400, 10_400])];

/// A program, how its replicas are coupled, and how many there are.
type Case = (usize, usize, usize);

pub(super) fn measure(bench: &Bench, repetitions: usize, out: &mut Told) -> Result<()> {
    let programs = 0..ROUNDS_OF.len();
    let cases = programs.flat_map(|at| (0..HOWS.len()).map(move |how| (at, how)));
    let cases: Vec<Case> = cases
        .flat_map(|(at, how)| NS.map(|replicas| (at, how, replicas)))
        .collect();
    let mut rounds = vec![Vec::new(); cases.len()];
    for repetition in 0..repetitions {
        for at in 0..cases.len() {
            // In another order each time, so that no drift of the machine is one's alone.
            let at = (at + repetition) % cases.len();
            rounds[at].push(round(bench, cases[at])?);
        }
        eprintln!(
            "rounds by the host's clock: {} of {repetitions}",
            repetition + 1
        );
    }
    tell(out, &cases, &rounds);
    Ok(())
}

/// Microseconds of one more round, for each replica.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn round(bench: &Bench, (program, how, replicas): Case) -> Result<f64> {
    let (name, [few, many]) = ROUNDS_OF[program];
    let options = [&["--no-reintegrate"], HOWS[how].1].concat();
    let run = Run {
        replicas,
        compare: "args",
        clock: match bench.arch() {
            Arch::X86 => Clock::Host,
            Arch::Arm => Clock::Counted,
        },
        tick: USUAL,
        words: "",
    };
    let time = |rounds| {
        let began = Instant::now();
        bench.run_with(run, &options, name, rounds)?;
        Ok::<f64, anyhow::Error>(began.elapsed().as_secs_f64() * 1e6)
    };
    let more = time(many)? - time(few)?;
    Ok(more / (many - few) as f64 / replicas as f64)
}

fn tell(out: &mut Told, cases: &[Case], rounds: &[Vec<f64>]) {
    let _ = writeln!(
        out,
        "\n### Rounds by the host's clock, us\n\n\
         | program | coupled | replicas | a round | of one, loosely |\n|---|---|---|---|---|"
    );
    for (&(program, how, replicas), own) in cases.iter().zip(rounds) {
        let base = cases.iter().position(|it| *it == (program, 0, NS[0]));
        let base = &rounds[base.expect("one that is loosely coupled is among them")];
        let ratios: Vec<f64> = own.iter().zip(base).map(|(own, one)| own / one).collect();
        let (name, coupled) = (ROUNDS_OF[program].0, HOWS[how].0);
        let [round, ratio] = [own, &ratios].map(|it| Spread::of(it).median);
        let _ = writeln!(
            out,
            "| {name} | {coupled} | {replicas} | {round:.1} | {ratio:.3} |"
        );
        out.series.push(Series {
            what: format!(
                "{name}, a round by the host's clock, {coupled}{}",
                out.machine
            ),
            run: format!("n={replicas}"),
            unit: "us".to_owned(),
            n: Some(own.len()),
            value: spread_of(own),
            over: None,
            ratio: spread_of(&ratios),
            share: None,
        });
    }
}
