//! Places at which a replica can be stopped, wherever the program's code comes from.
//!
//! Code that was mapped to be executed only stays as it is: it can take a jump to a stub. So can
//! what was made at run time, in memory that is or was writable, if it is this process's alone, and
//! if the instructions hold nothing that the program may look up in its code. Else it gets a
//! breakpoint of the processor, which can stand at any instruction; a visit is dear.
//!
//! Contract: nothing is planted while a place is looked for.
//!
//! Not covered: code that can take no jump, where the host offers no breakpoints.

use core::ops::Range;

use crate::arch::context;
use crate::arch::frames::UContext;
use crate::coupling::counter;
use crate::coupling::decode::Refused;
use crate::coupling::loops;
use crate::coupling::machine::general_of;
use crate::coupling::place::{Choice, Made, Surroundings, choose, window};
use crate::coupling::site::{Site, Spot};
use crate::coupling::state::General;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::memory::space::{Kind, space};
use crate::protocol::meeting::going::look;
use crate::protocol::meeting::{Doing, Outcome, cpu_now, landed};

/// Where the owner of a target goes to, if it is the next place.
pub(super) enum Next {
    /// There, certainly.
    At(Spot),
    /// It is about to make a call.
    Call,
    /// It has to make an instruction and be asked again.
    Step,
}

/// Instructions that are made one by one to find room for a jump, before a breakpoint is taken.
const STEPS: u32 = 200;
/// How far code that was made at run time is looked at, in bytes to each side.
const NEAR: u64 = 256 << 10;

/// Where the program's code is around an address.
fn with_surroundings<T>(
    kernel: &Kernel,
    at: u64,
    body: impl FnOnce(&Surroundings<'_>) -> T,
) -> Option<T> {
    let kind = space().kind_at(at)?;
    let others = &kernel.rewriter.stubs();
    let is_the_programs = !guest::is_reserved(at) && !kernel.rewriter.owns(at, 1);
    let (code, made) = match kernel.rewriter.code_at(at) {
        Some(code) if kind == Kind::Fixed => (code, None),
        _ if is_the_programs => {
            let is_writable = kind == Kind::Data;
            (made_around(at)?, Some(Made { is_writable }))
        }
        _ => return None,
    };
    let changes = made.is_none().then(|| kernel.rewriter.changes());
    Some(body(&Surroundings {
        code,
        others,
        made,
        changes,
    }))
}

fn made_around(at: u64) -> Option<Range<u64>> {
    let all = space().range_at(at)?;
    let start = all.start.max(at.saturating_sub(NEAR));
    Some(start..all.end.min(at.saturating_add(NEAR)))
}

/// Does nobody but this process see what is written there?
fn is_private(at: u64) -> bool {
    matches!(space().kind_at(at), Some(Kind::Fixed | Kind::Data))
}

/// How a replica is stopped in that code, if it can be.
fn spot(at: u64, around: &Surroundings<'_>) -> Option<Spot> {
    match window(at, around) {
        Ok(window) if is_private(at) => Some(Spot::Jump(window)),
        // Nothing of the agent's is watched, whatever another replica publishes.
        Ok(_) | Err(Refused::NotTheProgram | Refused::NoCode) => {
            around.made.map(|_| Spot::Breakpoint(at))
        }
        Err(_) => Some(Spot::Breakpoint(at)),
    }
}

/// Can others be stopped where this replica is, or soon behind?
pub(super) fn can_begin(kernel: &Kernel, rip: u64) -> bool {
    matches!(next(kernel, rip, 0), Some(Next::At(_) | Next::Step))
}

/// How a replica is stopped there, if it can be.
pub(super) fn at(kernel: &Kernel, at: u64) -> Option<Spot> {
    let spot = with_surroundings(kernel, at, |around| spot(at, around)).flatten();
    spot.filter(|spot| !is_counted(kernel, spot))
}

/// The place for a jump at this address, in code that was mapped to be executed only.
pub(super) fn in_mapped_code(kernel: &Kernel, at: u64) -> Option<Spot> {
    let spot = with_surroundings(kernel, at, |around| match window(at, around) {
        Ok(window) if around.made.is_none() && is_private(at) => Some(Spot::Jump(window)),
        _ => None,
    });
    spot.flatten()
}

/// Are visits counted to an instruction there? They would be so twice, or not at all.
fn is_counted(kernel: &Kernel, spot: &Spot) -> bool {
    counter::instruction(kernel.control).is_some_and(|counted| spot.takes(counted))
}

/// The place behind the loop around `rip`, as far as that can be told.
pub(super) fn behind_loop(kernel: &Kernel, rip: u64) -> Option<Spot> {
    let behind = |around: &Surroundings<'_>| match loops::behind(rip, around) {
        Some(window) if is_private(window.at) => Some(Spot::Jump(window)),
        _ if around.made.is_some() => spot(loops::way_out(rip, around)?, around),
        _ => None,
    };
    let spot = with_surroundings(kernel, rip, behind).flatten();
    spot.filter(|spot| !is_counted(kernel, spot))
}

/// The next place of a replica that is at `rip`, and has made so many instructions to find one.
pub(super) fn next(kernel: &Kernel, rip: u64, steps: u32) -> Option<Next> {
    let next = with_surroundings(kernel, rip, |around| match choose(rip, around) {
        Choice::At(window) if is_private(window.at) => Some(Next::At(Spot::Jump(window))),
        Choice::Call(_) => Some(Next::Call),
        Choice::At(_) | Choice::Refused(_) if around.made.is_none() => None,
        // Around and around in a loop of which no part can take a jump.
        _ if steps >= STEPS && Site::can_watch(rip) => Some(Next::At(Spot::Breakpoint(rip))),
        _ => Some(Next::Step),
    });
    match next.flatten() {
        Some(Next::At(spot)) if is_counted(kernel, &spot) => Some(Next::Step),
        next => next,
    }
}

/// The processor has stopped this replica at a breakpoint: it is where it goes to, or passes by.
pub(crate) fn came_by(kernel: &mut Kernel, context: &mut UContext) -> Outcome {
    let meeting = &mut kernel.replica.env_mut().meeting;
    if !meeting.site.is_watched(context.machine.rip) {
        // It was taken away after the processor had stopped there.
        return Outcome::GoOn;
    }
    meeting.site.note_visit(cpu_now());
    let searches = matches!(meeting.doing, Doing::Running { .. }) && !meeting.visits.are_on();
    if searches && !is_at_target(kernel, context) {
        return Outcome::GoOn;
    }
    landed(kernel, context)
}

/// Has the interrupted replica what a stub would look for?
fn is_at_target(kernel: &mut Kernel, context: &UContext) -> bool {
    let general = General::new(&context.machine.cpu(), context::bases());
    let wanted = kernel.replica.env().meeting.coupler.stub().clone();
    general == general_of(&wanted) && look(kernel, context).has(&wanted)
}
