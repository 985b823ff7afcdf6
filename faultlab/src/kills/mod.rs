//! Replicas killed, stopped or with a flipped bit at random moments, again and again: no effect may
//! be lost or doubled.
//!
//! A workload (`programs/ledger.c`, or a whole program) runs as three or more replicas while a peer
//! sends it bytes, connections and datagrams and keeps a ledger of what comes back. Meanwhile one
//! replica after the other gets SIGKILL or SIGSTOP, or has a bit flipped, the primary more often
//! than the others, and the next one as soon as rcoe has brought the lost one back, or at a steady
//! pace if that takes longer. So one run takes many faults, at moments that follow from nothing but
//! chance and load. A flip in memory is over when that byte is another, one in a register when the
//! replica has gone on; one that lies unused for ten seconds (in a register, of a replica that
//! sleeps, for 20) is counted, and the next fault is due. So is a stopped replica of a process that
//! only waits for others, which may need none of its replicas for that long; it is then let go on.
//!
//! Contract: the ledger decides. A run is well if the workload ends with status 0, the peer got
//! everything once and in order, all replicas are there before the end, and rcoe leaves no process
//! behind. The seed decides workload, victims and pauses, but not the moment that a fault takes
//! effect.
//!
//! Not covered: two losses of one process at a time, and losses while a replica is brought back.

pub(crate) mod answers;
mod database;
mod faults;
mod load;
mod programs;
pub(crate) mod redis;
mod runs;
mod standstill;
mod victims;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::child::Setup;
use crate::interrupt;
use crate::plan::Rng;

use faults::Done;
pub use faults::Fault;
pub use load::Workload;
pub use runs::{Header, Runs, markdown};
use victims::{Place, Victim};
use watch::Watch;

/// What a campaign of kills does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// Seed.
    pub seed: u64,
    /// Replicas.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// `--timeout`.
    pub timeout: String,
    /// What is done to replicas, drawn alike.
    pub faults: Vec<Fault>,
    /// Processes that are harmed at once.
    #[serde(default = "one")]
    pub at_once: u64,
    /// Milliseconds from one fault to the next, at least; 0 for pauses by chance.
    pub every_ms: u64,
    /// Most faults in one run.
    pub per_run: u64,
    /// Workloads in turn.
    pub workloads: Vec<Workload>,
}

/// How often to look whether a fault is over.
const GLANCE: Duration = Duration::from_millis(50);
/// Faults of which a run that went wrong tells, the last ones.
const TOLD: usize = 4;

/// How a workload ended that did not.
const HANGS: &str = "hangs";

const fn one() -> u64 {
    1
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the campaign.
    pub index: u64,
    /// What ran.
    pub workload: Workload,
    /// Faults.
    pub kills: u64,
    /// Of each kind.
    #[serde(default)]
    pub kinds: BTreeMap<Fault, u64>,
    /// Flips that lay unused, and stopped replicas that nobody had missed, when the next fault was
    /// due.
    #[serde(default)]
    pub latent: u64,
    /// Microseconds of the longest wait for an answer, where the peer measures that.
    #[serde(default)]
    pub slowest_us: u64,
    /// Primaries among them.
    pub primaries: u64,
    /// Effects that the ledger counted.
    pub effects: u64,
    /// Duration in milliseconds.
    pub ms: u64,
    /// What was wrong; empty if nothing was.
    pub wrong: String,
    /// The peer got an effect that was lost, doubled or wrong.
    #[serde(default)]
    pub spoilt: bool,
    /// The workload had not ended when its time was over.
    #[serde(default)]
    pub unfinished: bool,
}

impl Run {
    /// Of this number, with nothing done yet.
    #[must_use]
    pub const fn new(index: u64, workload: Workload) -> Self {
        Self {
            index,
            workload,
            kills: 0,
            kinds: BTreeMap::new(),
            latent: 0,
            slowest_us: 0,
            primaries: 0,
            effects: 0,
            ms: 0,
            wrong: String::new(),
            spoilt: false,
            unfinished: false,
        }
    }
}

/// A workload under rcoe.
struct Job {
    child: Child,
    errors: thread::JoinHandle<String>,
}

impl Campaign {
    /// Run number `index`, with at most `kills` kills. If it goes wrong, what tells of it (faults,
    /// events, what was seen of a standstill) is put into the folder `keep`.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn run(
        &self,
        setup: &Setup,
        (index, kills): (u64, u64),
        keep: Option<&Path>,
    ) -> Result<Run> {
        let workload = self.workloads[usize::try_from(index)? % self.workloads.len()];
        let folder = setup.folder.join(format!("run-{index}"));
        fs::create_dir(&folder).context("cannot make the folder of a run")?;
        let began = Instant::now();
        let mut run = Run::new(index, workload);
        let mut rng = Rng::new(&[self.seed, index]);
        let (mut job, peer) = self.start(setup, workload, &folder, rng.next())?;
        let begun = peer.wait_until_ready(Instant::now() + setup.deadline);
        let most = kills.min(self.per_run);
        let place = Place::new(setup, &folder, workload, job.child.id());
        let harm = begun.and_then(|()| {
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| standstill::watch(&place, &peer.slowest, &over));
                let harm = self.harm(&place, &mut rng, &mut run, (most, &peer));
                over.store(true, Relaxed);
                harm
            })
        });
        run.slowest_us = peer.slowest.us();
        let ledger = peer.close(Instant::now() + setup.deadline, || job.end());
        let status = job.wait(setup.deadline);
        let told = job.errors.join().unwrap_or_default();
        run.effects = ledger.effects;
        run.ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        run.unfinished = status == HANGS;
        run.spoilt = ledger.wrong.is_some() && !run.unfinished;
        let checks = [
            harm.err().map(|error| format!("{error:#}")),
            ledger.wrong,
            (status != "exit status: 0").then_some(status),
        ];
        let wrong: Vec<String> = checks.into_iter().flatten().collect();
        if !wrong.is_empty() {
            let faults = last_lines(&folder.join(victims::FAULTS), TOLD);
            let wrong = wrong.join("; ");
            run.wrong = format!("{wrong}; last faults: {faults}; rcoe: {}", told.trim());
            if let Some(place) = keep {
                keep_traces(&folder, place)?;
            }
        }
        fs::remove_dir_all(&folder).context("cannot remove the folder of a run")?;
        Ok(run)
    }

    fn start(
        &self,
        setup: &Setup,
        workload: Workload,
        folder: &Path,
        seed: u64,
    ) -> Result<(Job, load::Peer)> {
        let program = programs::command(workload, folder)?;
        let mut command = start_as(workload, &setup.rcoe);
        command
            .args(["run", "--no-ledger", "-n", &self.replicas.to_string()])
            .args(self.options())
            .args(["--events", "events", "--"]);
        match program {
            Some(words) => command.args(words),
            None => command
                .arg(setup.folder.join("ledger"))
                .arg(workload.name()),
        };
        command
            .env("XDG_RUNTIME_DIR", folder)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // What ends the campaign in a terminal is not for the workload.
            .process_group(0);
        let child = interrupt::let_through(|| command.spawn());
        let mut child = child.context("cannot start rcoe")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut errors = child.stderr.take().context("no stderr")?;
        let errors = thread::spawn(move || {
            let mut text = String::new();
            // What cannot be read is not shown.
            let _ = errors.read_to_string(&mut text);
            text
        });
        let input = input.context("no stdin")?;
        let output = output.context("no stdout")?;
        let server = Pid::from_raw(i32::try_from(child.id())?);
        let peer = load::Peer::start(workload, folder, (input, output), server, seed);
        Ok((Job { child, errors }, peer))
    }

    /// Harms replicas until it is enough, or the peer has seen what is wrong.
    fn harm(
        &self,
        place: &Place<'_>,
        rng: &mut Rng,
        run: &mut Run,
        (faults, peer): (u64, &load::Peer),
    ) -> Result<()> {
        let patience = place.setup.deadline;
        let mut watch = Watch::new(&place.folder.join("events"), Instant::now() + patience);
        watch.until("the start", |seen| seen.pids.len() == self.replicas)?;
        let mut last = Instant::now();
        while run.kills < faults && !interrupt::is_due() && !peer.is_finished() {
            self.pause(rng, last);
            // What a flip did may show late.
            watch.deadline = Instant::now() + patience;
            if self.flips() {
                place.until_whole(&mut watch, &[])?;
            }
            watch.refresh();
            last = Instant::now();
            let victims = place.choose(&watch, rng, self.at_once)?;
            let done = self.inflict(place, &victims, rng, run)?;
            watch.deadline = Instant::now() + patience;
            self.until_over(place, &mut watch, &done, run)?;
        }
        watch.deadline = Instant::now() + patience;
        if self.flips() && !peer.is_finished() {
            place.until_whole(&mut watch, &[])?;
        }
        Ok(())
    }

    /// Does something to each of them; what, and to which process.
    fn inflict(
        &self,
        place: &Place<'_>,
        victims: &[Victim],
        rng: &mut Rng,
        run: &mut Run,
    ) -> Result<Vec<(Done, i32)>> {
        let mut all = Vec::new();
        for victim in victims {
            let fault = self.faults[usize::try_from(rng.next())? % self.faults.len()];
            let steps = |pid| place.steps(pid);
            let Some(done) = fault.inflict((place.job, victim.pid), rng, &steps)? else {
                continue;
            };
            place.note(&done, victim)?;
            run.kills += 1;
            *run.kinds.entry(fault).or_default() += 1;
            run.primaries += u64::from(victim.leads);
            all.push((done, victim.pid));
        }
        Ok(all)
    }

    /// Options of rcoe that are not its defaults.
    fn options(&self) -> Vec<&str> {
        let all = [("--compare", &self.compare), ("--timeout", &self.timeout)];
        let chosen = all.iter().filter(|(_, value)| *value != "default");
        chosen
            .flat_map(|(name, value)| [*name, value.as_str()])
            .collect()
    }

    /// Does it flip bits?
    fn flips(&self) -> bool {
        let flip = |it: &Fault| matches!(it, Fault::Register | Fault::Memory);
        self.faults.iter().any(flip)
    }

    /// Until the next fault.
    fn pause(&self, rng: &mut Rng, last: Instant) {
        let random = Duration::from_micros(rng.next() % 20_000);
        let every = Duration::from_millis(self.every_ms);
        thread::sleep(every.saturating_sub(last.elapsed()).max(random));
    }

    /// Waits until the lost replicas are back, or the flipped bits are as before.
    fn until_over(
        &self,
        place: &Place<'_>,
        watch: &mut Watch,
        done: &[(Done, i32)],
        run: &mut Run,
    ) -> Result<()> {
        let began = Instant::now();
        let mut lost = Vec::new();
        for (done, pid) in done {
            if done.is_loss() && !(done.is_stop() && place.may_idle()) {
                lost.push(*pid);
                continue;
            }
            let due = began + done.patience();
            let steps = |pid| place.steps(pid);
            let (mut latent, mut look) = (true, began);
            watch.until("a fault's end", |_| {
                if Instant::now() >= look {
                    latent = done.is_latent(&steps);
                    look = Instant::now() + GLANCE;
                }
                !latent || Instant::now() > due
            })?;
            if latent {
                run.latent += 1;
                done.relieve()?;
            } else if done.is_loss() {
                lost.push(*pid);
            }
        }
        if place.is_family() || self.flips() {
            return place.until_whole(watch, &lost);
        }
        let back = run.kills - run.latent;
        watch.until("the lost replica's return", |seen| seen.returns >= back)
    }
}

/// The last lines of a file, in one.
fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join(" | ")
}

/// Copies what tells of a run into another folder.
fn keep_traces(folder: &Path, place: &Path) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    for name in [victims::FAULTS, "events", standstill::FILE] {
        let from = folder.join(name);
        if from.exists() {
            fs::copy(&from, place.join(name))?;
        }
    }
    Ok(())
}

/// A command that is run as the workload is.
fn start_as(workload: Workload, program: &Path) -> Command {
    let user = match workload {
        Workload::Postgres => database::user(),
        _ => Vec::new(),
    };
    match user.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    }
}

impl Job {
    /// Ends it by force; its replicas die with it.
    fn end(&mut self) {
        // One that is gone needs no force.
        let _ = self.child.kill();
    }

    /// How it ended.
    fn wait(&mut self, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Err(error) => return error.to_string(),
                Ok(None) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(None) => {
                    self.end();
                    let _ = self.child.wait();
                    return HANGS.into();
                }
            }
        }
    }
}

/// Compiles the workloads.
///
/// # Errors
///
/// If there is no compiler.
pub fn prepare(folder: &Path) -> Result<()> {
    let source = folder.join("ledger.c");
    fs::write(&source, include_str!("../../programs/ledger.c"))?;
    let status = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(folder.join("ledger"))
        .arg(&source)
        .status()
        .context("cannot start the C compiler")?;
    ensure!(status.success(), "the workloads do not compile");
    Ok(())
}
