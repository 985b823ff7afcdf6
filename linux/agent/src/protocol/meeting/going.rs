//! What a replica that was interrupted in the program does for the protocol: it goes to a place
//! that others can be stopped at, or to the target.
//!
//! The owner of a target goes on to the next place where the code can be patched, by a stub that
//! stops it at the first visit, or instruction by instruction where there is none. The others get a
//! stub at that place that knows the target's state. Who lags far behind goes most of the way
//! first, since visits to a stub take time.
//!
//! Contract: where it cannot be stopped a replica runs for its time, and the next target is another
//! one.

use core::sync::atomic::Ordering;

use rcoe_core::Signature;
use rcoe_core::coupling::{
    Backend as _, Counted, End, Machine as _, Order, Point, Standing, States, Stop, way,
};

use crate::arch::context;
use crate::arch::entry::TrapFrame;
use crate::arch::frames::{SigInfo, UContext};
use crate::coupling::counter;
use crate::coupling::machine::{Interrupted, general_of, places_of};
use crate::coupling::site::Spot;
use crate::coupling::state::{General, layout};
use crate::coupling::stub::{Place, Stops, WORDS, Wanted};
use crate::kernel::{Kernel, count};
use crate::protocol::meeting::hints::BEYOND_NS;
use crate::protocol::meeting::reading::Reading;
use crate::protocol::meeting::timers::{LONG_LOOK_NS, LOOK_NS, look_after};
use crate::protocol::meeting::{Doing, Meeting, Outcome, boards, cpu_now, places, placing, spots};
use crate::sys;

/// A replica that lags by more goes most of the way without a stub, in ns of CPU time: a tight loop
/// in which one stands takes tens of times as long.
const FREE_NS: u64 = 200_000;
/// The part of such a way that is left for the stub, beside what is not known of who is ahead.
const NEAR: u64 = 12;
/// Looks at a replica on its way before they become rarer.
const SOON: u32 = 6;

/// Does what the protocol orders until the program has to go on. That is no progress of it.
pub(super) fn drive(kernel: &mut Kernel, context: &mut UContext) -> Outcome {
    kernel.alert();
    let began = cpu_now();
    let outcome = obey(kernel, context);
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.check_milestone();
    meeting.stood_still(began);
    outcome
}

fn obey(kernel: &mut Kernel, context: &mut UContext) -> Outcome {
    let boards = boards(places(kernel));
    let mut machine = look(kernel, context);
    let mut said = false;
    loop {
        let meeting = &mut kernel.replica.env_mut().meeting;
        let order = meeting.coupler.step(&boards, &mut machine);
        if !matches!(order, Order::Wait(_)) {
            meeting.stop_waiting();
        }
        said |= !matches!(order, Order::Wait(_) | Order::Idle);
        if !matches!(order, Order::Again | Order::Removed(_)) && core::mem::take(&mut said) {
            kernel.replica.env().wake_siblings();
        }
        let goes_on = match order {
            Order::Again | Order::Removed(_) => false,
            // What siblings will ask for.
            Order::Wait(_) if machine.digest_ahead() => false,
            Order::Wait(peer) => {
                kernel.replica.env_mut().await_sibling(peer);
                false
            }
            Order::Place => placing::go(kernel, context),
            Order::Run { .. } if is_beyond(kernel, context) => {
                let meeting = &mut kernel.replica.env_mut().meeting;
                meeting.coupler.ran(Stop::Overran, 0);
                machine = look(kernel, context);
                false
            }
            Order::Run { budget, again } => {
                let standing = look(kernel, context).standing();
                run(kernel, budget, again, &standing);
                place_in_stub(kernel, context);
                true
            }
            Order::Agreed(point) => return agreed(kernel, point),
            Order::Halted(end) => return apart(kernel, end),
            Order::Idle => true,
        };
        if goes_on {
            return Outcome::GoOn;
        }
    }
}

/// The state of this replica at the place where it was interrupted.
pub(super) fn look(kernel: &mut Kernel, context: &UContext) -> Interrupted {
    let Signature { events, a, b } = kernel.replica.signature();
    let number = kernel.replica.id().index();
    let meeting = &kernel.replica.env().meeting;
    let standing = Standing {
        events: meeting.steps_made.number(events),
        signature: [a, b],
        at_call: false,
        progress: meeting.progress(kernel.clock.now()),
        ip: context.machine.rip,
        left: 0,
        counted: meeting.counted(),
    };
    let bases = context::bases();
    Interrupted::new(standing, &context.machine, bases, layout(), number)
}

/// This replica is to go to the target: does it know that it has passed it?
fn is_beyond(kernel: &mut Kernel, context: &UContext) -> bool {
    let now = kernel.clock.now();
    let events = kernel.replica.events();
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.note_registers(now, context);
    if meeting
        .counted()
        .is_before(&meeting.coupler.target().counted)
    {
        return false;
    }
    let is_here = meeting.steps_made.number(events) == meeting.coupler.target().events;
    is_here && meeting.correct(now).is_some_and(|ahead| ahead < -BEYOND_NS)
}

/// An attempt is over.
fn count_attempt(kernel: &Kernel, agreed: bool) {
    let report = &kernel.report;
    count(&report.points[usize::from(!agreed)], 1);
    let phases = kernel.replica.env().meeting.coupler.stamp().phase.into();
    let [all, most] = &report.phases;
    count(all, phases);
    count(most, phases.saturating_sub(most.load(Ordering::Relaxed)));
    let meeting = &kernel.replica.env().meeting;
    let [all, behind] = &report.attempts_ns;
    count(all, sys::monotonic().saturating_sub(meeting.came_at));
    count(behind, meeting.coupler.lag());
}

fn agreed(kernel: &mut Kernel, point: Point) -> Outcome {
    count_attempt(kernel, true);
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.leave();
    meeting.base = cpu_now();
    meeting.ticks.begin(meeting.base);
    match point.at_call {
        true => Outcome::GoOn,
        false => Outcome::At(point),
    }
}

fn apart(kernel: &mut Kernel, end: End) -> Outcome {
    count_attempt(kernel, false);
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.leave();
    meeting.ticks.begin(cpu_now());
    Outcome::Apart(end)
}

pub(super) const TRAP: u64 = 1 << 8;

pub(super) fn set_stepping(context: &mut UContext, on: bool) {
    let mut cpu = context.machine.cpu();
    cpu.rflags = cpu.rflags & !TRAP | if on { TRAP } else { 0 };
    context.machine.set_cpu(&cpu);
}

/// This replica is to go to the target, from here.
fn run(kernel: &mut Kernel, budget: u64, again: bool, standing: &Standing) {
    let events = kernel.replica.events();
    let meeting = &mut kernel.replica.env_mut().meeting;
    let events = meeting.steps_made.number(events);
    let target = *meeting.coupler.target();
    let here = !target.at_call && events == target.events;
    let lag = target.progress.saturating_sub(standing.progress);
    let told = way(standing, &target);
    let lag = told.unwrap_or(lag);
    // Later in an attempt it is a guess how far who has come: what visits to stubs take is one.
    let first = meeting.coupler.stamp().phase == 1;
    let near = lag / NEAR + States::doubt(target.progress) / 4;
    // By counts it is known when it is there, as long as a stub stands.
    let free = match first && here && !again && lag > FREE_NS && told.is_none() {
        true => lag.saturating_sub(near),
        false => 0,
    };
    if !again {
        meeting.searched_from = Counted::default();
    }
    meeting.order_run(budget, free, again);
    meeting.begin_visits(again);
    if here && free == 0 {
        plant(kernel);
    }
}

impl Meeting {
    /// Stops this replica there, if that can be.
    pub(super) fn plant(&mut self, spot: &Spot, stops: Stops<'_>) -> bool {
        self.planted = cpu_now();
        self.reading = Reading::default();
        let planted = match spot {
            Spot::Jump(window) => self.site.plant(window, stops),
            Spot::Breakpoint(at) => self.site.watch(*at, self.planted),
        };
        planted.is_ok()
    }

    pub(super) fn order_run(&mut self, left: u64, free: u64, again: bool) {
        let since = cpu_now();
        self.doing = Doing::Running {
            since,
            left,
            free,
            again,
        };
        self.looked = 0;
        self.look_on(if free > 0 { free } else { left }, since);
    }

    /// This replica is looked after once more on its way, of which there is so much left, at this
    /// CPU time. Looks come soon at first, since what registers tell is worth most then, and at
    /// intervals that differ, since what begins anew as often seems to move steadily.
    fn look_on(&mut self, left: u64, now: u64) {
        let longer = self.looked / SOON;
        self.looked = self.looked.saturating_add(1);
        let every = (LOOK_NS << longer.min(6)).min(LONG_LOOK_NS);
        let some = now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let next = every / 2 + some % every;
        look_after(next.min(left).max(LOOK_NS / 4));
    }
}

/// The target's state, as far as a stub compares it.
pub(super) struct Sought {
    general: General,
    words: [(Place, u64); WORDS],
    count: usize,
}

impl Sought {
    pub(super) fn of(meeting: &Meeting) -> Self {
        let stub = meeting.coupler.stub();
        let (words, count) = places_of(stub, layout());
        Self {
            general: general_of(stub),
            words,
            count,
        }
    }

    pub(super) fn wanted(&self) -> Wanted<'_> {
        Wanted {
            general: &self.general,
            words: &self.words[..self.count],
        }
    }
}

/// Makes the target's place one at which this replica is stopped; it stays as it is if the code
/// cannot be patched, and runs for its time then.
pub(super) fn plant(kernel: &mut Kernel) {
    let meeting = &kernel.replica.env_mut().meeting;
    let at = meeting.coupler.target().ip;
    let sought = Sought::of(meeting);
    let Some(spot) = spots::at(kernel, at) else {
        return;
    };
    let meeting = &mut kernel.replica.env_mut().meeting;
    let wanted = &sought.wanted();
    let stops = match meeting.visits.are_on() {
        true => Stops::First,
        false => Stops::At(wanted),
    };
    if !meeting.site.is_planted() {
        // Refused: it runs for its time, and is ahead then.
        let _ = meeting.plant(&spot, stops);
    }
    meeting.search_from_here();
}

/// The interrupted program goes on while a stub stands.
fn place_in_stub(kernel: &mut Kernel, context: &mut UContext) {
    let meeting = &mut kernel.replica.env_mut().meeting;
    let again = matches!(meeting.doing, Doing::Running { again: true, .. });
    let refused_here = again && meeting.site.place() == Some(context.machine.rip);
    match refused_here {
        true => meeting.pass(context),
        false => meeting.resume(context),
    }
}

impl Meeting {
    /// The interrupted program was refused at the place, and goes on behind it.
    pub(super) fn pass(&mut self, context: &mut UContext) {
        self.note_passed();
        let mut cpu = context.machine.cpu();
        self.site.pass(&mut cpu);
        context.machine.set_cpu(&cpu);
    }

    /// The interrupted program goes on, and is stopped at the place.
    pub(super) fn resume(&self, context: &mut UContext) {
        let mut cpu = context.machine.cpu();
        self.site.resume(&mut cpu);
        context.machine.set_cpu(&cpu);
    }
}

/// The replica runs, and has not been stopped yet: it came out of a call meanwhile, or its stub
/// stands.
pub(super) fn plant_late(
    kernel: &mut Kernel,
    context: &mut UContext,
    is_near: bool,
    left: u64,
) -> Outcome {
    kernel.alert();
    let began = cpu_now();
    kernel.replica.env_mut().meeting.look_on(left, began);
    let meeting = &kernel.replica.env().meeting;
    let events = meeting.steps_made.number(kernel.replica.events());
    let target = meeting.coupler.target();
    let here = !target.at_call && events == target.events;
    if is_near && here && !meeting.site.is_planted() {
        plant(kernel);
        place_in_stub(kernel, context);
        kernel.replica.env_mut().meeting.stood_still(began);
    }
    Outcome::GoOn
}

/// Takes the stub out under the interrupted program; false if that has to go on first.
pub(super) fn uproot(kernel: &mut Kernel, context: &mut UContext) -> bool {
    let meeting = &mut kernel.replica.env_mut().meeting;
    let mut cpu = context.machine.cpu();
    let Some(stop) = meeting.site.original(&mut cpu) else {
        return false;
    };
    meeting.note_stop(stop, cpu.rip);
    meeting.take_out();
    context.machine.set_cpu(&cpu);
    meeting.close(context);
    true
}

/// The program has faulted: as it has read or written its own code, and what comes of that?
pub(crate) fn reads(
    kernel: &mut Kernel,
    info: &SigInfo,
    context: &mut UContext,
) -> Option<Outcome> {
    let timeout = kernel.control.timeout_ns.load(Ordering::Relaxed);
    let meeting = &mut kernel.replica.env_mut().meeting;
    let key = info.key();
    let is_that = (key.is_some() || info.is_forbidden()) && meeting.site.hides(info.first);
    if !is_that {
        return None;
    }
    meeting.milestone.forget();
    if meeting.doing == Doing::Nothing {
        // Only visits were counted, and nobody waits for it.
        assert!(uproot(kernel, context), "faults are at instructions");
        return Some(Outcome::GoOn);
    }
    if meeting.reading.may_go_on(timeout) && meeting.open(key, context) {
        return Some(Outcome::GoOn);
    }
    // Its run ends here; it reads what is there.
    assert!(uproot(kernel, context), "faults are at instructions");
    Some(end_run(kernel, context))
}

/// The replica cannot be stopped where it was to be.
pub(super) fn end_run(kernel: &mut Kernel, context: &mut UContext) -> Outcome {
    let meeting = &mut kernel.replica.env_mut().meeting;
    match meeting.doing {
        Doing::Running { .. } => meeting.ran(Stop::Overran, cpu_now()),
        _ => placing::stop(kernel),
    }
    drive(kernel, context)
}

/// This replica has passed the target.
pub(super) fn passed(kernel: &mut Kernel, context: &mut UContext) -> Outcome {
    if !uproot(kernel, context) {
        return Outcome::GoOn;
    }
    count(&kernel.report.counted[1], 1);
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.ran(Stop::Passed, cpu_now());
    drive(kernel, context)
}

/// A point is over, and the program goes on with this frame: it is counted from here on how far it
/// comes, if the run wants that.
pub(crate) fn count_on(kernel: &mut Kernel, frame: &mut TrapFrame) {
    let meeting = &mut kernel.replica.env_mut().meeting;
    let since = meeting.coupler.stamp().generation;
    if kernel.alone || !meeting.is_on() {
        return;
    }
    let counts = counter::begin(kernel.control, since) || count_visits(kernel, since);
    if counts {
        count(&kernel.report.counted[0], 1);
    }
    let site = &kernel.replica.env().meeting.site;
    site.resume(&mut frame.cpu);
}

/// Visits to the place of this attempt's point are counted from here on. False if they are not.
fn count_visits(kernel: &mut Kernel, since: u32) -> bool {
    let at = kernel.replica.env().meeting.coupler.target().ip;
    let counts = kernel.control.milestones.load(Ordering::Relaxed) != 0;
    let spot = counts.then(|| spots::in_mapped_code(kernel, at)).flatten();
    let meeting = &mut kernel.replica.env_mut().meeting;
    spot.is_some_and(|spot| meeting.count_visits(&spot, since))
}

/// Visits are counted no more up to the next point.
pub(super) fn count_no_more(kernel: &mut Kernel, context: &mut UContext) {
    match uproot(kernel, context) {
        true => kernel.replica.env_mut().meeting.milestone.forget(),
        // It is in the midst of what takes one instruction's place.
        false => look_after(LOOK_NS),
    }
}
