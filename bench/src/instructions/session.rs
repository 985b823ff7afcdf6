//! One run of the loop, from its start to its end, while its processes are stepped.
//!
//! Nothing waits without a bound: a watch kills the run when its time is over, and whoever waits
//! for one of its processes hears of that.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcoe_faultlab::events::Events;

use super::profile::Profile;
use super::tracee::{Sample, Tracee};
use crate::configuration::Configuration;
use crate::workshop::{Workshop, words};

/// Iterations that are stepped before the first that counts.
const DISCARDED: usize = 1;
/// Most turns of each process in one iteration.
const MOST_TURNS: usize = 10_000;
/// After this a run has failed.
const DEADLINE: Duration = Duration::from_secs(120);
/// A run whose processes were killed ends within this.
const LAST: Duration = Duration::from_secs(10);

/// Samples of each replica (of the program itself, if native) in `count` iterations of the loop of
/// `kind`.
///
/// # Errors
///
/// If the run fails, takes too long, or may not be traced.
pub(super) fn samples(
    workshop: &Workshop,
    configuration: Configuration,
    kind: &str,
    count: usize,
) -> Result<Vec<Vec<Sample>>> {
    let mut session = Session::start(workshop, configuration, kind)?;
    let sampled = session.step(count);
    sampled.with_context(|| format!("{kind}, {configuration}: {}", session.end()))
}

/// Instructions of the last of a few iterations by function, of each replica: most first.
///
/// # Errors
///
/// As [`samples`].
pub(super) fn profiles(
    workshop: &Workshop,
    configuration: Configuration,
    kind: &str,
) -> Result<Vec<Profile>> {
    let mut session = Session::start(workshop, configuration, kind)?;
    let stepped = session.step(1).and_then(|_| {
        let profile = |tracee: &Tracee| {
            let program = std::fs::read(workshop.path("loop"))?;
            let images = [tracee.image()?, program];
            Ok(Profile::new(tracee.visits(), &images))
        };
        session.tracees.iter().map(profile).collect()
    });
    stepped.with_context(|| format!("{kind}, {configuration}: {}", session.end()))
}

struct Session {
    // Dropped first: whoever is gone cannot be waited for.
    tracees: Vec<Tracee>,
    watch: Watch,
    child: Child,
    /// Address of the loop's mark.
    mark: u64,
}

impl Session {
    /// Starts the loop and seizes its processes where it waits for input.
    fn start(workshop: &Workshop, configuration: Configuration, kind: &str) -> Result<Self> {
        let program = workshop.path("loop");
        let program = program.to_str().context("the folder's name is not UTF-8")?;
        let events = workshop.path("events");
        std::fs::write(&events, "")?;
        let mut command = workshop.command(configuration, Some(&events), &words(&[program, kind]));
        command.env("RCOE_THREAD_SEED", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("no output")?;
        let mut session = Self {
            tracees: Vec::new(),
            watch: Watch::over(child.id())?,
            child,
            mark: 0,
        };
        session.mark = mark(output).with_context(|| session.end())?;
        let pids = match configuration.replicas {
            0 => vec![i32::try_from(session.child.id())?],
            count => announced(&events, count).with_context(|| session.end())?,
        };
        for pid in pids {
            session.tracees.push(Tracee::seize(pid)?);
        }
        let mut input = session.child.stdin.take().context("no input")?;
        input.write_all(b"g")?;
        Ok(session)
    }

    /// Steps all processes in turns, the primary first, until all have made their iterations.
    fn step(&mut self, count: usize) -> Result<Vec<Vec<Sample>>> {
        let wanted = count + DISCARDED + 1;
        for _ in 0..MOST_TURNS * wanted {
            for tracee in &mut self.tracees {
                tracee.turn(self.mark)?;
            }
            let all = self.tracees.iter().map(Tracee::samples);
            if all.clone().all(|samples| samples.len() >= wanted) {
                return Ok(all
                    .map(|each| each[wanted - count..wanted].to_vec())
                    .collect());
            }
        }
        bail!("no end of {wanted} iterations")
    }

    /// Ends the run; what it had to say.
    fn end(&mut self) -> String {
        self.tracees.clear();
        self.watch.hurry();
        let mut words = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // What cannot be read is not worth another error.
            let _ = stderr.read_to_string(&mut words);
        }
        words
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
        // A native program was waited for by its tracee.
        let _ = self.child.wait();
    }
}

/// The first line of the program's output.
fn mark(output: ChildStdout) -> Result<u64> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let digits = line.trim_end().strip_prefix("0x");
    let digits = digits.with_context(|| format!("the loop does not get ready: {line:?}"))?;
    Ok(u64::from_str_radix(digits, 16)?)
}

/// The replicas' processes in order, as soon as rcoe has told of them: the program may be faster.
fn announced(events: &Path, count: usize) -> Result<Vec<i32>> {
    let until = Instant::now() + LAST;
    loop {
        let pids = pids(&Events::read(events));
        if pids.len() == count {
            return Ok(pids);
        }
        ensure!(Instant::now() < until, "not all replicas were announced");
        thread::sleep(Duration::from_millis(1));
    }
}

fn pids(events: &Events) -> Vec<i32> {
    let mut replicas = events.replicas.clone();
    replicas.sort_by_key(|replica| replica.id);
    replicas.iter().map(|replica| replica.pid).collect()
}

/// Kills a process when its time is over; until this is dropped.
struct Watch {
    dog: Option<(Sender<Duration>, JoinHandle<()>)>,
}

impl Watch {
    fn over(pid: u32) -> Result<Self> {
        let pid = Pid::from_raw(i32::try_from(pid)?);
        let (sender, receiver) = channel();
        let dog = thread::spawn(move || {
            let mut rest = DEADLINE;
            loop {
                match receiver.recv_timeout(rest) {
                    Ok(less) => rest = less,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            // One that is gone already is what is wanted.
            let _ = kill(pid, Signal::SIGKILL);
        });
        Ok(Self {
            dog: Some((sender, dog)),
        })
    }

    /// Only a short time is left.
    fn hurry(&self) {
        if let Some((sender, _)) = &self.dog {
            // The dog may have done its work.
            let _ = sender.send(LAST);
        }
    }
}
