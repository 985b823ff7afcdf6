//! The processes of one group: their birth, what the kernel says of them, and their end.

use std::ffi::OsString;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use rcoe_linux_abi::{Ask, Look, Phase, Record, ReplicaState, Request, SIG_KICK, Usage};
use rcoe_linux_sys::host::{Held, Inherited, Starter, limited_cpu_time};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitStatus, waitid};

use crate::agent;
use crate::error::{Doing, RunError};
use crate::judge::Process;
use crate::memory::Memory;
use crate::notify::VARIABLES;
use crate::numbers::{SIGCONT, SIGKILL, SIGSTOP};
use crate::settings::Settings;
use crate::times;

/// How long replicas that are told to stop may take; one that the kernel keeps for longer does
/// nothing by itself.
const STOPPING: Duration = Duration::from_secs(2);
/// Between two looks at them.
const LOOK: Duration = Duration::from_micros(100);

/// For how long a replica that was killed is watched closely; one that the kernel keeps for longer
/// is waited for as any other child.
const LEAVING: Duration = Duration::from_millis(2);
/// Between two looks at it.
const GLANCE: Duration = Duration::from_micros(10);

/// The processes of one group's replicas.
#[derive(Debug)]
pub(crate) struct Group {
    pids: Vec<Option<u32>>,
    /// Those of them that have not been reaped.
    held: Vec<Option<Held>>,
    /// Records of requests that were dealt with, by replica and place.
    heard: Vec<[Record; LETTERS]>,
    processes: Vec<Process>,
    pausing: bool,
    /// Replicas that no longer count.
    expelled: Vec<bool>,
    /// Who makes no step any more, though its process may still be there.
    departed: Vec<bool>,
    /// How these end, where it was not we who ended them.
    fates: Vec<Option<Process>>,
    /// CPU time of processes that have ended, by replica.
    spent: Vec<Duration>,
    /// All that they have used, by replica.
    usage: Vec<Usage>,
    /// What the limit on CPU time of a process that was reaped was held against, by replica.
    limited: Vec<Duration>,
}

impl Group {
    /// Starts the starter, which is replica 0 and makes the others.
    pub(crate) fn start(
        settings: &Settings,
        memory: &Memory,
        inherited: Inherited,
    ) -> Result<Self, RunError> {
        let image = agent::image()?;
        let mut args = vec![
            OsString::from("rcoe-agent"),
            memory.descriptor_list().into(),
        ];
        args.extend(settings.program.argv.iter().cloned());
        let starter = Starter {
            image: &image,
            args,
            keep: memory.descriptors(),
            inherited,
            hidden: if settings.notify.is_some() {
                &VARIABLES
            } else {
                &[]
            },
        };
        let pid = starter.spawn().doing("starting the first replica")?;
        let mut group = Self::unborn(&vec![true; settings.replicas()]);
        group.meet(0, pid);
        Ok(group)
    }

    /// A group of which no process is known yet; `comes` tells of each place whether a replica is
    /// born to it.
    pub(crate) fn unborn(comes: &[bool]) -> Self {
        let replicas = comes.len();
        let process = |&comes: &bool| {
            if comes {
                Process::Unborn
            } else {
                Process::Absent
            }
        };
        Self {
            pids: vec![None; replicas],
            held: (0..replicas).map(|_| None).collect(),
            heard: vec![Default::default(); replicas],
            processes: comes.iter().map(process).collect(),
            pausing: false,
            expelled: vec![false; replicas],
            departed: vec![false; replicas],
            fates: vec![None; replicas],
            spent: vec![Duration::ZERO; replicas],
            usage: vec![Usage::NONE; replicas],
            limited: vec![Duration::ZERO; replicas],
        }
    }

    pub(crate) fn pid(&self, index: usize) -> Option<u32> {
        self.pids[index]
    }

    pub(crate) fn process(&self, index: usize) -> Process {
        self.processes[index]
    }

    /// The same, but for a process that is about to end: what will be said of it.
    pub(crate) fn fate(&self, index: usize) -> Process {
        self.fates[index].unwrap_or(self.processes[index])
    }

    /// Hears of replicas that have begun to end, and publishes it, before the kernel has given back
    /// their memory and tells of their end.
    pub(crate) fn hear_of_ends(&mut self, memory: &Memory) {
        for index in 0..self.pids.len() {
            let lives = self.processes[index] == Process::Alive && self.fates[index].is_none();
            if !lives || !memory.report(index).will.is_opened() {
                continue;
            }
            self.fates[index] = self.pids[index].and_then(fate_of);
            if self.fates[index].is_some() {
                self.departed[index] = true;
                self.mourn(index, memory);
            }
        }
    }

    /// Publishes that a replica is gone. One that ended as it should is not missed by siblings that
    /// are about to.
    fn mourn(&self, index: usize, memory: &Memory) {
        if self.expelled[index] || phase(memory, index) != Some(Phase::Ended) {
            memory.set_state(index, ReplicaState::Dead);
            self.call_survivors(index, memory);
        }
    }

    /// Has the others meet, where they do between calls: one that computes would not notice.
    fn call_survivors(&self, lost: usize, memory: &Memory) {
        if memory.control().points.load(Relaxed) == 0 {
            return;
        }
        let others = (0..self.processes.len()).filter(|&index| index != lost);
        others.for_each(|index| self.signal(index, SIG_KICK));
    }

    /// Whether every replica that was born has been seen.
    pub(crate) fn is_complete(&self) -> bool {
        !self.processes.contains(&Process::Unborn)
    }

    /// Whether a known process of the group lives.
    pub(crate) fn is_alive(&self) -> bool {
        self.processes.contains(&Process::Alive)
    }

    /// Learns the process ids that replicas have told, believing only our own children.
    pub(crate) fn learn(&mut self, memory: &Memory) {
        for index in 0..self.pids.len() {
            let told = memory.report(index).pid.load(Acquire);
            let unborn = self.processes[index] == Process::Unborn;
            if unborn && !self.pids.contains(&Some(told)) && is_child(told) {
                self.meet(index, told);
            }
        }
    }

    /// The parent's word on the first replica, which may not have told itself yet.
    pub(crate) fn know_first(&mut self, first: usize, pid: u32) {
        if self.processes[first] == Process::Unborn {
            self.meet(first, pid);
        }
    }

    /// This process of ours is this replica.
    fn meet(&mut self, index: usize, pid: u32) {
        self.pids[index] = Some(pid);
        self.held[index] = Held::child(pid);
        self.processes[index] = Process::Alive;
    }

    /// Another process is this replica from here on.
    pub(crate) fn adopt(&mut self, index: usize, pid: u32) {
        self.meet(index, pid);
        self.heard[index] = Default::default();
        self.expelled[index] = false;
        self.departed[index] = false;
        self.fates[index] = None;
        self.limited[index] = Duration::ZERO;
    }

    /// Takes in what the kernel says of a child, and publishes it; false if it is not of this
    /// group.
    pub(crate) fn note(&mut self, pid: u32, status: WaitStatus, memory: &Memory) -> bool {
        let Some(index) = self.index_of(pid, memory) else {
            return false;
        };
        if status.stopped() && !self.pausing {
            memory.set_state(index, ReplicaState::Stopped);
        } else if status.continued() {
            memory.set_state(index, ReplicaState::Alive);
        } else if let Some(end) = end_of(status) {
            self.processes[index] = end;
            self.held[index] = None;
            self.mourn(index, memory);
        }
        true
    }

    /// Which replica this child is, by what it told before or in its last moment.
    fn index_of(&mut self, pid: u32, memory: &Memory) -> Option<usize> {
        if let Some(index) = self.pids.iter().position(|&known| known == Some(pid)) {
            return Some(index);
        }
        let index = (0..self.pids.len()).find(|&index| {
            let unborn = self.processes[index] == Process::Unborn;
            unborn && memory.report(index).pid.load(Acquire) == pid
        })?;
        self.pids[index] = Some(pid);
        Some(index)
    }

    /// Sends a signal to one replica, if it lives.
    pub(crate) fn signal(&self, index: usize, signal: u32) {
        if let (Some(child), Process::Alive) = (&self.held[index], self.processes[index]) {
            child.signal(signal);
        }
    }

    /// Whether the replica has made requests that were not dealt with; not by its word alone that
    /// it is one of ours.
    pub(crate) fn has_request(&self, index: usize, memory: &Memory) -> bool {
        let alive = self.processes[index] == Process::Alive;
        let letters = letters(memory, index);
        let mut news = letters.iter().zip(&self.heard[index]);
        alive && news.any(|(words, heard)| words != heard && Request::unpack(*words).is_some())
    }

    /// The requests that this replica has made since this was last asked.
    pub(crate) fn take_requests(&mut self, index: usize, memory: &Memory) -> Vec<Request> {
        let mut taken = Vec::new();
        for (place, words) in letters(memory, index).into_iter().enumerate() {
            let request = Request::unpack(words).filter(|_| words != self.heard[index][place]);
            if let Some(request) = request.filter(|it| belongs(it.ask, place)) {
                self.heard[index][place] = words;
                taken.push(request);
            }
        }
        taken
    }

    /// Kills a replica that no longer counts; its siblings learn of its death in any case, and do
    /// not wait until its memory is given back, which takes long where there is much of it.
    pub(crate) fn expel(&mut self, index: usize, memory: &Memory) {
        self.expelled[index] = true;
        self.kill(index);
        let deadline = Instant::now() + LEAVING;
        while !self.has_left(index) && Instant::now() < deadline {
            self.departed[index] = self.pids[index].is_some_and(is_leaving);
            if !self.departed[index] {
                std::thread::sleep(GLANCE);
            }
        }
        if self.has_left(index) {
            memory.set_state(index, ReplicaState::Dead);
        }
    }

    /// Whether this replica does nothing any more.
    pub(crate) fn has_left(&self, index: usize) -> bool {
        self.departed[index] || self.processes[index].is_gone()
    }

    /// CPU time that ended processes of a replica have used.
    pub(crate) fn spent(&self, index: usize) -> Duration {
        self.spent[index]
    }

    /// What ended processes of a replica have used.
    pub(crate) fn usage(&self, index: usize) -> Usage {
        self.usage[index]
    }

    /// A process that was just reaped used so much.
    pub(crate) fn add_usage(&mut self, pid: u32, time: Duration, usage: &Usage) {
        if let Some(index) = self.index(pid) {
            self.spent[index] += time;
            self.usage[index] = self.usage[index].plus(usage);
        }
    }

    /// Remembers what counts for the limit on CPU time of a process that is about to be reaped.
    pub(crate) fn keep_limited_time(&mut self, pid: u32) {
        if let Some(index) = self.index(pid) {
            self.limited[index] = limited_cpu_time(pid).unwrap_or_default();
        }
    }

    /// What counts for the limit on CPU time that the host holds a replica against.
    pub(crate) fn limited_time(&self, index: usize) -> Duration {
        let unreaped = self.processes[index] == Process::Alive;
        let pid = self.pids[index].filter(|_| unreaped);
        pid.and_then(limited_cpu_time)
            .unwrap_or(self.limited[index])
    }

    /// The replica that has this process id.
    pub(crate) fn index(&self, pid: u32) -> Option<usize> {
        self.pids.iter().position(|&known| known == Some(pid))
    }

    /// What the scheduler tells of a living replica.
    pub(crate) fn look(&self, index: usize) -> Option<Look> {
        let pid = self.pids[index].filter(|_| self.processes[index] == Process::Alive)?;
        times::look(pid)
    }

    /// CPU time that a living replica has used, where the kernel tells.
    pub(crate) fn cpu_time(&self, index: usize) -> Option<Duration> {
        self.look(index).map(|look| Duration::from_nanos(look.used))
    }

    /// Kills one replica; its end is reaped later.
    fn kill(&self, index: usize) {
        self.signal(index, SIGKILL);
    }

    /// Stops all replicas on purpose, and waits until they are: one that is still on its way out of
    /// a read of a terminal takes what is meant for whoever has the terminal next.
    pub(crate) fn pause(&mut self) {
        self.pausing = true;
        (0..self.pids.len()).for_each(|index| self.signal(index, SIGSTOP));
        let deadline = Instant::now() + STOPPING;
        let living = (0..self.pids.len()).filter(|&index| !self.processes[index].is_gone());
        for pid in living.filter_map(|index| self.pids[index]) {
            while !stands_still(pid) && Instant::now() < deadline {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Lets all replicas go on.
    pub(crate) fn resume(&mut self) {
        (0..self.pids.len()).for_each(|index| self.signal(index, SIGCONT));
        self.pausing = false;
    }

    /// Kills all replicas; their ends are reaped later.
    pub(crate) fn kill_all(&self) {
        (0..self.pids.len()).for_each(|index| self.kill(index));
    }
}

/// Places for requests of a replica.
const LETTERS: usize = 3;

/// What lies in a replica's places for requests: those that are answered, and two kinds that are
/// not.
fn letters(memory: &Memory, index: usize) -> [Record; LETTERS] {
    let report = memory.report(index);
    [&report.wish, &report.background, &report.expired].map(rcoe_linux_abi::Letter::words)
}

/// Whether such a request may lie in this place.
fn belongs(ask: Ask, place: usize) -> bool {
    let own = match ask {
        Ask::Background { .. } => 1,
        Ask::Expired { .. } => 2,
        _ => 0,
    };
    own == place
}

/// Is this process stopped, or gone?
fn stands_still(pid: u32) -> bool {
    let state = state_of(pid);
    state.is_none_or(|state| state.starts_with(['T', 't', 'Z', 'X']))
}

/// Has this process of ours, which has a single thread, begun to end? From then on it makes no
/// call and executes nothing of the program: the kernel marks it only after the last call has come
/// to its end, and its requests to an io_uring are cancelled or done.
fn is_leaving(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| is_marked(&state))
}

/// How this process of ours ends, if it has begun to: as [`is_leaving`], by its status. A status of
/// 0 can also mean that we may not see it.
fn fate_of(pid: u32) -> Option<Process> {
    fate_in(&state_of(pid)?)
}

/// The same of its `stat` from the state on: the status is the fiftieth word.
fn fate_in(state: &str) -> Option<Process> {
    let status = state.split_ascii_whitespace().nth(49)?.parse::<i32>();
    let status = status
        .ok()
        .filter(|&status| status != 0 && is_marked(state))?;
    Some(match status & 0x7f {
        0 => Process::Exited(status >> 8 & 0xff),
        signal => Process::Killed(signal),
    })
}

/// Whether it has begun to end, by its `stat` from the state on: the flags are the seventh word.
fn is_marked(state: &str) -> bool {
    const PF_EXITING: u32 = 4;
    let flags = state.split_ascii_whitespace().nth(6);
    let flags = flags.and_then(|word| word.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// What `/proc` tells of a process, from its state on.
fn state_of(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
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

/// Is this a child of ours, ended but not reaped included?
pub(crate) fn is_child(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_is_not_leaving_and_one_that_has_ended_is() {
        assert!(!is_leaving(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), ended).unwrap();
        assert!(is_leaving(child.id()), "{:?}", state_of(child.id()));
        child.wait().unwrap();
    }

    #[test]
    fn how_a_process_ends_is_seen_before_it_is_reaped() {
        assert_eq!(fate_of(std::process::id()), None);
        for (script, fate) in [
            ("kill -9 $$", Process::Killed(9)),
            ("exit 3", Process::Exited(3)),
        ] {
            let mut shell = std::process::Command::new("sh");
            let mut child = shell.args(["-c", script]).spawn().unwrap();
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(Pid::from_child(&child)), ended).unwrap();
            assert_eq!(fate_of(child.id()), Some(fate), "{script}");
            child.wait().unwrap();
        }
    }

    #[test]
    fn the_mark_is_one_bit_of_the_flags() {
        assert!(is_marked("R 1 2 3 4 5 4194308 0"));
        assert!(!is_marked("R 1 2 3 4 5 4194304 0"));
    }
}
