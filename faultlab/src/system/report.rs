//! Tables of a campaign against machines.

use std::fmt::Write as _;

use super::{Header, Hit, Record, Target};
use crate::report::{Tally, claims, outcome_table, target_table};
use crate::taxonomy::Verdict;

/// The report on one campaign in markdown.
#[must_use]
pub fn markdown(header: &Header, records: &[Record]) -> String {
    let mut out = String::new();
    let Header {
        arch,
        replicas,
        compare,
        coupling,
        timeout,
        guest,
        seed,
        flips,
        commit,
        machine,
    } = header;
    let all: Vec<(Target, Verdict)> = records.iter().flat_map(charged).collect();
    let tally = Tally::of_verdicts(all.iter().map(|(_, verdict)| verdict));
    // Writing to a string cannot fail.
    let guest = guest.as_ref();
    let guest = guest.map_or(String::new(), |it| format!(", guest {}", it.name()));
    let _ = writeln!(
        out,
        "### System sphere, {arch}, n = {replicas}, compare {compare}, coupling {coupling}, \
         timeout {timeout}{guest}\n\n\
         Seed {seed}, commit {commit}, {machine}.\n{} machines, up to {flips} \
         flips each: {} injections applied, {} errors observed.\n",
        records.len(),
        tally.applied(),
        tally.errors()
    );
    outcome_table(&mut out, &tally);
    claims(&mut out, &tally, *replicas);
    blame(&mut out, records);
    target_table(
        &mut out,
        all.iter().map(|(target, verdict)| (*target, verdict)),
    );
    if *replicas > 1 {
        culprits(&mut out, records);
    }
    out
}

fn blame(out: &mut String, records: &[Record]) {
    let named: Vec<_> = records
        .iter()
        .filter(|record| record.named.is_some())
        .collect();
    let is_right = |record: &&&Record| record.named == Some(record.victim as u64);
    let right = named.iter().filter(is_right).count();
    if !named.is_empty() {
        let _ = writeln!(
            out,
            "\nA culprit was named in {} runs, rightly in {right}.",
            named.len()
        );
    }
}

/// The outcome of each flip: masked, but for the last one.
fn charged(record: &Record) -> Vec<(Target, Verdict)> {
    let mut all: Vec<_> = record
        .hits
        .iter()
        .map(|hit| (hit.target, Verdict::Masked))
        .collect();
    if let Some(last) = all.last_mut() {
        last.1 = record.verdict.clone();
    }
    all
}

/// Outcomes of a machine's flips, for tallies.
#[must_use]
pub fn verdicts(record: &Record) -> Vec<Verdict> {
    charged(record)
        .into_iter()
        .map(|(_, verdict)| verdict)
        .collect()
}

/// A machine's story in words.
#[must_use]
pub fn describe(record: &Record) -> String {
    let hits: Vec<String> = record.hits.iter().map(Hit::to_string).collect();
    format!(
        "index {}: {} in {}: replica {}, {}; {}",
        record.index,
        record.verdict.label(),
        record.name,
        record.victim,
        hits.join(", "),
        record.detail
    )
}

/// Every uncontrolled run, with what is needed to run it again.
fn culprits(out: &mut String, records: &[Record]) {
    for record in records
        .iter()
        .filter(|record| record.verdict.is_uncontrolled())
    {
        let _ = writeln!(out, "\n* {}", describe(record));
    }
}
