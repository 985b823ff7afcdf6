//! The file of a campaign of kills, and what is told of it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Campaign, Fault, Run, Workload};

/// The runs of a campaign, each appended to a file as it ends.
#[derive(Debug, Default)]
pub struct Runs {
    /// In the order of their ends.
    pub runs: Vec<Run>,
    path: Option<PathBuf>,
}

/// First line of the file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Header {
    kills: u32,
    /// What was done.
    pub campaign: Campaign,
    pub(crate) commit: String,
    pub(crate) machine: String,
}

impl Header {
    /// Of this campaign with this program on this machine.
    #[must_use]
    pub fn new(campaign: &Campaign) -> Self {
        Self {
            kills: 1,
            campaign: campaign.clone(),
            commit: crate::host::commit(),
            machine: crate::host::machine(),
        }
    }
}

/// What came of a campaign, in markdown.
#[must_use]
pub fn markdown(header: &Header, runs: &Runs) -> String {
    let Campaign {
        seed,
        replicas,
        compare,
        timeout,
        ..
    } = &header.campaign;
    format!(
        "{replicas} replicas, {} faults ({}), {} runs wrong (seed {seed}, compare {compare}, \
         timeout {timeout}, commit {}, {})\n\n{}",
        runs.kills(),
        runs.kinds(),
        runs.wrong(),
        header.commit,
        header.machine,
        runs.table()
    )
}

impl Runs {
    /// Goes on with the file if it exists.
    ///
    /// # Errors
    ///
    /// If it is of another campaign, or cannot be written.
    pub fn open(path: Option<&Path>, campaign: &Campaign) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        let mut all = Self {
            runs: Vec::new(),
            path: Some(path.to_owned()),
        };
        match lines.next() {
            None => all.append(&Header::new(campaign))?,
            Some(line) => {
                let header: Header = serde_json::from_str(line).context("not a file of kills")?;
                ensure!(header.campaign == *campaign, "it is of another campaign");
            }
        }
        all.read(lines);
        Ok(all)
    }

    /// The file of a campaign, with its first line; `None` if it is none of kills.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn load(path: &Path) -> Result<Option<(Header, Self)>> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let mut lines = text.lines();
        let first = lines
            .next()
            .and_then(|line| serde_json::from_str(line).ok());
        Ok(first.map(|header| {
            let mut all = Self::default();
            all.read(lines);
            (header, all)
        }))
    }

    /// Takes in what the lines tell. A last one that is torn is a run to be made again.
    pub fn read<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        let runs = lines.filter_map(|line| serde_json::from_str(line).ok());
        self.runs.extend(runs);
    }

    fn append(&self, line: &impl Serialize) -> Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// One more.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn add(&mut self, run: Run) -> Result<()> {
        self.append(&run)?;
        self.runs.push(run);
        Ok(())
    }

    /// Kills so far.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.runs.iter().map(|run| run.kills).sum()
    }

    /// How many faults of each kind, and what was seen of them.
    pub(crate) fn kinds(&self) -> String {
        let mut parts = Vec::new();
        for fault in Fault::ALL {
            let count = self.runs.iter().filter_map(|run| run.kinds.get(&fault));
            let count: u64 = count.sum();
            if count > 0 {
                parts.push(format!("{} {count}", fault.name()));
            }
        }
        let latent: u64 = self.runs.iter().map(|run| run.latent).sum();
        if latent > 0 {
            parts.push(format!("without effect after 10 s {latent}"));
        }
        let slowest = self.runs.iter().map(|run| run.slowest_us).max();
        if let Some(slowest @ 1..) = slowest {
            parts.push(format!("slowest answer {} ms", slowest / 1000));
        }
        parts.join(", ")
    }

    /// Runs in which something was wrong.
    #[must_use]
    pub fn wrong(&self) -> usize {
        self.runs.iter().filter(|run| !run.wrong.is_empty()).count()
    }

    /// The number of the next run.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.runs.iter().map(|run| run.index + 1).max().unwrap_or(0)
    }

    /// A table in markdown, a row for each workload.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| workload | runs | faults | of the primary | effects | runs with a lost, doubled or \
             wrong effect |\n|---|---|---|---|---|---|\n",
        );
        for workload in Workload::ALL {
            let runs: Vec<&Run> = self
                .runs
                .iter()
                .filter(|run| run.workload == workload)
                .collect();
            if runs.is_empty() {
                continue;
            }
            let sum = |field: fn(&Run) -> u64| runs.iter().map(|run| field(run)).sum::<u64>();
            let wrong = runs.iter().filter(|run| !run.wrong.is_empty()).count();
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {wrong} |\n",
                workload.name(),
                runs.len(),
                sum(|run| run.kills),
                sum(|run| run.primaries),
                sum(|run| run.effects),
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_kills_is_told_of_and_a_torn_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kills");
        let campaign = Campaign {
            seed: 5,
            replicas: 3,
            compare: "args".into(),
            timeout: "100ms".into(),
            faults: vec![Fault::Kill],
            at_once: 1,
            every_ms: 0,
            per_run: 10,
            workloads: vec![Workload::Pipe],
        };
        let mut runs = Runs::open(Some(&path), &campaign).unwrap();
        let run = Run {
            kills: 10,
            kinds: [(Fault::Kill, 10)].into(),
            latent: 1,
            slowest_us: 5000,
            primaries: 6,
            effects: 99,
            ms: 1,
            ..Run::new(0, Workload::Pipe)
        };
        runs.add(run).unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"index\":1,");
        fs::write(&path, text).unwrap();
        let (header, read) = Runs::load(&path).unwrap().expect("a file of kills");
        let told = markdown(&header, &read);
        assert!(
            told.starts_with(
                "3 replicas, 10 faults (kill 10, without effect after 10 s 1, slowest answer"
            ),
            "{told}"
        );
        assert!(told.contains("| pipe | 1 | 10 | 6 | 99 | 0 |"), "{told}");
        fs::write(&path, "{\"campaign\":1}\n").unwrap();
        assert!(Runs::load(&path).unwrap().is_none());
    }
}
