//! Tables of a campaign's outcomes, with both denominators and exact intervals.

mod latency;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use crate::journal::{Header, Record};
use crate::stats::{clopper_pearson, quantile, to_f64};
use crate::taxonomy::Verdict;

pub(crate) use latency::Latencies;

/// Counts of a set of results.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    counts: BTreeMap<Verdict, u64>,
}

impl Tally {
    /// Counts the verdicts of these results.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        Self::of_verdicts(records.into_iter().map(|record| &record.verdict))
    }

    /// Counts verdicts.
    pub fn of_verdicts<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let mut tally = Self::default();
        for verdict in verdicts {
            *tally.counts.entry(verdict.clone()).or_default() += 1;
        }
        tally
    }

    /// Injections carried out.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.sum(|verdict| !matches!(verdict, Verdict::NotApplied | Verdict::FalseAlarm))
    }

    /// Injections that showed.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.sum(Verdict::is_error)
    }

    /// Injections that ended as a protected run never may.
    #[must_use]
    pub fn uncontrolled(&self) -> u64 {
        self.sum(Verdict::is_uncontrolled)
    }

    /// Sum over the verdicts chosen by `which`.
    pub fn sum(&self, which: impl Fn(&Verdict) -> bool) -> u64 {
        self.counts
            .iter()
            .filter(|(verdict, _)| which(verdict))
            .map(|(_, count)| count)
            .sum()
    }

    /// Outcomes and how many of each.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&Verdict, u64)> {
        self.counts.iter().map(|(verdict, &count)| (verdict, count))
    }

    /// One short line: the outcomes so far.
    #[must_use]
    pub fn line(&self) -> String {
        let part = |name: &str, count: u64| format!("{name} {count}");
        [
            part("masked", self.sum(|v| *v == Verdict::Masked)),
            part(
                "corrected",
                self.sum(|v| matches!(v, Verdict::Corrected(_))),
            ),
            part("fail-stop", self.sum(|v| matches!(v, Verdict::FailStop(_)))),
            part("SDC", self.sum(|v| *v == Verdict::Sdc)),
            part(
                "other",
                self.sum(|v| v.is_uncontrolled() && *v != Verdict::Sdc),
            ),
        ]
        .join(", ")
    }
}

/// The report on one campaign in markdown.
#[must_use]
pub fn markdown(header: &Header, records: &[Record]) -> String {
    let mut out = String::new();
    let c = &header.campaign;
    let mode = match c.replicas {
        0 => "bare, without rcoe".to_owned(),
        n => format!("n = {n}, compare {}, timeout {}", c.compare, c.timeout),
    };
    let tick = c.tick.as_deref();
    let tick = tick.map_or_else(String::new, |tick| format!(", tick {tick}"));
    let tally = Tally::of(records);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "### {mode}{tick}: {}\n", c.programs);
    let _ = writeln!(
        out,
        "Seed {}, targets {}, when {:?}, commit {}, {}.",
        c.seed, c.targets, c.when, header.commit, header.machine
    );
    let misses: u64 = records.iter().map(|record| u64::from(record.misses)).sum();
    let _ = writeln!(
        out,
        "{} injections applied, {} errors observed, {misses} further runs without a flip.\n",
        tally.applied(),
        tally.errors()
    );
    outcome_table(&mut out, &tally);
    if c.replicas > 1 {
        claims(&mut out, &tally, c.replicas);
        blame(&mut out, records);
    }
    let hit = records.iter().filter(|record| record.hit.is_some());
    target_table(&mut out, hit.map(|it| (it.plan.target, &it.verdict)));
    detection(&mut out, records);
    latency(&mut out, records);
    culprits(&mut out, records, c.replicas);
    out
}

/// `0.24 % [0.12, 0.42]`.
pub(crate) fn share(count: u64, total: u64) -> String {
    if count > total {
        return "-".to_owned();
    }
    let p = clopper_pearson(count, total);
    format!(
        "{:.2} % [{:.2}, {:.2}]",
        100.0 * p.value,
        100.0 * p.low,
        100.0 * p.high
    )
}

/// `12 | 0.24 % [0.12, 0.42] | 1.1 % [0.6, 1.9]`.
fn shares(count: u64, tally: &Tally, of_errors: bool) -> String {
    let second = if of_errors {
        share(count, tally.errors())
    } else {
        "-".to_owned()
    };
    format!("{count} | {} | {second}", share(count, tally.applied()))
}

pub(crate) fn outcome_table(out: &mut String, tally: &Tally) {
    let _ = writeln!(
        out,
        "| outcome | count | of injections [95 %] | of observed errors [95 %] |"
    );
    let _ = writeln!(out, "|---|---|---|---|");
    for (verdict, count) in &tally.counts {
        let row = shares(*count, tally, verdict.is_error());
        let _ = writeln!(out, "| {} | {row} |", verdict.label());
    }
}

/// What must be zero, said even when it is.
pub(crate) fn claims(out: &mut String, tally: &Tally, replicas: usize) {
    let row = shares(tally.uncontrolled(), tally, true);
    let _ = writeln!(out, "| **all uncontrolled** | {row} |");
    if replicas > 2 {
        let detected = |v: &Verdict| matches!(v, Verdict::Corrected(_));
        let _ = writeln!(
            out,
            "| **all corrected** | {} |",
            shares(tally.sum(detected), tally, true)
        );
    }
    let stopped = |v: &Verdict| matches!(v, Verdict::FailStop(_));
    let _ = writeln!(
        out,
        "| **all fail-stops** | {} |",
        shares(tally.sum(stopped), tally, true)
    );
}

/// How often the replica named as faulty is the one that was hit.
fn blame(out: &mut String, records: &[Record]) {
    let named: Vec<_> = records
        .iter()
        .filter(|r| r.hit.is_some() && r.named.is_some())
        .collect();
    if named.is_empty() {
        return;
    }
    let right = named.iter().filter(|r| r.named == hit_replica(r)).count();
    let _ = writeln!(
        out,
        "\nA culprit was named in {} runs, rightly in {right}.",
        named.len()
    );
}

/// The replica that was hit: by its own memory, or else as planned.
pub(crate) fn hit_replica(record: &Record) -> Option<u64> {
    let seen = record.hit.as_ref().and_then(|hit| hit.replica);
    seen.or(Some(record.plan.replica as u64))
}

/// What became of the injections, by what was hit.
pub(crate) fn target_table<'a, T: Ord + Display>(
    out: &mut String,
    verdicts: impl IntoIterator<Item = (T, &'a Verdict)>,
) {
    let mut targets: BTreeMap<T, Vec<&Verdict>> = BTreeMap::new();
    for (target, verdict) in verdicts {
        targets.entry(target).or_default().push(verdict);
    }
    let _ = writeln!(
        out,
        "\n| target | injections | masked | corrected | fail-stop | SDC | other uncontrolled |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|---|");
    for (target, verdicts) in targets {
        let tally = Tally::of_verdicts(verdicts);
        let _ = writeln!(
            out,
            "| {target} | {} | {} | {} | {} | {} | {} |",
            tally.applied(),
            tally.sum(|v| *v == Verdict::Masked),
            tally.sum(|v| matches!(v, Verdict::Corrected(_))),
            tally.sum(|v| matches!(v, Verdict::FailStop(_))),
            tally.sum(|v| *v == Verdict::Sdc),
            tally.sum(|v| v.is_uncontrolled() && *v != Verdict::Sdc),
        );
    }
}

/// How late rcoe noticed what was flipped.
fn detection(out: &mut String, records: &[Record]) {
    let runs = records.iter().map(|it| (&it.verdict, it.detected_us));
    let all = Latencies::of(runs);
    if !all.rows.is_empty() {
        let head = "| from the flip until rcoe told of it | runs | median | 99 % within | most |";
        let _ = writeln!(out, "\n{head}\n|---|---|---|---|---|");
    }
    for row in &all.rows {
        let [median, most_of, most] = row.ms.map(|ms| format!("{ms:.1} ms"));
        let (what, runs) = (&row.what, row.runs);
        let _ = writeln!(out, "| {what} | {runs} | {median} | {most_of} | {most} |");
    }
    if all.early > 0 {
        let _ = writeln!(out, "\n{}", all.note());
    }
}

/// Time from flip to the end of a stopped run: an upper bound that every journal has.
fn latency(out: &mut String, records: &[Record]) {
    let mut kinds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for record in records {
        if let Verdict::FailStop(kind) = &record.verdict {
            kinds
                .entry(kind)
                .or_default()
                .push(to_f64(record.after_us) / 1000.0);
        }
    }
    for (kind, sample) in kinds {
        let at = |q| quantile(&sample, q).unwrap_or(0.0);
        let _ = writeln!(
            out,
            "\nFlip to end of run, fail-stop by {kind}: median {:.1} ms, 99 % within {:.1} ms.",
            at(0.5),
            at(0.99)
        );
    }
}

/// Every uncontrolled run of a protected campaign, with what is needed to run it again.
fn culprits(out: &mut String, records: &[Record], replicas: usize) {
    if replicas < 2 {
        return;
    }
    for record in records
        .iter()
        .filter(|record| record.verdict.is_uncontrolled())
    {
        let place = record.hit.as_ref().map_or_else(String::new, describe);
        let _ = writeln!(
            out,
            "\n* index {}, attempt {}: {} in {}: replica {}, {place}{}",
            record.plan.index,
            record.plan.attempt,
            record.verdict.label(),
            record.name,
            hit_replica(record).unwrap_or_default(),
            if record.detail.is_empty() {
                String::new()
            } else {
                format!("; {}", record.detail)
            },
        );
    }
    let left: usize = records.iter().map(|record| record.leftovers).sum();
    if left > 0 {
        let _ = writeln!(out, "\n* {left} runs left processes behind.");
    }
}

/// A hit in words.
#[must_use]
pub fn describe(hit: &crate::inject::Hit) -> String {
    format!(
        "bit {} of {} of {} ({:#x} -> {:#x}) at ip {:#x}{} after {:.3} ms of CPU time",
        hit.bit,
        hit.place,
        hit.program,
        hit.before,
        hit.after,
        hit.ip,
        if hit.in_kernel {
            " (returning from a system call)"
        } else {
            ""
        },
        to_f64(hit.cpu_ns) / 1e6
    )
}

#[cfg(test)]
mod tests {
    use super::{Tally, markdown};
    use crate::journal::tests::{header, record};
    use crate::taxonomy::Verdict;

    fn records() -> Vec<crate::journal::Record> {
        let stop = || Verdict::FailStop("mismatch".into());
        let verdicts = [
            Verdict::Masked,
            stop(),
            stop(),
            Verdict::NotApplied,
            Verdict::Sdc,
            Verdict::Masked,
        ];
        (0..)
            .zip(verdicts)
            .map(|(index, verdict)| record(index, verdict))
            .collect()
    }

    #[test]
    fn both_denominators_leave_out_what_does_not_count() {
        let tally = Tally::of(&records());
        assert_eq!(
            (tally.applied(), tally.errors(), tally.uncontrolled()),
            (5, 3, 1)
        );
    }

    #[test]
    fn the_report_names_shares_and_culprits() {
        let text = markdown(&header(9), &records());
        assert!(
            text.contains("| detected, fail-stop (mismatch) | 2 | 40.00 % ["),
            "{text}"
        );
        assert!(text.contains("66.67 % ["), "{text}");
        assert!(
            text.contains("* index 4, attempt 0: silent data corruption in md5sum"),
            "{text}"
        );
        assert!(text.contains("Seed 9"), "{text}");
    }

    #[test]
    fn the_report_tells_the_tick_and_how_late_flips_were_noticed() {
        let mut records = records();
        let text = markdown(&header(9), &records);
        assert!(!text.contains("tick") && !text.contains("until rcoe told"));
        records[1].detected_us = Some(120_000);
        records[2].detected_us = Some(-5);
        let mut header = header(9);
        header.campaign.tick = Some("200ms".into());
        let text = markdown(&header, &records);
        assert!(text.contains("timeout 2s, tick 200ms: md5sum"), "{text}");
        let row = "| all detected | 1 | 120.0 ms | 120.0 ms | 120.0 ms |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("In 1 runs more"), "{text}");
    }
}
