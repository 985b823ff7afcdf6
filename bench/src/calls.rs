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
pub(crate) const LINE: &str = "cache line, round trip";

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
    Ok(collector.finish())
}
