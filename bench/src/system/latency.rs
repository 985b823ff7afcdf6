//! How soon a fault is noticed, and an interrupt performed, by closely and by loosely coupled
//! replicas, in the emulator's counted time.
//!
//! *Faults*: a bit flips in a register in which a program counts that makes no call until its end;
//! the kernel of the replica that is hit changes it between two ticks, and all survivors tell when
//! they find a fault. Both couplings get the same flips. *Interrupts*: of the interval timer, while
//! a program computes: from when the primary's kernel takes it until its driver runs; and how long
//! it is from one to the next, which holds what passes until the primary takes it.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::coupling::run;
use super::machine::{Arch, Bench, Run, Told as Figures, per_each};
use super::{Told, cell};
use crate::evidence::{Series, spread_of};

const COUPLINGS: [&str; 2] = ["loose", "close"];

/// Milliseconds between ticks.
const TICKS: [u64; 2] = [10, 100];
/// Flips of each kind of machine.
const FLIPS: u64 = 10;
/// Milliseconds before the first of them.
const START: u64 = 20;
/// For how long, in milliseconds of the machine, others wait for a replica.
const PATIENCE: &str = "500ms";
/// Bits that flip: the program counts to less than the next.
const BITS: u64 = 23;

/// Interrupts of a short and of a long run in which a thread computes, as `sleep` wants it.
const COMPUTING: u64 = 1_000_000;
const INTERRUPTS: [u64; 2] = [COMPUTING + 10, COMPUTING + 40];

/// The program, so long that it computes for more than two ticks, and the registers in which it
/// counts its steps and has their number, by place in what the kernel saves.
const fn program(arch: Arch) -> (&'static [&'static str], [u64; 2]) {
    match arch {
        Arch::X86 => (&["float", "10000"], [2, 0]),
        Arch::Arm => (&["float", "14000"], [9, 8]),
    }
}

pub(super) fn measure(bench: &Bench, out: &mut Told) -> Result<()> {
    let counted = out.counted;
    let _ = writeln!(
        out,
        "\n### From a flip until it is noticed, in {counted}\n\n\
         | replicas | tick | coupling | flips | noticed | least | median | most |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for replicas in [2, 3] {
        for tick in TICKS {
            for coupling in COUPLINGS {
                notice(bench, out, (replicas, tick, coupling))?;
            }
        }
    }
    let _ = writeln!(
        out,
        "\n### Interrupts while a program computes, in {counted}\n\n\
         | replicas | tick | coupling | taken until its driver runs | from one to the next |\n\
         |---|---|---|---|---|"
    );
    for (replicas, tick) in [
        (1, "10ms"),
        (2, "10ms"),
        (3, "10ms"),
        (2, "1ms"),
        (3, "1ms"),
    ] {
        for coupling in COUPLINGS {
            interrupts(bench, out, (replicas, tick, coupling))?;
        }
    }
    Ok(())
}

/// The flips of one kind of machine.
fn notice(bench: &Bench, out: &mut Told, at: (usize, u64, &str)) -> Result<()> {
    let (replicas, tick, coupling) = at;
    let mut cycles = Vec::new();
    for index in 0..FLIPS {
        cycles.extend(flip(bench, at, index)?);
        eprintln!("flip {index}: {at:?}, {} noticed", cycles.len());
    }
    cycles.sort_by(f64::total_cmp);
    let ends = cycles.first().zip(cycles.last());
    let (least, most) = ends.map_or((0.0, 0.0), |(&least, &most)| (least, most));
    let _ = writeln!(
        out,
        "| {replicas} | {tick} ms | {coupling} | {FLIPS} | {} | {least:.0} | {} | {most:.0} |",
        cycles.len(),
        cell(&cycles),
    );
    let what = format!("from a flip until it is noticed, {coupling}, a tick each {tick} ms");
    let unit = out.counted;
    push(out, (what, unit), replicas, &cycles);
    let what = format!("flips noticed of {FLIPS}, {coupling}, a tick each {tick} ms");
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let noticed = cycles.len() as f64;
    push(out, (what, "times"), replicas, &[noticed]);
    Ok(())
}

/// After how many cycles one flip is noticed. Which it is depends on its index alone.
fn flip(bench: &Bench, at: (usize, u64, &str), index: u64) -> Result<Option<f64>> {
    let (replicas, tick, coupling) = at;
    let (program, registers) = program(bench.arch());
    let draw = |what: u64| mixed(index * 8 + what);
    let millisecond = bench.arch().millisecond();
    let begin = START * millisecond + draw(0) % (tick * millisecond);
    let behind = draw(1) % (tick * 1_000);
    let register = if draw(2).is_multiple_of(2) {
        registers[0]
    } else {
        registers[1]
    };
    let bit = draw(3) % BITS;
    let words = format!("flip={begin} behind={behind} victim=1 register={register} bit={bit}");
    let tick = format!("{tick}ms");
    let run = Run {
        words: &words,
        ..run(replicas, &tick)
    };
    let options = [
        "--no-reintegrate",
        "--coupling",
        coupling,
        "--timeout",
        PATIENCE,
    ];
    bench.flip(run, &options, program)
}

/// A number that looks drawn.
const fn mixed(number: u64) -> u64 {
    let word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn interrupts(bench: &Bench, out: &mut Told, at: (usize, &str, &str)) -> Result<()> {
    let (replicas, tick, coupling) = at;
    let options = ["--no-reintegrate", "--coupling", coupling];
    let measure = |argument| bench.run_with(run(replicas, tick), &options, "sleep", argument);
    let mut last = Figures::default();
    // What `per_each` divides by the number of replicas is elapsed time here.
    let shares = Run {
        replicas: 1,
        ..run(replicas, tick)
    };
    let interval = per_each(shares, INTERRUPTS, |argument| {
        last = measure(argument)?;
        Ok(last)
    })?;
    let taken = last.interrupt.context("no interrupt was counted")?;
    let _ = writeln!(
        out,
        "| {replicas} | {tick} | {coupling} | {taken:.0} | {interval:.0} |"
    );
    let unit = out.counted;
    let of = format!("while a program computes, {coupling}, a tick each {tick}");
    push(
        out,
        (format!("interrupt to driver {of}"), unit),
        replicas,
        &[taken],
    );
    push(
        out,
        (format!("from interrupt to interrupt {of}"), unit),
        replicas,
        &[interval],
    );
    Ok(())
}

fn push(out: &mut Told, (what, unit): (String, &str), replicas: usize, values: &[f64]) {
    let series = Series {
        what: format!("{what}{}", out.machine),
        run: format!("n={replicas}"),
        unit: unit.to_owned(),
        n: Some(values.len()),
        value: spread_of(values),
        over: None,
        ratio: None,
        share: None,
    };
    out.series.push(series);
}
