//! How replicas come to one point between calls, and agree that they are there.
//!
//! The protocol is [`rcoe_core::coupling`]; the mechanism, [`crate::coupling`]. Here the two meet:
//! what the protocol orders is done by this replica, wherever it is. It may have been interrupted
//! in the program ([`interrupted`]), come to a stub ([`landed`]), have made one instruction
//! ([`stepped`]), be at a call or a fault ([`at_call`]), or wait for a sibling within one
//! (`attend`).
//!
//! A call is a point by itself: who has come to one says so, and the others go there. Nothing is to
//! be done then, because with the results of calls comes all that a point is for.
//!
//! Contract: whoever goes through a call has its code as it was mapped; the jump to a stub is in
//! only while the program computes. Only the primary begins; the others are interrupted by the
//! supervisor, whom it asks for that. All waits are for one sibling and end when that is overdue.
//!
//! Not covered: code that was made at run time, where the host offers no breakpoints: there nothing
//! is begun, and the next call is waited for.

mod going;
mod hints;
mod milestone;
mod party;
mod placing;
mod progress;
mod reading;
mod spots;
mod steps;
mod stretch;
mod ticks;
mod timers;
mod visits;
mod waits;
mod worth;

use core::sync::atomic::{AtomicBool, Ordering};

use rcoe_core::coupling::list_digest;
use rcoe_core::coupling::{
    Boards, Counted, Coupler, End, LAST_PHASE, Pace, Point, Standing, States, Stop,
};
use rcoe_core::{MAX_REPLICAS, ReplicaSet, Signature};

use crate::arch::context;
use crate::arch::entry::{TrapFrame, entry_address};
use crate::arch::frames::UContext;
use crate::coupling::counter;
use crate::coupling::site::Site;
use crate::coupling::state::General;
use crate::kernel::{Kernel, count};
use crate::lifetime::Who;
use crate::memory::guest;
use crate::memory::regions;
use crate::protocol::patience::Patience;
use crate::sys;

use going::{TRAP, count_no_more, drive, end_run, passed, plant, plant_late, set_stepping, uproot};
pub(crate) use going::{count_on, reads};
use hints::{BEYOND_NS, Hints};
use milestone::Milestone;
use party::Party;
pub(crate) use party::is_over;
use placing::Outward;
use reading::Reading;
pub(crate) use spots::came_by;
use steps::Steps;
use ticks::Ticks;
pub(crate) use timers::look_again;
use timers::{LOOK_NS, look_after, set_ticks, slices};
use visits::Visits;
use worth::Worth;
pub(crate) use worth::{Why, Wish};

/// What a replica may run to a target, in ns of the program's CPU time, without that of visits to a
/// stub. Who has run in vain was ahead, and is further ahead then: the next budget has to make up
/// for that. So it grows from little, and the bound is far beyond what is needed. How far who lags
/// is known well enough, and may be much where CPUs are shared.
const PACE: Pace = Pace {
    base: 250_000,
    most: 5_000_000_000,
    lag: 100_000_000_000,
    phases: LAST_PHASE,
    undecided: LAST_PHASE,
    steep: u64::MAX,
};

/// Who is nearer to a target, in ns, goes on with a stub. It is looked after at such intervals, in
/// which it may make twice as much as CPU time told before.
const NEAR_NS: i64 = 3 * timers::LONG_LOOK_NS.cast_signed();

/// What came of an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The program goes on.
    GoOn,
    /// All stand here, and do what there is to do.
    At(Point),
    /// No majority has the same state.
    Apart(End),
}

/// What this replica is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It goes to a place that others can be stopped at, up to this CPU time if that is far.
    Placing {
        until: Option<u64>,
    },
    /// It goes to the target, for so many ns of CPU time from the first, of which some are over
    /// before it can get there.
    Running {
        since: u64,
        left: u64,
        free: u64,
        again: bool,
    },
}

/// Whether this process comes to points, also for a handler that has interrupted the agent.
#[unsafe(link_section = ".bss.own.1")]
static CALLED: AtomicBool = AtomicBool::new(false);

/// Does it?
pub(crate) fn may_be_called() -> bool {
    CALLED.load(Ordering::Relaxed)
}

/// A replica's part.
pub(crate) struct Meeting {
    /// There are points between calls in this run, and for this process.
    asked: bool,
    on: bool,
    coupler: Coupler<States>,
    doing: Doing,
    site: Site,
    /// CPU time when the stub was put there.
    planted: u64,
    hints: Hints,
    visits: Visits,
    milestone: Milestone,
    /// The trace before the present call, and the call's number.
    before: Signature,
    step: u64,
    steps_made: Steps,
    /// From where on this run is stopped where it has the target's state.
    searched_from: Counted,
    /// Who came to points then.
    party: Party,
    /// The changes that attempts know of.
    settled: u64,
    /// When it came to the attempt that is under way.
    came_at: u64,
    /// CPU time at the last point.
    base: u64,
    /// The time at the last call; or whether there was one since the last look, where a clock at
    /// each call would be too much for what comes of it: but up to this CPU time, if it is not 0.
    marked: u64,
    moved: bool,
    lazy: bool,
    exact_until: u64,
    /// CPU time of a slice, if other threads want theirs; else 0.
    slice: u64,
    /// When all last compared.
    ticks: Ticks,
    /// When it is worth it to begin.
    worth: Worth,
    /// The way to a place for the present target.
    outward: Outward,
    /// One is made now; it pushes the flags.
    stepping: bool,
    pushes: bool,
    /// The program reads code that is patched.
    reading: Reading,
    /// Looks at the sibling that is waited for.
    looks: u32,
    /// Looks at this replica on its way to a target.
    looked: u32,
    /// Since when its CPU is given to others in between, or 0.
    yields_since: u64,
    /// Since when it has waited within a call although it is to run to a target, or 0.
    waited_since: u64,
    patience: Patience,
    /// An attempt ended for this replica while it was at a call, and not with the others.
    apart: bool,
}

impl Meeting {
    /// Of this replica.
    pub(crate) fn new(who: &Who) -> Self {
        let asked = who.control.points.load(Ordering::Relaxed) != 0;
        let (worth, ticks) = (Worth::of(who.control), Ticks::of(who.control));
        // Ticks have all come to points, and have to be exact.
        let lazy = worth.is_asked() && !ticks.are_on();
        Self {
            asked,
            on: asked && !lazy,
            coupler: Coupler::new(who.id, who.members, ticks::pace(who.control, PACE)),
            doing: Doing::Nothing,
            site: Site::EMPTY,
            planted: 0,
            hints: Hints::NONE,
            visits: Visits::NONE,
            milestone: Milestone::NONE,
            before: Signature::default(),
            step: 0,
            steps_made: Steps::default(),
            searched_from: Counted::default(),
            party: Party::new(who.members),
            settled: 0,
            came_at: 0,
            base: 0,
            marked: 0,
            moved: false,
            lazy,
            exact_until: 0,
            slice: 0,
            ticks,
            worth,
            outward: Outward::NONE,
            stepping: false,
            pushes: false,
            reading: Reading::default(),
            looks: 0,
            looked: 0,
            yields_since: 0,
            waited_since: 0,
            patience: Patience::default(),
            apart: false,
        }
    }

    /// Of a copy of this replica. It comes to the points that come.
    pub(crate) fn copy(&self, who: &Who) -> Self {
        let mut coupler = self.coupler.copy(who.id);
        coupler.give_up();
        Self {
            on: self.on,
            coupler,
            steps_made: self.steps_made,
            ..Self::new(who)
        }
    }

    /// Are there points between calls in this process?
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.on
    }

    /// The calls to come are behind this.
    fn mark(&mut self, before: Signature, party: Party) {
        (self.before, self.party) = (before, party);
        self.step = self.steps_made.number(before.events);
    }

    /// There is something to be done at a point: is it worth it by now?
    pub(crate) fn is_worth_it(&mut self, now: u64, why: Why, context: &UContext) -> Wish {
        self.count_from_here(now);
        let General { registers, .. } = General::new(&context.machine.cpu(), context::bases());
        let place = (self.step, list_digest(&registers));
        self.worth.is_it(self.worked(now), cpu_now(), why, place)
    }

    /// Is it time to compare again? The primary says so, and the others if it does not.
    pub(crate) fn is_due(&mut self, votes: u64, is_primary: bool) -> bool {
        self.ticks.is_due(votes, is_primary)
    }

    /// Do replicas that come to no point have to tell who is at fault?
    pub(crate) const fn has_ticks(&self) -> bool {
        self.ticks.are_on()
    }

    /// Do threads and signals that wait make it come to points?
    pub(crate) fn has_slices(&self) -> bool {
        let control = regions::control(regions::own_group());
        self.on && control.slice_ns.load(Ordering::Relaxed) != 0
    }

    /// Is this replica on its way to a point, or one that has lost it?
    pub(crate) fn is_under_way(&self) -> bool {
        self.on && (self.apart || !self.coupler.is_idle())
    }

    /// Has an attempt left it alone at a call? That is told once.
    pub(crate) const fn take_apart(&mut self) -> bool {
        core::mem::replace(&mut self.apart, false)
    }

    /// Does the program make one instruction now?
    pub(crate) const fn is_stepping(&self) -> bool {
        self.stepping
    }

    /// The one instruction that was to be made is a call, for which the agent is entered next. The
    /// host has put the flags into `r11`.
    pub(crate) fn enter(&mut self, context: &mut UContext) {
        if self.reading.is_on() || !core::mem::take(&mut self.stepping) {
            return;
        }
        set_stepping(context, false);
        let mut cpu = context.machine.cpu();
        cpu.regs.r11 &= !TRAP;
        context.machine.set_cpu(&cpu);
    }

    /// Where this replica is at a call.
    fn at_call(&self) -> Standing {
        let Signature { a, b, .. } = self.before;
        Standing {
            events: self.step,
            signature: [a, b],
            at_call: true,
            ..Standing::default()
        }
    }

    /// Whom the group consists of may have changed since the last attempt. Whom an attempt has
    /// removed comes no more, even before the group has voted on that.
    fn settle_members(&mut self) {
        if self.settled != self.party.changes {
            self.settled = self.party.changes;
            let party = &self.party;
            let (all, voters) = (party.all(), party.members);
            self.coupler.set_epoch(all, voters, party.epoch());
        }
    }

    /// Has an attempt removed somebody who still belongs to the group? All that agreed say the
    /// same.
    pub(crate) fn has_removed(&self, members: ReplicaSet) -> bool {
        self.settled == self.party.changes && !members.minus(self.coupler.members()).is_empty()
    }

    /// The attempt is over for this replica.
    fn leave(&mut self) {
        self.doing = Doing::Nothing;
        self.hints.forget();
        self.milestone.forget();
        self.coupler.give_up();
        if self.worth.has_begun() {
            let lag = self.coupler.lag();
            self.worth.end(sys::monotonic(), cpu_now(), lag);
        }
        look_after(0);
        lower_flag();
    }

    /// It has something to do: nobody has to be interrupted for it, and it may be the one that is.
    fn stop_waiting(&mut self) {
        if core::mem::take(&mut self.looks) != 0 {
            lower_flag();
        }
    }

    /// From now on threads wait for this one's slice to end, or none does. Where slices are as long
    /// as need be there is always a look at intervals.
    pub(crate) fn set_slices(&mut self, on: bool) {
        let control = regions::control(regions::own_group());
        let slice = match self.on && (on || self.lazy) {
            true => control.slice_ns.load(Ordering::Relaxed),
            false => 0,
        };
        if self.slice != slice {
            self.slice = slice;
            self.base = cpu_now();
            slices(slice);
        }
    }

    /// The run to the target is over.
    fn ran(&mut self, stop: Stop, now: u64) {
        if let Doing::Running { since, .. } = self.doing {
            self.doing = Doing::Nothing;
            self.coupler.ran(stop, now.saturating_sub(since));
        }
    }
}

/// The supervisor takes this replica for one that waits no more.
fn lower_flag() {
    if let Some(report) = regions::own_report() {
        report.meeting.store(0, Ordering::Relaxed);
    }
}

fn boards(places: usize) -> Boards<'static> {
    let mut boards = [None; MAX_REPLICAS];
    for (index, board) in boards[..places].iter_mut().enumerate() {
        *board = Some(regions::board(regions::own_group(), index));
    }
    boards
}

fn places(kernel: &Kernel) -> usize {
    crate::convert::size(kernel.control.replicas.load(Ordering::Relaxed).into())
}

fn cpu_now() -> u64 {
    sys::cpu_time(0).unwrap_or(0)
}

/// All replicas, alike: from here on this process comes to points, if this run has any.
pub(crate) fn turn_on(kernel: &mut Kernel) {
    let meeting = &mut kernel.replica.env_mut().meeting;
    if meeting.asked && !meeting.on {
        meeting.on = true;
        CALLED.store(true, Ordering::Relaxed);
        meeting.set_slices(false);
        mark(kernel);
    }
}

/// A replica that has just begun, or its group: its process has no timers yet.
pub(crate) fn arm(kernel: &mut Kernel) {
    set_ticks(kernel.control);
    let meeting = &mut kernel.replica.env_mut().meeting;
    CALLED.store(meeting.on, Ordering::Relaxed);
    meeting.set_slices(false);
}

/// Is an attempt under way, or does a sibling want one?
pub(crate) fn is_wanted(kernel: &Kernel) -> bool {
    let coupler = &kernel.replica.env().meeting.coupler;
    !kernel.alone && (!coupler.is_idle() || coupler.is_wanted(&boards(places(kernel))))
}

/// The program was interrupted here. `wish`: what reason this replica has to agree on a point.
pub(crate) fn interrupted(kernel: &mut Kernel, context: &mut UContext, wish: Wish) -> Outcome {
    let later = match wish {
        Wish::Later(ns) => ns,
        Wish::Now | Wish::None => 0,
    };
    let wish = wish == Wish::Now;
    if kernel.alone {
        if !uproot(kernel, context) {
            return Outcome::GoOn;
        }
        look_after(later);
        return if wish { alone(kernel) } else { Outcome::GoOn };
    }
    note(kernel);
    let now = kernel.clock.now();
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.count_from_here(now);
    match meeting.doing {
        Doing::Placing { until } => {
            if !placing::is_in_vain(until) || !uproot(kernel, context) {
                return Outcome::GoOn;
            }
            placing::stop(kernel);
        }
        Doing::Running {
            since, left, free, ..
        } => {
            if meeting.has_passed() {
                return passed(kernel, context);
            }
            let now = cpu_now();
            let spent = now.saturating_sub(since + meeting.toll(now));
            let (beyond, near) = where_it_is(kernel, context);
            if spent < left && !beyond {
                let next = if spent < free { free } else { left };
                return plant_late(kernel, context, spent >= free || near, next - spent);
            }
            if !uproot(kernel, context) {
                return Outcome::GoOn;
            }
            kernel.replica.env_mut().meeting.ran(Stop::Overran, now);
        }
        Doing::Nothing if meeting.coupler.is_idle() => {
            if !begins(kernel, context, wish, later) {
                if kernel.replica.env_mut().meeting.is_there_often() {
                    count_no_more(kernel, context);
                }
                return Outcome::GoOn;
            }
        }
        Doing::Nothing => {}
    }
    drive(kernel, context)
}

/// Does this replica, of which no attempt is under way, take part in one from here on? It may wish
/// to begin one, or to be interrupted once more after so many ns.
fn begins(kernel: &mut Kernel, context: &mut UContext, wish: bool, later: u64) -> bool {
    let boards = boards(places(kernel));
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.settle_members();
    let wanted = meeting.coupler.is_wanted(&boards);
    look_after(later);
    if !wanted && !wish {
        return false;
    }
    // Code is looked at as it was mapped.
    if !uproot(kernel, context) {
        look_after(LOOK_NS);
        return false;
    }
    let meeting = &mut kernel.replica.env_mut().meeting;
    if wanted {
        meeting.came_at = sys::monotonic();
        meeting.coupler.join(&boards);
        return true;
    }
    let can = spots::can_begin(kernel, context.machine.rip);
    let meeting = &mut kernel.replica.env_mut().meeting;
    match can {
        true => {
            meeting.came_at = sys::monotonic();
            meeting.worth.begin(meeting.came_at);
            meeting.coupler.begin();
        }
        false => meeting.milestone.forget(),
    }
    can
}

/// This replica goes to a target: is it known to be beyond it, or so near that it needs the stub?
fn where_it_is(kernel: &mut Kernel, context: &UContext) -> (bool, bool) {
    let now = kernel.clock.now();
    let events = kernel.replica.events();
    let meeting = &mut kernel.replica.env_mut().meeting;
    if meeting.steps_made.number(events) != meeting.coupler.target().events {
        return (false, false);
    }
    meeting.note_registers(now, context);
    if meeting
        .counted()
        .is_before(&meeting.coupler.target().counted)
    {
        return (false, false);
    }
    match meeting.correct(now) {
        Some(ahead) => (ahead < -BEYOND_NS, ahead < NEAR_NS),
        None => (false, false),
    }
}

/// Where there is only one replica it is at any point.
fn alone(kernel: &Kernel) -> Outcome {
    count(&kernel.report.points[0], 1);
    Outcome::At(Point {
        generation: 0,
        events: 0,
        at_call: false,
    })
}

/// The stub has found what it looks for, or this replica has come to its place.
pub(crate) fn landed(kernel: &mut Kernel, context: &mut UContext) -> Outcome {
    let meeting = &mut kernel.replica.env_mut().meeting;
    let at = meeting.site.place().expect("it is there");
    context.machine.rip = at;
    meeting.note_landed();
    let runs = matches!(meeting.doing, Doing::Running { .. });
    if runs
        && meeting.visits.are_on()
        && let Some(outcome) = visits::visited(kernel, context)
    {
        return outcome;
    }
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.take_out();
    match meeting.doing {
        Doing::Placing { .. } => {
            meeting.doing = Doing::Nothing;
            if meeting.outward.has_come(at, cpu_now()) {
                meeting.coupler.placed();
            }
        }
        _ => meeting.ran(Stop::Matched, cpu_now()),
    }
    drive(kernel, context)
}

/// One instruction was made on the way to a place.
pub(crate) fn stepped(kernel: &mut Kernel, context: &mut UContext) -> Outcome {
    set_stepping(context, false);
    let meeting = &mut kernel.replica.env_mut().meeting;
    if meeting.close(context) {
        if meeting.site.put_back() {
            return Outcome::GoOn;
        }
        // The code is another one by now.
        meeting.take_out();
        return end_run(kernel, context);
    }
    meeting.stepping = false;
    if core::mem::take(&mut meeting.pushes) {
        unpush(context.machine.rsp);
    }
    // At the agent's entry it is at a call, and has a place there. The agent is not to be stepped:
    // each step would run other parts of it in between.
    if !matches!(meeting.doing, Doing::Placing { .. }) || context.machine.rip == entry_address() {
        return Outcome::GoOn;
    }
    meeting.doing = Doing::Nothing;
    drive(kernel, context)
}

/// What comes next, a call or a fault, is behind this.
#[cold]
pub(crate) fn mark(kernel: &mut Kernel) {
    counter::end();
    note(kernel);
    let events = kernel.replica.events();
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.end_milestone();
    meeting.steps_made.count(events);
    meeting.hints.forget();
    meeting.moved = true;
    if meeting.is_exact() {
        let now = kernel.clock.now();
        kernel.replica.env_mut().meeting.marked = now;
    }
}

/// What was done at a point is over, or a call that may have waited: from here on all replicas
/// compute alike.
pub(crate) fn go_on(kernel: &mut Kernel, is_point: bool) {
    if is_point {
        let now = kernel.clock.now();
        return kernel.replica.env_mut().meeting.count_from_point(now);
    }
    kernel.replica.env_mut().meeting.moved = true;
    if !kernel.replica.env().meeting.is_exact() {
        return;
    }
    let now = kernel.clock.now();
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.marked = now;
    if !meeting.lazy {
        meeting.base = cpu_now();
    }
}

/// What this replica goes by while it waits for others.
fn note(kernel: &mut Kernel) {
    let (replica, orders) = (&kernel.replica, &kernel.orders);
    let party = Party::of(replica, orders.copies(), orders.copied());
    let before = replica.signature();
    kernel.replica.env_mut().meeting.mark(before, party);
}

/// Takes the trap flag out of what was pushed.
fn unpush(rsp: u64) {
    if let Ok(flags) = guest::read::<u64>(rsp) {
        let _ = guest::write(rsp, &(flags & !TRAP));
    }
}

/// This replica is at a call, or at a fault, before the events of that.
pub(crate) fn at_call(kernel: &mut Kernel) {
    note(kernel);
    let meeting = &mut kernel.replica.env_mut().meeting;
    if meeting.coupler.is_idle() {
        return;
    }
    meeting.take_out();
    match meeting.doing {
        Doing::Running { .. } if meeting.step < meeting.coupler.target().events => return,
        Doing::Running { .. } => meeting.ran(Stop::Call, cpu_now()),
        Doing::Placing { .. } => meeting.doing = Doing::Nothing,
        Doing::Nothing => {}
    }
    let boards = boards(places(kernel));
    let env = kernel.replica.env_mut();
    while let Some(peer) = env.step_at_call(&boards) {
        env.await_sibling(peer);
    }
}

/// At the end of a call: if the target comes before the next one, this replica is stopped there. It
/// may be another thread that goes on, from where a point has left it: in the midst of what the
/// jump takes up.
pub(crate) fn behind_call(kernel: &mut Kernel, frame: &mut TrapFrame) {
    let meeting = &kernel.replica.env().meeting;
    let events = meeting.steps_made.number(kernel.replica.events());
    let target = meeting.coupler.target();
    let running = matches!(meeting.doing, Doing::Running { .. });
    if running && !target.at_call && events == target.events {
        plant(kernel);
        let site = &kernel.replica.env().meeting.site;
        site.resume(&mut frame.cpu);
    }
}

/// The program has faulted, or was stopped by something else, perhaps in a stub: afterwards its
/// registers are those that it would have had. False if it was the stub that faulted, and the
/// program goes on.
pub(crate) fn is_programs_own(kernel: &mut Kernel, context: &mut UContext) -> bool {
    let meeting = &mut kernel.replica.env_mut().meeting;
    if !meeting.reading.is_on() && core::mem::take(&mut meeting.stepping) {
        set_stepping(context, false);
    }
    let site = &kernel.replica.env_mut().meeting.site;
    if let Some(differs) = site.after_fault(context.machine.rip) {
        context.machine.rip = differs;
        return false;
    }
    assert!(uproot(kernel, context), "faults are at instructions");
    true
}
