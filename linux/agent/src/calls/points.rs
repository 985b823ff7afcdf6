//! What is done at a point between calls: signals, orders and other threads have their turn there.
//!
//! Signals and other threads wait for a call otherwise, and a program that computes makes none. So
//! the primary, called away by the host or the supervisor while the program computes, has all
//! replicas agree on a point ([`crate::protocol::meeting`]). There they take what has arrived, as
//! with the result of a call, run handlers, and let another thread go on if there is one that is
//! ready. The turn of a process that shares memory ends there if another one waits for its own.
//!
//! Contract: what is done at a point follows from the trace and from the primary's word, as at a
//! call; all registers of the interrupted thread are kept.
//!
//! With ticks ([`crate::protocol::meeting`]) replicas also come to a point that nobody waits for,
//! to be compared, and an attempt that fails is a verdict.

use core::sync::atomic::Ordering;

use rcoe_core::coupling::End;

use crate::arch::entry::{TrapFrame, landing, point_from};
use crate::arch::frames::{SigInfo, UContext};
use crate::calls::{look_around, processes, signals};
pub(crate) use crate::coupling::counter;
use crate::kernel::{self, Kernel, kind};
use crate::memory::{deferred, guest};
use crate::protocol::meeting::{self, Outcome, Why, Wish};
use crate::protocol::scene;
use crate::recover::reintegration::newcomer;
use crate::sched::{schedule, turns};

/// The supervisor or the host has called this replica away, wherever it is.
pub(crate) fn called(context: &mut UContext) {
    if !guest::is_agent(context.machine.rip, 1) {
        look(context);
    } else if meeting::may_be_called() {
        // The call may be over before it looks. Whoever computes then is called again.
        meeting::look_again();
    }
}

/// The program was interrupted: is there a point to come to?
pub(crate) fn look(context: &mut UContext) {
    let kernel = kernel::kernel();
    if !kernel.replica.env().meeting.is_on() || kernel.processes.is_being_born() {
        return;
    }
    let wish = wishes(kernel, context);
    if wish == Wish::Now || meeting::is_wanted(kernel) {
        settle(kernel);
    }
    let outcome = meeting::interrupted(kernel, context, wish);
    conclude(kernel, context, outcome);
}

/// From here on this replica has all that its siblings have, and can be compared with them.
fn settle(kernel: &mut Kernel) {
    if deferred::is_active() {
        deferred::settle_all();
        processes::release_twin(kernel);
    }
}

/// Has this replica reason to agree on a point? The primary has for what waits for the program; all
/// members have if one is gone, which nobody might notice else, or if a tick is over.
fn wishes(kernel: &mut Kernel, context: &UContext) -> Wish {
    if kernel.replica.is_newcomer() {
        return Wish::None;
    }
    let is_primary = kernel.replica.is_primary();
    let votes = kernel.replica.outbox().arrivals();
    let due = (kernel.replica.env_mut().meeting).is_due(votes, is_primary);
    let lost = kernel.replica.env().has_lost(kernel.replica.members());
    // A sibling may stand at a breakpoint, so a debugged program has points for its stops only.
    let debugged = kernel.control.gate.load(Ordering::Relaxed) != 0;
    let others = || kernel.threads.held_up() > 0 || turns::are_wanted(kernel);
    let waits = || match debugged {
        true => kernel.orders.is_anything_new(kernel.control),
        false => kernel.replica.env().meeting.has_slices() && others() || signals::has_come(kernel),
    };
    if due || lost {
        return Wish::Now;
    }
    if !is_primary || !waits() {
        return Wish::None;
    }
    let why = match () {
        () if kernel.alone => Why::Alone,
        () if signals::is_one_there(kernel) => Why::Signal,
        () => Why::Others,
    };
    let now = kernel.clock.now();
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.is_worth_it(now, why, context)
}

/// What this process has may make points between calls necessary: threads, others it shares memory
/// with, or handlers. All replicas come here alike.
pub(crate) fn review(kernel: &mut Kernel) {
    if kernel.replica.env().meeting.is_on() {
        return;
    }
    if kernel.threads.many() || kernel.turns.is_member() || kernel.signals.has_handlers() {
        meeting::turn_on(kernel);
    }
}

/// A trap of the program: is it one by which it is brought to a point?
pub(crate) fn is_trap(info: &SigInfo, context: &mut UContext) -> bool {
    if info.is_breakpoint() {
        came_by(context);
        return true;
    }
    let (_, landed) = landing();
    let rip = context.machine.rip;
    if scene::is_pause(context) {
        // The debugger that has asked for a stop is gone.
        return true;
    }
    let outcome = if rip == landed {
        meeting::landed(kernel::kernel(), context)
    } else if is_stepping() {
        meeting::stepped(kernel::kernel(), context)
    } else {
        return false;
    };
    conclude(kernel::kernel(), context, outcome);
    true
}

/// The processor has come upon a breakpoint of the agent's. One that has interrupted the agent was
/// there before it.
fn came_by(context: &mut UContext) {
    if kernel::told().is_some() && !guest::is_agent(context.machine.rip, 1) {
        let outcome = meeting::came_by(kernel::kernel(), context);
        conclude(kernel::kernel(), context, outcome);
    }
}

/// Does the program make one instruction at a time? It may just have entered the agent.
fn is_stepping() -> bool {
    kernel::told().is_some() && kernel::kernel().replica.env().meeting.is_stepping()
}

/// The program has faulted: because it reads its own code, which is changed at the moment? Then it
/// goes on.
pub(crate) fn is_reading(info: &SigInfo, context: &mut UContext) -> bool {
    let kernel = kernel::kernel();
    let outcome = meeting::reads(kernel, info, context);
    let Some(outcome) = outcome else {
        return false;
    };
    conclude(kernel, context, outcome);
    true
}

/// A fault, before it is looked at: it is the program's own and as at a call, or the program goes
/// on.
pub(crate) fn is_own_fault(kernel: &mut Kernel, context: &mut UContext) -> bool {
    if !kernel.replica.env().meeting.is_on() {
        return true;
    }
    let own = meeting::is_programs_own(kernel, context);
    if own {
        at_call(kernel);
        meeting::mark(kernel);
    }
    own
}

/// The program's code is to be looked at, on the way to a call.
pub(crate) fn uncover(kernel: &mut Kernel) {
    kernel.replica.env_mut().meeting.take_out();
}

/// The host has come upon a call, and the agent is entered next.
pub(crate) fn enter(kernel: &mut Kernel, context: &mut UContext) {
    kernel.replica.env_mut().meeting.enter(context);
}

/// This replica is at a call, or at a fault of the program, before what that changes.
pub(crate) fn at_call(kernel: &mut Kernel) {
    meeting::at_call(kernel);
    follow_or_give_up(kernel);
}

/// At the end of a call that is on the way to a point; the program goes on with this frame.
pub(crate) fn behind_call(kernel: &mut Kernel, frame: &mut TrapFrame) {
    follow_or_give_up(kernel);
    meeting::behind_call(kernel, frame);
}

/// A newcomer that the others have left alone at a call would be another than they are from here
/// on.
fn follow_or_give_up(kernel: &mut Kernel) {
    if kernel.replica.env_mut().meeting.take_apart() {
        newcomer::give_up(kernel);
    }
}

/// At the end of a call that may have waited, or of a point. From here on replicas compute alike.
/// The primary hears of what comes next although the program may make no call: one that has just
/// become it has no timers of the host yet, and was called before it was.
pub(crate) fn go_on(kernel: &mut Kernel, is_point: bool) {
    if !kernel.replica.env().meeting.is_on() {
        return;
    }
    meeting::go_on(kernel, is_point);
    if !kernel.replica.is_primary() {
        return;
    }
    signals::arm_timers(kernel);
    if signals::has_come(kernel) {
        meeting::look_again();
    }
}

fn conclude(kernel: &mut Kernel, context: &mut UContext, outcome: Outcome) {
    match outcome {
        Outcome::GoOn => {}
        Outcome::At(point) => {
            kernel.event(kind::of(0, kind::POINT), u64::from(point.generation));
            context.machine.enter(point_from(context.machine.rip));
        }
        Outcome::Apart(end) => apart(kernel, end),
    }
}

/// The replicas could not be brought to one point. If one of them was hit the next vote finds that
/// out; a replica that knows it is convicted calls for one. With ticks all do, as the program may
/// never come to one. A newcomer has no part in that.
fn apart(kernel: &mut Kernel, end: End) {
    newcomer::give_up(kernel);
    let convicted = matches!(end, End::Convicted | End::Broken | End::PassedOver);
    let verdict = kernel.replica.env().meeting.has_ticks() && end != End::Unplaced;
    if convicted || verdict {
        let own = kernel.replica.id().index() as u64;
        kernel.event(kind::of(0, kind::POINT), u64::MAX - own);
        kernel.rendezvous();
    }
}

/// Entry from the assembly: all replicas are at one point between calls, and this is where the
/// program is.
#[unsafe(no_mangle)]
extern "C" fn rcoe_point_reached(frame: &mut TrapFrame) {
    let kernel = kernel::kernel();
    kernel.alert();
    meeting::mark(kernel);
    let members = kernel.replica.members();
    if !kernel.alone && kernel.replica.env().meeting.has_removed(members) {
        kernel.rendezvous();
    }
    if kernel.turns.is_member() {
        turns::pass(kernel);
    } else {
        signals::look_outside(kernel);
    }
    if kernel.threads.many() {
        schedule::preempt(kernel, frame);
    } else {
        signals::deliver_at_point(kernel, frame);
    }
    look_around(kernel, frame, true);
    meeting::count_on(kernel, frame);
}
