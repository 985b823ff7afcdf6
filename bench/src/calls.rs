//! Cost of one system call, by kind, number of replicas and mode.

use anyhow::{Context, Result};

use crate::configuration::{Configuration, DISPATCHED, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop, rotated, words};

const ALL: [Configuration; 11] = [
    NATIVE,
    DISPATCHED,
    protected(1, "io"),
    protected(1, "args"),
    protected(1, "every"),
    protected(2, "io"),
    protected(2, "args"),
    protected(2, "every"),
    protected(3, "io"),
    protected(3, "args"),
    protected(3, "every"),
];

/// What a cache line takes to another CPU and back; its series has this name.
const LINE: &str = "cache line, round trip";

/// The call that is told in round trips, too.
const WRITE: &str = "write-64-null";

/// Nanoseconds per call of each kind that the probe knows.
///
/// # Errors
///
/// If a run fails.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let probe = workshop.path("probe");
    let probe = probe
        .to_str()
        .context("the work folder's name is not UTF-8")?;
    let count = scale.calls.to_string();
    let command = words(&[probe, "calls", &count, "out"]);
    let line = words(&[probe, "line", &count]);
    let mut collector = Collector::default();
    for repetition in 0..scale.long {
        let taken = workshop.output(NATIVE, &line)?;
        collector.add(LINE, NATIVE, "ns", taken.trim().parse()?);
        for configuration in rotated(&ALL, repetition) {
            for line in workshop.output(configuration, &command)?.lines() {
                let (kind, value) = line.split_once(' ').context("unexpected probe output")?;
                collector.add(kind, configuration, "ns", value.parse()?);
            }
        }
    }
    let mut series = collector.finish();
    let told = in_round_trips(&series);
    series.extend(told);
    Ok(series)
}

/// What a voted write of digests adds to native, in multiples of the way of a cache line to another
/// CPU and back: what the machine makes of two that meet.
fn in_round_trips(series: &[Series]) -> Option<Series> {
    let line = series.iter().find(|series| series.what == LINE)?;
    let write = series
        .iter()
        .find(|series| series.what == WRITE && series.configuration == protected(2, "args"))?;
    let over = write.values.iter().zip(&write.natives).zip(&line.values);
    let values = over.map(|((value, native), line)| (value - native) / line);
    Some(Series {
        what: format!("{WRITE} in round trips"),
        unit: "",
        values: values.collect(),
        natives: Vec::new(),
        ..write.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::{LINE, WRITE, in_round_trips};
    use crate::configuration::{NATIVE, protected};
    use crate::sample::Collector;

    #[test]
    fn a_voted_write_is_told_in_round_trips() {
        let mut collector = Collector::default();
        collector.add(LINE, NATIVE, "ns", 200.0);
        collector.add(WRITE, NATIVE, "ns", 100.0);
        assert!(in_round_trips(&collector.clone().finish()).is_none());
        collector.add(WRITE, protected(2, "args"), "ns", 460.0);
        let told = in_round_trips(&collector.finish()).expect("all are there");
        assert_eq!(told.values, [1.8]);
    }
}
