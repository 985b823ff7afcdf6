//! What concerns several processes of the program: births, ends, signals, process groups, sessions.
//!
//! The supervisor keeps these facts because no group of replicas may write what another relies on.
//! It answers requests of the groups' primaries (see [`rcoe_linux_abi::Ask`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use rcoe_linux_abi::{GROUPS, ReplicaState};
use rcoe_linux_sys::host::{self, Bell};

use crate::error::RunError;
use crate::group::Group;
use crate::numbers::{EACCES, EAGAIN, EINVAL, EPERM, ESRCH};
use crate::slices::skip;
use crate::stats::Stats;
use crate::status::Past;
use crate::team::{State, Team};

mod ends;
mod jobs;
mod permission;
mod requests;
mod terminals;

pub(crate) use jobs::Standstill;
use terminals::Deputies;

/// How long a process that shares memory may take to act upon a deadly signal.
const OBSTINATE: Duration = Duration::from_secs(10);

/// What is asked for with a child.
struct Newborn {
    /// Members of its parent that have a replica of it.
    members: u8,
    /// A process is to stand in for it.
    stand_in: bool,
    /// See [`rcoe_linux_abi::Control::exit_signal`].
    exit_signal: u8,
}

/// All processes of the program, by group number.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) teams: Vec<Option<Box<Team>>>,
    /// Counters of processes that are gone.
    pub(crate) past: Past,
    /// The same counters by replica.
    gone: Stats,
    births: u32,
    adoptions: u32,
    standstill: Standstill,
    deputies: Deputies,
    /// A child has become known that nobody has asked yet whether it wants anything.
    newborn: bool,
    /// Some process has changed its credentials.
    mixed: bool,
    /// By which deputies call.
    bell: Arc<Bell>,
}

impl Family {
    /// A family of one.
    pub(crate) fn new(root: Team, bell: Arc<Bell>) -> Self {
        let mut teams = Vec::new();
        teams.resize_with(root.memory.groups(), || None);
        let mut deputies = Vec::new();
        deputies.resize_with(GROUPS, || None);
        teams[0] = Some(Box::new(root));
        Self {
            teams,
            past: Past::default(),
            gone: Stats::default(),
            births: 1,
            adoptions: 0,
            standstill: Standstill::new(),
            deputies,
            newborn: false,
            mixed: false,
            bell,
        }
    }

    /// The first process.
    ///
    /// # Panics
    /// Never: its place is kept to the end of the run.
    pub(crate) fn root(&self) -> &Team {
        self.teams[0].as_ref().expect("kept to the end")
    }

    /// Groups that exist.
    pub(crate) fn groups(&self) -> Vec<usize> {
        let all = self.teams.iter().enumerate();
        all.filter_map(|(at, team)| team.as_ref().map(|_| at))
            .collect()
    }

    /// Counters of all processes, those that are gone included.
    pub(crate) fn stats(&self) -> Stats {
        let mut all = self.gone.clone();
        for team in self.teams.iter().flatten() {
            all.add(team);
        }
        all
    }

    fn team(&self, group: usize) -> &Team {
        self.teams[group].as_ref().expect("an existing group")
    }

    fn team_mut(&mut self, group: usize) -> &mut Team {
        self.teams[group].as_mut().expect("an existing group")
    }

    /// Whether all is over: only the root is left, and it has ended.
    pub(crate) fn is_over(&self) -> bool {
        let root = matches!(self.root().state, State::Zombie(_));
        root && self.teams[1..].iter().all(Option::is_none)
    }

    /// Learns of births and ends, and gives away what nobody needs any more.
    pub(crate) fn settle(&mut self) -> Result<(), RunError> {
        self.end_the_obstinate();
        // A parent may have told of a birth and ended: the child counts.
        for group in self.groups() {
            if self.team(group).state == State::Unborn {
                self.settle_birth(group)?;
            }
        }
        for group in self.groups() {
            self.team_mut(group).end_stragglers();
            self.team_mut(group).hand_over();
            match self.team(group).state {
                State::Ending(ending) if !self.team(group).is_alive() => {
                    self.bury(group, ending);
                }
                _ => {}
            }
        }
        self.hand_over_early();
        for team in self.teams.iter_mut().flatten() {
            team.leave_mother();
        }
        self.skip_turns_of_the_dead();
        for group in self.groups() {
            let is_left = self.is_forgotten(group) && !self.team(group).owes_turns();
            if group != 0 && is_left && !self.is_needed(group) {
                self.discard(group)?;
            }
        }
        Ok(())
    }

    /// A group that ended in the midst of its turn, or before one that it had claimed, has left
    /// that to who comes after it, in each slice that it used to the end.
    fn skip_turns_of_the_dead(&self) {
        let memory = &self.root().memory;
        for slice in 0..memory.slices() {
            let is_gone = |group: usize| {
                let team = self.teams.get(group).and_then(Option::as_ref);
                team.is_some_and(|team| {
                    matches!(team.state, State::Zombie(_)) && !team.removed[slice]
                })
            };
            skip(memory.claims(), memory.gate(slice), is_gone);
        }
    }

    /// Whether a child still looks at what the replicas of this group have left for it.
    fn is_needed(&self, group: usize) -> bool {
        let mut all = self.teams.iter().flatten();
        all.any(|team| team.mother == Some(group))
    }

    /// Keeps a group's counters and gives its place away.
    fn discard(&mut self, group: usize) -> Result<(), RunError> {
        if let Some(mut team) = self.teams[group].take() {
            self.past.add(&team);
            self.gone.add(&team);
            team.dismiss_stand_in();
            team.memory.clear()?;
        }
        Ok(())
    }

    /// A process that shares memory and computes on after a deadly signal holds up all others that
    /// do. It cannot end alone without leaving their memory unlike, so all of them end.
    fn end_the_obstinate(&mut self) {
        let mut living = self.teams.iter().flatten();
        let Some(ending) = living.find_map(|team| team.ignores_its_end(OBSTINATE)) else {
            return;
        };
        for team in self.teams.iter_mut().flatten() {
            if team.state == State::Living && team.shares() {
                team.finish(ending);
            }
        }
    }

    /// A child counts as soon as one replica of its parent has told of it.
    fn settle_birth(&mut self, group: usize) -> Result<(), RunError> {
        let team = self.team(group);
        let Some(parent) = team.parent else {
            if !team.group.is_alive() {
                self.discard(group)?;
            }
            return Ok(());
        };
        let serial = u64::from(team.serial);
        let parent = self.team(parent);
        let told = parent.members().find_map(|index| {
            let word = parent.memory.report(index).launched[group].load(Acquire);
            (word >> 32 == serial).then_some(word & u64::from(u32::MAX))
        });
        let team = self.team_mut(group);
        if let Some(pid) = told.and_then(|pid| u32::try_from(pid).ok()) {
            team.pid = pid;
            team.memory.set(|control| &control.pid, pid);
            team.group.know_first(team.first, pid);
            team.state = State::Living;
            self.newborn = true;
            self.mark_orphans();
        }
        Ok(())
    }

    /// Whether nobody asks for a zombie any more.
    fn is_forgotten(&self, group: usize) -> bool {
        let team = self.team(group);
        let serial = u64::from(team.serial);
        let copy = team.parent.is_some_and(|parent| {
            let parent = self.team(parent);
            parent.reintegration.needs(&parent.memory, group, serial)
        });
        self.is_awaited_by_members(group) && !copy
    }

    /// Whether no member of a zombie's parent asks for it any more.
    fn is_awaited_by_members(&self, group: usize) -> bool {
        let team = self.team(group);
        if !matches!(team.state, State::Zombie(_)) || team.group.is_alive() {
            return false;
        }
        let Some(parent) = team.parent else {
            return true;
        };
        let parent = self.team(parent);
        let serial = u64::from(team.serial);
        parent
            .members()
            .all(|index| parent.memory.report(index).reaped[group].load(Acquire) == serial)
    }

    /// If there is no room left, what is kept for copies only is given away.
    fn make_room(&mut self) -> Result<(), RunError> {
        if self.teams.iter().any(Option::is_none) {
            return Ok(());
        }
        let groups = self.groups().into_iter();
        let held = groups.filter(|&group| self.is_awaited_by_members(group));
        let parents: Vec<usize> = held.filter_map(|group| self.team(group).parent).collect();
        for parent in parents {
            self.team_mut(parent).reintegration.make_way();
        }
        self.settle()
    }

    /// Room for a child, of which these members of its parent have replicas and the process `maker`
    /// makes the first one. An earlier child that nobody has told of does not count any more.
    fn birth(&mut self, parent: usize, maker: u32, wanted: Newborn) -> i64 {
        let Newborn {
            members,
            stand_in,
            exit_signal,
        } = wanted;
        for group in self.groups() {
            let team = self.team_mut(group);
            if team.parent == Some(parent) && team.state == State::Unborn {
                team.parent = None;
                team.memory.set(|control| &control.abandoned, 1);
            }
        }
        let Some(group) = self.teams.iter().position(Option::is_none) else {
            return EAGAIN;
        };
        let mother = self.team(parent);
        let places = 0..mother.cores.len();
        let comes = places.map(|index| members & 1 << index != 0);
        let comes = comes.collect::<Vec<_>>();
        let Some(first) = mother.group.index(maker).filter(|&first| comes[first]) else {
            return EINVAL;
        };
        let serial = self.births + 1;
        let memory = mother.memory.for_child(group, serial, &mother.cores);
        memory.control().ppid.store(mother.pid, Relaxed);
        let told_by = &memory.control().exit_signal;
        told_by.store(exit_signal.into(), Relaxed);
        for index in (0..comes.len()).filter(|&index| !comes[index]) {
            memory.set_state(index, ReplicaState::Dead);
        }
        let cores = mother.cores.clone();
        let mut team = Team::new(memory, Group::unborn(&comes), cores, first);
        team.parent = Some(parent);
        team.mother = Some(parent);
        team.programs_before = mother.programs();
        team.serial = serial;
        self.births = serial;
        if stand_in && team.stand_in() < 0 {
            return if team.memory.clear().is_ok() {
                EAGAIN
            } else {
                EINVAL
            };
        }
        self.teams[group] = Some(Box::new(team));
        i64::try_from(group).unwrap_or(EAGAIN)
    }

    fn by_pid(&self, pid: u32) -> Option<usize> {
        self.groups()
            .into_iter()
            .find(|&group| pid != 0 && self.team(group).pid == pid)
    }

    fn group_id(&self, group: usize) -> u32 {
        self.team(group).memory.control().pgid.load(Relaxed)
    }

    fn session(&self, group: usize) -> u32 {
        self.team(group).memory.control().sid.load(Relaxed)
    }

    /// A signal of the kernel's own for one process.
    pub(crate) fn signal_from_kernel(&mut self, group: usize, number: u32) {
        self.hand_to(group, jobs::from_kernel(number));
    }

    fn set_group(&mut self, sender: usize, pid: u32, id: u32) -> i64 {
        let target = if pid == 0 {
            Some(sender)
        } else {
            self.by_pid(pid)
        };
        let target = target.filter(|&it| it == sender || self.team(it).parent == Some(sender));
        let Some(target) = target else { return ESRCH };
        let team = self.team(target);
        if target != sender && team.programs() != 0 {
            return EACCES;
        }
        let own = team.pid;
        let id = if id == 0 { own } else { id };
        let session = self.session(target);
        let joins = |group: &usize| self.group_id(*group) == id && self.session(*group) == session;
        let exists = id == own || self.groups().iter().any(joins);
        if session == own || session != self.session(sender) || !exists {
            return EPERM;
        }
        self.team(target).memory.set(|control| &control.pgid, id);
        self.mark_orphans();
        0
    }

    fn new_session(&mut self, sender: usize) -> i64 {
        let own = self.team(sender).pid;
        if self
            .groups()
            .iter()
            .any(|&group| self.group_id(group) == own)
        {
            return EPERM;
        }
        let memory = &self.team(sender).memory;
        memory.set(|control| &control.sid, own);
        memory.set(|control| &control.pgid, own);
        memory.set(|control| &control.job.terminal, 0);
        self.mark_orphans();
        i64::from(own)
    }

    /// Process group or session of any process.
    fn id_of(&self, pid: u32, session: bool) -> i64 {
        if let Some(group) = self.by_pid(pid) {
            return i64::from(if session {
                self.session(group)
            } else {
                self.group_id(group)
            });
        }
        let id = if session {
            host::session(pid)
        } else {
            host::process_group(pid)
        };
        id.map_or(ESRCH, i64::from)
    }
}
