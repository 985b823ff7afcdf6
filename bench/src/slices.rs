//! What slices cost threads that work, and what they give threads that wait.
//!
//! Two threads write so much memory again and again; in place of native stands the same without
//! slices, since threads of a replica share one core anyway. Two others wait for each other in
//! loops without a call, which without slices would last for ever: there the time of a turn counts.

use anyhow::{Context, Result};

use crate::configuration::{Configuration, protected};
use crate::sample::Series;
use crate::workshop::{Scale, Workshop, words};

const SOURCE: &str = include_str!("slices.c");

/// What each thread writes in a round.
const SIZES: [(&str, u64); 3] = [("64 KiB", 1 << 16), ("1 MiB", 1 << 20), ("16 MiB", 1 << 24)];
/// What it writes in all.
const ALL: u64 = 12 << 30;
/// Turns of those that wait.
const TURNS: u32 = 20;

const fn sliced(replicas: usize, slice: &'static str) -> Configuration {
    Configuration {
        slice: Some(slice),
        ..protected(replicas, "args")
    }
}

/// Seconds of those that work, and milliseconds of a turn of those that wait.
///
/// # Errors
///
/// If a run fails.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    workshop.compile("slices", SOURCE, &["-static", "-pthread"])?;
    let program = workshop.path("slices");
    let program = program
        .to_str()
        .context("the work folder's name is not UTF-8")?;
    let mut all = Vec::new();
    for (size, bytes) in SIZES {
        let rounds = (ALL / scale.divide / bytes).to_string();
        let command = words(&[program, "work", &bytes.to_string(), &rounds]);
        for replicas in [1, 2] {
            let ways = ["off", "auto", "10ms"].map(|slice| sliced(replicas, slice));
            let mut values = [const { Vec::new() }; 3];
            for repetition in 0..scale.rare {
                for turn in 0..ways.len() {
                    let at = (repetition + turn) % ways.len();
                    values[at].push(workshop.seconds(ways[at], &command)?);
                }
            }
            let natives = values[0].clone();
            let what = format!("two threads write {size} each, again and again");
            all.extend(
                ways.into_iter()
                    .zip(values)
                    .map(|(configuration, values)| Series {
                        what: what.clone(),
                        configuration,
                        unit: "s",
                        values,
                        natives: natives.clone(),
                    }),
            );
        }
    }
    all.extend(turns(workshop, scale, program)?);
    Ok(all)
}

/// Milliseconds of a turn.
fn turns(workshop: &Workshop, scale: Scale, program: &str) -> Result<Vec<Series>> {
    let command = words(&[program, "turns", &TURNS.to_string()]);
    let mut all = Vec::new();
    for replicas in [1, 2, 3] {
        for slice in ["auto", "10ms"] {
            let configuration = sliced(replicas, slice);
            let one = |_| {
                let seconds = workshop.seconds(configuration, &command)?;
                Ok(1e3 * seconds / f64::from(TURNS))
            };
            all.push(Series {
                what: "a turn of two threads that wait for each other".to_owned(),
                configuration,
                unit: "ms",
                values: (0..scale.long).map(one).collect::<Result<_>>()?,
                natives: Vec::new(),
            });
        }
    }
    Ok(all)
}
