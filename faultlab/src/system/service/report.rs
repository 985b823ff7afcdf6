//! What came of a campaign of losses, in markdown.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Campaign, Fault, Kind, Run, Told};
use crate::stats::{quantile, to_f64};

/// What was done, and on what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// What was done.
    pub campaign: Campaign,
    /// Revision.
    pub commit: String,
    /// Machine.
    pub machine: String,
}

/// Seconds around a loss of which the throughput is told: so many before, and from it on.
const BEFORE: i64 = 3;
const BEHIND: i64 = 10;
/// Tenths of a second in one.
const TENTHS: i64 = 10;

/// The report on a campaign in markdown.
#[must_use]
pub fn markdown(header: &Header, runs: &[Run]) -> String {
    let mut out = String::new();
    let Campaign {
        seed,
        replicas,
        compare,
        bound_ms,
        ..
    } = &header.campaign;
    let sum = |field: fn(&Run) -> u64| runs.iter().map(field).sum::<u64>();
    let wrong: Vec<&Run> = runs.iter().filter(|run| !run.wrong.is_empty()).collect();
    let slowest = runs.iter().map(|run| run.slowest_us).max().unwrap_or(0);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "### Redis in a machine, n = {replicas}, compare {compare}\n\n\
         Seed {seed}, commit {}, {}.\n{} machines, {} faults, {} losses mended, {} answers, {} \
         machines wrong; slowest answer {} ms. A flip is without effect if nothing is told within \
         {bound_ms} ms.\n",
        header.commit,
        header.machine,
        runs.len(),
        sum(|run| run.faults.len() as u64),
        faults(runs).filter(|fault| fault.told.is_some()).count(),
        sum(|run| run.answers),
        wrong.len(),
        slowest / 1000,
    );
    kinds(&mut out, runs);
    throughput(&mut out, runs);
    for run in wrong {
        let _ = writeln!(out, "\n* run {}: {}", run.index, run.wrong);
    }
    out
}

fn faults(runs: &[Run]) -> impl Iterator<Item = &Fault> {
    runs.iter().flat_map(|run| &run.faults)
}

/// Median and most of some milliseconds.
fn spread(all: &[f64]) -> String {
    match (quantile(all, 0.5), quantile(all, 1.0)) {
        (Some(median), Some(most)) => format!("{median:.0} (to {most:.0})"),
        _ => "-".into(),
    }
}

/// A row for each kind of fault.
fn kinds(out: &mut String, runs: &[Run]) {
    let _ = writeln!(
        out,
        "| kind | faults | of the primary | lost | as fault | as timeout | as mismatch | without \
         effect | until told, ms | until back, ms |\n|---|---|---|---|---|---|---|---|---|---|"
    );
    for kind in Kind::ALL {
        let own: Vec<&Fault> = faults(runs).filter(|fault| fault.kind == kind).collect();
        if own.is_empty() {
            continue;
        }
        let told: Vec<&Told> = own.iter().filter_map(|fault| fault.told.as_ref()).collect();
        let primary = own.iter().filter(|fault| fault.primary).count();
        let called = |what: &str| told.iter().filter(|told| told.kind == what).count();
        let times = |field: fn(&Told) -> u64| {
            let all: Vec<f64> = told.iter().map(|told| to_f64(field(told))).collect();
            spread(&all)
        };
        let _ = writeln!(
            out,
            "| {} | {} | {primary} | {} | {} | {} | {} | {} | {} | {} |",
            kind.name(),
            own.len(),
            told.len(),
            called("fault"),
            called("timeout"),
            called("mismatch"),
            own.len() - told.len(),
            times(|told| told.late_ms),
            times(|told| told.back_ms)
        );
    }
}

/// Answers in each second around losses of one kind: a value for each loss that has that second
/// to itself.
fn paces(runs: &[Run], kind: Kind) -> Vec<(i64, Vec<f64>)> {
    let seconds = -BEFORE..=BEHIND;
    let pace = |second: i64| {
        let of_run = |run: &Run| -> Vec<f64> {
            let own = (0..run.faults.len()).filter(|&at| run.faults[at].kind == kind);
            let own = own.filter(|&at| run.faults[at].told.is_some());
            own.filter_map(|at| answers(run, at, second)).collect()
        };
        runs.iter().flat_map(of_run).collect()
    };
    seconds.map(|second| (second, pace(second))).collect()
}

/// Answers in a second counted from a fault on, unless another fault is in it, or it is before the
/// first answer.
fn answers(run: &Run, at: usize, second: i64) -> Option<f64> {
    let tenth = |fault: &Fault| i64::try_from(fault.at_ms / 100).ok();
    let first = tenth(&run.faults[at])? + second * TENTHS;
    let end = first + TENTHS;
    let over = |fault: &Fault| {
        let told = fault.told.as_ref();
        let told = told.map_or(0, |told| told.late_ms + told.back_ms);
        i64::try_from((fault.at_ms + told) / 100).ok()
    };
    let since = match at.checked_sub(1) {
        Some(earlier) => over(&run.faults[earlier])?,
        None => i64::try_from(run.tenths.iter().position(|&count| count > 0)?).ok()?,
    };
    (first > since).then_some(())?;
    let next = run.faults.get(at + 1).map(tenth);
    let next = next.unwrap_or(i64::try_from(run.tenths.len()).ok())?;
    (end <= next).then_some(())?;
    let tenths = usize::try_from(first).ok()?..usize::try_from(end).ok()?;
    let tenths = run.tenths.get(tenths)?;
    Some(tenths.iter().copied().map(f64::from).sum())
}

/// How many commands were answered in the seconds around a loss.
fn throughput(out: &mut String, runs: &[Run]) {
    let _ = write!(
        out,
        "\nAnswers in a second, counted from the fault on: median (least to most) of so many.\n\n\
         | second |"
    );
    let lost = |kind: &Kind| faults(runs).any(|it| it.kind == *kind && it.told.is_some());
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(lost).collect();
    for kind in &kinds {
        let _ = write!(out, " {} |", kind.name());
    }
    let _ = writeln!(out, "\n|---|{}", "---|".repeat(kinds.len()));
    let paces: Vec<_> = kinds.iter().map(|&kind| paces(runs, kind)).collect();
    for row in 0..usize::try_from(BEFORE + BEHIND + 1).unwrap_or(0) {
        let cells: Vec<String> = paces.iter().map(|pace| cell(&pace[row].1)).collect();
        if let Some((second, _)) = paces.first().map(|pace| &pace[row]) {
            let _ = writeln!(out, "| {second} | {} |", cells.join(" | "));
        }
    }
}

fn cell(all: &[f64]) -> String {
    let at = |q| quantile(all, q).unwrap_or(0.0);
    match all.len() {
        0 => "-".into(),
        count => format!(
            "{:.0} ({:.0} to {:.0}) of {count}",
            at(0.5),
            at(0.0),
            at(1.0)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(at_ms: u64, kind: Kind, told: bool) -> Fault {
        let told = told.then(|| Told {
            kind: "fault".into(),
            removed: vec![0],
            late_ms: 10,
            back_ms: 1990,
        });
        let what = String::new();
        Fault {
            kind,
            victim: 0,
            primary: true,
            what,
            at_ms,
            told,
        }
    }

    fn run() -> Run {
        Run {
            faults: vec![
                fault(4000, Kind::Stop, true),
                fault(9000, Kind::Flip, false),
            ],
            tenths: (0..200).collect(),
            answers: 7,
            ..Run::default()
        }
    }

    #[test]
    fn a_second_counts_for_one_loss_alone() {
        let all = [run()];
        let stops = paces(&all, Kind::Stop);
        let second = |at: i64| &stops.iter().find(|(second, _)| *second == at).unwrap().1;
        assert_eq!(*second(0), [(40..50).map(f64::from).sum::<f64>()]);
        assert_eq!(*second(-3), [(10..20).map(f64::from).sum::<f64>()]);
        assert_eq!(second(4).len(), 1);
        assert!(second(5).is_empty(), "the next fault is in it");
        let flips = paces(&all, Kind::Flip);
        assert!(
            flips.iter().all(|(_, all)| all.is_empty()),
            "nothing was lost"
        );
        assert_eq!(answers(&all[0], 1, -3), None, "the first was not over");
        assert!(answers(&all[0], 1, -2).is_some());
    }

    #[test]
    fn a_flip_without_effect_is_no_loss() {
        let header = Header {
            campaign: Campaign {
                seed: 3,
                replicas: 3,
                compare: "args".into(),
                kinds: Kind::ALL.into(),
                pause_ms: 1,
                bound_ms: 5000,
                flips: 1,
                per_run: 9,
            },
            commit: "c".into(),
            machine: "m".into(),
        };
        let told = markdown(&header, &[run()]);
        let stop = "| stop | 1 | 1 | 1 | 1 | 0 | 0 | 0 | 10 (to 10) | 1990 (to 1990) |";
        let flip = "| flip | 1 | 1 | 0 | 0 | 0 | 0 | 1 | - | - |";
        for expected in ["2 faults, 1 losses mended, 7 answers", stop, flip] {
            assert!(told.contains(expected), "{told}");
        }
    }
}
