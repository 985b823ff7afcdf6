//! The journal: a header line, then one line of JSON per injection, appended as it happens.
//!
//! A line is written by one `write` call, so what a killed campaign leaves behind is whole lines
//! and at most one torn last one, which is cut off on resumption.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::child::Exit;
use crate::inject::{Hit, When};
use crate::plan::Plan;
use crate::taxonomy::Verdict;

/// What was asked for, and on what it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of this format.
    pub journal: u32,
    /// Settings; two journals of one campaign agree in them.
    pub campaign: Campaign,
    /// Revision of the source.
    pub commit: String,
    /// Processor, number of CPUs, kernel.
    pub machine: String,
}

/// Settings that decide what each index does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Campaign {
    /// Number of replicas; 0 for bare programs.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// `--on-fault`, or `default`.
    pub on_fault: String,
    /// `--timeout`.
    pub timeout: String,
    /// `--tick`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<String>,
    /// Programs, comma-separated.
    pub programs: String,
    /// Targets, comma-separated.
    pub targets: String,
    /// State in which replicas are hit.
    pub when: When,
    /// Bits that are flipped in a run at most.
    #[serde(default = "crate::inject::one")]
    pub flips: u32,
    /// Campaign seed.
    pub seed: u64,
}

/// One injection and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was drawn.
    #[serde(flatten)]
    pub plan: Plan,
    /// Name of the program.
    pub name: String,
    /// What was changed; nothing if no attempt succeeded.
    pub hit: Option<Hit>,
    /// Outcome.
    pub verdict: Verdict,
    /// Exit of the run; nothing for a hang.
    pub exit: Option<Exit>,
    /// Replica that rcoe named as faulty.
    pub named: Option<u64>,
    /// Core on which the replica that was hit ran, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u64>,
    /// Core that rcoe named as faulty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<u64>,
    /// What rcoe said.
    pub detail: String,
    /// Time from the flip until rcoe told of the first divergence, in microseconds: too long by
    /// what the lab was late in seeing the start of the run, never too short. What was told
    /// before the flip is negative. Old journals do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detected_us: Option<i64>,
    /// Time from the flip to the end of the run, in microseconds.
    pub after_us: u64,
    /// Duration of the run, in microseconds.
    pub wall_us: u64,
    /// Processes that had to be killed after the end.
    pub leftovers: usize,
    /// Earlier attempts of this index: fault-free runs.
    pub misses: u32,
    /// Beginning of output and error output of an uncontrolled run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
}

/// A journal open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    done: BTreeSet<u64>,
    records: Vec<Record>,
}

impl Journal {
    /// Starts a journal, or with `resume` continues an existing one of the same campaign.
    ///
    /// # Errors
    ///
    /// If the file exists and is not to be resumed, belongs to another campaign, or is unwritable.
    pub fn open(path: &Path, header: &Header, resume: bool) -> Result<Self> {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let whole = old.rfind('\n').map_or(0, |end| end + 1);
        if whole > 0 && !resume {
            bail!("{} exists: give --resume or another file", path.display());
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let mut records = Vec::new();
        if whole == 0 {
            file.set_len(0)?;
            write_line(&mut file, header)?;
        } else {
            file.set_len(whole as u64)?;
            let (found, earlier) = parse(&old[..whole])?;
            ensure!(
                found.campaign == header.campaign,
                "{} is of another campaign",
                path.display()
            );
            records = earlier;
        }
        let done = records.iter().map(|record| record.plan.index).collect();
        Ok(Self {
            file,
            done,
            records,
        })
    }

    /// Whether this index has a result.
    #[must_use]
    pub fn has(&self, index: u64) -> bool {
        self.done.contains(&index)
    }

    /// All results, the resumed ones first.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Appends a result.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn append(&mut self, record: Record) -> Result<()> {
        write_line(&mut self.file, &record)?;
        self.done.insert(record.plan.index);
        self.records.push(record);
        Ok(())
    }
}

fn write_line(file: &mut File, value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    file.write_all(line.as_bytes())
        .context("cannot append to the journal")
}

/// Reads a whole journal, without a torn last line.
///
/// # Errors
///
/// If it cannot be read or is none.
pub fn load(path: &Path) -> Result<(Header, Vec<Record>)> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    parse(&text[..whole]).with_context(|| format!("{} is not a journal", path.display()))
}

fn parse(text: &str) -> Result<(Header, Vec<Record>)> {
    let mut lines = text.lines();
    let header: Header = serde_json::from_str(lines.next().context("no header")?)?;
    ensure!(header.journal == 1, "unknown version {}", header.journal);
    let records = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((header, records))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::{Campaign, Header, Journal, Record, load, parse};
    use crate::inject::When;
    use crate::plan::{Plan, Space};
    use crate::target::Targets;
    use crate::taxonomy::Verdict;

    pub(crate) fn header(seed: u64) -> Header {
        Header {
            journal: 1,
            campaign: Campaign {
                replicas: 2,
                compare: "args".into(),
                on_fault: "default".into(),
                timeout: "2s".into(),
                tick: None,
                programs: "md5sum".into(),
                targets: Targets::default().to_string(),
                flips: 1,
                when: When::User,
                seed,
            },
            commit: "0000000".into(),
            machine: "a test".into(),
        }
    }

    pub(crate) fn record(index: u64, verdict: Verdict) -> Record {
        let space = Space {
            seed: 1,
            programs: 1,
            replicas: 2,
            flips: 1,
            targets: Targets::default(),
        };
        Record {
            plan: Plan::derive(&space, index, 0),
            name: "md5sum".into(),
            hit: None,
            verdict,
            exit: None,
            named: None,
            core: None,
            charged: None,
            detail: String::new(),
            detected_us: None,
            after_us: 0,
            wall_us: 0,
            leftovers: 0,
            misses: 0,
            evidence: String::new(),
        }
    }

    #[test]
    fn a_killed_campaign_is_resumed_without_its_torn_line() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, &header(1), false).expect("new");
        journal
            .append(record(0, Verdict::Masked))
            .expect("appended");
        journal.append(record(5, Verdict::Sdc)).expect("appended");
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(&path).expect("exists");
        file.write_all(br#"{"index":6,"attempt"#)
            .expect("torn line");

        let mut journal = Journal::open(&path, &header(1), true).expect("resumed");
        assert!(journal.has(0) && journal.has(5) && !journal.has(6));
        journal.append(record(6, Verdict::Hang)).expect("appended");
        let (_, records) = load(&path).expect("whole again");
        let indices: Vec<_> = records.iter().map(|record| record.plan.index).collect();
        assert_eq!(indices, [0, 5, 6]);
        assert_eq!(records[2], record(6, Verdict::Hang));
    }

    #[test]
    fn journals_without_a_tick_are_read() {
        let plain = serde_json::to_string(&header(1)).expect("json");
        let line = serde_json::to_string(&record(0, Verdict::Masked)).expect("json");
        assert!(!plain.contains("tick") && !line.contains("detected_us"));
        let (old, records) = parse(&format!("{plain}\n{line}\n")).expect("an old journal");
        assert_eq!((old.campaign.tick, records[0].detected_us), (None, None));

        let mut header = header(1);
        header.campaign.tick = Some("1s".into());
        let mut record = record(0, Verdict::Masked);
        record.detected_us = Some(-7);
        let lines = [
            serde_json::to_string(&header).expect("json"),
            serde_json::to_string(&record).expect("json"),
        ];
        let (found, records) = parse(&lines.join("\n")).expect("a journal");
        assert_eq!((found, records[0].detected_us), (header, Some(-7)));
    }

    #[test]
    fn another_campaign_is_not_mixed_in() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("journal");
        drop(Journal::open(&path, &header(1), false).expect("new"));
        assert!(Journal::open(&path, &header(2), true).is_err());
        assert!(
            Journal::open(&path, &header(1), false).is_err(),
            "never overwritten"
        );
        assert!(Journal::open(&path, &header(1), true).is_ok());
    }
}
