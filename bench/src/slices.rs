//! What slices cost threads that work, and what they give threads that wait.
//!
//! Two threads write so much memory again and again; in place of native stands the same without
//! slices, since threads of a replica share one core anyway. Two others wait for each other in
//! loops without a call, which without slices would last for ever: there the time of a turn counts.
//!
//! The floor of slices: two native processes, a CPU each, that do the same work and meet as often,
//! of the same two that never meet. Who meets waits for the slower one each time, and two CPUs need
//! not be equally fast in each hundredth of a second.

use anyhow::{Context, Result};

use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::Series;
use crate::workshop::{Scale, Workshop, words};

const SOURCE: &str = include_str!("slices.c");

/// What each thread writes in a round.
const SIZES: [(&str, u64); 3] = [("64 KiB", 1 << 16), ("1 MiB", 1 << 20), ("16 MiB", 1 << 24)];
/// What it writes in all.
const ALL: u64 = 12 << 30;
/// Seconds of a slice whose floor is measured.
const SLICE: f64 = 0.01;
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
        let work = Work {
            what: format!("two threads write {size} each, again and again"),
            program,
            bytes,
            rounds: ALL / scale.divide / bytes,
        };
        for replicas in [1, 2] {
            all.extend(work.with_slices(workshop, scale, replicas)?);
        }
        let alone = all
            .iter()
            .find(|series| series.what == work.what && series.configuration == sliced(1, "off"));
        let seconds = alone.and_then(|series| series.values.first());
        let every = work.rounds_of_a_slice(*seconds.context("it was measured")?);
        all.push(work.floor(workshop, scale, every)?);
    }
    all.extend(turns(workshop, scale, program)?);
    Ok(all)
}

/// Two threads that write so much, so often.
struct Work<'a> {
    what: String,
    program: &'a str,
    bytes: u64,
    /// Of each thread.
    rounds: u64,
}

impl Work<'_> {
    fn with_slices(
        &self,
        workshop: &Workshop,
        scale: Scale,
        replicas: usize,
    ) -> Result<Vec<Series>> {
        let (bytes, rounds) = (self.bytes.to_string(), self.rounds.to_string());
        let command = words(&[self.program, "work", &bytes, &rounds]);
        let ways = ["off", "auto", "10ms"].map(|slice| sliced(replicas, slice));
        let mut values = [const { Vec::new() }; 3];
        for repetition in 0..scale.rare {
            for turn in 0..ways.len() {
                let at = (repetition + turn) % ways.len();
                values[at].push(workshop.seconds(ways[at], &command)?);
            }
        }
        let natives = values[0].clone();
        let series = |(configuration, values)| Series {
            what: self.what.clone(),
            configuration,
            unit: "s",
            values,
            natives: natives.clone(),
        };
        Ok(ways.into_iter().zip(values).map(series).collect())
    }

    /// Rounds in a hundredth of a second, if all of both threads take so many seconds.
    fn rounds_of_a_slice(&self, seconds: f64) -> u64 {
        let all = 2 * self.rounds;
        // Exact below 2^53, and no more than that many rounds fit into a slice.
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small and positive"
        )]
        let rounds = (all as f64 * SLICE / seconds).round() as u64;
        rounds.clamp(1, all)
    }

    /// The same work of two native processes that meet after so many rounds.
    fn floor(&self, workshop: &Workshop, scale: Scale, every: u64) -> Result<Series> {
        let numbers = [self.bytes, self.rounds, every].map(|number| number.to_string());
        let mut values = [const { Vec::new() }; 2];
        for repetition in 0..scale.rare {
            for turn in 0..2 {
                let at = (repetition + turn) % 2;
                let [bytes, rounds, every] = &numbers;
                let way = ["part", "meet"][at];
                let command = words(&[self.program, way, bytes, rounds, every]);
                values[at].push(workshop.seconds(NATIVE, &command)?);
            }
        }
        let [natives, values] = values;
        Ok(Series {
            what: self.what.clone(),
            configuration: NATIVE.copies(2),
            unit: "s",
            values,
            natives,
        })
    }
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
