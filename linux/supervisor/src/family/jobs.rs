//! Job control: signals that stop and continue, the foreground of terminals, orphaned groups.
//!
//! A signal that stops a process by its default action stops it here; one that the process handles
//! or blocks goes to its replicas, as does any if the process shares memory with others. Those ask
//! for the stop when they come to it.
//!
//! To the shell that started rcoe, rcoe is what the program's first process is to it: when that
//! stops, rcoe stops. While rcoe is stopped, other processes of the program wait whenever they need
//! the supervisor. So if a process of the program has stopped the first one, rcoe goes on as long
//! as some process runs, which may be about to continue it.

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;

use rcoe_linux_sys::host::{self, SignalInfo, stop_self};
use rustix::process::{Pid, getuid};
use rustix::termios::tcgetpgrp;

use super::Family;
use crate::memory::Numbered;
use crate::numbers::{
    CLD_CONTINUED, CLD_STOPPED, ENOTTY, EPERM, ESRCH, SI_KERNEL, SIGALRM, SIGCHLD, SIGCONT, SIGHUP,
    SIGPROF, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGVTALRM,
};
use crate::team::State;

/// What is kept of rcoe's own standing as a job.
#[derive(Debug)]
pub(crate) struct Standstill {
    /// Somebody outside the program's process group can continue it.
    has_shell: bool,
    /// By which signal the first process was stopped, while rcoe has not stopped for that.
    due: Option<u32>,
    /// It came from outside the program.
    at_once: bool,
}

impl Standstill {
    pub(super) fn new() -> Self {
        Self {
            has_shell: has_shell(),
            due: None,
            at_once: false,
        }
    }
}

/// Whether rcoe's process group has a parent in another group of the session, as far as it can be
/// seen from rcoe itself. The kernel knows it better when rcoe stops.
fn has_shell() -> bool {
    const FARTHEST: usize = 64;
    let own = [host::process_group(0), host::session(0)];
    let mut process = Pid::from_raw(std::process::id().cast_signed());
    for _ in 0..FARTHEST {
        let Some(parent) = process.and_then(parent_of) else {
            return false;
        };
        let id = parent.as_raw_nonzero().get().cast_unsigned();
        let group = host::process_group(id);
        if group.is_some() && group != own[0] {
            return host::session(id) == own[1];
        }
        process = Some(parent);
    }
    false
}

fn parent_of(process: Pid) -> Option<Pid> {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Pid::from_raw(rest.split_ascii_whitespace().nth(1)?.parse().ok()?)
}

pub(super) fn from_kernel(number: u32) -> SignalInfo {
    SignalInfo {
        number,
        code: SI_KERNEL,
        sender: 0,
        user: 0,
        value: 0,
    }
}

impl Family {
    /// A signal from outside. Those of the terminal are for its foreground group, and so is, from
    /// the shell that started rcoe, the word to go on; others are for the first process. Once that
    /// is gone, they are for whoever is left.
    pub(crate) fn deliver(&mut self, signal: SignalInfo) {
        let root = self.root();
        let own_timer = [SIGALRM, SIGVTALRM, SIGPROF].contains(&signal.number);
        let alone = (signal.sender != 0 || own_timer) && root.state == State::Living;
        let initial = host::process_group(0).unwrap_or_default();
        let foreground = root.memory.control().terminals[0].foreground.load(Relaxed);
        let hung_up = signal.number == SIGHUP && leads_session();
        for group in self.groups() {
            let meant = match signal.number {
                SIGCONT => group == 0 || self.group_id(group) == initial,
                _ if alone => group == 0,
                _ if hung_up && group == 0 => true,
                _ => signal.sender != 0 || self.group_id(group) == foreground,
            };
            if meant {
                self.standstill.at_once |= group == 0;
                self.hand_to(group, signal);
            }
        }
    }

    /// A signal for one process.
    pub(super) fn hand_to(&mut self, group: usize, signal: SignalInfo) {
        let team = self.team(group);
        let newborn = matches!(team.state, State::Unborn | State::Living) && !team.is_settled();
        match signal.number {
            SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU if newborn => {
                self.team_mut(group).keep_early(signal);
            }
            SIGCONT if team.is_stopped() => self.go_on(group, Some(signal)),
            SIGCONT => {
                self.forget_stop(group);
                self.team_mut(group).forget_early();
                self.team_mut(group).deliver(signal);
            }
            SIGSTOP => self.stop_by(group, signal),
            SIGTSTP | SIGTTIN | SIGTTOU if team.would_stop(signal.number) => {
                self.stop_by(group, signal);
            }
            _ => self.team_mut(group).deliver(signal),
        }
    }

    /// Signals that came before a process could be stopped.
    pub(crate) fn hand_over_early(&mut self) {
        for group in self.groups() {
            if let Some(signal) = self.team_mut(group).take_early() {
                self.hand_to(group, signal);
            }
        }
    }

    /// A signal that stops a process by its default action.
    fn stop_by(&mut self, group: usize, signal: SignalInfo) {
        let team = self.team(group);
        let living = team.state == State::Living && !team.is_stopped();
        if !living || self.is_orphaned_by(group, signal.number) {
            return;
        }
        if team.can_be_stopped() {
            self.stop(group, signal.number, None);
        } else {
            self.team_mut(group).deliver(signal);
        }
    }

    /// A process has come to a signal that stops it. Returns whether it does.
    pub(super) fn stop_as_asked(
        &mut self,
        group: usize,
        signal: u8,
        asked: (u32, Numbered),
    ) -> bool {
        let team = self.team(group);
        let number = u32::from(signal);
        let stops = !team.is_to_go_on(asked.0) && !self.is_orphaned_by(group, number);
        if stops {
            self.stop(group, number, Some(asked));
        }
        stops
    }

    /// Stops a process, and tells its parent.
    fn stop(&mut self, group: usize, number: u32, asked: Option<(u32, Numbered)>) {
        let signal = u8::try_from(number).unwrap_or(u8::MAX);
        self.team_mut(group).stop(signal, asked);
        if group == 0 {
            self.standstill.due = Some(number);
        }
        self.tell_parent(group, CLD_STOPPED, number);
    }

    fn go_on(&mut self, group: usize, signal: Option<SignalInfo>) {
        self.forget_stop(group);
        self.team_mut(group).go_on(signal);
        self.tell_parent(group, CLD_CONTINUED, SIGCONT);
    }

    /// Rcoe need not stop on behalf of this process.
    fn forget_stop(&mut self, group: usize) {
        if group == 0 {
            self.standstill.due = None;
            self.standstill.at_once = false;
        }
    }

    fn tell_parent(&mut self, group: usize, code: i32, status: u32) {
        let team = self.team(group);
        let signal = SignalInfo {
            number: SIGCHLD,
            code,
            sender: team.pid,
            user: getuid().as_raw(),
            value: u64::from(status),
        };
        if let Some(parent) = team.parent {
            self.team_mut(parent).deliver(signal);
        }
    }

    /// Stops rcoe, if that is due: the shell that started it sees its job stop. The signal that
    /// continues rcoe is read like any other.
    pub(crate) fn stand_still(&mut self) {
        let runs = |&group: &usize| {
            let team = self.team(group);
            !matches!(team.state, State::Zombie(_)) && !team.is_stopped()
        };
        let mut others = self.groups().into_iter().filter(|&group| group != 0);
        if !self.standstill.at_once && others.any(|group| runs(&group)) {
            return;
        }
        let due = self.standstill.due.take();
        let Some(signal) = due.filter(|_| self.root().is_stopped()) else {
            return;
        };
        self.standstill.at_once = false;
        if !stop_self(signal) {
            // Nobody could ever continue it.
            self.go_on(0, None);
        }
        for team in self.teams.iter_mut().flatten() {
            team.patience = None;
        }
    }

    /// Whether nobody could ever continue the process after this signal: then it does not stop it.
    fn is_orphaned_by(&self, group: usize, signal: u32) -> bool {
        signal != SIGSTOP && self.is_orphaned(self.group_id(group))
    }

    /// A group is orphaned unless a member's parent is in another group of the same session.
    fn is_orphaned(&self, id: u32) -> bool {
        let mut members = self.groups().into_iter().filter(|&group| {
            self.group_id(group) == id && !matches!(self.team(group).state, State::Zombie(_))
        });
        !members.any(|group| match self.team(group).parent {
            Some(parent) => {
                self.group_id(parent) != id && self.session(parent) == self.session(group)
            }
            // In a session of its own it has left the shell behind.
            None => group == 0 && self.standstill.has_shell && !self.is_apart(),
        })
    }

    /// Whether the first process has left the session that rcoe is in.
    fn is_apart(&self) -> bool {
        host::session(0).is_some_and(|own| self.session(0) != own)
    }

    /// Tells every process whether its group is orphaned.
    pub(super) fn mark_orphans(&self) {
        for group in self.groups() {
            let orphaned = u32::from(self.is_orphaned(self.group_id(group)));
            let memory = &self.team(group).memory;
            if memory.control().job.orphaned.load(Relaxed) != orphaned {
                memory.set(|control| &control.job.orphaned, orphaned);
            }
        }
    }

    /// Process groups that somebody can continue and that have a stopped member.
    pub(super) fn wards(&self) -> Vec<u32> {
        let stopped = self.groups().into_iter();
        let stopped = stopped.filter(|&group| group != 0 && self.team(group).is_stopped());
        let mut ids = stopped
            .map(|group| self.group_id(group))
            .collect::<Vec<_>>();
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|&id| !self.is_orphaned(id));
        ids
    }

    /// After a death: members of groups that nobody can continue any more are told to end, and go
    /// on.
    pub(super) fn wake_orphans(&mut self, wards: &[u32]) {
        self.mark_orphans();
        let orphans = wards.iter().filter(|&&id| self.is_orphaned(id));
        let orphans = orphans.flat_map(|&id| self.members_of(id));
        for group in orphans.collect::<Vec<_>>() {
            self.hand_to(group, from_kernel(SIGHUP));
            self.hand_to(group, from_kernel(SIGCONT));
        }
    }

    pub(super) fn members_of(&self, id: u32) -> Vec<usize> {
        let mut groups = self.groups();
        groups.retain(|&group| self.group_id(group) == id);
        groups
    }

    /// A process has used its terminal from the background: its whole group hears of it.
    pub(super) fn rebuke(&mut self, sender: usize, signal: u8) {
        let rebukes = [SIGTTIN, SIGTTOU].contains(&u32::from(signal));
        if rebukes && self.is_in_background(sender) {
            for group in self.members_of(self.group_id(sender)) {
                self.standstill.at_once |= group == 0;
                self.hand_to(group, from_kernel(u32::from(signal)));
            }
        }
        let memory = &self.team(sender).memory;
        let count = memory.control().job.rebukes.load(Relaxed);
        memory.set(|control| &control.job.rebukes, count.wrapping_add(1));
    }

    /// Whether the process's terminal has another group in the foreground; that may have changed
    /// since the process found it so.
    fn is_in_background(&self, group: usize) -> bool {
        let Some(place) = self.team(group).memory.control().job.terminal() else {
            return false;
        };
        let terminal = &self.root().memory.control().terminals[place];
        let behind = terminal.foreground.load(Relaxed) != self.group_id(group);
        behind
            || place == 0
                && host_foreground().is_some_and(|group| Some(group) != host::process_group(0))
    }

    /// `tcsetpgrp` of the terminal of the sender's session.
    pub(super) fn set_foreground(&self, sender: usize, id: u32) -> i64 {
        let session = self.session(sender);
        let fits = |&group: &usize| self.group_id(group) == id && self.session(group) == session;
        if !self.groups().iter().any(fits) {
            let exists = self
                .groups()
                .iter()
                .any(|&group| self.group_id(group) == id);
            return if exists { EPERM } else { ESRCH };
        }
        let Some(terminal) = self.team(sender).memory.control().job.terminal() else {
            return ENOTTY;
        };
        self.root()
            .memory
            .set(|control| &control.terminals[terminal].foreground, id);
        0
    }
}

/// The process group in the foreground of the terminal that rcoe has.
fn host_foreground() -> Option<u32> {
    let terminal = File::open("/dev/tty").ok()?;
    let group = tcgetpgrp(terminal).ok()?;
    Some(group.as_raw_nonzero().get().cast_unsigned())
}

fn leads_session() -> bool {
    host::session(0) == Some(std::process::id())
}
