//! How late rcoe noticed what was flipped: from the flip until it told of the first divergence.
//!
//! Contract: only runs that were detected count, each once for how it ended and once among all.
//! What was told before the flip is an alarm without a cause, and is counted apart.
//!
//! Not covered: flips that nothing came of, and those of journals that do not keep the time.

use std::collections::BTreeMap;

use crate::stats::{quantile, to_f64};
use crate::taxonomy::Verdict;

/// Detected runs of one outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The outcome, or that these are all.
    pub(crate) what: String,
    /// How many.
    pub(crate) runs: usize,
    /// Median, 99 % and greatest, in milliseconds.
    pub(crate) ms: [f64; 3],
}

/// How late all runs were detected.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Latencies {
    /// By outcome; the last one is about all.
    pub(crate) rows: Vec<Row>,
    /// Runs in which a divergence was told before the flip.
    pub(crate) early: usize,
}

impl Latencies {
    /// Of runs that ended so, each with what it took in microseconds, as far as that is known.
    pub(crate) fn of<'a>(runs: impl Iterator<Item = (&'a Verdict, Option<i64>)>) -> Self {
        let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let (mut all, mut early) = (Vec::new(), 0);
        for (verdict, us) in runs {
            let is_detected = matches!(verdict, Verdict::Corrected(_) | Verdict::FailStop(_));
            let Some(us) = us.filter(|_| is_detected) else {
                continue;
            };
            match u64::try_from(us) {
                Ok(us) => {
                    let ms = to_f64(us) / 1e3;
                    samples.entry(verdict.label()).or_default().push(ms);
                    all.push(ms);
                }
                Err(_) => early += 1,
            }
        }
        let mut rows: Vec<Row> = samples.iter().map(|(what, it)| row(what, it)).collect();
        if !all.is_empty() {
            rows.push(row("all detected", &all));
        }
        Self { rows, early }
    }

    /// What is to be said below the table, if anything.
    pub(crate) fn note(&self) -> String {
        match self.early {
            0 => String::new(),
            early => format!("In {early} runs more a divergence was told before the flip."),
        }
    }
}

fn row(what: &str, sample: &[f64]) -> Row {
    Row {
        what: what.to_owned(),
        runs: sample.len(),
        ms: [0.5, 0.99, 1.0].map(|q| quantile(sample, q).unwrap_or(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::Latencies;
    use crate::taxonomy::Verdict;

    #[test]
    fn detected_runs_count_by_outcome_and_together() {
        let stop = Verdict::FailStop("mismatch".into());
        let corrected = Verdict::Corrected("mismatch".into());
        let runs = [
            (&stop, Some(1_000)),
            (&stop, Some(3_000)),
            (&corrected, Some(8_000)),
            (&corrected, None),
            (&stop, Some(-1)),
            (&Verdict::Masked, Some(9_000)),
            (&Verdict::Sdc, Some(9_000)),
        ];
        let all = Latencies::of(runs.into_iter());
        let told: Vec<_> = all
            .rows
            .iter()
            .map(|row| (row.what.as_str(), row.runs, row.ms[0], row.ms[2]))
            .collect();
        let expected = [
            ("detected, corrected (mismatch)", 1, 8.0, 8.0),
            ("detected, fail-stop (mismatch)", 2, 2.0, 3.0),
            ("all detected", 3, 3.0, 8.0),
        ];
        assert_eq!(told, expected);
        assert_eq!(all.early, 1);
        assert!(all.note().contains("In 1 runs"), "{}", all.note());
    }

    #[test]
    fn where_no_time_is_known_nothing_is_told() {
        let corrected = Verdict::Corrected("death".into());
        let none = Latencies::of([(&corrected, None)].into_iter());
        assert_eq!(none, Latencies::default());
        assert!(none.note().is_empty());
    }
}
