//! What a command counted, by the names that the files of evidence use (`evidence/README.md`).
//!
//! Contract: a name means the same in every command. Not covered: shares and intervals, which
//! whoever reads the counts takes of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::fuzz;
use crate::hours::Hours;
use crate::journal::Record;
use crate::kills;
use crate::points;
use crate::race::Values;
use crate::report::{Latencies, Tally};
use crate::system::{self, frames, service};
use crate::taxonomy::Verdict;

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Counted(BTreeMap<&'static str, u64>);

impl Counted {
    /// These.
    #[must_use]
    pub fn of<const N: usize>(counts: [(&'static str, u64); N]) -> Self {
        Self(counts.into())
    }

    /// A campaign of flips in programs.
    #[must_use]
    pub fn of_campaign(records: &[Record]) -> Self {
        let tally = Tally::of(records);
        let mut all = Self::of_flips(&tally);
        let misses: u64 = records.iter().map(|record| u64::from(record.misses)).sum();
        let unhit = tally.sum(|verdict| *verdict == Verdict::NotApplied);
        let alarms = tally.sum(|verdict| *verdict == Verdict::FalseAlarm);
        all.0.extend([
            ("runs", records.len() as u64),
            ("clean", misses + unhit),
            ("alarms", alarms),
        ]);
        all.0.extend(Self::of_times(records));
        all
    }

    /// When divergences were told: before the flip, or so many milliseconds after it. Times of
    /// several campaigns cannot be added up.
    fn of_times(records: &[Record]) -> BTreeMap<&'static str, u64> {
        let runs = records.iter().map(|it| (&it.verdict, it.detected_us));
        let times = Latencies::of(runs);
        let mut counts = BTreeMap::from([("early", times.early as u64)]);
        if let Some(all) = times.rows.last() {
            let names = ["median_ms", "p99_ms", "max_ms"];
            counts.insert("timed", all.runs as u64);
            counts.extend(names.into_iter().zip(all.ms.map(whole)));
        }
        counts
    }

    /// A campaign of flips in machines.
    #[must_use]
    pub fn of_machines(records: &[system::Record]) -> Self {
        let verdicts: Vec<Verdict> = records.iter().flat_map(system::verdicts).collect();
        let mut all = Self::of_flips(&Tally::of_verdicts(&verdicts));
        all.0.insert("machines", records.len() as u64);
        all
    }

    /// Malformed frames for one machine.
    #[must_use]
    pub fn of_frames(run: &frames::Run) -> Self {
        Self::of([
            ("runs", 1),
            ("frames", run.frames),
            ("replies", run.replies),
            ("answers", run.answers),
            ("wrong", u64::from(!run.wrong.is_empty())),
        ])
    }

    /// What became of flips. Some outcomes have a name for each table that they stand in.
    fn of_flips(tally: &Tally) -> Self {
        let corrected = tally.sum(|it| matches!(it, Verdict::Corrected(_)));
        let stopped = tally.sum(|it| matches!(it, Verdict::FailStop(_)));
        let mismatch = tally.sum(|it| matches!(it, Verdict::FailStop(kind) if kind == "mismatch"));
        let masked = tally.sum(|it| *it == Verdict::Masked);
        let wrong = tally.sum(|it| matches!(it, Verdict::Sdc | Verdict::Leak));
        let crashed = tally.sum(|it| matches!(it, Verdict::Crash | Verdict::RcoeFailure));
        let hung = tally.sum(|it| *it == Verdict::Hang);
        Self::of([
            ("faults", tally.applied()),
            ("errors", tally.errors()),
            ("masked", masked),
            ("corrected", corrected),
            ("continued", masked + corrected),
            ("stopped", stopped),
            ("detected", corrected + stopped),
            ("mismatch", mismatch),
            ("late", stopped - mismatch),
            ("wrong", wrong),
            ("silent", wrong),
            ("crashed", crashed),
            ("hung", hung),
            ("unfinished", hung),
            ("uncontrolled", tally.uncontrolled()),
        ])
    }

    /// Replicas killed, stopped or hit while a peer keeps a ledger. With `answers` the effects are
    /// answers of a service, and a run is wrong where one of them was.
    #[must_use]
    pub fn of_kills(runs: &[kills::Run], answers: bool) -> Self {
        let sum = |field: fn(&kills::Run) -> u64| runs.iter().map(field).sum::<u64>();
        let failed = sum(|run| u64::from(!run.wrong.is_empty()));
        let unfinished = sum(|run| u64::from(run.unfinished));
        let common = [
            ("runs", runs.len() as u64),
            ("faults", sum(|run| run.kills)),
            ("primary", sum(|run| run.primaries)),
        ];
        let own = if answers {
            vec![
                ("latent", sum(|run| run.latent)),
                ("answers", sum(|run| run.effects)),
                ("wrong", sum(|run| u64::from(run.spoilt))),
                ("failed", failed),
            ]
        } else {
            vec![
                ("effects", sum(|run| run.effects)),
                ("wrong", failed - unfinished),
                ("unfinished", unfinished),
            ]
        };
        Self(common.into_iter().chain(own).collect())
    }

    /// Losses of replicas of a machine that serves.
    #[must_use]
    pub fn of_losses(runs: &[service::Run]) -> Self {
        let faults: Vec<&service::Fault> = runs.iter().flat_map(|run| &run.faults).collect();
        let count = |test: &dyn Fn(&service::Fault) -> bool| {
            faults.iter().filter(|fault| test(fault)).count() as u64
        };
        let of = |kind| count(&move |fault| fault.kind == kind);
        let flip = |fault: &service::Fault| fault.kind == service::Kind::Flip;
        Self::of([
            ("runs", runs.len() as u64),
            ("faults", faults.len() as u64),
            ("primary", count(&|fault| fault.primary)),
            ("stops", of(service::Kind::Stop)),
            ("stuck", of(service::Kind::Stuck)),
            ("flips", of(service::Kind::Flip)),
            ("losses", count(&|fault| fault.told.is_some())),
            (
                "latent",
                count(&|fault| flip(fault) && fault.told.is_none()),
            ),
            ("answers", runs.iter().map(|run| run.answers).sum()),
            ("wrong", runs.iter().filter(|run| run.spoilt).count() as u64),
            (
                "failed",
                runs.iter().filter(|run| !run.wrong.is_empty()).count() as u64,
            ),
        ])
    }

    /// Flips in machines that serve.
    #[must_use]
    pub fn of_errors(runs: &[service::errors::Run]) -> Self {
        let flips = runs.iter().flat_map(|run| &run.flips);
        let tally = Tally::of_verdicts(flips.map(|it| &it.verdict));
        let mut all = Self::of_flips(&tally);
        all.0.insert("machines", runs.len() as u64);
        all.0
            .insert("unreturned", tally.sum(Verdict::is_unreturned));
        let answers = runs.iter().map(|run| run.answers).sum();
        all.0.insert("answers", answers);
        all
    }

    /// Random system calls.
    #[must_use]
    pub fn of_calls(runs: &[fuzz::Run]) -> Self {
        let sum = |field: fn(&fuzz::Run) -> u64| runs.iter().map(field).sum();
        Self::of([
            ("runs", runs.len() as u64),
            ("wrong", sum(|run| u64::from(run.wrong.is_some()))),
            ("episodes", sum(|run| run.episodes)),
            ("ended", sum(|run| run.ended)),
        ])
    }

    /// Races, none of which differed in any replica: one that does is an error.
    #[must_use]
    pub fn of_races(values: &Values) -> Self {
        let [runs, values, least, most] = values.spread();
        Self::of([
            ("runs", runs),
            ("wrong", 0),
            ("values", values),
            ("least", least),
            ("most", most),
        ])
    }

    /// Programs without a fault.
    #[must_use]
    pub fn of_hours(hours: &Hours) -> Self {
        Self::of([
            ("runs", hours.runs),
            ("alarms", hours.alarms.len() as u64 - hours.unfinished),
            ("unfinished", hours.unfinished),
        ])
    }

    /// Points between calls.
    #[must_use]
    pub fn of_points(totals: &points::report::Totals) -> Self {
        Self::of([
            ("runs", totals.runs),
            ("verified", totals.verified),
            ("differed", totals.false_agreements),
            ("unagreed", totals.not_agreed),
            ("calls", totals.at_calls),
            ("wrong", totals.wrong),
        ])
    }

    /// Writes them as a JSON object.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, serde_json::to_string(self)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Whole milliseconds.
fn whole(ms: f64) -> u64 {
    let time = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Counted;
    use crate::journal::tests::record;
    use crate::kills::{Run, Workload};
    use crate::taxonomy::Verdict;

    fn run(kills: u64, [spoilt, unfinished]: [bool; 2]) -> Run {
        let wrong = if spoilt || unfinished { "what" } else { "" };
        Run {
            kills,
            effects: 10,
            wrong: wrong.into(),
            spoilt,
            unfinished,
            ..Run::new(0, Workload::Pipe)
        }
    }

    #[test]
    fn every_outcome_of_a_flip_is_in_one_count_of_each_table() {
        let stop = |kind: &str| Verdict::FailStop(kind.into());
        let verdicts = [
            Verdict::Masked,
            Verdict::Corrected("mismatch".into()),
            stop("mismatch"),
            stop("timeout"),
            Verdict::Sdc,
            Verdict::Leak,
            Verdict::Crash,
            Verdict::RcoeFailure,
            Verdict::Hang,
            Verdict::NotApplied,
            Verdict::FalseAlarm,
        ];
        let records: Vec<_> = (0..).zip(verdicts).map(|(at, it)| record(at, it)).collect();
        let all = Counted::of_campaign(&records).0;
        let sum = |names: &[&str]| names.iter().map(|name| all[name]).sum::<u64>();
        for table in [
            &[
                "masked",
                "corrected",
                "stopped",
                "silent",
                "crashed",
                "hung",
            ][..],
            &["continued", "stopped", "wrong", "crashed", "hung"],
            &[
                "masked",
                "corrected",
                "mismatch",
                "late",
                "silent",
                "crashed",
                "hung",
            ],
            &["masked", "detected", "silent", "crashed", "unfinished"],
        ] {
            assert_eq!(sum(table), all["faults"], "{table:?}");
        }
        assert_eq!(all["uncontrolled"], 5 + all["alarms"]);
        assert_eq!([all["runs"], all["clean"], all["alarms"]], [11, 1, 1]);
    }

    #[test]
    fn times_are_those_of_what_was_told_after_its_flip() {
        let told = [Some(2_500_000), Some(9_000_000), Some(-1), None];
        let records: Vec<_> = (0..)
            .zip(told)
            .map(|(at, detected_us)| crate::journal::Record {
                detected_us,
                ..record(at, Verdict::FailStop("mismatch".into()))
            })
            .collect();
        let all = Counted::of_campaign(&records).0;
        assert_eq!([all["early"], all["timed"]], [1, 2]);
        let [median, most_of, most] = ["median_ms", "p99_ms", "max_ms"].map(|name| all[name]);
        assert!(
            (2500..=9000).contains(&median) && median <= most_of,
            "{all:?}"
        );
        assert_eq!(most, 9000);
        let none = Counted::of_campaign(&records[3..]).0;
        assert!(
            !none.contains_key("timed") && none["early"] == 0,
            "{none:?}"
        );
    }

    #[test]
    fn a_run_without_an_end_is_not_taken_for_a_wrong_effect() {
        let runs = [
            run(3, [false; 2]),
            run(4, [false, true]),
            run(5, [true, false]),
        ];
        let kills = Counted::of_kills(&runs, false).0;
        assert_eq!([kills["faults"], kills["effects"]], [12, 30]);
        assert_eq!([kills["wrong"], kills["unfinished"]], [1, 1]);
        let service = Counted::of_kills(&runs, true).0;
        assert_eq!([service["wrong"], service["failed"]], [1, 2]);
    }
}
