//! What is done to a replica: a signal from outside, or one flipped bit.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::inject::{self, Hit, Miss, STOPS, When};
use crate::plan::{Plan, Rng, Space};
use crate::target::Targets;

/// How long a flip may lie unused in memory, and a stopped replica be missed by nobody, until the
/// next fault is due all the same.
const UNUSED: Duration = Duration::from_secs(10);
/// How long a replica may sleep with a flip in a register: one that shares memory is needed after
/// five seconds at the latest, and is missed ten seconds later.
const ASLEEP: Duration = Duration::from_secs(20);
/// By so much a replica must have got on since a flip in a register for that to have shown: one
/// that only wakes up now and then to look whether it can go on has not. A record of its results
/// stream counts as 100 and more.
const STEPS: u64 = 500;

/// How far a replica has got: a number that grows; `None` if it is gone.
pub(super) type Steps<'a> = dyn Fn(i32) -> Result<Option<u64>> + 'a;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// A bit of a register.
    Register,
    /// A bit of private memory, the agent's included.
    Memory,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kill, Self::Stop, Self::Register, Self::Memory];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Register => "register",
            Self::Memory => "memory",
        }
    }

    /// Does it to a replica of this job; what it did. `None`: nothing, since the process had ended
    /// or had no such memory.
    pub(super) fn inflict(
        self,
        (job, pid): (u32, i32),
        rng: &mut Rng,
        steps: &Steps<'_>,
    ) -> Result<Option<Done>> {
        match self {
            Self::Kill => Ok(signal(job, pid, Signal::KILL)?.map(|_| Done::Lost)),
            Self::Stop => {
                let held = signal(job, pid, Signal::STOP)?;
                Ok(held.map(|held| Done::Stopped(pid, held)))
            }
            Self::Register => flip(pid, "regs", rng, steps),
            Self::Memory => flip(pid, "mem", rng, steps),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == word);
        found.ok_or_else(|| format!("there is no fault `{word}`"))
    }
}

/// What was done.
#[derive(Debug)]
pub(super) enum Done {
    /// A signal that the replica does not outlive.
    Lost,
    /// It stands still until it is missed, and is held.
    Stopped(i32, OwnedFd),
    /// A bit is another; how far the replica had got by then.
    Flipped(Hit, u64),
}

/// Signals a replica of this job, and holds it; `None` if it is none any more. What rcoe shows can
/// be a moment old, and the number another process's by now.
fn signal(job: u32, pid: i32, signal: Signal) -> Result<Option<OwnedFd>> {
    let number = Pid::from_raw(pid).context("no process has this number")?;
    let held = match pidfd_open(number, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(None),
        held => held.context("cannot hold a replica")?,
    };
    // It is the held one's for as long as that can be signalled.
    if parent_of(pid) != Some(job) {
        return Ok(None);
    }
    Ok(send(&held, signal)?.then_some(held))
}

/// Signals a process that is held; false if it is gone.
fn send(held: &OwnedFd, signal: Signal) -> Result<bool> {
    match pidfd_send_signal(held.as_fd(), signal) {
        Err(Errno::SRCH) => Ok(false),
        done => done.context("cannot signal a replica").map(|()| true),
    }
}

fn flip(pid: i32, targets: &str, rng: &mut Rng, steps: &Steps<'_>) -> Result<Option<Done>> {
    let targets: Targets = targets.parse().map_err(anyhow::Error::msg)?;
    let space = Space {
        seed: rng.next(),
        programs: 1,
        replicas: 1,
        flips: 1,
        targets,
    };
    match inject::flip(pid, When::Any, &Plan::derive(&space, 0, 0), STOPS) {
        Ok(hit) => {
            let steps = steps(hit.pid)?.unwrap_or(u64::MAX);
            Ok(Some(Done::Flipped(hit, steps)))
        }
        Err(Miss::Refused(why)) if why.contains("kept its value") => Ok(None),
        Err(Miss::Refused(why)) => anyhow::bail!("cannot flip a bit: {why}"),
        Err(_) => Ok(None),
    }
}

impl Done {
    /// How long the next fault waits for this one's end.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Self::Flipped(hit, _) if address_of(&hit.place).is_none() => ASLEEP,
            _ => UNUSED,
        }
    }

    /// Whether the flipped bit is still as it was flipped, and the stopped replica still there.
    /// What a register holds nobody can tell, but whether the replica has got on since then.
    pub(super) fn is_latent(&self, steps: &Steps<'_>) -> bool {
        let (hit, before) = match self {
            Self::Lost => return false,
            Self::Stopped(pid, _) => return is_there(*pid),
            Self::Flipped(hit, before) => (hit, before),
        };
        let Some(address) = address_of(&hit.place) else {
            // If nothing is shown for once, it is asked again.
            return steps(hit.pid).map_or(true, |now| {
                now.is_some_and(|now| now < before.saturating_add(STEPS))
            });
        };
        let mut byte = [0];
        let read = File::open(format!("/proc/{}/mem", hit.pid))
            .and_then(|memory| memory.read_exact_at(&mut byte, address));
        read.is_ok() && u64::from(byte[0]) == hit.after
    }

    /// Lets a replica go on that was stopped and that nobody has missed.
    pub(super) fn relieve(&self) -> Result<()> {
        match self {
            Self::Stopped(_, held) => send(held, Signal::CONT).map(drop),
            Self::Lost | Self::Flipped(..) => Ok(()),
        }
    }

    /// Does the replica stand still?
    pub(super) const fn is_stop(&self) -> bool {
        matches!(self, Self::Stopped(..))
    }

    /// Is the replica gone for good once this is over?
    pub(super) const fn is_loss(&self) -> bool {
        matches!(self, Self::Lost | Self::Stopped(..))
    }
}

/// Is the process there? One that was stopped is until somebody misses it.
fn is_there(pid: i32) -> bool {
    stat_of(pid).is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// The process that this one is a child of.
fn parent_of(pid: i32) -> Option<u32> {
    stat_of(pid)?.split(' ').nth(1)?.parse().ok()
}

/// What `/proc` tells of a process, from its state on.
fn stat_of(pid: i32) -> Option<String> {
    let told = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the state may hold anything.
    told.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

/// The address in a place of memory.
fn address_of(place: &str) -> Option<u64> {
    let digits = place.strip_prefix("0x")?.split(' ').next()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_word() {
        for fault in Fault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert!("quake".parse::<Fault>().is_err());
    }

    #[test]
    fn who_is_there_is_seen() {
        assert!(is_there(i32::try_from(std::process::id()).unwrap()));
        assert!(!is_there(i32::MAX));
    }

    #[test]
    fn only_replicas_of_the_job_are_signalled() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("a child");
        let pid = i32::try_from(child.id()).unwrap();
        assert!(signal(own + 1, pid, Signal::KILL).unwrap().is_none());
        assert!(child.try_wait().unwrap().is_none(), "it is another's");
        let held = signal(own, pid, Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!send(&held.expect("it was there"), Signal::CONT).unwrap());
        assert!(signal(own, pid, Signal::KILL).unwrap().is_none());
    }

    #[test]
    fn a_flip_in_a_register_is_over_when_the_replica_has_got_on_or_is_gone() {
        let hit = Hit {
            pid: 7,
            program: String::new(),
            at: None,
            replica: None,
            cpu_ns: 0,
            ip: 0,
            in_kernel: true,
            place: "rbx".into(),
            bit: 7,
            before: 1,
            flips: 1,
            after: 129,
        };
        let done = Done::Flipped(hit, 1000);
        assert!(done.is_latent(&|_| Ok(Some(1000 + STEPS - 1))));
        assert!(!done.is_latent(&|_| Ok(Some(1000 + STEPS))));
        assert!(!done.is_latent(&|_| Ok(None)));
        assert!(done.is_latent(&|_| anyhow::bail!("nothing is shown")));
    }

    #[test]
    fn places_of_memory_have_an_address() {
        assert_eq!(address_of("0x7f20 (heap [heap])"), Some(0x7f20));
        assert_eq!(address_of("rax"), None);
    }
}
