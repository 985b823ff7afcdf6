//! What came of a campaign of errors, in markdown.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Campaign, Injection, Run};
use crate::report::{Tally, claims, outcome_table, target_table};
use crate::taxonomy::Verdict;

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

/// The report on a campaign in markdown.
#[must_use]
pub fn markdown(header: &Header, runs: &[Run]) -> String {
    let mut out = String::new();
    let Campaign {
        seed,
        replicas,
        compare,
        transfer,
        bound_ms,
        ..
    } = &header.campaign;
    let all: Vec<&Injection> = runs.iter().flat_map(|run| &run.flips).collect();
    let tally = Tally::of_verdicts(all.iter().map(|it| &it.verdict));
    let answers: u64 = runs.iter().map(|run| run.answers).sum();
    let place = if *transfer { ", transfer memory" } else { "" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "### Redis in a machine, judged by its clients, n = {replicas}, compare {compare}{place}\n\
         \nSeed {seed}, commit {}, {}.\n{} machines, {} flips, {} errors observed, {answers} \
         answers. An error is waited for {bound_ms} ms and some answers.\n",
        header.commit,
        header.machine,
        runs.len(),
        tally.applied(),
        tally.errors(),
    );
    outcome_table(&mut out, &tally);
    claims(&mut out, &tally, *replicas);
    let named = all.iter().filter(|it| it.named.is_some());
    let right = named
        .clone()
        .filter(|it| it.named == Some(it.victim as u64));
    let _ = writeln!(
        out,
        "\nA culprit was named {} times, rightly {}; the primary was hit {} times.",
        named.clone().count(),
        right.count(),
        all.iter().filter(|it| it.primary).count()
    );
    target_table(&mut out, all.iter().map(|it| (it.target, &it.verdict)));
    for (run, flip) in unmasked(runs, *replicas) {
        let _ = writeln!(
            out,
            "\n* machine {run}: {}: replica {}, {}; {}",
            flip.verdict.label(),
            flip.victim,
            flip.what,
            flip.detail
        );
    }
    out
}

/// What was uncontrolled or is not back, and what stopped a machine that could have gone on without
/// one replica.
fn unmasked(runs: &[Run], replicas: usize) -> impl Iterator<Item = (u64, &Injection)> {
    let flips = runs
        .iter()
        .flat_map(|run| run.flips.iter().map(|it| (run.index, it)));
    flips.filter(move |(_, flip)| {
        let stopped = matches!(flip.verdict, Verdict::FailStop(_));
        let is_bad = flip.verdict.is_uncontrolled() || flip.verdict.is_unreturned();
        is_bad || stopped && replicas > 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Target;

    #[test]
    fn errors_are_told_by_class_and_the_uncontrolled_by_what_was_done() {
        let flip = |target, verdict, named| Injection {
            target,
            victim: 1,
            primary: false,
            what: format!("a bit of {target}"),
            verdict,
            named,
            detail: "told".into(),
        };
        let flips = vec![
            flip(Target::Network, Verdict::Masked, None),
            flip(Target::Network, Verdict::Corrected("fault".into()), Some(1)),
            flip(Target::Gpr, Verdict::Hang, Some(0)),
            flip(Target::Xmm, Verdict::FailStop("fault".into()), Some(1)),
            flip(Target::Gpr, Verdict::Unreturned("fault".into()), Some(1)),
        ];
        let run = Run {
            index: 4,
            flips,
            answers: 10,
            ms: 1,
        };
        let header = Header {
            campaign: Campaign {
                seed: 3,
                replicas: 3,
                compare: "args".into(),
                transfer: false,
                bound_ms: 250,
                flips: 60,
            },
            commit: "c".into(),
            machine: "m".into(),
        };
        let told = markdown(&header, &[run]);
        for expected in [
            "1 machines, 5 flips, 4 errors observed, 10 answers",
            "A culprit was named 4 times, rightly 3;",
            "| network stack | 2 | 1 | 1 | 0 | 0 | 0 |",
            "* machine 4: hang: replica 1, a bit of gpr; told",
            "| **all uncontrolled** | 1 |",
            "* machine 4: detected, masked, not back (fault): replica 1, a bit of gpr; told",
            "* machine 4: detected, fail-stop (fault): replica 1, a bit of xmm; told",
        ] {
            assert!(told.contains(expected), "{told}");
        }
    }
}
