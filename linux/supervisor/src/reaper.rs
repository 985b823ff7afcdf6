//! All children of the supervisor, of whatever group: their ends reach the group they belong to.

use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use rcoe_linux_abi::{TWIN, Usage};
use rcoe_linux_sys::host::{children_cpu_time, next_usage, signal_child};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait, waitpid};

use crate::error::{Doing, RunError};
use crate::group::is_child;
use crate::numbers::SIGKILL;
use crate::team::{State, Team};

/// How long the maker of a process that ended before it told who it was may take to tell.
const NAMING_PATIENCE: Duration = Duration::from_secs(10);

/// A child that ended before anybody told who it was. Its maker may be about to.
#[derive(Debug)]
struct Nameless {
    pid: u32,
    status: WaitStatus,
    since: Instant,
}

/// Knows the children that belong to nobody.
#[derive(Debug)]
pub(crate) struct Reaper {
    /// Children that are no part of the run: those that we had before, of which a shell that
    /// executes rcoe can leave some, and the guardian.
    strays: Vec<u32>,
    /// Twins of replicas, which do nothing but hold memory for a while.
    twins: Vec<u32>,
    /// Replicas were copied: a copy of a process that has ended since can end unnamed.
    copies: bool,
    /// Ends that nobody is known to have met.
    nameless: Vec<Nameless>,
    /// Stops that a debugger is to hear of first; `None` where there is none.
    stops: Option<Vec<(u32, WaitStatus)>>,
}

impl Reaper {
    /// Before the first process of the run starts; whether a debugger traces replicas.
    pub(crate) fn new(debugged: bool) -> Self {
        Self {
            stops: debugged.then(Vec::new),
            strays: children(),
            twins: Vec::new(),
            copies: false,
            nameless: Vec::new(),
        }
    }

    /// This child is no part of the run: it is neither ended nor waited for.
    pub(crate) fn leave_alone(&mut self, pid: u32) {
        self.strays.push(pid);
    }

    /// Stops that the debugger has not heard of.
    pub(crate) fn take_stops(&mut self) -> Vec<(u32, WaitStatus)> {
        self.stops.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether a replica ended before it could say who it was, and nobody else has said it.
    pub(crate) fn lost_someone(&self) -> bool {
        let overdue = |dead: &Nameless| dead.since.elapsed() > NAMING_PATIENCE;
        !self.copies && self.nameless.iter().any(overdue)
    }

    /// Takes in all that the kernel has to say.
    pub(crate) fn reap(&mut self, teams: &mut [Option<Box<Team>>]) -> Result<(), RunError> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        loop {
            // A child that has just told its number must be known before its death is heard of.
            for team in teams.iter_mut().flatten() {
                team.group.learn(&team.memory);
            }
            self.learn_births(teams);
            let mut all = teams.iter().flatten();
            self.copies |= all.any(|team| team.reintegration.has_begun());
            self.nameless
                .retain(|dead| !is_of(teams, dead.pid, dead.status));
            let before = children_cpu_time();
            let Some((next, usage)) = next_usage() else {
                return Ok(());
            };
            for team in teams.iter_mut().flatten() {
                team.group.keep_limited_time(next);
            }
            let next = Pid::from_raw(next.cast_signed());
            let (pid, status) = match waitpid(next, options) {
                Ok(Some(news)) => news,
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error).doing("waiting for the replicas"),
            };
            let pid = pid.as_raw_nonzero().get().cast_unsigned();
            if let Some(stops) = self.stops.as_mut().filter(|_| status.stopped()) {
                stops.push((pid, status));
                continue;
            }
            let known = is_of(teams, pid, status);
            let spent = children_cpu_time().saturating_sub(before);
            let ended = status.exited() || status.signaled();
            if ended {
                for team in teams.iter_mut().flatten() {
                    team.group.add_usage(pid, spent, &Usage(usage));
                }
            }
            if !known && ended {
                let mut all = teams.iter_mut().flatten();
                let expected = [&mut self.strays, &mut self.twins]
                    .into_iter()
                    .any(|list| forget(list, pid));
                let copy = all.any(|team| team.reintegration.reaped(pid));
                if !expected && !copy {
                    let since = Instant::now();
                    self.nameless.push(Nameless { pid, status, since });
                }
            }
        }
    }

    /// What replicas say of the processes that they have made for a child: the primary of the first
    /// replica of a new group, the others of twins.
    fn learn_births(&mut self, teams: &mut [Option<Box<Team>>]) {
        let mut firsts = Vec::new();
        for team in teams.iter().flatten() {
            for index in team.members() {
                for (group, cell) in team.memory.report(index).births.iter().enumerate() {
                    let word = cell.load(Acquire);
                    let Ok(pid) = u32::try_from(word & u64::from(u32::MAX)) else {
                        continue;
                    };
                    let twin = pid & !TWIN;
                    if pid == twin && pid != 0 {
                        firsts.push((group, word >> 32, index, pid));
                    } else if pid != 0 {
                        know_twin(&mut self.twins, &mut self.nameless, twin);
                    }
                }
            }
        }
        for (group, serial, index, pid) in firsts {
            if let Some(team) = teams.get_mut(group).and_then(Option::as_mut)
                && team.state == State::Unborn
                && u64::from(team.serial) == serial
            {
                team.group.know_first(index, pid);
            }
        }
    }

    /// Kills and reaps every process of the run, also those that never said who they were. First
    /// all stand still: the end of one closes its pipes, and another that reads the end of its
    /// input there would go on and write what follows from half of it.
    pub(crate) fn end(&mut self, teams: &mut [Option<Box<Team>>]) {
        for team in teams.iter_mut().flatten() {
            team.group.learn(&team.memory);
            team.group.pause();
        }
        loop {
            let mut alive = false;
            for team in teams.iter_mut().flatten() {
                team.group.learn(&team.memory);
                team.group.kill_all();
                alive |= team.group.is_alive();
            }
            let nameless = children()
                .into_iter()
                .filter(|pid| !self.strays.contains(pid));
            let nameless = nameless.collect::<Vec<_>>();
            for &pid in &nameless {
                signal_child(pid, SIGKILL);
            }
            if nameless.is_empty() && !alive {
                return;
            }
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get().cast_unsigned();
                    self.strays.retain(|&stray| stray != pid);
                    for team in teams.iter_mut().flatten() {
                        team.note(pid, status);
                    }
                }
                Ok(None) | Err(Errno::INTR) => {}
                // No child is left, whatever we believed.
                Err(_) => return,
            }
        }
    }
}

/// Tells the groups of stops that are no business of the debugger's.
pub(crate) fn tell_stops(teams: &mut [Option<Box<Team>>], stops: Vec<(u32, WaitStatus)>) {
    for (pid, status) in stops {
        is_of(teams, pid, status);
    }
}

/// Tells the group that a process belongs to what has become of it; false if it is of none.
fn is_of(teams: &mut [Option<Box<Team>>], pid: u32, status: WaitStatus) -> bool {
    let mut all = teams.iter_mut().flatten();
    all.any(|team| team.note(pid, status))
}

/// Keeps a twin in mind until it ends, unless it has.
fn know_twin(twins: &mut Vec<u32>, nameless: &mut Vec<Nameless>, twin: u32) {
    if let Some(at) = nameless.iter().position(|dead| dead.pid == twin) {
        nameless.swap_remove(at);
    } else if !twins.contains(&twin) && is_child(twin) {
        twins.push(twin);
    }
}

/// Takes a number off a list, if it is there.
fn forget(list: &mut Vec<u32>, pid: u32) -> bool {
    let at = list.iter().position(|&known| known == pid);
    at.map(|at| list.swap_remove(at)).is_some()
}

/// Our children by the kernel's account; empty where `/proc` does not tell.
fn children() -> Vec<u32> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}
