//! Stops all replicas of a process at each point that they have agreed on.
//!
//! Each replica has a thread of ours that traces it: a breakpoint of the processor stands at the
//! agent's entry at a point, and no byte of the replica is changed. Other stops and signals are
//! passed on. Whoever has come waits there until the observer lets it go.
//!
//! Contract: replicas are attached before the first point, so the n-th stop of each is the same
//! point.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::sys::ptrace::{self, regset};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use crate::entry::breakpoint;
use crate::inject::{Miss, Seized};
use crate::points::compare::Registers;
use crate::points::symbols::Places;

/// What a thread of ours tells of its replica.
#[derive(Debug)]
enum Told {
    Attached,
    /// It stands at a point, since then.
    At(Box<Registers>, Instant),
    /// It has ended, or cannot be traced.
    Gone,
}

/// One replica.
#[derive(Debug)]
struct Watched {
    pid: i32,
    go: Sender<()>,
}

/// All replicas of a process. Dropped, it lets them go on without it.
#[derive(Debug)]
pub struct Observer {
    watched: Vec<Watched>,
    told: Receiver<(usize, Told)>,
    /// Those that stand at a point.
    standing: Vec<Option<(Box<Registers>, Instant)>>,
}

/// What has come of waiting.
#[derive(Debug, PartialEq, Eq)]
pub enum Came {
    /// All stand at a point, the last one since then.
    All(Instant),
    /// Nobody has come in time.
    None,
    /// These have come in time, and the others have not.
    Some(Vec<usize>),
    /// A replica has ended, or cannot be traced any more.
    Gone,
}

impl Observer {
    /// Attaches to these replicas, which stand before their first point.
    ///
    /// # Errors
    ///
    /// If one has ended or is traced already.
    pub fn attach(pids: &[i32], places: Places) -> Result<Self> {
        let (tell, told) = channel();
        let mut watched = Vec::new();
        for (index, &pid) in pids.iter().enumerate() {
            let (go, may_go) = channel();
            let tell = tell.clone();
            thread::spawn(move || {
                let say = |what| tell.send((index, what)).is_ok();
                // Why it ended is told by rcoe.
                let _ = watch(pid, places, say, &may_go);
                say(Told::Gone);
            });
            watched.push(Watched { pid, go });
        }
        let standing = pids.iter().map(|_| None).collect();
        let observer = Self {
            watched,
            told,
            standing,
        };
        for _ in pids {
            match observer.told.recv_timeout(Duration::from_secs(10)) {
                Ok((_, Told::Attached)) => {}
                other => bail!("a replica cannot be traced: {other:?}"),
            }
        }
        Ok(observer)
    }

    /// Waits until all stand at a point; for the first one so long, for the rest longer.
    pub fn wait(&mut self, first: Duration, rest: Duration) -> Came {
        let began = Instant::now();
        while self.standing.iter().any(Option::is_none) {
            let nobody = self.standing.iter().all(Option::is_none);
            let until = if nobody { first } else { rest };
            let left = until.saturating_sub(began.elapsed());
            match self.told.recv_timeout(left) {
                Ok((index, Told::At(registers, since))) => {
                    self.standing[index] = Some((registers, since));
                }
                Ok((_, Told::Gone)) => return Came::Gone,
                Ok((_, Told::Attached)) => {}
                Err(_) if nobody => return Came::None,
                Err(_) => {
                    let came = self.standing.iter().enumerate();
                    let came = came.filter(|(_, it)| it.is_some());
                    return Came::Some(came.map(|(index, _)| index).collect());
                }
            }
        }
        let since = self.standing.iter().flatten().map(|(_, since)| *since);
        since.max().map_or(Came::None, Came::All)
    }

    /// The registers of a replica that stands at a point.
    #[must_use]
    pub fn registers(&self, index: usize) -> Option<&Registers> {
        let (registers, _) = self.standing.get(index)?.as_ref()?;
        Some(registers)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self, index: usize) -> i32 {
        self.watched[index].pid
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.watched.len()
    }

    /// Lets a replica that stands at a point go on.
    pub fn let_go(&mut self, index: usize) {
        if self.standing[index].take().is_some() {
            // It may have been killed meanwhile.
            let _ = self.watched[index].go.send(());
        }
    }
}

/// Follows one replica until it ends or nobody listens.
fn watch(
    pid: i32,
    places: Places,
    say: impl Fn(Told) -> bool,
    may_go: &Receiver<()>,
) -> Result<(), Miss> {
    let mut seized = Seized::stop(pid)?;
    breakpoint(&seized, Some(places.entry))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    say(Told::Attached);
    loop {
        ptrace::cont(seized.pid, seized.pending.take())?;
        let WaitStatus::Stopped(_, Signal::SIGTRAP) = seized.wait()? else {
            continue;
        };
        let mut general = ptrace::getregs(seized.pid)?;
        if general.rip != places.entry {
            continue;
        }
        seized.pending = None;
        let since = Instant::now();
        let mut pointer = [0; 8];
        memory.read_exact_at(&mut pointer, places.pointer)?;
        general.rip = u64::from_le_bytes(pointer);
        let legacy = ptrace::getregset::<regset::NT_PRFPREG>(seized.pid)?;
        let registers = Box::new(Registers { general, legacy });
        if !say(Told::At(registers, since)) || may_go.recv().is_err() {
            return breakpoint(&seized, None);
        }
    }
}
