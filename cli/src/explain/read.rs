//! Reads an events file, and refuses what is none.
//!
//! Contract: a file is taken as a whole or not at all. One that is cut off within a line, that is
//! of something else, or that a newer rcoe has written in another way is refused with the line and
//! the reason. What is not known in an event is passed over.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use rcoe_supervisor::SCHEMA;
use serde::Deserialize;
use serde_json::Value;

/// Longest line that is read; rcoe writes far shorter ones.
const LINE: u64 = 16 << 20;

/// A number in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Word(pub(super) u64);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        let word = u64::from_str_radix(digits, 16);
        word.map(Self).map_err(|error| format!("{text}: {error}"))
    }
}

/// The event `start`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Start {
    /// One that is missing is that of an rcoe which did not tell.
    #[serde(default)]
    pub(super) schema: u32,
    pub(super) version: String,
    pub(super) program: String,
    pub(super) replicas: Vec<Value>,
}

/// The event `divergence`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Divergence {
    pub(super) t: f64,
    pub(super) process: Option<u32>,
    pub(super) kind: String,
    pub(super) replica: Option<usize>,
    pub(super) core: Option<u32>,
    pub(super) event: Option<u64>,
    pub(super) detail: String,
}

/// A call in the event `scene`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Vec<Word>,
}

impl Call {
    /// As it is written in the event's other parts.
    pub(super) fn text(&self) -> String {
        let words: Vec<String> = self
            .arguments
            .iter()
            .map(|it| format!("{:#x}", it.0))
            .collect();
        format!("{}({})", self.name, words.join(", "))
    }
}

/// Registers in the event `scene`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Registers {
    pub(super) rip: Word,
    pub(super) rsp: Word,
    pub(super) rbp: Word,
}

/// A replica in the event `scene`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Seen {
    pub(super) replica: usize,
    pub(super) faulty: bool,
    pub(super) recorded: Option<String>,
    pub(super) call: Option<Call>,
    pub(super) registers: Option<Registers>,
    pub(super) stack: Vec<(u64, Word)>,
}

/// Code in the event `scene`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Mapping {
    pub(super) start: Word,
    pub(super) end: Word,
    pub(super) offset: Word,
    pub(super) file: String,
    pub(super) build_id: Option<String>,
}

/// The event `scene`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Scene {
    pub(super) replicas: Vec<Seen>,
    pub(super) mappings: Vec<Mapping>,
}

/// A fault and what followed from it.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) divergence: Divergence,
    pub(super) scene: Option<Scene>,
    /// Core files, by replica.
    pub(super) cores: Vec<(usize, String)>,
    /// What was done, in words.
    pub(super) done: Vec<String>,
    /// The replica was removed.
    pub(super) masked: bool,
}

/// All that is told of a run.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) start: Start,
    pub(super) faults: Vec<Fault>,
    /// Status and reason of the end, if the run has ended.
    pub(super) end: Option<(u64, String)>,
}

/// Reads a file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(path: &Path) -> Result<Story> {
    let file = File::open(path)?;
    ensure!(!file.metadata()?.is_dir(), "is a folder");
    let mut lines = BufReader::new(file);
    let mut teller = Teller::default();
    for number in 1_u64.. {
        let mut line = Vec::new();
        let read = std::io::Read::take(&mut lines, LINE).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        if line.pop() != Some(b'\n') {
            let what = "ends within a line, which rcoe never leaves: the file was cut off";
            ensure!(number > 1, "{FOREIGN}");
            bail!("line {number} {what}");
        }
        let value = event(&line).with_context(|| format!("line {number}"))?;
        teller
            .hear(&value)
            .with_context(|| format!("line {number}"))?;
    }
    teller.story()
}

const FOREIGN: &str = "is no events file: rcoe run --events FILE writes one";

fn event(line: &[u8]) -> Result<Value> {
    let value: Value = serde_json::from_slice(line).context(FOREIGN)?;
    let known = value["t"].is_number() && value["type"].is_string();
    ensure!(known, "{FOREIGN}");
    Ok(value)
}

/// Puts events together.
#[derive(Debug, Default)]
struct Teller {
    start: Option<Start>,
    faults: Vec<Fault>,
    end: Option<(u64, String)>,
}

impl Teller {
    fn hear(&mut self, value: &Value) -> Result<()> {
        let kind = value["type"].as_str().unwrap_or_default();
        match kind {
            "start" => {
                let start: Start = serde_json::from_value(value.clone())?;
                let schema = start.schema;
                ensure!(
                    schema <= SCHEMA,
                    "written by rcoe {} in a newer form ({schema}; this rcoe knows {SCHEMA}): \
                     use that rcoe's explain",
                    start.version
                );
                self.start = Some(start);
            }
            "metrics" => {}
            _ => ensure!(self.start.is_some(), "{kind} before the start: {FOREIGN}"),
        }
        match kind {
            "divergence" => self.faults.push(Fault {
                divergence: serde_json::from_value(value.clone())?,
                scene: None,
                cores: Vec::new(),
                done: Vec::new(),
                masked: false,
            }),
            "stop" => {
                let reason = value["reason"].as_str().unwrap_or("unknown").to_owned();
                self.end = Some((value["status"].as_u64().unwrap_or(0), reason));
            }
            _ => self.follow(kind, value)?,
        }
        Ok(())
    }

    /// Adds an event to the last fault of its process.
    fn follow(&mut self, kind: &str, value: &Value) -> Result<()> {
        let process = value["process"].as_u64();
        let process = process.and_then(|it| u32::try_from(it).ok());
        let mut faults = self.faults.iter_mut().rev();
        let Some(fault) = faults.find(|it| it.divergence.process == process) else {
            return Ok(());
        };
        match kind {
            "scene" => fault.scene = Some(serde_json::from_value(value.clone())?),
            "core" => {
                let replica = value["replica"].as_u64().unwrap_or(0);
                let replica = usize::try_from(replica).unwrap_or(usize::MAX);
                let file = value["file"].as_str().unwrap_or_default();
                fault.cores.push((replica, file.to_owned()));
            }
            _ => {
                fault.masked |= kind == "downgrade";
                fault.done.extend(super::words::done(kind, value));
            }
        }
        Ok(())
    }

    fn story(self) -> Result<Story> {
        let start = self.start.context(FOREIGN)?;
        Ok(Story {
            start,
            faults: self.faults,
            end: self.end,
        })
    }
}
