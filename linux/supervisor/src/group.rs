//! The processes of a run: their birth, what the kernel says of them, and their end.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use rcoe_linux_abi::{Phase, ReplicaState};
use rcoe_linux_sys::host::{Inherited, Starter, send_signal};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, wait, waitid};

use crate::agent;
use crate::error::{Doing, RunError};
use crate::judge::Process;
use crate::memory::Memory;
use crate::settings::Settings;

const SIGKILL: u32 = 9;
const SIGCONT: u32 = 18;
const SIGSTOP: u32 = 19;

/// The replicas' processes. Dropping it kills and reaps them all.
#[derive(Debug)]
pub(crate) struct Group {
    pids: Vec<Option<u32>>,
    processes: Vec<Process>,
    /// Children that we had before the run; a shell that executes rcoe can leave some.
    strays: Vec<u32>,
    /// Children that ended before they could tell which replica they were.
    nameless_deaths: usize,
    pausing: bool,
    /// Replicas that no longer count.
    expelled: Vec<bool>,
}

impl Group {
    /// Starts the starter, which is replica 0 and makes the others.
    pub(crate) fn start(
        settings: &Settings,
        memory: &Memory,
        inherited: Inherited,
    ) -> Result<Self, RunError> {
        let strays = children();
        let image = agent::image()?;
        let mut args = vec![
            OsString::from("rcoe-agent"),
            memory.descriptor_list().into(),
        ];
        args.extend(settings.program.argv.iter().cloned());
        let starter = Starter {
            image: image.as_fd(),
            args,
            keep: memory.descriptors(),
            inherited,
        };
        let pid = starter.spawn().doing("starting the first replica")?;
        let mut pids = vec![None; settings.replicas()];
        let mut processes = vec![Process::Unborn; settings.replicas()];
        pids[0] = Some(pid);
        processes[0] = Process::Alive;
        Ok(Self {
            pids,
            processes,
            strays,
            nameless_deaths: 0,
            pausing: false,
            expelled: vec![false; settings.replicas()],
        })
    }

    pub(crate) fn pid(&self, index: usize) -> Option<u32> {
        self.pids[index]
    }

    pub(crate) fn process(&self, index: usize) -> Process {
        self.processes[index]
    }

    /// Whether every replica has been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.pids.iter().all(Option::is_some)
    }

    /// Whether a replica ended before it could say who it was.
    pub(crate) const fn lost_someone(&self) -> bool {
        self.nameless_deaths > 0
    }

    /// Learns the process ids that replicas have told, believing only our own children.
    pub(crate) fn learn(&mut self, memory: &Memory) {
        for index in 0..self.pids.len() {
            let told = memory.report(index).pid.load(Acquire);
            if self.pids[index].is_none() && !self.pids.contains(&Some(told)) && is_child(told) {
                self.pids[index] = Some(told);
                self.processes[index] = Process::Alive;
            }
        }
    }

    /// Takes in all that the kernel has to say, and publishes it.
    pub(crate) fn reap(&mut self, memory: &Memory) -> Result<(), RunError> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            // A child that has just told its number must be known before its death is heard of.
            self.learn(memory);
            match wait(options) {
                Ok(Some((pid, status))) => self.note(pid, status, memory),
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).doing("waiting for the replicas"),
            }
        }
    }

    fn note(&mut self, pid: Pid, status: WaitStatus, memory: &Memory) {
        let pid = pid.as_raw_nonzero().get().cast_unsigned();
        let Some(index) = self.index_of(pid, memory) else {
            let known = self.strays.iter().position(|&stray| stray == pid);
            let gone = status.exited() || status.signaled();
            match known {
                Some(at) if gone => drop(self.strays.swap_remove(at)),
                None if gone => self.nameless_deaths += 1,
                _ => {}
            }
            return;
        };
        if status.stopped() && !self.pausing {
            memory.set_state(index, ReplicaState::Stopped);
        } else if status.continued() {
            memory.set_state(index, ReplicaState::Alive);
        } else if let Some(end) = end_of(status) {
            self.processes[index] = end;
            // One that ended as it should is not missed by siblings that are about to.
            if self.expelled[index] || phase(memory, index) != Some(Phase::Ended) {
                memory.set_state(index, ReplicaState::Dead);
            }
        }
    }

    /// Which replica this child is, by what it told before or in its last moment.
    fn index_of(&mut self, pid: u32, memory: &Memory) -> Option<usize> {
        if let Some(index) = self.pids.iter().position(|&known| known == Some(pid)) {
            return Some(index);
        }
        let index = (0..self.pids.len()).find(|&index| {
            self.pids[index].is_none() && memory.report(index).pid.load(Acquire) == pid
        })?;
        self.pids[index] = Some(pid);
        Some(index)
    }

    /// Sends a signal to one replica, if it lives.
    pub(crate) fn signal(&self, index: usize, signal: u32) {
        if let (Some(pid), Process::Alive) = (self.pids[index], self.processes[index]) {
            // Already gone is no error: its end will be reaped.
            let _ = send_signal(pid, signal);
        }
    }

    /// Kills a replica that no longer counts; its siblings learn of its death in any case.
    pub(crate) fn expel(&mut self, index: usize, memory: &Memory) {
        self.expelled[index] = true;
        if self.processes[index].is_gone() {
            memory.set_state(index, ReplicaState::Dead);
        }
        self.kill(index);
    }

    /// CPU time that a living replica has used, where the kernel tells.
    pub(crate) fn cpu_time(&self, index: usize) -> Option<Duration> {
        let pid = self.pids[index].filter(|_| self.processes[index] == Process::Alive)?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        text.split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
            .map(Duration::from_nanos)
    }

    /// Kills one replica; its end is reaped later.
    fn kill(&self, index: usize) {
        self.signal(index, SIGKILL);
    }

    /// Stops all replicas on purpose.
    pub(crate) fn pause(&mut self) {
        self.pausing = true;
        (0..self.pids.len()).for_each(|index| self.signal(index, SIGSTOP));
    }

    /// Lets all replicas go on.
    pub(crate) fn resume(&mut self) {
        (0..self.pids.len()).for_each(|index| self.signal(index, SIGCONT));
        self.pausing = false;
    }

    /// Kills and reaps every process of the run, also those that never said who they were.
    pub(crate) fn end(&mut self) {
        loop {
            (0..self.pids.len()).for_each(|index| self.kill(index));
            let nameless = children()
                .into_iter()
                .filter(|pid| !self.strays.contains(pid));
            let nameless = nameless.collect::<Vec<_>>();
            for &pid in &nameless {
                let _ = send_signal(pid, SIGKILL);
            }
            if nameless.is_empty() && !self.processes.contains(&Process::Alive) {
                return;
            }
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => self.note_end(pid, status),
                Ok(None) | Err(Errno::INTR) => {}
                // No child is left, whatever we believed.
                Err(_) => return,
            }
        }
    }

    fn note_end(&mut self, pid: Pid, status: WaitStatus) {
        let pid = pid.as_raw_nonzero().get().cast_unsigned();
        self.strays.retain(|&stray| stray != pid);
        let index = self.pids.iter().position(|&known| known == Some(pid));
        if let (Some(index), Some(end)) = (index, end_of(status)) {
            self.processes[index] = end;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// The phase a replica says it is in; `None` if its word is none.
pub(crate) fn phase(memory: &Memory, index: usize) -> Option<Phase> {
    const PHASES: [Phase; 6] = [
        Phase::None,
        Phase::Loading,
        Phase::Running,
        Phase::Ended,
        Phase::Halted,
        Phase::Failed,
    ];
    let word = memory.report(index).phase.load(Acquire);
    PHASES.into_iter().find(|&phase| phase as u32 == word)
}

fn end_of(status: WaitStatus) -> Option<Process> {
    let killed = status.terminating_signal().map(Process::Killed);
    killed.or_else(|| status.exit_status().map(Process::Exited))
}

fn is_child(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).is_ok()
}

/// Our children by the kernel's account; empty where `/proc` does not tell.
fn children() -> Vec<u32> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}
