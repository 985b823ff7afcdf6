//! A machine with Redis in it, which can be made to stand still.

use std::net::TcpListener;
use std::path::Path;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::Setup;
use super::clients::connect;
use super::faults::{Kind, flip_in, inflict, places};
use crate::events::Events;
use crate::kills::redis::Client;
use crate::plan::Rng;
use crate::system::gdb::Debugger;
use crate::system::memory::Memory;
use crate::system::plan::Flip;
use crate::system::process::{Process, rcoe};
use crate::system::{Hit, Processor};

/// MiB of each replica.
const MEMORY: u64 = 256;
/// Redis as the distribution has it, which says nothing while it serves: a primary that is lost
/// amid output on the console stops the machine.
const SERVER: [&str; 7] = [
    "redis-server",
    "--save",
    "",
    "--protected-mode",
    "no",
    "--loglevel",
    "warning",
];
/// The port at which it serves in the machine.
const PORT: u16 = 6379;
/// Time between looks at the events.
const LOOK: Duration = Duration::from_millis(5);

/// A machine that serves; ended if dropped before its end.
pub(super) struct Machine {
    process: Process,
    debugger: Debugger,
    processor: &'static Processor,
    replicas: usize,
    patience: Duration,
    /// Where the host offers the server.
    pub(super) port: u16,
    /// When the events have their zero.
    pub(super) began: Instant,
}

/// What is asked of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) replicas: usize,
    /// `--compare`.
    pub(super) compare: &'a str,
}

/// Starts rcoe in a folder.
fn start(shape: Shape<'_>, setup: &Setup, folder: &Path, port: u16) -> Result<Process> {
    let mut command = rcoe(&setup.rcoe);
    command.args(["run", "--sphere", "system", "--events", "events"]);
    command.args(["-n", &shape.replicas.to_string()]);
    command.args(["--compare", shape.compare]);
    command.args(["--memory", &format!("{MEMORY}M")]);
    command.args(["--debugger", "debugger", "--memory-file", "memory"]);
    command.args(["--publish", &format!("127.0.0.1:{port}:{PORT}"), "--"]);
    command.args(SERVER);
    Process::start(command, folder)
}

impl Machine {
    /// Starts one, and waits until its server answers.
    pub(super) fn start(shape: Shape<'_>, setup: &Setup, folder: &Path) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        drop(listener);
        let mut process = start(shape, setup, folder, port)?;
        let debugger = Debugger::connect(&folder.join("debugger"), || process.has_ended())?;
        let Some(debugger) = debugger else {
            bail!("the machine does not start: {}", process.told());
        };
        let mut machine = Self {
            process,
            debugger,
            processor: Processor::of(&Processor::usual())?,
            replicas: shape.replicas,
            patience: setup.deadline,
            port,
            began: Instant::now(),
        };
        machine.debugger.release()?;
        let first = machine.wait("the start", |seen| seen.started.is_some())?;
        let since = first.started.unwrap_or_default();
        let began = Instant::now().checked_sub(since);
        machine.began = began.context("no such time")?;
        let served = connect(port, setup.deadline, || machine.process.has_ended());
        served.with_context(|| machine.process.told())?;
        Ok(machine)
    }

    /// What the events have told so far.
    pub(super) fn seen(&self) -> Events {
        self.process.seen()
    }

    /// Waits until the events tell something; `Ok(None)` if they do not by then.
    ///
    /// # Errors
    /// If the machine ends.
    pub(super) fn watch(
        &mut self,
        patience: Duration,
        test: impl FnMut(&Events) -> bool,
    ) -> Result<Option<Events>> {
        let seen = self.watch_to_end(patience, test)?;
        let ended = seen.is_none() && self.is_over()?;
        ensure!(!ended, "the machine has ended: {}", self.process.told());
        Ok(seen)
    }

    /// As [`Self::watch`], where the machine may end, which is `Ok(None)` too.
    pub(super) fn watch_to_end(
        &mut self,
        patience: Duration,
        mut test: impl FnMut(&Events) -> bool,
    ) -> Result<Option<Events>> {
        let deadline = Instant::now() + patience;
        loop {
            let seen = self.seen();
            if test(&seen) {
                return Ok(Some(seen));
            }
            if self.is_over()? || Instant::now() > deadline {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }

    /// Has it ended, or is about to?
    pub(super) fn is_over(&mut self) -> Result<bool> {
        Ok(self.seen().stop.is_some() || self.process.child.try_wait()?.is_some())
    }

    /// How it ended, if it does in time.
    pub(super) fn status(&mut self) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + self.patience;
        loop {
            let status = self.process.child.try_wait()?;
            if status.is_some() || Instant::now() > deadline {
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
    }

    /// How long an answer, a loss and a return may take.
    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Are there enough replicas to go on without one?
    pub(super) const fn can_mask(&self) -> bool {
        self.replicas > 2
    }

    /// The last that rcoe said.
    pub(super) fn told(&self) -> String {
        self.process.told()
    }

    /// What is known of one that does not do what it should: what its replicas told, where their
    /// cores are, and what rcoe said.
    pub(super) fn condition(&mut self) -> String {
        let seen = self.seen();
        let places = places(&mut self.debugger, self.replicas, self.processor);
        let places = places.unwrap_or_else(|error| format!("{error:#}"));
        let told = self.process.told();
        let Events {
            removed, returned, ..
        } = seen;
        format!("removed {removed:?}, back {returned:?}, at {places}; {told}")
    }

    /// As [`Self::watch`], where it is an error that it is not told.
    pub(super) fn wait(&mut self, what: &str, test: impl FnMut(&Events) -> bool) -> Result<Events> {
        let seen = self.watch(self.patience, test)?;
        seen.with_context(|| format!("waited in vain for {what}: {}", self.process.told()))
    }

    /// Flips a bit of a replica, unless there is nothing of its class, or the machine has ended.
    pub(super) fn flip(&mut self, victim: usize, flip: &Flip) -> Result<Option<Hit>> {
        let memory = Memory {
            processor: self.processor,
            file: &self.process.file("memory"),
            partition: MEMORY << 20,
        };
        let done = flip_in(victim, flip, memory, &mut self.debugger);
        match done {
            Err(_) if self.is_over()? => Ok(None),
            done => done.with_context(|| self.process.told()),
        }
    }

    /// Does something to a replica; what it was, in words.
    pub(super) fn inflict(&mut self, kind: Kind, victim: usize, rng: &mut Rng) -> Result<String> {
        let memory = Memory {
            processor: self.processor,
            file: &self.process.file("memory"),
            partition: MEMORY << 20,
        };
        let who = (victim, self.replicas);
        let done = inflict(kind, who, memory, &mut self.debugger, rng);
        done.with_context(|| self.process.told())
    }

    /// Has the server end, and the machine with it.
    ///
    /// # Errors
    /// If it does not, or with another status than 0.
    pub(super) fn finish(mut self) -> Result<()> {
        let stream = connect(self.port, self.patience, || true)?;
        // There is no answer to that.
        let _ = Client::new(stream, "").ask("SHUTDOWN NOSAVE");
        let status = self.status()?.context("the machine does not end")?;
        ensure!(status.success(), "{status}: {}", self.process.told());
        Ok(())
    }
}
