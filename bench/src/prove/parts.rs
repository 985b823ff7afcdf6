//! Parts of a campaign that were carried out, each one line of a file.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rcoe_faultlab::host;
use serde::{Deserialize, Serialize};

use super::plan::Campaign;

/// The lab's exit status where it has found something.
const FOUND: i32 = 1;
/// How much of what the lab said is told of a failure.
const TOLD: usize = 300;

/// What one part counted, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub command: String,
    pub seed: u64,
    pub machine: String,
    pub date: String,
    /// Load averages before and after.
    pub load: [f64; 2],
    /// Nothing was found.
    pub well: bool,
    pub counts: BTreeMap<String, u64>,
}

impl Part {
    /// Has the lab carry one out, and keeps what it says.
    pub(super) fn carry_out(
        lab: &Path,
        campaign: &Campaign,
        seed: u64,
        log: &Path,
    ) -> Result<Self> {
        let before = super::load()?;
        let counts = log.with_extension("counts");
        let words = campaign.command.replace("{seed}", &seed.to_string());
        let said = File::create(log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(lab);
        command
            .args(words.split_whitespace())
            .arg("--counts")
            .arg(&counts);
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said);
        let status = command.status();
        let status = status.with_context(|| format!("cannot start {}", lab.display()))?;
        ensure!(
            status.success() || status.code() == Some(FOUND),
            "{words} ended with {status}: {}",
            ending(&fs::read_to_string(log).unwrap_or_default())
        );
        let text = fs::read_to_string(&counts);
        let text = text.with_context(|| format!("{words} counted nothing"))?;
        fs::remove_file(&counts)?;
        Ok(Self {
            command: campaign.command.clone(),
            seed,
            machine: host::machine(),
            date: host::date()?,
            load: [before, super::load()?],
            well: status.success(),
            counts: serde_json::from_str(&text)?,
        })
    }
}

/// The end of what was said.
fn ending(text: &str) -> &str {
    let text = text.trim();
    let from = text.len().saturating_sub(TOLD);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[from.unwrap_or(text.len())..]
}

/// All parts of a campaign at one commit.
pub(super) struct Parts {
    path: PathBuf,
    pub all: Vec<Part>,
}

impl Parts {
    /// Those in a folder. A torn last line is a part to be made again.
    pub(super) fn open(folder: &Path, name: &str, command: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.ndjson"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let lines = text[..whole].lines().map(serde_json::from_str);
        let all: Vec<Part> = lines
            .collect::<Result<_, _>>()
            .with_context(|| path.display().to_string())?;
        let machine = host::machine();
        for part in &all {
            ensure!(
                part.command == command && part.machine == machine,
                "{} is of another plan or machine: move it away",
                path.display()
            );
        }
        Ok(Self { path, all })
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.all.len() as u64
    }

    /// One more.
    pub(super) fn add(&mut self, part: Part) -> Result<()> {
        self.all.push(part);
        let lines = self.all.iter().map(serde_json::to_string);
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let torn = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&torn)?;
        file.write_all((lines.join("\n") + "\n").as_bytes())?;
        fs::rename(&torn, &self.path).with_context(|| self.path.display().to_string())
    }

    /// Where the lab's words of the next part go.
    pub(super) fn log(&self) -> PathBuf {
        self.path
            .with_extension(format!("part-{}.log", self.all.len()))
    }

    /// Of all parts together.
    pub(super) fn sum(&self, count: &str) -> u64 {
        self.all
            .iter()
            .filter_map(|part| part.counts.get(count))
            .sum()
    }

    /// Parts in which something was found.
    pub(super) fn findings(&self) -> usize {
        self.all.iter().filter(|part| !part.well).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, Parts, ending};
    use rcoe_faultlab::host;

    fn part(faults: u64, well: bool) -> Part {
        Part {
            command: "campaign".into(),
            seed: 7,
            machine: host::machine(),
            date: "2026-01-01".into(),
            load: [0.5, 1.5],
            well,
            counts: [("faults".to_owned(), faults)].into(),
        }
    }

    #[test]
    fn parts_are_there_again_and_a_torn_one_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Parts::open(folder.path(), "flips", "campaign").unwrap();
        open().add(part(3, true)).unwrap();
        let mut parts = open();
        parts.add(part(4, false)).unwrap();
        let path = folder.path().join("flips.ndjson");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text + "{\"command\":").unwrap();
        let parts = open();
        assert_eq!(
            (parts.len(), parts.sum("faults"), parts.findings()),
            (2, 7, 1)
        );
        assert!(parts.log().ends_with("flips.part-2.log"));
        let other = Parts::open(folder.path(), "flips", "other").err().unwrap();
        assert!(
            other.to_string().contains("another plan or machine"),
            "{other}"
        );
    }

    #[test]
    fn the_end_of_what_was_said_is_cut_between_letters() {
        assert_eq!(ending(" short\n"), "short");
        assert_eq!(ending(&"ä".repeat(400)).chars().count(), 150);
    }
}
