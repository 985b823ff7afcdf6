//! How the owner of a target comes to a place that the others can be stopped at.
//!
//! The next such place will do, and is certain. But if it is in a tight loop, who looks for a state
//! there takes tens of times as long as the program does. So the owner leaves the loop first, and
//! the loop around that, until the way from one place to the next was long enough for visits to be
//! rare ([`crate::coupling::loops`]). If it does not come there soon it takes the last place that
//! it has found, and otherwise the next one.
//!
//! The others wait meanwhile, and have to go that way as well. So it is given up the sooner the
//! nearer they are: who is near finds a state in a tight loop soon enough.
//!
//! Contract: what is not certain is given up after [`FAR_NS`], and once more on the way back.

use rcoe_core::coupling::Stamp;

use crate::arch::frames::UContext;
use crate::coupling::site::Spot;
use crate::coupling::stub::Stops;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::protocol::meeting::going::set_stepping;
use crate::protocol::meeting::spots::{self, Next};
use crate::protocol::meeting::timers::{LOOK_NS, look_after};
use crate::protocol::meeting::{Doing, Meeting, cpu_now};

/// Instructions that are made one by one to a place where the code can be patched.
const STEPS: u32 = 20_000;
/// The longest way out of a loop, in ns of CPU time; and if nobody is behind.
const FAR_NS: u64 = 4_000_000;
const SHORT_NS: u64 = 1_500_000;
/// Visits that are so far apart cost little.
pub(super) const RARE_NS: u64 = 10_000;
/// Loops that are left one after the other.
const LEVELS: u8 = 4;
/// A way that was taken so many times in vain is not taken again before so many other attempts, or
/// fewer with ticks: there an attempt of many phases is a verdict, and a tight loop takes more.
const VAIN: u8 = 2;
const PAUSE: u8 = 32;
const PAUSE_OF_TICKS: u8 = 8;

/// How far the owner is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It goes to where visits are counted.
    Counted,
    /// It may be in a loop.
    Inside,
    /// It goes to the last place that it has found.
    Back,
    /// The next place will do.
    Next,
}

/// The way out of loops, in one phase of an attempt.
pub(super) struct Outward {
    phase: Stamp,
    stage: Stage,
    levels: u8,
    /// When it went on from the last place, by CPU time.
    since: u64,
    /// The last place behind a loop that it has come to.
    found: Option<u64>,
    /// One that it did not come to, and how often, or for how many attempts it was left out.
    vain: Option<u64>,
    misses: u8,
    going_to: u64,
    /// Up to when it may be on the way to a place behind a loop; 0 if it has not begun.
    until: u64,
    /// Instructions made one by one.
    steps: u32,
}

impl Outward {
    pub(super) const NONE: Self = Self {
        phase: Stamp {
            epoch: 0,
            generation: 0,
            phase: 0,
            turn: 0,
        },
        stage: Stage::Inside,
        levels: 0,
        since: 0,
        found: None,
        vain: None,
        misses: 0,
        going_to: 0,
        until: 0,
        steps: 0,
    };

    /// The way for this phase begins anew if that is another one than the last. Is it?
    fn begin(&mut self, phase: Stamp, is_counted: bool) -> bool {
        let is_new = self.phase != phase;
        if is_new {
            *self = Self {
                phase,
                stage: if is_counted {
                    Stage::Counted
                } else {
                    Stage::Inside
                },
                vain: self.vain,
                misses: self.misses,
                ..Self::NONE
            };
        }
        is_new
    }

    /// It has come to a place at this CPU time. Will that do?
    pub(super) fn has_come(&mut self, at: u64, now: u64) -> bool {
        if self.stage != Stage::Inside {
            return true;
        }
        self.found = Some(at);
        if self.vain == self.found {
            self.vain = None;
        }
        let is_rare = now.saturating_sub(self.since) >= RARE_NS;
        is_rare || self.levels >= LEVELS
    }

    /// It has not come to where it went.
    fn has_not_come(&mut self) {
        if self.stage == Stage::Counted {
            (self.stage, self.levels, self.until) = (Stage::Inside, 0, 0);
            return;
        }
        let again = self.vain == Some(self.going_to);
        self.misses = if again { self.misses + 1 } else { 1 };
        self.vain = Some(self.going_to);
        self.stage = match (self.stage, self.found) {
            (Stage::Inside, Some(_)) => Stage::Back,
            _ => Stage::Next,
        };
    }

    /// Is this a place to which it had better not go now?
    fn avoids(&mut self, at: u64, pause: u8) -> bool {
        if self.vain != Some(at) || self.misses < VAIN {
            return false;
        }
        self.misses += 1;
        if self.misses >= VAIN + pause {
            self.vain = None;
        }
        true
    }
}

/// The owner of the target was on the way to a place for long enough.
pub(super) fn stop(kernel: &mut Kernel) {
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.doing = Doing::Nothing;
    meeting.outward.has_not_come();
}

/// The owner of the target goes to a place that the others can be stopped at; true if the program
/// has to go on for that.
pub(super) fn go(kernel: &mut Kernel, context: &mut UContext) -> bool {
    let meeting = &mut kernel.replica.env_mut().meeting;
    let phase = meeting.coupler.stamp();
    let is_counted = meeting.milestone.place().is_some();
    let is_new = meeting.outward.begin(phase, is_counted);
    if is_new && has_come_to_the_last(kernel, phase, context.machine.rip) {
        kernel.replica.env_mut().meeting.coupler.placed();
        return false;
    }
    match far(kernel, context.machine.rip) {
        Some(spot) => leave(kernel, context, &spot),
        None => go_to_next(kernel, context),
    }
}

/// Was it stopped where the last target was, which it did not meet? Whoever had that has gone out
/// of loops for it, and who goes out of yet another one may come nowhere for long.
fn has_come_to_the_last(kernel: &mut Kernel, phase: Stamp, rip: u64) -> bool {
    let last = kernel.replica.env().meeting.coupler.target();
    phase.phase > 1 && !last.at_call && last.ip == rip && spots::at(kernel, rip).is_some()
}

/// The place to which it goes if it comes there soon.
fn far(kernel: &mut Kernel, rip: u64) -> Option<Spot> {
    let outward = &kernel.replica.env().meeting.outward;
    let stage = outward.stage;
    let spot = match stage {
        Stage::Counted => spots::at(kernel, kernel.replica.env().meeting.milestone.place()?),
        Stage::Inside => spots::behind_loop(kernel, rip),
        Stage::Back => spots::at(kernel, outward.found?),
        Stage::Next => None,
    };
    let spot = spot.filter(|spot| spot.at() != rip)?;
    let meeting = &mut kernel.replica.env_mut().meeting;
    let pause = match meeting.has_ticks() {
        true => PAUSE_OF_TICKS,
        false => PAUSE,
    };
    let goes = stage != Stage::Inside || !meeting.outward.avoids(spot.at(), pause);
    goes.then_some(spot)
}

/// Goes to a place behind a loop.
fn leave(kernel: &mut Kernel, context: &mut UContext, spot: &Spot) -> bool {
    let meeting = &mut kernel.replica.env_mut().meeting;
    if !meeting.plant(spot, Stops::First) {
        meeting.outward.stage = Stage::Next;
        return go_to_next(kernel, context);
    }
    meeting.resume(context);
    let far = match meeting.has_ticks() {
        _ if meeting.outward.stage == Stage::Counted => FAR_NS.max(meeting.milestone.way()),
        true => FAR_NS,
        false => way(meeting.coupler.lag()),
    };
    let now = cpu_now();
    let outward = &mut meeting.outward;
    (outward.since, outward.going_to) = (now, spot.at());
    outward.levels += 1;
    let begins = outward.until == 0 || outward.stage == Stage::Back;
    outward.until = if begins { now + far } else { outward.until };
    let until = outward.until;
    meeting.doing = Doing::Placing { until: Some(until) };
    look_at(until, now);
    true
}

/// How long the way out may be if the last one is so far behind, in ns.
const fn way(lag: u64) -> u64 {
    let way = SHORT_NS.saturating_add(lag);
    if way < FAR_NS { way } else { FAR_NS }
}

/// This replica is looked after when it should have come, which it has not at this time.
fn look_at(until: u64, now: u64) {
    look_after(until.saturating_sub(now).max(LOOK_NS / 4));
}

/// It was interrupted on its way to a place, up to this CPU time: has that taken too long? It is
/// looked after once more if not. The host's timer and CPU time are two clocks.
pub(super) fn is_in_vain(until: Option<u64>) -> bool {
    let (now, until) = (cpu_now(), until.unwrap_or(u64::MAX));
    if now < until && until != u64::MAX {
        look_at(until, now);
    }
    now >= until
}

/// Goes to the next place.
fn go_to_next(kernel: &mut Kernel, context: &mut UContext) -> bool {
    let steps = kernel.replica.env().meeting.outward.steps;
    let next = spots::next(kernel, context.machine.rip, steps);
    let meeting = &mut kernel.replica.env_mut().meeting;
    meeting.outward.stage = Stage::Next;
    match next {
        Some(Next::At(spot)) if spot.at() == context.machine.rip => {
            meeting.coupler.placed();
            return false;
        }
        Some(Next::At(spot)) if meeting.plant(&spot, Stops::First) => {
            meeting.resume(context);
        }
        Some(Next::Call) => {}
        _ if meeting.outward.steps < STEPS => step(meeting, context),
        _ => {
            // Nobody will come here. The next phase has another target.
            meeting.coupler.unplaced();
            return false;
        }
    }
    meeting.doing = Doing::Placing { until: None };
    true
}

/// Lets the program make one instruction.
fn step(meeting: &mut Meeting, context: &mut UContext) {
    /// `pushfq`, which would show the program that it is stepped.
    const PUSHFQ: u8 = 0x9c;
    meeting.outward.steps += 1;
    meeting.stepping = true;
    meeting.pushes = guest::read::<u8>(context.machine.rip) == Ok(PUSHFQ);
    set_stepping(context, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn going(to: u64, since: u64) -> Outward {
        Outward {
            going_to: to,
            since,
            ..Outward::NONE
        }
    }

    #[test]
    fn loops_are_left_until_visits_are_rare() {
        let mut outward = going(7, 100);
        assert!(!outward.has_come(7, 100 + RARE_NS - 1), "a tight one");
        assert!(outward.has_come(8, 100 + RARE_NS));
        outward.levels = LEVELS;
        assert!(outward.has_come(9, 101), "as many as there may be");
    }

    #[test]
    fn who_does_not_come_there_takes_the_last_place_found_or_the_next_one() {
        let mut outward = going(7, 100);
        outward.has_not_come();
        assert_eq!(outward.stage, Stage::Next);
        let mut outward = going(7, 100);
        outward.has_come(7, 101);
        outward.going_to = 8;
        outward.has_not_come();
        assert_eq!((outward.stage, outward.found), (Stage::Back, Some(7)));
        assert!(outward.has_come(7, 102), "rare or not");
        outward.has_not_come();
        assert_eq!(outward.stage, Stage::Next);
    }

    #[test]
    fn the_way_out_is_the_shorter_the_nearer_the_others_are() {
        assert_eq!(way(0), SHORT_NS);
        assert_eq!(way(100_000), SHORT_NS + 100_000);
        assert_eq!([FAR_NS, u64::MAX].map(way), [FAR_NS; 2]);
    }

    #[test]
    fn what_was_tried_in_vain_is_left_out_for_a_while() {
        let mut outward = going(7, 100);
        outward.has_not_come();
        assert!(!outward.avoids(7, PAUSE), "it is tried once more");
        outward.has_not_come();
        let avoided = (0..=PAUSE).map(|_| outward.avoids(7, PAUSE));
        let avoided = avoided.collect::<Vec<_>>();
        assert_eq!(avoided.iter().filter(|&&it| it).count(), usize::from(PAUSE));
        assert!(!outward.avoids(7, PAUSE));
        outward.has_not_come();
        assert!(!outward.avoids(9, PAUSE), "another one");
    }
}
