//! Time from start to end of programs that do nothing.

use anyhow::Result;

use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop, rotated, words};

/// As if no program had ever been run: each run looks through its code anew.
const FIRST: Configuration = Configuration {
    ledger: false,
    ..protected(2, "args")
};

const ALL: [Configuration; 5] = [
    NATIVE,
    protected(1, "args"),
    protected(2, "args"),
    protected(3, "args"),
    FIRST,
];

/// Milliseconds from start to end of a static, a dynamic and an interpreted program.
///
/// # Errors
///
/// If a run fails.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let programs = [
        ("busybox true (static)", words(&["/bin/busybox", "true"])),
        ("true (dynamic)", words(&["/bin/true"])),
        (
            "python3 -c pass",
            words(&["/usr/bin/python3", "-c", "pass"]),
        ),
    ];
    let mut collector = Collector::default();
    for repetition in 0..scale.short {
        for (name, command) in &programs {
            for configuration in rotated(&ALL, repetition) {
                let seconds = workshop.seconds(configuration, command)?;
                collector.add(name, configuration, "ms", seconds * 1e3);
            }
        }
    }
    Ok(collector.finish())
}
