//! How soon a program that computes hears the signals of its timer.
//!
//! It makes no call, so its replicas have to agree on the instruction at which they take each
//! signal. A signal that comes while they agree on the one before is one with that, as on any host:
//! so what counts is how long after the one before each is heard.

use anyhow::{Context as _, Result, ensure};
use rcoe_faultlab::stats::quantile;

use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop, rotated, words};

const SOURCE: &str = include_str!("signals.c");

/// Milliseconds between two signals of the timer.
const EVERY_MS: u64 = 10;
/// Seconds of a run, and of one that shows that everything works.
const SECONDS: u64 = 20;
const SECONDS_QUICK: u64 = 2;
/// Of the gaps of a run: how many are no longer than what is told.
const TOLD: [(f64, &str); 3] = [(0.5, "half"), (0.99, "99 %"), (1.0, "all")];

/// Milliseconds within which half, 99 % and all signals of a run are heard after the one before.
///
/// # Errors
///
/// If a run fails, or hears less than two signals.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    workshop.compile("signals", SOURCE, &["-static"])?;
    let program = workshop.path("signals");
    let program = program.to_str();
    let program = program.context("the work folder's name is not UTF-8")?;
    let seconds = if scale.divide == 1 {
        SECONDS
    } else {
        SECONDS_QUICK
    };
    let command = words(&[program, &seconds.to_string(), &EVERY_MS.to_string()]);
    let mut found = Collector::default();
    for repetition in 0..scale.rare {
        for configuration in rotated(&configurations(), repetition) {
            let gaps = gaps(&workshop.output(configuration, &command)?)?;
            for (share, name) in TOLD {
                let what = format!("signals every {EVERY_MS} ms, {name} within");
                let value = quantile(&gaps, share).unwrap_or(0.0);
                found.add(&what, configuration, "ms", value);
            }
        }
    }
    Ok(found.finish())
}

/// Native, and replicas with slices as they are by default and as short as the timer.
fn configurations() -> Vec<Configuration> {
    let sliced = |replicas| {
        ["auto", "10ms"].map(|slice| Configuration {
            slice: Some(slice),
            ..protected(replicas, "args")
        })
    };
    let replicated = [1, 2, 3].into_iter().flat_map(sliced);
    core::iter::once(NATIVE).chain(replicated).collect()
}

/// What the program prints, in milliseconds.
fn gaps(text: &str) -> Result<Vec<f64>> {
    let gap = |line: &str| {
        let us: f64 = line.parse().with_context(|| format!("no gap: {line}"))?;
        Ok(us / 1e3)
    };
    let gaps: Vec<f64> = text.lines().map(gap).collect::<Result<_>>()?;
    ensure!(!gaps.is_empty(), "less than two signals were heard");
    Ok(gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_read_in_milliseconds() {
        assert_eq!(gaps("10000\n9500\n").unwrap(), [10.0, 9.5]);
        assert!(gaps("").is_err());
        assert!(gaps("10000\nten\n").is_err());
    }

    #[test]
    fn native_stands_beside_one_to_three_replicas() {
        let all: Vec<String> = configurations().iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 7);
        assert_eq!(all[0], "native");
        assert_eq!(all[6], "n=3 args, slice 10ms");
    }
}
