//! One process of the program: a group of replicas, from its birth to the moment when nobody asks
//! for its status any more.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rcoe_linux_abi::{Ending, Phase, Report, SIG_KICK, SIGNAL_SLOTS, Usage};
use rcoe_linux_sys::host::{SignalInfo, StandIn, signal_child};
use rustix::process::WaitStatus;

use crate::cpu_limit::CpuLimit;
use crate::group::{Group, phase};
use crate::judge::{Facts, Process};
use crate::memory::{Memory, Numbered};
use crate::numbers::{EAGAIN, SIGCONT, SIGKILL};
use crate::protocol::Published;
use crate::reintegration::{self, Reintegration};
use crate::scrub::Scrub;
use crate::slices::{has_open_claim, low, turn_of};
use crate::spinning::Spinning;

mod job;
mod limits;
mod patience;

use job::Job;
pub(crate) use patience::Patience;

/// How far a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its parent has not told of it yet.
    Unborn,
    /// It runs.
    Living,
    /// The program has ended so; some of its replicas' processes are still there.
    Ending(Ending),
    /// All gone; its parent has not asked yet.
    Zombie(Ending),
}

/// One process of the program.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) memory: Memory,
    pub(crate) group: Group,
    pub(crate) removed: Vec<bool>,
    /// The primary, or the last one.
    primary: usize,
    /// The replica of which the others were made.
    pub(crate) first: usize,
    pub(crate) reintegration: Reintegration,
    pub(crate) scrub: Scrub,
    pub(crate) cores: Vec<u32>,
    pub(crate) patience: Option<Patience>,
    pub(crate) state: State,
    /// Its process id as the program knows it; 0 until the parent has told.
    pub(crate) pid: u32,
    /// The group of its parent, while that lives.
    pub(crate) parent: Option<usize>,
    /// The group it was born of, until all its replicas run: till then they need its words.
    pub(crate) mother: Option<usize>,
    /// Number of its birth.
    pub(crate) serial: u32,
    /// Programs that its parent had executed when it became that.
    pub(crate) programs_before: u32,
    /// The last request that was answered.
    pub(crate) answered: Numbered,
    spinning: Spinning,
    cpu_limit: CpuLimit,
    /// Signals that the queue has no room for.
    waiting: VecDeque<SignalInfo>,
    job: Job,
    /// A deadly signal that it has to act upon itself, and since when.
    doomed: Option<(Instant, Ending)>,
    /// The process group that was in the foreground when the line of its session was lost.
    pub(crate) hung_up: Option<u32>,
    /// The process of which the program's descriptors of this one are.
    stand_in: Option<StandIn>,
}

impl Team {
    /// A process whose memory is there and whose replicas come, each on its core. Who does not come
    /// counts as removed, and `first` is made before the others.
    pub(crate) fn new(memory: Memory, group: Group, cores: Vec<u32>, first: usize) -> Self {
        let absent = |index| group.process(index) == Process::Absent;
        let removed = (0..cores.len()).map(absent).collect::<Vec<_>>();
        Self {
            memory,
            group,
            primary: removed.iter().position(|absent| !absent).unwrap_or(first),
            removed,
            first,
            reintegration: Reintegration::default(),
            scrub: Scrub::default(),
            cores,
            patience: None,
            state: State::Unborn,
            pid: 0,
            parent: None,
            mother: None,
            serial: 0,
            programs_before: 0,
            answered: Numbered::default(),
            spinning: Spinning::default(),
            cpu_limit: CpuLimit::default(),
            waiting: VecDeque::new(),
            job: Job::default(),
            doomed: None,
            hung_up: None,
            stand_in: None,
        }
    }

    /// Process id of the process that stands in for this one, made when first asked for; an errno
    /// if the host has no room for it.
    pub(crate) fn stand_in(&mut self) -> i64 {
        if self.stand_in.is_none() {
            let Ok(made) = StandIn::new() else {
                return EAGAIN;
            };
            self.memory.set(|control| &control.stand_in, made.pid());
            self.stand_in = Some(made);
            if matches!(self.state, State::Zombie(_)) {
                self.end_stand_in();
            }
        }
        self.stand_in
            .as_ref()
            .map_or(EAGAIN, |it| i64::from(it.pid()))
    }

    /// The process has ended, and all that told of it says so.
    pub(crate) fn end_stand_in(&self) {
        if let Some(stand_in) = &self.stand_in {
            stand_in.end();
        }
    }

    /// Nobody asks for the process any more.
    pub(crate) fn dismiss_stand_in(&mut self) {
        self.stand_in = None;
    }

    /// Publishes what the process has used: its primary, and the children that it has awaited.
    pub(crate) fn tell_usage(&self) {
        let control = self.memory.control();
        let children = Usage::load(&self.memory.report(self.primary).children);
        self.group
            .usage(self.primary)
            .plus(&children)
            .store(&control.usage);
    }

    /// The member that leads: it does so until it is lost, and then the lowest one does.
    pub(crate) fn primary(&self) -> Option<usize> {
        (!self.removed[self.primary]).then_some(self.primary)
    }

    /// A member is no member any more.
    pub(crate) fn remove(&mut self, index: usize) {
        self.removed[index] = true;
        self.group.expel(index, &self.memory);
        if index == self.primary {
            let lowest = self.removed.iter().position(|removed| !removed);
            self.primary = lowest.unwrap_or(index);
        }
    }

    /// Takes in what the kernel says of a child; false if it is not of this process.
    pub(crate) fn note(&mut self, pid: u32, status: WaitStatus) -> bool {
        self.group.note(pid, status, &self.memory)
    }

    /// Whether the primary waits for a turn that another process has.
    pub(crate) fn awaits_turn(&self) -> bool {
        let primary = self.primary().filter(|_| self.state == State::Living);
        primary.is_some_and(|it| self.memory.report(it).awaits_turn.load(Relaxed) != 0)
    }

    /// A warning of a thread that does not give way, when it is time for one; slices have all give
    /// way. `awaited`: whether some process waits for its turn.
    pub(crate) fn look_for_spinning(&mut self, awaited: bool) -> Option<&'static str> {
        let primary = self.primary().filter(|_| self.state == State::Living)?;
        if self.memory.control().slice_ns.load(Relaxed) != 0 {
            return None;
        }
        let report = self.memory.report(primary);
        // At a point between calls others have their turn, too.
        let met = report.points[0].load(Relaxed);
        let calls = met
            + report
                .calls
                .iter()
                .map(|cell| cell.load(Relaxed))
                .sum::<u64>();
        let held_up = report.held_up.load(Relaxed) != 0 || awaited && self.shares();
        let group = &self.group;
        let cpu_time = || group.cpu_time(primary).unwrap_or_default();
        self.spinning.look(calls, held_up, cpu_time)
    }

    /// Runs with fewer replicas than it has places for.
    pub(crate) fn lacks_someone(&self) -> bool {
        self.state == State::Living && self.removed.contains(&true)
    }

    /// Whether a process of it is left, copies that were to become replicas included.
    pub(crate) fn is_alive(&self) -> bool {
        self.group.is_alive() || self.reintegration.has_copies(&self.memory)
    }

    /// Notices when nothing is needed any more of the group it was born of.
    pub(crate) fn leave_mother(&mut self) {
        let starts = |index: usize| {
            let begun = phase(&self.memory, index).is_some_and(|phase| phase >= Phase::Running);
            !begun && !self.group.process(index).is_gone()
        };
        let starting = match self.state {
            State::Unborn => self.parent.is_some(),
            State::Living => self.members().any(starts),
            State::Ending(_) | State::Zombie(_) => false,
        };
        if !starting {
            self.mother = None;
        }
    }

    /// The members' numbers.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> {
        (0..self.removed.len()).filter(|&index| !self.removed[index])
    }

    /// What the judge needs to know of a replica.
    fn facts(&self, index: usize) -> Facts {
        let report = self.memory.report(index);
        let published = Published::read(&self.memory, index);
        Facts {
            process: self.group.fate(index),
            // A word that is no phase tells nothing: it counts as running until something ends it.
            phase: phase(&self.memory, index).unwrap_or(Phase::Running),
            ending: Ending::unpack(report.ending.load(Acquire)),
            load_error: report.load_error.load(Relaxed),
            halt: published.halt,
            members: published.members,
            removed: self.removed[index],
            stopped: self.memory.is_stopped(index),
            shares: self.uses_slice(index),
            still: false,
        }
    }

    /// What the judge needs to know of all replicas; `overdue` as for it.
    pub(crate) fn all_facts(&self, overdue: bool, timeout: Duration) -> Vec<Facts> {
        let mut facts = (0..self.removed.len())
            .map(|index| self.facts(index))
            .collect::<Vec<_>>();
        if overdue {
            for (index, facts) in facts.iter_mut().enumerate() {
                facts.still = facts.phase != Phase::Ended && self.is_still(index, timeout);
            }
        }
        facts
    }

    /// Whether nothing shows that a replica got on since the judge asked for patience. The primary
    /// may be in the host's part of a call for as long as it takes.
    fn is_still(&self, index: usize, timeout: Duration) -> bool {
        let in_call = self.memory.report(index).in_call.load(Relaxed) != 0;
        let waits_outside = index == self.primary && in_call;
        let done = self.done(index);
        let still = |it: &Patience| it.is_still(&self.group, index, done, timeout);
        !waits_outside && self.patience.as_ref().is_some_and(still)
    }

    /// Whether this is a child of several replicas that have never agreed on anything.
    pub(crate) fn is_newborn(&self) -> bool {
        let met = |index| Published::read(&self.memory, index).rendezvous != 0;
        self.memory.group() != 0 && self.removed.len() > 1 && !self.members().any(met)
    }

    /// A number that changes with a replica's calls and rendezvous.
    pub(crate) fn done(&self, index: usize) -> u64 {
        let calls = self.memory.report(index).calls.iter();
        let calls = calls.map(|cell| cell.load(Relaxed));
        let rendezvous = Published::read(&self.memory, index).rendezvous;
        calls.fold(rendezvous, u64::wrapping_add)
    }

    /// Whether the signal ends the program at once, by the account of all living members. A replica
    /// that computes without system calls could not act on it; ending needs no agreement on where.
    fn is_fatal(&self, number: u32) -> bool {
        self.all_say(number, |report| &report.fatal)
    }

    /// Whether all living members have the signal in this set.
    fn all_say(&self, number: u32, set: impl Fn(&Report) -> &AtomicU64) -> bool {
        let mut living = self
            .members()
            .filter(|&index| self.group.process(index) == Process::Alive)
            .peekable();
        let bit = 1_u64.checked_shl(number.wrapping_sub(1)).unwrap_or(0);
        living.peek().is_some()
            && living.all(|index| set(self.memory.report(index)).load(Acquire) & bit != 0)
    }

    /// How often the process has executed a program, as far as a member has come.
    pub(crate) fn programs(&self) -> u32 {
        let told = |index| self.memory.report(index).replaced.load(Acquire);
        self.members().map(told).max().unwrap_or(0)
    }

    /// Whether this word is set in the reports of most members.
    pub(crate) fn most_say(&self, word: impl Fn(&Report) -> &AtomicU32) -> bool {
        let set = |index: &usize| word(self.memory.report(*index)).load(Acquire) != 0;
        2 * self.members().filter(set).count() > self.members().count()
    }

    /// A signal for the program.
    pub(crate) fn deliver(&mut self, signal: SignalInfo) {
        if !matches!(self.state, State::Unborn | State::Living) {
            return;
        }
        if self.is_stopped() && signal.number != SIGKILL {
            self.job.held.push(signal);
            return;
        }
        if signal.number == SIGKILL || self.is_fatal(signal.number) {
            let number = u8::try_from(signal.number).unwrap_or(u8::MAX);
            // From here on no replica begins to share memory before it knows whether it lives on.
            self.memory.set(|control| &control.doomed, 1);
            if !self.is_bound() {
                self.finish(Ending::Signal(number));
                return;
            }
            self.memory.set(|control| &control.doomed, 0);
            self.go_on(None);
            let since = Instant::now();
            self.doomed.get_or_insert((since, Ending::Signal(number)));
        }
        self.waiting.push_back(signal);
        if signal.number == SIGCONT {
            self.job.continued = self.queue_end();
        }
        self.hand_over();
    }

    /// How many signals will have been in the queue with those that wait for room in it.
    fn queue_end(&self) -> u64 {
        let head = self.memory.control().signal_head.load(Relaxed);
        head + u64::try_from(self.waiting.len()).unwrap_or(0)
    }

    /// Puts waiting signals into the queue, as far as all members have taken earlier ones.
    pub(crate) fn hand_over(&mut self) {
        let taken = |index| self.memory.report(index).taken.load(Acquire);
        let taken = self.members().map(taken).min().unwrap_or(0);
        let taken = self.spare_copy(taken);
        let mut any = false;
        while let Some(&signal) = self.waiting.front()
            && self.memory.push_signal(signal, taken)
        {
            self.waiting.pop_front();
            any = true;
        }
        if any && let Some(primary) = self.primary() {
            self.group.signal(primary, SIG_KICK);
        }
    }

    /// From where on signals are kept, if members need them from `taken` on: a copy that is behind
    /// is not waited for, but must not take others in their place.
    fn spare_copy(&mut self, taken: u64) -> u64 {
        let Some(behind) = self.reintegration.taken(&self.memory) else {
            return taken;
        };
        let head = self.memory.control().signal_head.load(Relaxed);
        let waiting = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        if head.saturating_sub(behind).saturating_add(waiting) > SIGNAL_SLOTS as u64 {
            self.reintegration.make_way();
        }
        self.reintegration
            .taken(&self.memory)
            .map_or(taken, |behind| taken.min(behind))
    }

    /// A signal that ends the program, as a member says; it ends if all say so.
    pub(crate) fn expire(&mut self, number: u8) {
        if self.state == State::Living && self.is_fatal(u32::from(number)) && !self.is_bound() {
            self.finish(Ending::Signal(number));
        }
    }

    /// Whether the process shares memory with others: it may then end only at a point of its trace,
    /// because the others' replicas must find that memory alike.
    pub(crate) fn shares(&self) -> bool {
        self.members().any(|index| self.uses_slice(index))
    }

    /// Whether it may end or stop only at a point of its trace: also where a replica has yet to
    /// come to a turn that its primary has had, which nobody else would ever pass.
    pub(crate) fn is_bound(&self) -> bool {
        self.shares() || self.owes_turns()
    }

    /// Whether it has claimed a turn that is not over in the slice of each member.
    pub(crate) fn owes_turns(&self) -> bool {
        let slices = self.memory.slices();
        let owes = |index: usize| {
            let turn = turn_of(self.memory.gate(index));
            has_open_claim(self.memory.claims(), self.memory.group(), turn)
        };
        self.members().any(|index| index < slices && owes(index))
    }

    /// Whether a replica has come to the turn with this low half of its number.
    pub(crate) fn has_come_to(&self, index: usize, turn: u32) -> bool {
        low(self.memory.report(index).turn.load(Relaxed)) == turn.wrapping_add(1)
    }

    /// Whether a replica uses its slice of shared memory, which has its number.
    pub(crate) fn uses_slice(&self, index: usize) -> bool {
        self.memory.report(index).sharing.load(SeqCst) != 0
    }

    /// How it is to end if it has not acted upon a deadly signal for so long.
    pub(crate) fn ignores_its_end(&self, patience: Duration) -> Option<Ending> {
        let (since, ending) = self.doomed?;
        (self.state == State::Living && since.elapsed() > patience).then_some(ending)
    }

    /// The program is over: what is left of its replicas goes.
    pub(crate) fn finish(&mut self, ending: Ending) {
        self.state = State::Ending(ending);
        self.job.end();
        self.group.kill_all();
        self.reintegration.stop();
    }

    /// Kills replicas of a program that is over which were made, or told their number, only after
    /// it had ended.
    pub(crate) fn end_stragglers(&mut self) {
        if matches!(self.state, State::Ending(_) | State::Zombie(_)) {
            self.group.learn(&self.memory);
            self.group.kill_all();
            reintegration::sweep(self);
            for copy in self.reintegration.copies(&self.memory) {
                signal_child(copy, SIGKILL);
            }
        }
    }

    /// The judge waits, from now on if it did not before.
    pub(crate) fn begin_patience(&mut self) {
        if self.patience.is_none() {
            let done = (0..self.removed.len()).map(|index| self.done(index));
            self.patience = Some(Patience::new(&self.group, done.collect()));
        }
    }

    /// Whether a late replica has had its time.
    pub(crate) fn is_overdue(&mut self, timeout: Duration, wall_cap: Duration) -> bool {
        let is_stopped = |index| self.memory.is_stopped(index);
        let failed = |index: usize| {
            !self.removed[index] && phase(&self.memory, index) == Some(Phase::Failed)
        };
        let over =
            |it: &mut Patience| it.is_over(&self.group, is_stopped, failed, timeout, wall_cap);
        self.patience.as_mut().is_some_and(over)
    }
}
