//! Injection into whole machines: the system sphere.
//!
//! A machine runs with a clock that counts instructions. Now and then one replica's kernel has it
//! stand still at an event; the injector changes one bit of a replica (the same or another, which
//! then stands wherever it is, program or kernel) and lets the machine go on. Running an index
//! again flips the same bits, as a rule at the same instruction; but a machine that stood still may
//! let its cores run in another order, so that later flips can come at another moment. The journal
//! says what was hit.
//!
//! As in the papers several bits are flipped in one machine, one after the other, until an error
//! shows; all of them in one replica, because one faulty replica is what can be masked. What shows
//! is charged to the last flip before. Outcomes are those of [`crate::taxonomy`]; a machine that
//! ends without the program's status, and without having noticed a fault, is a crash.
//!
//! Not covered: segment, control and debug registers, interrupt controllers, and the emulator.

pub mod frames;
mod gdb;
mod guest;
mod kept;
mod memory;
mod owner;
mod plan;
mod process;
mod processor;
mod report;
mod run;
pub mod service;
mod stuck;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

pub use guest::Guest;
pub use kept::Kept;
pub use plan::{Flip, Plan, Target};
pub use processor::Processor;
pub use report::{describe, markdown, verdicts};

use crate::child::{Exit, Finished};
use crate::interrupt;
use crate::taxonomy::{Expected, Verdict, classify};

/// Programs, each with its argument.
const PROGRAMS: [[&str; 2]; 4] = [
    ["hash", "1"],
    ["float", "20"],
    ["pingpong", "300"],
    ["sleep", "10"],
];

/// How machines are started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `rcoe` binary.
    pub rcoe: PathBuf,
    /// What `--arch` names.
    pub processor: &'static Processor,
    /// Number of replicas.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// `--coupling`.
    pub coupling: String,
    /// `--timeout`, in the machine's time.
    pub timeout: String,
    /// The operating system that runs instead of programs, if one does.
    pub guest: Option<Guest>,
    /// From which machines go on, if they do not begin.
    pub kept: Option<Kept>,
    /// CPU time of the emulator after which a run is a hang.
    pub deadline: Duration,
}

impl Setup {
    /// Runs a guest up to the line from which its machines are to go on, if there is one.
    fn keep(&mut self, folder: &Path) -> Result<()> {
        let Some(guest) = &self.guest else {
            return Ok(());
        };
        if let Some(line) = &guest.from {
            let begun = folder.join("begun");
            let running = run::Running::start(self, &guest.words, "", run::Reach::Monitor, &begun)?;
            self.kept = Some(Kept::keep(running, line, folder)?);
        }
        Ok(())
    }
}

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// The class of state.
    pub target: Target,
    /// Register, or physical address.
    pub place: String,
    /// Bit of the register, or of the byte.
    pub bit: u64,
    /// The byte before.
    pub before: u8,
    /// The byte after.
    pub after: u8,
    /// Where the replica stood.
    pub ip: u64,
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            target, place, bit, ..
        } = self;
        let (before, after, ip) = (self.before, self.after, self.ip);
        write!(
            f,
            "bit {bit} of {target} {place} ({before:#x} -> {after:#x}) at ip {ip:#x}"
        )
    }
}

/// What became of one machine: a line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Index in the campaign.
    pub index: u64,
    /// Which replica was hit.
    pub victim: usize,
    /// Name of the program.
    pub name: String,
    /// What was changed, in this order.
    pub hits: Vec<Hit>,
    /// What became of the machine.
    pub verdict: Verdict,
    /// Exit of the run; nothing for a hang.
    pub exit: Option<Exit>,
    /// Replica that the others named.
    pub named: Option<u64>,
    /// Duration of the run, in microseconds.
    pub wall_us: u64,
    /// What rcoe said, and for an uncontrolled run the output.
    pub detail: String,
}

/// First line of a journal: what decides the meaning of an index, and where it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The machine's processor.
    #[serde(default = "Processor::usual")]
    pub arch: String,
    /// Replicas.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// `--coupling`.
    #[serde(default = "loose")]
    pub coupling: String,
    /// `--timeout`.
    pub timeout: String,
    /// What runs as a guest, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<Guest>,
    /// Campaign seed.
    pub seed: u64,
    /// Flips a machine.
    pub flips: usize,
    /// Revision.
    pub commit: String,
    /// Machine.
    pub machine: String,
}

/// What journals that tell no coupling are of.
fn loose() -> String {
    "loose".to_owned()
}

/// A folder for machines and their memory, which vanishes with this value.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it in memory, if there is such a place.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn create() -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = place.join(format!("rcoe-faultlab-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder left in the place for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program with what it does when nothing is flipped.
#[derive(Clone, Debug)]
struct Calibrated {
    name: String,
    words: Vec<String>,
    expected: Expected,
    cycles: u64,
}

/// Everything needed to carry out any index of a campaign.
#[derive(Debug)]
pub struct Lab {
    setup: Setup,
    seed: u64,
    flips: usize,
    folder: PathBuf,
    programs: Vec<Calibrated>,
}

/// Cycles as `--stats` tells them.
fn cycles_of(finished: &Finished) -> Option<u64> {
    let mut lines = finished.stderr.lines();
    let rest = lines.find_map(|line| line.strip_prefix("cycles "))?;
    rest.split(',').next()?.parse().ok()
}

fn calibrate(setup: &Setup, name: String, words: Vec<String>, folder: &Path) -> Result<Calibrated> {
    let (finished, cycles) = run::plain(setup, &words, &folder.join("calibration"))?;
    let quiet = finished.exit == Some(Exit::Code(0)) && finished.events.divergences.is_empty();
    ensure!(quiet, "{words:?} without a fault: {}", finished.stderr);
    let cycles = cycles.with_context(|| format!("{words:?} told no cycles"))?;
    Ok(Calibrated {
        name,
        words,
        expected: Expected {
            exit: Exit::Code(0),
            stdout: finished.stdout,
        },
        cycles,
    })
}

/// Longest text of a record.
const DETAIL: usize = 600;

fn shortened(text: &str) -> String {
    text.chars().take(DETAIL).collect()
}

impl Lab {
    /// Runs each program once without a fault. Machines are put into `folder`.
    ///
    /// # Errors
    /// If one goes wrong.
    pub fn prepare(mut setup: Setup, seed: u64, flips: usize, folder: &Path) -> Result<Self> {
        setup.keep(folder)?;
        let run = |(name, words)| calibrate(&setup, name, words, folder);
        let programs = match &setup.guest {
            Some(guest) => vec![run((guest.name(), guest.words.clone()))?],
            None => PROGRAMS
                .map(|words| (words[0].to_owned(), words.map(str::to_owned).to_vec()))
                .into_iter()
                .map(run)
                .collect::<Result<_>>()?,
        };
        Ok(Self {
            setup,
            seed,
            flips,
            folder: folder.to_owned(),
            programs,
        })
    }

    /// Does what is planned for machine `index`.
    ///
    /// # Errors
    /// If the machine cannot be started or reached.
    pub fn inject(&self, index: u64) -> Result<Record> {
        let replicas = self.setup.replicas;
        let space = [self.programs.len(), replicas, self.flips];
        let targets = match &self.setup.guest {
            Some(guest) if guest.registers => &plan::REGISTERS[..],
            Some(_) => &plan::OF_GUEST,
            None => &plan::TARGETS,
        };
        let plan = Plan::derive(self.seed, index, space, targets);
        let program = &self.programs[plan.program];
        let folder = self.folder.join(index.to_string());
        let run::Injected {
            finished,
            hits,
            standstill,
        } = run::inject(&self.setup, &program.words, program.cycles, &plan, &folder)
            .with_context(|| format!("index {index}"))?;
        let verdict = match classify(replicas, !hits.is_empty(), &program.expected, &finished) {
            // The machine ended without a status: whatever it was, it was not noticed.
            Verdict::RcoeFailure => Verdict::Crash,
            other => other,
        };
        let divergence = finished.events.divergences.first();
        let mut detail = finished.stderr.replace('\n', "; ");
        detail += &standstill.unwrap_or_default();
        if verdict.is_uncontrolled() {
            detail += &format!(" output: {:?}", String::from_utf8_lossy(&finished.stdout));
        }
        Ok(Record {
            index,
            victim: plan.victim,
            name: program.name.clone(),
            hits,
            verdict,
            exit: finished.exit,
            named: divergence.and_then(|divergence| divergence.replica),
            wall_us: u64::try_from(finished.wall.as_micros()).unwrap_or(u64::MAX),
            detail: shortened(&detail),
        })
    }

    /// Carries out the indices below `count` that the journal lacks, so many at a time.
    ///
    /// # Errors
    /// The first of any.
    pub fn run(&self, count: u64, jobs: usize, journal: &Mutex<Journal>) -> Result<()> {
        let next = AtomicU64::new(0);
        let work = || -> Result<()> {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count || interrupt::is_due() {
                    return Ok(());
                }
                let lock = || journal.lock().expect("nobody panics holding the journal");
                if lock().has(index) {
                    continue;
                }
                let record = self.inject(index)?;
                lock().append(record)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("workers do not panic"))
        })
    }
}

/// Results so far, each a line of a file.
#[derive(Debug)]
pub struct Journal {
    file: File,
    done: BTreeSet<u64>,
    records: Vec<Record>,
}

impl Journal {
    /// Begins a journal, or goes on with one of the same campaign.
    ///
    /// # Errors
    /// If it is of another campaign, or cannot be written.
    pub fn open(path: &Path, header: &Header) -> Result<Self> {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let whole = old.rfind('\n').map_or("", |end| &old[..end]);
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(path)?;
        let mut records = Vec::new();
        if whole.is_empty() {
            writeln!(file, "{}", serde_json::to_string(header)?)?;
        } else {
            let (found, earlier) = parse(whole)?;
            let same = (found.arch == header.arch && found.replicas == header.replicas)
                && (found.compare == header.compare && found.coupling == header.coupling)
                && (found.timeout == header.timeout && found.guest == header.guest)
                && (found.seed == header.seed && found.flips == header.flips);
            ensure!(same, "{} is of another campaign", path.display());
            file.set_len(whole.len() as u64 + 1)?;
            records = earlier;
        }
        Ok(Self {
            file,
            done: records.iter().map(|record| record.index).collect(),
            records,
        })
    }

    fn has(&self, index: u64) -> bool {
        self.done.contains(&index)
    }

    fn append(&mut self, record: Record) -> Result<()> {
        let line = serde_json::to_string(&record)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.done.insert(record.index);
        self.records.push(record);
        Ok(())
    }

    /// All results.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

fn parse(text: &str) -> Result<(Header, Vec<Record>)> {
    let mut lines = text.lines();
    let header = serde_json::from_str(lines.next().context("an empty journal")?)?;
    let records = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((header, records))
}

/// Reads a whole journal.
///
/// # Errors
/// If it is none.
pub fn load(path: &Path) -> Result<(Header, Vec<Record>)> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    parse(whole).with_context(|| format!("{} is no journal", path.display()))
}
