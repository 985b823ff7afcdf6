//! Close coupling (DSN'19, III-C): what all perform, a tick or an interrupt, is performed at one
//! *instruction* of the running program, so programs may race and are preempted anywhere.
//!
//! Loosely coupled replicas act at one event of the trace, wherever in the program each of them is
//! behind that. Here, when all stand at that event, they agree by the protocol that the process
//! sphere has ([`rcoe_core::coupling`]), with a counter of instructions, or of branches: the one
//! that has come furthest since the event is the target; the others go on to it, stopped behind
//! the very instruction; registers and vector state are compared there; then all act. Who enters
//! its kernel on the way for a call or a fault is no further than before that.
//!
//! Memory is not compared at a point unless it is to be verified ([`Coupling::verifies`]): what
//! goes out is voted, and that depends on it. A replica that differs is removed by a majority; of
//! two, both stop.
//!
//! An instruction that repeats itself is one place, where branches are counted: whoever is within
//! one and would be the target goes on to the next.
//!
//! An interruption between a load-exclusive and its store has that fail, so that replicas would go
//! different ways: a guest begins anew at the load ([`crate::retrace`]).
//!
//! *Not covered*: the same in programs, which are refused for it before the machine starts. Threads
//! that were told who is the primary: where one of them runs, all act at the event.

mod baton;
mod state;

pub(crate) use baton::Baton;

use rcoe_core::counted::{Aim, Run, Way};
use rcoe_core::coupling::{
    Boards, Counter as Exact, Coupler, End, LAST_PHASE, Machine as _, Order, Pace, Stop,
};
use rcoe_core::{Cause, Guards, Halt, ReplicaId, ReplicaSet};
use rcoe_kernel_objects::Kernel;
use rcoe_kernel_objects::arch::aarch64::exclusive::Begun;
use rcoe_kernel_objects::arch::{CONTEXT_WORDS, IP};

use crate::arch::{self, Count as _, Counter, breakpoint};
use crate::config::Config;
use crate::retrace::is_exclusive;
use crate::sphere::Replicated;
use state::State;

/// Instructions or branches that a replica may run to a target, beside what it lags behind.
const PACE: Pace = Pace {
    base: 100_000,
    most: 100_000_000,
    lag: 1 << 40,
    phases: LAST_PHASE,
    undecided: LAST_PHASE,
    steep: u64::MAX,
};

/// Close coupling of one replica.
#[derive(Debug)]
pub(crate) struct Coupling {
    counter: Counter,
    coupler: Coupler<Exact>,
    boards: Boards<'static>,
    /// What all are to perform when they have agreed; 0 if nothing.
    pending: u64,
    /// The cycle at which they began to come to one instruction for that.
    began: u64,
    run: Option<Run>,
    /// How it is stopped there.
    way: Way,
    /// What stops the program beside the counter.
    aim: Aim,
    /// What the program executed when it was left alone last.
    executed: u64,
    /// What of that it is going to execute again.
    again: Option<Begun>,
    /// Does the program stand at a call that has not been made?
    at_call: bool,
    verifies: bool,
}

/// What is next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// The program goes on, to be stopped at a target.
    Run,
    /// All are at one instruction, and perform this; 0 is nothing.
    Perform(u64),
}

impl Coupling {
    pub(crate) fn new(counter: Counter, sphere: &Replicated, config: &Config) -> Self {
        let (own, members) = (sphere.id(), sphere.group_members());
        Self {
            counter,
            coupler: Coupler::new(own, members, PACE),
            boards: arch::boards(members.len()),
            pending: 0,
            began: 0,
            run: None,
            way: Way::new(counter.nature(), config.approach, Guards::ON),
            aim: Aim::None,
            executed: 0,
            again: None,
            at_call: false,
            verifies: config.verify,
        }
    }

    /// This core begins to count.
    pub(crate) fn begin(&mut self) {
        self.counter.begin();
    }

    /// Do cores take turns, because it counts for all of them?
    pub(crate) fn takes_turns(&self) -> bool {
        self.counter.turns().is_some()
    }

    /// The timer's interrupt has come: was it the counter's, and no tick?
    pub(crate) fn took_timer(&mut self) -> bool {
        self.counter.took_timer()
    }

    /// The copy of this replica goes on as this one.
    pub(crate) fn become_copy(&mut self, own: ReplicaId) {
        self.coupler = self.coupler.copy(own);
        self.counter.copy();
        if let Some(board) = self.boards[own.index()] {
            board.clear();
        }
    }

    /// Is memory to be compared at each point?
    pub(crate) const fn verifies(&self) -> bool {
        self.verifies
    }

    /// Is there nothing under way?
    pub(crate) const fn is_idle(&self) -> bool {
        self.pending == 0
    }

    /// The kernel was entered from a program with these registers: how far has it come since it was
    /// left alone? What was to stop it does so no more.
    pub(crate) fn executed(&mut self, context: &mut [u64; CONTEXT_WORDS]) -> u64 {
        if self.aim != Aim::None {
            breakpoint::unwatch(context);
        }
        self.again = None;
        self.executed = self.counter.executed();
        self.executed
    }

    /// May a program that has come so far take this back? Not what it did not execute when it was
    /// left alone last, and not from the target.
    pub(crate) fn may_take_back(&self, begun: Begun, progress: u64, ip: u64) -> bool {
        let to_target = |run: &Run| run.stop() == Some(Stop::Matched);
        let run = self.run.filter(to_target);
        let is_there = run.is_some_and(|run| run.over(progress, ip).is_some());
        begun.executed <= self.executed && !is_there
    }

    /// It does.
    pub(crate) const fn take_back(&mut self, begun: Begun) {
        self.again = Some(begun);
    }

    /// Some of the program's registers are further than the program, which has taken back what it
    /// did with them. Does it have to go on for that until they are not?
    fn is_torn(&mut self, progress: u64) -> bool {
        let Some(again) = self.again else {
            return false;
        };
        let by = again.executed + again.left;
        let run = self.run.unwrap_or(Run::on(progress, by, &self.way));
        self.run = Some(run.at_least_to(progress + by));
        true
    }

    /// Before the program is left alone, to go on with these registers.
    pub(crate) fn arm(&mut self, progress: u64, context: &mut [u64; CONTEXT_WORDS]) {
        // What is executed again may end where the counter stopped the program before: so the run
        // is taken to be as near as it was there.
        let again = self.again.map_or(0, |it| it.executed);
        let reached = progress + again;
        let limit = self.run.map(|run| run.limit(reached) + again);
        self.counter.arm(limit);
        self.aim = self
            .run
            .map_or(Aim::None, |run| run.aim(reached, context[IP]));
        match self.aim {
            Aim::None => {}
            Aim::At(place) => breakpoint::watch(place),
            Aim::Past(place) => breakpoint::go_past(place, context),
        }
    }

    /// Is an exception what was to stop the program?
    pub(crate) fn stops(&self, vector: u64) -> bool {
        match self.aim {
            Aim::None => false,
            Aim::At(_) => breakpoint::was_watched(vector),
            Aim::Past(_) => breakpoint::went_past(vector),
        }
    }

    /// A call or a fault: is it to be kept until all have come to it, or have acted before?
    pub(crate) const fn holds_call(&mut self) -> bool {
        let holds = self.run.is_some();
        self.at_call = self.at_call || holds;
        holds
    }

    /// All stand at one event, and are to perform this when they are at one instruction.
    pub(crate) fn agree_on(&mut self, actions: u64, members: ReplicaSet) {
        self.pending = actions;
        self.began = arch::cycles();
        if self.coupler.members() != members {
            self.coupler.set_members(members);
        }
        self.coupler.begin();
    }

    /// Goes on with what is under way until the program has to run, or all have agreed.
    pub(crate) fn go_on(&mut self, kernel: &mut Kernel<'static, Replicated>) -> Result<Next, Halt> {
        let ip = kernel.context()[IP];
        let progress = kernel.sphere.progress();
        if self.is_torn(progress) || !self.has_run(progress, ip) {
            return Ok(Next::Run);
        }
        let mut state = State::of(kernel, self.at_call);
        let mut looks = 0;
        loop {
            let order = self.coupler.step(&self.boards, &mut state);
            match order {
                Order::Wait(peer) => {
                    if kernel.sphere.waits_in_vain(peer, looks) {
                        self.coupler.overdue(peer);
                    }
                    looks += 1;
                    continue;
                }
                Order::Again | Order::Removed(_) => {}
                Order::Place => {
                    if self.leaves_repetition(kernel) {
                        return Ok(Next::Run);
                    }
                    self.coupler.placed();
                }
                Order::Run { budget, .. } => {
                    if self.begin_run(kernel, &state, budget) {
                        return Ok(Next::Run);
                    }
                }
                Order::Agreed(point) => {
                    self.at_call = false;
                    kernel.sphere.agreed(self.began, point.at_call);
                    return Ok(Next::Perform(core::mem::take(&mut self.pending)));
                }
                Order::Halted(end) => return Err(halt_of(end)),
                Order::Idle => unreachable!("an attempt is under way"),
            }
            looks = 0;
        }
    }

    /// Is the run to the target over, if there was one?
    fn has_run(&mut self, progress: u64, ip: u64) -> bool {
        let Some(run) = self.run else {
            return true;
        };
        let over = run.over(progress, ip);
        if !self.at_call && over.is_none() {
            return false;
        }
        self.run = None;
        if over == Some(true) {
            self.way.missed();
        }
        if let Some(stop) = run.stop() {
            let stop = match (self.at_call, over) {
                (true, _) => Stop::Call,
                (false, Some(true)) => Stop::Overran,
                (false, _) => stop,
            };
            self.coupler.ran(stop, progress.saturating_sub(run.began()));
        }
        true
    }

    /// The others are to come to where this program is. Within an instruction that repeats itself
    /// nobody is stopped: does it have to go on to the next?
    fn leaves_repetition(&mut self, kernel: &mut Kernel<'static, Replicated>) -> bool {
        let ip = kernel.context()[IP];
        let branches = self.counter.nature().branches;
        let next = branches.then(|| kernel.behind_repetition(ip));
        if let Some(next) = next.flatten() {
            self.run = Some(Run::out(kernel.sphere.progress(), next, &self.way));
            return true;
        }
        false
    }

    /// Begins a run to the target, unless the program is there.
    fn begin_run(
        &mut self,
        kernel: &mut Kernel<'static, Replicated>,
        state: &State,
        budget: u64,
    ) -> bool {
        let present = state.standing();
        let target = self.coupler.target();
        let most = present.progress.saturating_add(budget);
        let (end, stop) = Run::end(target, most);
        // A thread that is stepped has what a breakpoint would need, and who is stopped again and
        // again where it loads exclusively never gets to store.
        let breaks = !state.steps() && !is_exclusive(kernel, target.ip);
        let to = (present.progress, end);
        let run = Run::to(to, (stop, target.ip), &self.way, breaks);
        if run.over(present.progress, present.ip).is_some() {
            self.coupler.ran(stop, 0);
            return false;
        }
        self.run = Some(run);
        true
    }
}

/// How this replica ends.
const fn halt_of(end: End) -> Halt {
    match end {
        End::Convicted => Halt::Convicted,
        End::Broken | End::PassedOver => Halt::Broken,
        End::Diverged | End::Unplaced => Halt::FailStop(Cause::Mismatch),
        End::Missing => Halt::FailStop(Cause::Timeout),
        End::Disagreement => Halt::FailStop(Cause::Disagreement),
    }
}
