//! Replicas killed or stopped at random moments, again and again: no effect may be lost or doubled.
//!
//! A workload (`programs/ledger.c`, or a whole program) runs as three or more replicas while a peer
//! sends it bytes, connections and datagrams and keeps a ledger of what comes back. Meanwhile one
//! replica after the other gets SIGKILL or SIGSTOP, the primary more often than the others, and the
//! next one as soon as rcoe has brought the lost one back. So one run takes many kills, at moments
//! that follow from nothing but chance and load.
//!
//! Contract: the ledger decides. A run is well if the workload ends with status 0, the peer got
//! everything once and in order, and rcoe leaves no process behind. The seed decides workload,
//! victims and pauses, but not the moment that a signal takes effect.
//!
//! Not covered: two losses at a time, and losses while a replica is being brought back.

mod database;
pub mod interrupt;
mod load;
mod programs;
mod runs;
mod victims;
mod watch;

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::child::Setup;
use crate::plan::Rng;

pub use load::Workload;
pub use runs::{Header, Runs, markdown};
use victims::Place;
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
    /// SIGSTOP instead of SIGKILL.
    pub stop: bool,
    /// Most kills in one run.
    pub per_run: u64,
    /// Workloads in turn.
    pub workloads: Vec<Workload>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the campaign.
    pub index: u64,
    /// What ran.
    pub workload: Workload,
    /// Replicas that were killed or stopped.
    pub kills: u64,
    /// Primaries among them.
    pub primaries: u64,
    /// Effects that the ledger counted.
    pub effects: u64,
    /// Duration in milliseconds.
    pub ms: u64,
    /// What was wrong; empty if nothing was.
    pub wrong: String,
}

/// A workload under rcoe.
struct Job {
    child: Child,
    errors: thread::JoinHandle<String>,
}

impl Campaign {
    /// Run number `index`, with at most `kills` kills.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn run(&self, setup: &Setup, index: u64, kills: u64) -> Result<Run> {
        let workload = self.workloads[usize::try_from(index)? % self.workloads.len()];
        let folder = setup.folder.join(format!("run-{index}"));
        fs::create_dir(&folder).context("cannot make the folder of a run")?;
        let began = Instant::now();
        let mut run = Run {
            index,
            workload,
            kills: 0,
            primaries: 0,
            effects: 0,
            ms: 0,
            wrong: String::new(),
        };
        let mut rng = Rng::new(&[self.seed, index]);
        let (mut job, peer) = self.start(setup, workload, &folder, rng.next())?;
        let begun = peer.wait_until_ready(Instant::now() + setup.deadline);
        let most = kills.min(self.per_run);
        let harm = begun.and_then(|()| {
            let place = Place::new(setup, &folder, workload, job.child.id());
            self.harm(&place, &mut rng, &mut run, most)
        });
        let ledger = peer.close(Instant::now() + setup.deadline, || job.end());
        let status = job.wait(setup.deadline);
        let told = job.errors.join().unwrap_or_default();
        run.effects = ledger.effects;
        run.ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let checks = [
            harm.err().map(|error| format!("{error:#}")),
            ledger.wrong,
            (status != "exit status: 0").then_some(status),
        ];
        let wrong: Vec<String> = checks.into_iter().flatten().collect();
        if !wrong.is_empty() {
            run.wrong = format!("{}; rcoe: {}", wrong.join("; "), told.trim());
        } else {
            fs::remove_dir_all(&folder).context("cannot remove the folder of a run")?;
        }
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
            .args(["--compare", &self.compare, "--timeout", &self.timeout])
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

    /// Kills until it is enough.
    fn harm(&self, place: &Place<'_>, rng: &mut Rng, run: &mut Run, kills: u64) -> Result<()> {
        let signal = if self.stop {
            Signal::SIGSTOP
        } else {
            Signal::SIGKILL
        };
        let patience = place.setup.deadline;
        let mut watch = Watch::new(&place.folder.join("events"), Instant::now() + patience);
        watch.until("the start", |seen| seen.pids.len() == self.replicas)?;
        while run.kills < kills && !interrupt::is_due() {
            thread::sleep(Duration::from_micros(rng.next() % 20_000));
            watch.refresh();
            let victim = place.choose(&watch, rng)?;
            match kill(Pid::from_raw(victim.pid), signal) {
                // What rcoe shows can be a moment old.
                Err(Errno::ESRCH) if Instant::now() < watch.deadline => continue,
                done => done.context("cannot signal a replica")?,
            }
            run.kills += 1;
            run.primaries += u64::from(victim.leads);
            watch.deadline = Instant::now() + patience;
            let back = run.kills;
            if place.is_family() {
                place.until_whole(&mut watch, victim.pid)?;
            } else {
                watch.until("the lost replica's return", |seen| seen.returns >= back)?;
            }
        }
        Ok(())
    }
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
                    return "hangs".into();
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
