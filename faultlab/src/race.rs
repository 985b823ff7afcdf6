//! The papers' data race, run again and again: whatever comes out, it comes out alike in all
//! replicas.
//!
//! 32 threads add to a counter without a lock (`race.c`). The seed of a run decides where threads
//! give way, so the counter's last value differs from seed to seed; with one seed it is the same
//! in every replica, and the same with one replica as with several.
//!
//! The same with preemption: threads that make no call (`preempted.c`) give way wherever their
//! slices end. No seed decides that, so there is no single replica to compare with; what the
//! program prints is voted.
//!
//! Contract: a run passes if it ends with status 0, reports nothing, and prints what a run of a
//! single replica with the same seed prints, unless slices decide. All runs together pass if the
//! values really vary.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::child::{Exit, Running, Setup};
use crate::program::{self, Program};

/// Every so many runs there is one replica more.
const THREE_EVERY: u64 = 5;

/// How often each value came out.
#[derive(Clone, Debug, Default)]
pub struct Values {
    counts: BTreeMap<u64, u64>,
}

impl Values {
    /// One more run with this value.
    pub fn add(&mut self, value: u64) {
        *self.counts.entry(value).or_default() += 1;
    }

    /// Whether the race is one: of `runs` runs at least a twentieth must differ from all others,
    /// and no value may make up more than half.
    #[must_use]
    pub fn vary(&self) -> bool {
        let runs: u64 = self.counts.values().sum();
        let most = self.counts.values().max().copied().unwrap_or(0);
        let needed = (runs / 20).max(2);
        self.counts.len() as u64 >= needed && 2 * most <= runs
    }

    /// Runs, distinct values, the least and the greatest one.
    #[must_use]
    pub fn spread(&self) -> [u64; 4] {
        let end = |entry: Option<(&u64, &u64)>| entry.map_or(0, |(value, _)| *value);
        [
            self.counts.values().sum(),
            self.counts.len() as u64,
            end(self.counts.first_key_value()),
            end(self.counts.last_key_value()),
        ]
    }

    /// Distinct values, their range, and shares of the range in ten equal parts, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let (Some((&low, _)), Some((&high, _))) =
            (self.counts.first_key_value(), self.counts.last_key_value())
        else {
            return "no values".to_owned();
        };
        let width = (high - low) / 10 + 1;
        let mut parts = [0_u64; 10];
        for (value, count) in &self.counts {
            let part = usize::try_from((value - low) / width).unwrap_or(0);
            parts[part] += count;
        }
        let parts = parts.map(|count| count.to_string()).join(" ");
        format!(
            "{} different values from {low} to {high}; in steps of {width}: {parts}",
            self.counts.len()
        )
    }
}

/// One run with this seed, as several replicas and as one; or as several with such slices.
///
/// # Errors
///
/// If it cannot be started, or the replicas are not alike.
pub fn run(setup: &Setup, seed: u64, slice: Option<&str>) -> Result<u64> {
    let name = slice.map_or("race", |_| "preempted");
    let [race] = program::select(name)?[..] else {
        anyhow::bail!("there is one program of that name");
    };
    // Where a slice ends no seed decides.
    let more = ["--slice", slice.unwrap_or("off")].map(str::to_owned);
    let setup = &Setup {
        more: more.into(),
        ..setup.clone()
    };
    if slice.is_some() {
        let replicas = if seed.is_multiple_of(2) { 2 } else { 3 };
        return value(setup, &race, replicas, seed);
    }
    let replicas = if seed.is_multiple_of(THREE_EVERY) {
        3
    } else {
        2
    };
    let several = value(setup, &race, replicas, seed)?;
    let single = value(setup, &race, 1, seed)?;
    ensure!(
        several == single,
        "seed {seed}: {several} with {replicas} replicas, {single} with one"
    );
    Ok(several)
}

fn value(setup: &Setup, race: &Program, replicas: usize, seed: u64) -> Result<u64> {
    let setup = Setup {
        replicas,
        seed: Some(seed),
        ..setup.clone()
    };
    let run = Running::start(&setup, race, 0)?.finish()?;
    let what = format!("seed {seed}, {replicas} replicas");
    let quiet = run.events.divergences.is_empty() && run.stderr.is_empty() && run.leftovers == 0;
    ensure!(
        run.exit == Some(Exit::Code(0)) && quiet,
        "{what}: {:?}, {:?}, {}",
        run.exit,
        run.events.divergences,
        run.stderr
    );
    let text = String::from_utf8_lossy(&run.stdout);
    text.trim()
        .parse()
        .with_context(|| format!("{what} printed {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::Values;

    fn values(list: impl IntoIterator<Item = u64>) -> Values {
        let mut values = Values::default();
        list.into_iter().for_each(|value| values.add(value));
        values
    }

    #[test]
    fn a_race_that_does_not_vary_is_none() {
        assert!(!values([]).vary());
        assert!(!values([640; 100]).vary());
        assert!(!values((0..100).map(|run| if run < 60 { 640 } else { run })).vary());
        assert!(!values((0..100).map(|run| run % 3)).vary());
        assert!(values((0..100).map(|run| run % 30)).vary());
    }

    #[test]
    fn all_runs_are_in_the_distribution() {
        let text = values([20, 21, 29, 640]).describe();
        assert_eq!(
            text,
            "4 different values from 20 to 640; in steps of 63: 3 0 0 0 0 0 0 0 0 1"
        );
    }
}
