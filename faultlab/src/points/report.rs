//! The journal of verified points, and its tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::points::verify::{LAGS, Record};

/// Settings, and on what it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Settings that decide what each index does.
    pub campaign: String,
    /// Revision of the source.
    pub commit: String,
    /// Processor, number of CPUs, kernel.
    pub machine: String,
}

/// All runs so far, each of which is written as soon as it is over.
#[derive(Debug)]
pub struct Journal {
    file: Option<File>,
    /// What came of them.
    pub records: Vec<Record>,
}

impl Journal {
    /// Begins a journal, or goes on with one of the same campaign; without a path nothing is kept.
    ///
    /// # Errors
    ///
    /// If it exists and is not to be gone on with, is of another campaign, or cannot be written.
    pub fn open(path: Option<&Path>, header: &Header, resume: bool) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self {
                file: None,
                records: Vec::new(),
            });
        };
        let old = std::fs::read_to_string(path).unwrap_or_default();
        ensure!(
            old.is_empty() || resume,
            "{} exists: give --resume or another file",
            path.display()
        );
        // A torn last line is of a run that is made again.
        let whole = old.rfind('\n').map_or(0, |end| end + 1);
        let options = OpenOptions::new().create(true).append(true).open(path);
        let file = options.with_context(|| format!("cannot write {}", path.display()))?;
        file.set_len(whole as u64)?;
        let mut lines = old[..whole].lines();
        let mut journal = Self {
            file: Some(file),
            records: Vec::new(),
        };
        match lines.next() {
            None => journal.write(header)?,
            Some(first) => {
                let found: Header = serde_json::from_str(first).context("no journal of points")?;
                ensure!(
                    found.campaign == header.campaign,
                    "{} is of another campaign: {}",
                    path.display(),
                    found.campaign
                );
            }
        }
        journal.records = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(journal)
    }

    /// The indices that were run.
    #[must_use]
    pub fn done(&self) -> BTreeSet<u64> {
        self.records.iter().map(|record| record.index).collect()
    }

    /// One more run.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn add(&mut self, record: Record) -> Result<()> {
        self.write(&record)?;
        self.records.push(record);
        Ok(())
    }

    fn write(&mut self, what: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(what)? + "\n";
        match &mut self.file {
            Some(file) => file
                .write_all(line.as_bytes())
                .context("cannot write the journal"),
            None => Ok(()),
        }
    }
}

/// Counts of all runs, or of some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Runs.
    pub runs: u64,
    /// Points at which the replicas were compared.
    pub verified: u64,
    /// Those at which they differed.
    pub false_agreements: u64,
    /// Attempts that came to no end.
    pub not_agreed: u64,
    /// Signals that were taken at a call.
    pub at_calls: u64,
    /// Pages compared, of each pair.
    pub pages: u64,
    /// Runs with which something was wrong.
    pub wrong: u64,
}

impl Totals {
    /// Of these.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut all = Self::default();
        for record in records {
            all.runs += 1;
            all.verified += record.verified;
            all.false_agreements += record.false_agreements;
            all.not_agreed += record.attempts[1];
            all.at_calls += record.at_calls;
            all.pages += record.pages;
            all.wrong += u64::from(!record.wrong.is_empty());
        }
        all
    }
}

/// Median, 90 % and most of these times, in milliseconds.
fn spread(mut times: Vec<u64>) -> Option<[f64; 3]> {
    times.sort_unstable();
    let at = |share: usize| times.get((times.len().checked_sub(1)?) * share / 100);
    let of = |share| at(share).map(|time| *time as f64 / 1000.0);
    Some([of(50)?, of(90)?, of(100)?])
}

/// Tables for people.
#[must_use]
pub fn markdown(header: &Header, records: &[Record]) -> String {
    let mut text = format!(
        "{}, commit {}, {}\n\n",
        header.campaign, header.commit, header.machine
    );
    let mut programs: BTreeMap<(&str, usize), Vec<&Record>> = BTreeMap::new();
    for record in records {
        let key = (record.program.as_str(), record.replicas);
        programs.entry(key).or_default().push(record);
    }
    let all = Totals::of(records);
    text += "| program | n | points | false | not agreed | at calls | MiB a point | median ms |\n";
    text += "|---|--:|--:|--:|--:|--:|--:|--:|\n";
    for ((name, replicas), of) in &programs {
        let it = Totals::of(of.iter().copied());
        let times = of
            .iter()
            .flat_map(|record| record.times.iter().map(|[_, time]| *time));
        let median = spread(times.collect()).map_or(0.0, |[median, ..]| median);
        let pairs = it.verified.max(1) * (*replicas as u64 - 1).max(1);
        let mib = it.pages as f64 / pairs as f64 / 256.0;
        let row = [it.verified, it.false_agreements, it.not_agreed, it.at_calls];
        let row = row.map(|count| count.to_string()).join(" | ");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {name} | {replicas} | {row} | {mib:.1} | {median:.2} |"
        );
    }
    let _ = writeln!(
        text,
        "| all {} | | {} | {} | {} | {} | | |",
        programs.len(),
        all.verified,
        all.false_agreements,
        all.not_agreed,
        all.at_calls
    );
    text +=
        "\n| distance, ms | n | points | median, ms | 90 % | most |\n|--:|--:|--:|--:|--:|--:|\n";
    for (replicas, lag) in [2, 3].into_iter().flat_map(|n| LAGS.map(|lag| (n, lag))) {
        let of = records.iter().filter(|record| record.replicas == replicas);
        let times = of
            .flat_map(|record| &record.times)
            .filter(|[it, _]| *it == lag);
        let times: Vec<u64> = times.map(|[_, time]| *time).collect();
        let count = times.len();
        if let Some([median, most, all]) = spread(times) {
            let lag = lag as f64 / 1000.0;
            let _ = writeln!(
                text,
                "| {lag} | {replicas} | {count} | {median:.2} | {most:.2} | {all:.2} |"
            );
        }
    }
    for record in records.iter().filter(|record| !record.wrong.is_empty()) {
        let _ = writeln!(
            text,
            "\nrun {}, {}, n = {}: {}",
            record.index, record.program, record.replicas, record.wrong
        );
    }
    text
}
