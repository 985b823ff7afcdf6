//! What close coupling costs programs that compute, of what loose coupling does (DSN'19, tables II
//! and III), in the emulator's counted time at the usual tick.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use super::machine::{Bench, Clock, Run, Told as Figures, per_each};
use super::{NS, Told, USUAL};
use crate::evidence::{Series, spread_of};

/// Programs that compute, with arguments for some ten ticks of one replica.
const PROGRAMS: [(&str, u64); 2] = [("hash", 40), ("float", 400)];

/// Rounds of the race, in each of which 32 threads add without a lock.
const ROUNDS: u64 = 1_000;

/// Programs of which all of memory is compared at each point, with arguments for some hundred
/// points, and how many there are to be with each number of replicas and each way to stop them: ten
/// thousand on each processor.
const VERIFIED: [(&str, u64); 7] = [
    ("race", 100),
    ("hash", 20),
    ("float", 100),
    ("copy", 24),
    ("fill", 4),
    ("pingpong", 3_000),
    ("sieve", 1_000_000),
];
const POINTS: u64 = 2_500;

/// Ticks of these points, in microseconds: this and more, so that they come elsewhere each time.
const SHORTEST: u64 = 100;

pub(super) fn measure(bench: &Bench, out: &mut Told) -> Result<()> {
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
        for (how, name) in WAYS {
            race(bench, out, replicas, (how, name))?;
        }
    }
    Ok(())
}

/// Programs whose rounds are counted, with those of a short and of a long run: integers and numbers
/// of floating point, as the papers' Dhrystone and Whetstone.
const ROUNDS_OF: [(&str, [u64; 2]); 2] = [("hash", [10, 90]), ("float", [400, 4_400])];
/// Loops in which replicas are stopped, with the argument of `loops`.
pub(super) const LOOPS: [(&str, u64); 2] = [("tight", 8_000), ("of 64 branches", 1_000_000_250)];

/// What a round takes each replica, closely and loosely coupled, of one that is alone and coupled
/// loosely; and what one agreement adds inside and outside a tight loop.
pub(super) fn tables(bench: &Bench, out: &mut Told) -> Result<()> {
    let _ = writeln!(
        out,
        "\n### Rounds of programs that compute\n\n\
         | program | coupled | replicas | a round | of one, loosely |\n|---|---|---|---|---|"
    );
    for (program, rounds) in ROUNDS_OF {
        let mut base = None;
        for (name, options) in HOWS {
            for replicas in NS {
                let run = run(replicas, USUAL);
                let options = [&["--no-reintegrate"], options].concat();
                let measure = |rounds| bench.run_with(run, &options, program, rounds);
                let round = per_each(run, rounds, measure)?;
                let ratio = round / *base.get_or_insert(round);
                let _ = writeln!(
                    out,
                    "| {program} | {name} | {replicas} | {round:.1} | {ratio:.4} |"
                );
                let what = format!("{program}, a round, {name}");
                note(out, what, replicas, round, Some(ratio));
            }
        }
    }
    for replicas in [2, 3] {
        for (name, argument) in LOOPS {
            agreements(bench, out, replicas, (name, argument))?;
        }
    }
    Ok(())
}

/// How replicas are coupled, with the options for it.
pub(super) const HOWS: [(&str, &[&str]); 3] = [
    ("loosely coupled", &["--coupling", "loose"]),
    ("closely coupled", &["--coupling", "close"]),
    (
        "closely coupled by breakpoints",
        &["--coupling", "close", "--stop-by", "breakpoint"],
    ),
];

/// What all execute more for one agreement in a loop.
fn agreements(
    bench: &Bench,
    out: &mut Told,
    replicas: usize,
    (name, argument): (&str, u64),
) -> Result<()> {
    let mut loose = None;
    for (how, options) in HOWS {
        let options = [&["--no-reintegrate"], options].concat();
        let told = bench.run_with(run(replicas, "1ms"), &options, "loops", argument)?;
        let base = *loose.get_or_insert(told.cycles);
        let Some([points, _]) = told.points else {
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let added = (told.cycles - base) / points as f64;
        let unit = out.counted;
        let _ = writeln!(
            out,
            "\nloop {name}, {replicas} replicas, {how}: {points} points, {added:.0} {unit} each"
        );
        let what = format!("added by one agreement in a loop {name}, {how}");
        note(out, what, replicas, added, None);
    }
    Ok(())
}

/// What stops a replica, and how names of series end with it.
const WAYS: [(&str, &str); 2] = [("counter", ""), ("breakpoint", ", by breakpoints")];

/// How often the papers' race comes to one instruction, and what that takes.
fn race(bench: &Bench, out: &mut Told, replicas: usize, (how, name): (&str, &str)) -> Result<()> {
    let options = ["--coupling", "close", "--stop-by", how];
    let told = bench.run_with(run(replicas, "200us"), &options, "race", ROUNDS)?;
    let what = format!("race of {ROUNDS} rounds, a tick each 200 us");
    let [points, _] = told.points.context("no points were told")?;
    let each = told.point.context("no cycles were told")?;
    let own = (format!("{what}: points{name}"), "times");
    count(out, own, replicas, points);
    note(
        out,
        format!("{what}: coming to one{name}"),
        replicas,
        each,
        None,
    );
    Ok(())
}

/// Points at which all of memory was found alike.
pub(super) fn verify(bench: &Bench, out: &mut Told) -> Result<()> {
    let _ = writeln!(
        out,
        "\n### Points at which all of memory is compared\n\n\
         | replicas | stopped by | points | at events besides |\n|---|---|---|---|"
    );
    for replicas in [2, 3] {
        for (how, name) in WAYS {
            let options = ["--coupling", "close", "--stop-by", how];
            let all = (SHORTEST, POINTS, &VERIFIED[..]);
            let [points, events] = verified(bench, replicas, &options, all)?;
            let _ = writeln!(out, "| {replicas} | {how} | {points} | {events} |");
            let what = format!("points, all of memory alike at each{name}");
            count(out, (what, "times"), replicas, points);
        }
    }
    Ok(())
}

/// Runs these programs with ever longer ticks, from one of so many microseconds, until there are so
/// many points between events; how many, and how many at events besides.
pub(super) fn verified(
    bench: &Bench,
    replicas: usize,
    options: &[&str],
    (shortest, enough, programs): (u64, u64, &[(&str, u64)]),
) -> Result<[u64; 2]> {
    let mut sum = [0, 0];
    for more in 0.. {
        let tick = format!("{}us", shortest + 7 * more);
        let words = "verify=yes";
        for &(program, argument) in programs {
            let run = Run {
                words,
                ..run(replicas, &tick)
            };
            let told = bench.run_with(run, options, program, argument)?;
            all_agreed(&told, program)?;
            let [points, events] = told.points.unwrap_or_default();
            sum = [sum[0] + points - events, sum[1] + events];
            if sum[0] >= enough {
                return Ok(sum);
            }
        }
    }
    unreachable!("the series of ticks has no end")
}

/// A replica that was removed would go unnoticed among three.
pub(super) fn all_agreed(told: &Figures, what: &str) -> Result<()> {
    ensure!(told.removal.is_none(), "{what}: a replica was removed");
    Ok(())
}

pub(super) fn count(out: &mut Told, (what, unit): (String, &str), replicas: usize, count: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let value = count as f64;
    push(out, (what, unit), replicas, value, None);
}

pub(super) const fn run(replicas: usize, tick: &str) -> Run<'_> {
    Run {
        replicas,
        compare: "args",
        clock: Clock::Counted,
        tick,
        words: "",
    }
}

pub(super) fn note(out: &mut Told, what: String, replicas: usize, value: f64, ratio: Option<f64>) {
    let unit = out.counted;
    push(out, (what, unit), replicas, value, ratio);
}

pub(super) fn push(
    out: &mut Told,
    (what, unit): (String, &str),
    replicas: usize,
    value: f64,
    ratio: Option<f64>,
) {
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
