//! Ends of processes: to whom they are told, and whose children those left behind are.
//!
//! An orphan goes to the nearest of its ancestors that takes orphans in (PR_SET_CHILD_SUBREAPER)
//! and still runs, else to nobody: then it is forgotten when it ends.
//!
//! A parent is told by the signal that it asked for when it made the child. That is SIGCHLD after
//! all if the child or the parent has executed a program since, or the parent is another one.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use rcoe_linux_abi::{Adoption, Ending};
use rcoe_linux_sys::host::SignalInfo;
use rustix::process::getuid;

use super::Family;
use crate::numbers::{CLD_EXITED, CLD_KILLED, SI_USER, SIGCHLD};
use crate::team::State;

/// What a parent is told when a child has ended.
fn child_signal(number: u32, pid: u32, ending: Ending) -> SignalInfo {
    let (code, status) = match ending {
        Ending::Exit(status) => (CLD_EXITED, status),
        Ending::Signal(signal) => (CLD_KILLED, signal),
    };
    SignalInfo {
        number,
        code,
        sender: pid,
        user: getuid().as_raw(),
        value: u64::from(status),
    }
}

impl Family {
    /// The last process of a group is gone.
    pub(super) fn bury(&mut self, group: usize, ending: Ending) {
        let wards = self.wards();
        let team = self.team_mut(group);
        team.state = State::Zombie(ending);
        team.tell_usage();
        // Whoever awaits this one next must find those that it has left.
        self.orphan_children(group);
        let told_by = self.fix_exit_signal(group);
        let team = self.team_mut(group);
        team.memory.set(|control| &control.ending, ending.pack());
        team.end_stand_in();
        self.end_session(group);
        self.tell_end(group, told_by, ending);
        self.wake_orphans(&wards);
    }

    /// Decides by which signal a zombie's parent is told.
    fn fix_exit_signal(&self, group: usize) -> u32 {
        let team = self.team(group);
        let control = team.memory.control();
        if team.programs() != 0 {
            control.exit_signal.store(SIGCHLD, Relaxed);
        }
        let parent = team.parent.map(|parent| self.team(parent).programs());
        let told_by = if parent == Some(team.programs_before) {
            control.exit_signal.load(Relaxed)
        } else {
            SIGCHLD
        };
        control.told_by.store(told_by, Relaxed);
        told_by
    }

    /// Tells the parent of a zombie, if it has one.
    fn tell_end(&mut self, group: usize, told_by: u32, ending: Ending) {
        let (pid, parent) = (self.team(group).pid, self.team(group).parent);
        let Some(parent) = parent else { return };
        if (1..=64).contains(&told_by) {
            self.hand_to(parent, child_signal(told_by, pid, ending));
        }
        self.team(parent).memory.ring();
    }

    /// The children of a group that has ended get another parent, or none, and the signal that they
    /// want then.
    fn orphan_children(&mut self, group: usize) {
        let reaper = self.reaper(group);
        for child in self.groups() {
            if self.team(child).parent == Some(group) {
                self.pass_on(child, reaper);
                self.send_parting_signal(child, group);
            }
        }
    }

    /// Who takes in the children of a group.
    fn reaper(&self, group: usize) -> Option<usize> {
        let above = |&group: &usize| self.team(group).parent;
        let mut ancestors = std::iter::successors(above(&group), above);
        ancestors.find(|&at| {
            let team = self.team(at);
            team.state == State::Living && team.most_say(|report| &report.subreaper)
        })
    }

    /// Gives a child to another parent. One that nobody has told of has none.
    fn pass_on(&mut self, child: usize, reaper: Option<usize>) {
        self.adoptions += 1;
        let count = self.adoptions;
        let unborn = self.team(child).state == State::Unborn;
        let reaper = reaper.filter(|_| !unborn);
        let known = reaper.map(|at| (at, self.team(at).pid, self.team(at).programs()));
        let team = self.team_mut(child);
        let control = team.memory.control();
        control.exit_signal.store(SIGCHLD, Relaxed);
        control.told_by.store(SIGCHLD, Relaxed);
        let word = known.map_or(0, |(at, _, _)| {
            let by = u32::try_from(at).unwrap_or(u32::MAX);
            Adoption { by, count }.pack()
        });
        control.adoption.store(word, SeqCst);
        team.parent = reaper;
        team.programs_before = known.map_or(0, |(_, _, programs)| programs);
        let ppid = known.map_or(1, |(_, pid, _)| pid);
        team.memory.set(|control| &control.ppid, ppid);
        if unborn {
            team.memory.set(|control| &control.abandoned, 1);
        }
        if let State::Zombie(ending) = team.state {
            self.tell_end(child, SIGCHLD, ending);
        }
    }

    /// The signal that a child wants when its parent ends.
    fn send_parting_signal(&mut self, child: usize, parent: usize) {
        // A child that asks for the signal later finds that its parent is gone.
        fence(SeqCst);
        let child_team = self.team(child);
        let told = child_team.members().next();
        let wish = |index| &child_team.memory.report(index).death_signal;
        let wanted = told.map(|index| wish(index).load(Relaxed));
        if let Some(number @ 1..=64) = wanted {
            let signal = self.parting_signal(parent, number);
            self.hand_to(child, signal);
        }
    }

    /// A signal that a group sends with its end.
    fn parting_signal(&self, group: usize, number: u32) -> SignalInfo {
        let team = self.team(group);
        let user = team.members().next().map_or(0, |index| {
            let report = team.memory.report(index);
            report.user.load(Relaxed)
        });
        SignalInfo {
            number,
            code: SI_USER,
            sender: team.pid,
            user,
            value: 0,
        }
    }
}
