//! Controlling terminals of the program's sessions, but for the one that rcoe has.
//!
//! For each there is a deputy, a process of the host that leads a session on the terminal there and
//! passes on what the terminal sends. Whose the terminal is the host says when the deputy takes it;
//! what becomes of the program's processes when a session gets or loses its terminal is done here,
//! as the kernel does it.
//!
//! Contract: a terminal has an entry while the process that leads its session lives. That a session
//! has lost its terminal because nobody had it open any more the host tells nobody: it is looked up
//! when it matters.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rcoe_linux_abi::{NOT_OURS, Terminal};
use rcoe_linux_sys::host::{Deputy, SignalInfo, terminal_device};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getuid, pidfd_getfd, pidfd_open};

use super::Family;
use super::jobs::from_kernel;
use crate::memory::controlling_terminal;
use crate::numbers::{ENOTTY, EPERM, SIGCONT, SIGHUP};
use crate::team::State;

/// The deputies, by the place of their terminal.
pub(super) type Deputies = Vec<Option<Deputy>>;

/// A copy of another process's descriptor; as an answer if there is none.
fn descriptor_of(pid: u32, fd: u32) -> Result<OwnedFd, i64> {
    let Some(pid) = Pid::from_raw(pid.cast_signed()) else {
        return Err(NOT_OURS);
    };
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| NOT_OURS)?;
    match pidfd_getfd(&process, fd.cast_signed(), PidfdGetfdFlags::empty()) {
        Ok(copy) => Ok(copy),
        Err(Errno::BADF) => Err(-i64::from(Errno::BADF.raw_os_error())),
        Err(_) => Err(NOT_OURS),
    }
}

fn answer_of(error: &std::io::Error) -> i64 {
    error
        .raw_os_error()
        .map_or(EPERM, |errno| -i64::from(errno))
}

impl Family {
    fn terminal(&self, place: usize) -> &Terminal {
        &self.root().memory.control().terminals[place]
    }

    fn set_terminal(&self, place: usize, [device, session, foreground, deputy]: [u32; 4]) {
        let memory = &self.root().memory;
        memory.set(|control| &control.terminals[place].session, session);
        memory.set(|control| &control.terminals[place].foreground, foreground);
        memory.set(|control| &control.terminals[place].deputy, deputy);
        memory.set(|control| &control.terminals[place].device, device);
    }

    /// Place of the terminal that a process has.
    fn terminal_of(&self, group: usize) -> Option<usize> {
        self.team(group).memory.control().job.terminal()
    }

    fn leads(&self, group: usize) -> bool {
        self.team(group).pid == self.session(group)
    }

    /// `TIOCSCTTY`, and the opening of a terminal by a process that leads a session without one.
    pub(super) fn take_terminal(&mut self, sender: usize, pid: u32, fd: u32, steal: bool) -> i64 {
        let terminal = match descriptor_of(pid, fd) {
            Ok(terminal) => terminal,
            Err(answer) => return answer,
        };
        let device = match terminal_device(terminal.as_fd()) {
            Ok(device) => device,
            Err(error) => return answer_of(&error),
        };
        self.forget_lost_terminals();
        match self.terminal_of(sender) {
            Some(own)
                if self.leads(sender) && self.terminal(own).device.load(Relaxed) == device =>
            {
                return 0;
            }
            None if self.leads(sender) => {}
            _ => return EPERM,
        }
        let deputy = match Deputy::new(terminal.as_fd(), steal, Arc::clone(&self.bell)) {
            Ok(deputy) => deputy,
            Err(error) => return answer_of(&error),
        };
        for place in 0..self.deputies.len() {
            if self.terminal(place).device.load(Relaxed) == device {
                self.vacate(place);
            }
        }
        // There are as many places as there can be processes, and rcoe's own.
        let free = |&place: &usize| self.terminal(place).device.load(Relaxed) == 0;
        let Some(place) = (1..self.deputies.len()).find(free) else {
            return EPERM;
        };
        let (session, group) = (self.session(sender), self.group_id(sender));
        self.set_terminal(place, [device, session, group, deputy.pid()]);
        self.deputies[place] = Some(deputy);
        self.set_terminal_of(sender, Some(place));
        0
    }

    fn set_terminal_of(&self, group: usize, place: Option<usize>) {
        let word = place.map_or(0, |place| u32::try_from(place).unwrap_or(0) + 1);
        let memory = &self.team(group).memory;
        memory.set(|control| &control.job.terminal, word);
    }

    /// `TIOCNOTTY`.
    pub(super) fn leave_terminal(&mut self, sender: usize) -> i64 {
        let Some(place) = self.terminal_of(sender) else {
            return ENOTTY;
        };
        if self.leads(sender) {
            let foreground = self.terminal(place).foreground.load(Relaxed);
            self.vacate(place);
            let by_leader = SignalInfo {
                code: 0,
                sender: self.team(sender).pid,
                user: getuid().as_raw(),
                ..from_kernel(SIGHUP)
            };
            self.signal_group(foreground, by_leader);
            let go_on = SignalInfo {
                number: SIGCONT,
                ..by_leader
            };
            self.signal_group(foreground, go_on);
        } else {
            self.set_terminal_of(sender, None);
        }
        0
    }

    /// A process has ended. If it led a session, that loses its terminal.
    pub(super) fn end_session(&mut self, leader: usize) {
        if !self.leads(leader) {
            return;
        }
        if let Some(place) = self.terminal_of(leader).filter(|&place| place != 0) {
            let foreground = self.terminal(place).foreground.load(Relaxed);
            self.vacate(place);
            self.signal_group(foreground, from_kernel(SIGHUP));
        } else if let Some(foreground) = self.team(leader).hung_up {
            self.signal_group(foreground, from_kernel(SIGHUP));
            self.signal_group(foreground, from_kernel(SIGCONT));
        }
    }

    fn signal_group(&mut self, id: u32, signal: SignalInfo) {
        for group in self.members_of(id) {
            self.hand_to(group, signal);
        }
    }

    /// Nobody has the terminal at this place any more.
    fn vacate(&mut self, place: usize) {
        self.set_terminal(place, [0; 4]);
        self.deputies[place] = None;
        for group in self.groups() {
            if self.terminal_of(group) == Some(place) {
                self.set_terminal_of(group, None);
            }
        }
    }

    /// Sessions whose terminal nobody has had open for a moment have lost it.
    fn forget_lost_terminals(&mut self) {
        for place in 0..self.deputies.len() {
            let lost = |deputy: &Deputy| controlling_terminal(deputy.pid()) == Some(0);
            if self.deputies[place].as_ref().is_some_and(lost) {
                self.vacate(place);
            }
        }
    }

    /// What terminals have sent to their deputies.
    pub(crate) fn hear_deputies(&mut self) {
        for place in 0..self.deputies.len() {
            let Some(deputy) = &self.deputies[place] else {
                continue;
            };
            for number in deputy.arrived() {
                if number == SIGHUP {
                    self.lose_line(place);
                } else {
                    let foreground = self.terminal(place).foreground.load(Relaxed);
                    self.signal_group(foreground, from_kernel(number));
                }
            }
        }
    }

    /// The terminal's other end was closed: the process that leads the session is told, and if it
    /// ends, the process group in the foreground.
    fn lose_line(&mut self, place: usize) {
        let terminal = self.terminal(place);
        let session = terminal.session.load(Relaxed);
        let foreground = terminal.foreground.load(Relaxed);
        self.vacate(place);
        let leader = self.by_pid(session);
        if let Some(leader) = leader.filter(|&it| self.team(it).state == State::Living) {
            self.team_mut(leader).hung_up = Some(foreground);
            self.hand_to(leader, from_kernel(SIGHUP));
            self.hand_to(leader, from_kernel(SIGCONT));
        }
    }
}
