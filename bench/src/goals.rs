//! The project's goals for cost, each held against what was measured.

use serde::Serialize;

use crate::calls;
use crate::configuration::{Configuration, protected};
use crate::floor::text;
use crate::sample::{Series, Spread};

/// A goal, what was measured for it, and whether it is met.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The goal in words.
    pub goal: String,
    /// What was measured.
    pub measured: String,
    /// Whether the median reaches the goal.
    pub met: bool,
}

/// Which derived value a goal limits.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// What is added to native, in the unit of the series.
    Over(f64),
    /// Multiple of native.
    Ratio(f64),
}

const CALLS: [(&str, &str, f64); 9] = [
    ("write-1-null", "args", 600.0),
    ("write-64-null", "args", 600.0),
    ("write-64-file", "args", 600.0),
    ("read-64-zero", "args", 200.0),
    ("clock-libc", "args", 200.0),
    ("clock-syscall", "args", 200.0),
    ("write-64-null", "every", 1000.0),
    ("read-64-zero", "every", 1000.0),
    ("clock-syscall", "every", 1000.0),
];

/// Judges the calls suite.
#[must_use]
pub fn calls(series: &[Series]) -> Vec<Judgement> {
    let judged = CALLS.iter().filter_map(|(what, mode, limit)| {
        let found = series.iter().find(|series| {
            let Configuration {
                replicas, compare, ..
            } = series.configuration;
            series.what == *what && replicas == 2 && compare == *mode
        });
        found.map(|series| judge(series, Limit::Over(*limit)))
    });
    judged.chain(in_round_trips(series)).collect()
}

/// What a voted write of digests adds to native, in multiples of the way of a cache line to another
/// CPU and back: what the machine makes of two that meet.
fn in_round_trips(series: &[Series]) -> Option<Judgement> {
    const MOST: f64 = 1.6;
    let line = series.iter().find(|series| series.what == calls::LINE)?;
    let two = |series: &&Series| series.configuration == protected(2, "args");
    let write = series
        .iter()
        .filter(two)
        .find(|series| series.what == "write-64-null")?;
    let over = write.values.iter().zip(&write.natives).zip(&line.values);
    let multiples: Vec<f64> = over
        .map(|((value, native), line)| (value - native) / line)
        .collect();
    let spread = Spread::of(&multiples);
    Some(Judgement {
        goal: format!(
            "write-64-null, n=2 args: at most native + {MOST} x {}",
            calls::LINE
        ),
        measured: text(Some(spread), 2),
        met: spread.median <= MOST,
    })
}

/// Judges the suite about scrubbing.
#[must_use]
pub fn scrub(series: &[Series]) -> Vec<Judgement> {
    let on = |series: &&Series| series.configuration.scrub != Some(0);
    let judged = series.iter().filter(on);
    judged.map(|it| judge(it, Limit::Ratio(1.02))).collect()
}

/// Judges the suite of CPU-bound programs.
#[must_use]
pub fn cpu(series: &[Series]) -> Vec<Judgement> {
    two_replicas(series)
        .map(|series| judge(series, Limit::Ratio(1.02)))
        .collect()
}

/// Judges the start-up suite.
#[must_use]
pub fn startup(series: &[Series]) -> Vec<Judgement> {
    two_replicas(series)
        .map(|series| judge(series, Limit::Over(5.0)))
        .collect()
}

fn two_replicas(series: &[Series]) -> impl Iterator<Item = &Series> {
    series
        .iter()
        .filter(|series| series.configuration.replicas == 2)
}

fn judge(series: &Series, limit: Limit) -> Judgement {
    let (name, unit) = (
        format!("{}, {}", series.what, series.configuration),
        series.unit,
    );
    let (spread, goal, sign, unit) = match limit {
        Limit::Over(most) => (series.over(), most, "native +", unit),
        Limit::Ratio(most) => (series.ratio(), most, "native x", ""),
    };
    let digits = if goal < 2.0 { 3 } else { 1 };
    let (low, median, high) = (spread.low, spread.median, spread.high);
    Judgement {
        goal: format!("{name}: at most {sign} {goal} {unit}")
            .trim_end()
            .to_owned(),
        measured: format!("{median:.digits$} ({low:.digits$} to {high:.digits$}) {unit}")
            .trim_end()
            .to_owned(),
        met: median <= goal,
    }
}

/// Begin and end of a series' name, and the most microseconds of the papers' figures or ours.
const RECOVERY: [(&str, &str, f64); 10] = [
    ("follower killed, ", "duration", 20.0),
    ("follower killed, ", ": pause", 20.0),
    ("follower wrong, ", "duration", 20.0),
    ("follower wrong, ", ": pause", 20.0),
    ("primary killed, ", "duration", 200.0),
    ("primary killed, ", ": pause", 200.0),
    ("primary wrong, ", "duration", 200.0),
    ("primary wrong, ", ": pause", 200.0),
    ("re-integration, 200 MiB", "primary's pause", 5000.0),
    ("re-integration, 200 MiB", ": pause", 5000.0),
];

/// Judges the suite of recoveries.
#[must_use]
pub fn recovery(series: &[Series]) -> Vec<Judgement> {
    let judged = series.iter().filter_map(|series| {
        let matches = |(begin, end): (&str, &str)| {
            series.what.starts_with(begin) && series.what.ends_with(end)
        };
        let (.., limit) = RECOVERY
            .iter()
            .find(|(begin, end, _)| matches((begin, end)))?;
        let spread = series.value();
        Some(Judgement {
            goal: format!("{}: at most {limit} us", series.what),
            measured: format!(
                "{:.0} ({:.0} to {:.0}) us",
                spread.median, spread.low, spread.high
            ),
            met: spread.median <= *limit,
        })
    });
    judged.collect()
}

/// What the papers report for such a removal: `DSN'19`, on hardware of its own.
#[must_use]
pub fn of_papers(what: &str) -> &'static str {
    match what.split(' ').next() {
        Some("follower") => "8 us",
        Some("primary") => "532 us",
        _ => "none",
    }
}

/// Judges the memory suite: all replicas against the bound.
#[must_use]
pub fn memory(series: &[Series]) -> Vec<Judgement> {
    let all = series
        .iter()
        .filter(|series| series.configuration.replicas >= 2);
    let sums = all
        .clone()
        .filter_map(|sum| Some((sum, sum.what.strip_suffix(": all replicas")?)));
    let judged = sums.filter_map(|(sum, name)| {
        let bound = all.clone().find(|bound| {
            bound.configuration == sum.configuration && bound.what == format!("{name}: bound")
        })?;
        let (sum_kib, bound_kib) = (sum.value().median, bound.value().median);
        Some(Judgement {
            goal: format!(
                "memory of {name}, {}: at most N x private + read-only = {bound_kib:.0} KiB",
                sum.configuration
            ),
            measured: format!("{sum_kib:.0} KiB ({:+.0})", sum_kib - bound_kib),
            met: sum_kib <= bound_kib,
        })
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::{calls, cpu, memory, recovery};
    use crate::configuration::{NATIVE, protected};
    use crate::sample::Series;

    fn series(what: &str, value: f64, native: f64) -> Series {
        Series {
            what: what.into(),
            configuration: protected(2, "args"),
            unit: "ns",
            values: vec![value],
            natives: vec![native],
        }
    }

    #[test]
    fn goals_are_met_or_not() {
        let judged = calls(&[
            series("write-64-null", 800.0, 100.0),
            series("getppid", 9.0, 1.0),
        ]);
        assert_eq!(judged.len(), 1, "getppid has no goal");
        assert!(
            !judged[0].met && judged[0].measured.starts_with("700.0"),
            "{judged:?}"
        );
        assert!(cpu(&[series("loop", 1.01, 1.0)])[0].met);
    }

    #[test]
    fn a_voted_write_is_told_in_round_trips() {
        let line = Series {
            configuration: NATIVE,
            ..series("cache line, round trip", 200.0, 200.0)
        };
        let judged = calls(&[series("write-64-null", 460.0, 100.0), line]);
        let last = judged.last().expect("it is judged");
        assert!(last.measured.starts_with("1.80") && !last.met, "{last:?}");
    }

    #[test]
    fn only_the_pause_at_200_mib_has_a_goal() {
        let judged = recovery(&[
            series("re-integration, 200 MiB: pause", 5001.0, 0.0),
            series("re-integration, 200 MiB: duration", 9.0, 0.0),
            series("re-integration, 10 MiB: pause", 9.0, 0.0),
            series("primary wrong, 10 MiB: duration", 199.0, 0.0),
        ]);
        let met: Vec<bool> = judged.iter().map(|judgement| judgement.met).collect();
        assert_eq!(met, [false, true]);
    }

    #[test]
    fn memory_is_held_against_its_own_bound() {
        let judged = memory(&[
            series("p: all replicas", 30.0, 9.0),
            series("p: bound", 20.0, 9.0),
        ]);
        assert!(!judged[0].met);
        assert_eq!(judged[0].measured, "30 KiB (+10)");
    }
}
