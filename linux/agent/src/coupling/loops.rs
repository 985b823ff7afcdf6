//! The way out of the loop that a replica is in.
//!
//! In a tight loop most of the time of who looks for a state there is that of the visits to the
//! stub. Behind the loop, in the one around it, visits are rare, and cost nothing. So the owner of
//! a target goes there first, if it gets there soon.
//!
//! Intuition: from where the replica is the code is read on in the order of addresses. The first
//! branch back to there, or to before it, closes the loop. If that branch depends on something,
//! what follows it is behind the loop; else it is where the first branch out of the loop leads to.
//!
//! Contract: a guess of where the program goes soon; whoever relies on it sets a bound.
//!
//! Not covered: loops that go round through a call of the function that a replica is in, and those
//! closed by an indirect branch.

use core::ops::Range;

use crate::coupling::decode::{Decoded, Flow, Refused};
use crate::coupling::place::{Choice, Surroundings, Window, choose};

/// Instructions that are read.
const MOST: usize = 400;

/// A place behind the innermost loop around `rip`, as far as direct branches tell, at which others
/// can be stopped.
pub(crate) fn behind(rip: u64, around: &Surroundings<'_>) -> Option<Window> {
    let (within, exit) = exit(rip, around)?;
    match choose(exit, around) {
        Choice::At(window) if !within.contains(&window.at) => Some(window),
        _ => None,
    }
}

/// The instruction behind that loop, for code in which a replica can be stopped anywhere.
pub(crate) fn way_out(rip: u64, around: &Surroundings<'_>) -> Option<u64> {
    let (within, exit) = exit(rip, around)?;
    (!within.contains(&exit)).then_some(exit)
}

/// The code of that loop, and where it is left.
fn exit(rip: u64, around: &Surroundings<'_>) -> Option<(Range<u64>, u64)> {
    let (start, last, behind, depends) = closing(rip, around)?;
    let exit = match depends {
        true => behind,
        false => branch_out(start, last, behind, around)?,
    };
    Some((start..behind, exit))
}

/// The branch that closes the loop: where it leads to, where it is, what is behind it, and whether
/// it depends on anything.
fn closing(rip: u64, around: &Surroundings<'_>) -> Option<(u64, u64, u64, bool)> {
    let (mut at, mut furthest) = (rip, rip);
    for _ in 0..MOST {
        let found = instruction(at, around)?;
        let next = at + u64::from(found.len);
        let calls = found.fixed == Some(Refused::Call);
        match found.flow {
            Flow::Either(target) if target <= rip => return Some((target, at, next, true)),
            Flow::To(target) if target <= rip && !calls => {
                return Some((target, at, next, false));
            }
            Flow::Either(target) => furthest = furthest.max(target),
            // Behind it code is reached only by who has branched over this.
            Flow::To(_) | Flow::Away if !calls && next > furthest => return None,
            _ => {}
        }
        at = next;
    }
    None
}

/// Where the first branch from the loop to what is behind it leads.
fn branch_out(start: u64, last: u64, behind: u64, around: &Surroundings<'_>) -> Option<u64> {
    let mut at = start;
    for _ in 0..MOST {
        if at >= last {
            return None;
        }
        let found = instruction(at, around)?;
        match found.flow {
            Flow::Either(target) if target >= behind => return Some(target),
            _ => at += u64::from(found.len),
        }
    }
    None
}

fn instruction(at: u64, around: &Surroundings<'_>) -> Option<Decoded> {
    let code = around.read(at).ok()?;
    Decoded::new(&code, at).ok()
}
