//! Results as markdown and as a data file.

use std::fmt::Write;

use rcoe_faultlab::stats::quantile;
use serde::Serialize;

use crate::evidence::Judgement;
use crate::sample::{Series, Spread};

/// One suite's results.
#[derive(Clone, Debug, Serialize)]
pub struct Suite {
    /// Heading.
    pub title: &'static str,
    /// All series.
    pub series: Vec<Series>,
    /// Goals and what came of them.
    pub goals: Vec<Judgement>,
    /// The table to be printed, where a suite has one of its own.
    #[serde(skip)]
    pub table: Option<String>,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Revision of the source.
    pub commit: String,
    /// Processor, CPUs, kernel.
    pub machine: String,
    /// Number of CPUs.
    pub cpus: usize,
    /// Load average before and after.
    pub load: [String; 2],
    /// Suites.
    pub suites: Vec<Suite>,
}

/// All tables.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "Commit {}, {}; load average {} before, {} after.",
        results.commit, results.machine, results.load[0], results.load[1]
    );
    goal_table(&mut out, &results.suites);
    for suite in &results.suites {
        let _ = writeln!(out, "\n## {}\n", suite.title);
        if let Some(table) = &suite.table {
            out.push_str(table);
        } else if suite.series.iter().any(|series| !series.natives.is_empty()) {
            series_table(&mut out, suite, results.cpus);
        } else {
            percentile_table(&mut out, suite);
        }
    }
    out
}

fn goal_table(out: &mut String, suites: &[Suite]) {
    let _ = writeln!(out, "\n## Goals\n\n| goal | measured | |\n|---|---|---|");
    for judgement in suites.iter().flat_map(|suite| &suite.goals) {
        let met = if judgement.met { "met" } else { "**not met**" };
        let _ = writeln!(
            out,
            "| {} | {} | {met} |",
            judgement.goal, judgement.measured
        );
    }
}

fn series_table(out: &mut String, suite: &Suite, cpus: usize) {
    let repetitions = suite.series.first().map_or(0, |series| series.values.len());
    let _ = writeln!(out, "Median (10 % to 90 %) of {repetitions} repetitions.\n");
    let _ = writeln!(
        out,
        "| what | run as | value | over native | multiple of native |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|");
    for series in &suite.series {
        let crowded = if series.configuration.is_crowded(cpus) {
            " (crowded)"
        } else {
            ""
        };
        let [over, ratio] = if series.configuration.is_native() || series.natives.is_empty() {
            ["", ""].map(str::to_owned)
        } else {
            [
                spread(series.over(), series.unit),
                spread(series.ratio(), ""),
            ]
        };
        let value = spread(series.value(), series.unit);
        let _ = writeln!(
            out,
            "| {} | {}{crowded} | {value} | {over} | {ratio} |",
            series.what, series.configuration
        );
    }
}

/// Of what has no native counterpart.
fn percentile_table(out: &mut String, suite: &Suite) {
    let _ = writeln!(
        out,
        "| what | n | median | p90 | p99 | max |\n|---|---|---|---|---|---|"
    );
    for series in &suite.series {
        let at = |q| quantile(&series.values, q).unwrap_or(0.0);
        let [median, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(at);
        let (what, n, unit) = (&series.what, series.values.len(), series.unit);
        let _ = writeln!(
            out,
            "| {what} | {n} | {median:.0} {unit} | {p90:.0} | {p99:.0} | {max:.0} |"
        );
    }
}

fn spread(spread: Spread, unit: &str) -> String {
    let digits = match spread.median.abs() {
        0.0..10.0 => 3,
        10.0..1000.0 => 1,
        _ => 0,
    };
    let Spread { low, median, high } = spread;
    format!("{median:.digits$} {unit} ({low:.digits$} to {high:.digits$})").replace("  ", " ")
}

#[cfg(test)]
mod tests {
    use super::{Results, Suite, markdown};
    use crate::configuration::{NATIVE, protected};
    use crate::evidence::Judgement;
    use crate::sample::Collector;

    #[test]
    fn tables_name_goals_spread_and_crowding() {
        let mut collector = Collector::default();
        collector.add("x", NATIVE, "ns", 100.0);
        collector.add("x", protected(3, "args"), "ns", 250.0);
        let goals = vec![Judgement {
            goal: "g".into(),
            measured: "m".into(),
            met: false,
        }];
        let suite = Suite {
            title: "Calls",
            series: collector.finish(),
            goals,
            table: None,
        };
        let text = markdown(&Results {
            commit: "c".into(),
            machine: "m".into(),
            cpus: 2,
            load: ["0".into(), "1".into()],
            suites: vec![suite],
        });
        assert!(text.contains("| g | m | **not met** |"), "{text}");
        assert!(
            text.contains("n=3 args (crowded) | 250.0 ns (250.0 to 250.0)"),
            "{text}"
        );
        assert!(text.contains("| 2.500 (2.500 to 2.500) |"), "{text}");
    }
}
