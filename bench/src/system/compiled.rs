//! What close coupling by the compiler's count costs (DSN'19, III-D and table II), in the
//! emulator's counted time: what counting takes, told apart from what coming to one instruction
//! does.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::coupling::{LOOPS, all_agreed, count, note, run, verified};
use super::machine::{Bench, per_each};
use super::{NS, Told, USUAL};

/// In the argument of `rounds`: those of floating point.
pub(super) const FLOATING: u64 = 1_000_000_000;

/// What is done in rounds, the program, and its arguments for a short and a long run.
const WORK: [(&str, &str, [u64; 2]); 3] = [
    ("hash", "hash", [10, 90]),
    ("integers in C", "rounds", [10, 90]),
    (
        "floating point in C",
        "rounds",
        [FLOATING + 400, FLOATING + 4_400],
    ),
];

/// How programs are run that count themselves.
const CLOSE: [&str; 4] = ["--coupling", "close", "--count-by", "compiler"];
const LOOSE: [&str; 2] = ["--coupling", "loose"];

/// Programs of which all of memory is compared at each point, with arguments for some hundred, and
/// how many there are to be with each number of replicas: ten thousand on each processor.
const VERIFIED: [(&str, u64); 5] = [
    ("race", 100),
    ("racing", 100),
    ("hash", 8),
    ("rounds", FLOATING + 400),
    ("sieve", 200_000),
];
const POINTS: u64 = 5_000;

/// The shortest tick of these points, in microseconds.
const SHORTEST: u64 = 500;

pub(super) fn measure(bench: &Bench, out: &mut Told) -> Result<()> {
    let _ = writeln!(
        out,
        "\n### Programs that count their own branches\n\n\
         | program | how | replicas | a round | of one that does not count, loosely |\n\
         |---|---|---|---|---|"
    );
    for work in WORK {
        rounds(bench, out, work)?;
    }
    for replicas in [2, 3] {
        for named in LOOPS {
            agreements(bench, out, replicas, named)?;
        }
    }
    Ok(())
}

/// What a round takes a program that does not count, one that does, and closely coupled ones.
fn rounds(bench: &Bench, out: &mut Told, work: (&str, &str, [u64; 2])) -> Result<()> {
    let (what, program, rounds) = work;
    let counting = bench.counting(program)?;
    let mut base = None;
    for (how, options, program) in [
        ("not counting, loosely coupled", &LOOSE[..], program),
        ("counting, loosely coupled", &LOOSE, &counting),
        ("counting, closely coupled", &CLOSE, program),
    ] {
        for replicas in NS {
            let run = run(replicas, USUAL);
            let options = [&["--no-reintegrate"], options].concat();
            let round = per_each(run, rounds, |rounds| {
                let told = bench.run_with(run, &options, program, rounds)?;
                all_agreed(&told, what)?;
                Ok(told)
            })?;
            let ratio = round / *base.get_or_insert(round);
            let _ = writeln!(
                out,
                "| {what} | {how} | {replicas} | {round:.1} | {ratio:.4} |"
            );
            note(
                out,
                format!("{what}, a round, {how}"),
                replicas,
                round,
                Some(ratio),
            );
        }
    }
    Ok(())
}

/// What all execute more for one agreement in a loop than the same program loosely coupled.
fn agreements(
    bench: &Bench,
    out: &mut Told,
    replicas: usize,
    (name, argument): (&str, u64),
) -> Result<()> {
    let run = run(replicas, "1ms");
    let counting = bench.counting("loops")?;
    let each = |options: &[&str], program| {
        let options = [&["--no-reintegrate"], options].concat();
        bench.run_with(run, &options, program, argument)
    };
    let loose = each(&LOOSE, &counting)?;
    let close = each(&CLOSE, "loops")?;
    all_agreed(&close, name)?;
    let [points, _] = close.points.context("no points were told")?;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let added = (close.cycles - loose.cycles) / points as f64;
    let unit = out.counted;
    let _ = writeln!(
        out,
        "\nloop {name}, {replicas} replicas: {points} points, {added:.0} {unit} each"
    );
    let what = format!("added by one agreement in a loop {name}, by the compiler's count");
    note(out, what, replicas, added, None);
    Ok(())
}

/// Points at which all of memory was found alike.
pub(super) fn verify(bench: &Bench, out: &mut Told) -> Result<()> {
    let _ = writeln!(
        out,
        "\n### Points by the compiler's count at which all of memory is compared\n\n\
         | replicas | points | at events besides |\n|---|---|---|"
    );
    for replicas in [2, 3] {
        let all = (SHORTEST, POINTS, &VERIFIED[..]);
        let [points, events] = verified(bench, replicas, &CLOSE, all)?;
        let _ = writeln!(out, "| {replicas} | {points} | {events} |");
        let what = "points, all of memory alike at each, by the compiler's count";
        count(out, (what.to_owned(), "times"), replicas, points);
    }
    Ok(())
}
