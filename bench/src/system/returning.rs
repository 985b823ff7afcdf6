//! How long the others wait while a replica with much memory is brought back, and a program fills
//! and checks that memory all the time.
//!
//! Instructions are counted: by the host's time the copy competes with the program. Each replica is
//! lost once, by a kernel that breaks at its own timer's interrupt.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::machine::{Bench, Clock, Run};
use super::{Row, Told, USUAL, head, row};

/// What each replica has, and the MiB of it that the program fills.
const MEMORY: &str = "512M";
const FILLED: u64 = 480;

pub(super) fn measure(bench: &Bench, out: &mut Told) -> Result<()> {
    let (mut waits, mut longest) = (Row::default(), Row::default());
    for victim in 0..3 {
        let words = format!("probe=sudden victim={victim}");
        let run = Run {
            replicas: 3,
            compare: "args",
            clock: Clock::Counted,
            tick: USUAL,
            words: &words,
        };
        let told = bench.run_with(run, &["--memory", MEMORY], "fill", FILLED)?;
        waits[2].push(told.copy.context("no copy was counted")?);
        longest[2].push(told.portion.context("no portion was counted")?);
    }
    let _ = writeln!(out, "\n### The return of a replica of {MEMORY}\n");
    head(out);
    row(
        out,
        "return with 480 MiB: all waits of the others",
        "",
        &waits,
        2,
    );
    row(out, "return with 480 MiB: the longest", "", &longest, 2);
    Ok(())
}
