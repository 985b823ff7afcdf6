//! How a replica that is behind comes to the instruction at which the target is.
//!
//! *By the counter*: it interrupts behind that very instruction; where it counts branches, behind
//! the last branch before that, and a breakpoint does the rest, which comes at once. *By a
//! breakpoint*: real counters interrupt some counts late, so this one is to interrupt that many too
//! early; a breakpoint at the target's instruction pointer does the rest, looked at by its count
//! each time and stepped over until that is right (DSN'19, III-C).
//!
//! So a run is *far* while the counter alone stops the program, *near* when the breakpoint is set,
//! and then *over*, there or past the place. Whatever else enters the kernel meanwhile only has
//! the same questions asked again: nothing is remembered but where the run ends.
//!
//! Contract: a run that is over without having missed its place ended at that count and, if it has
//! a place, at that instruction. Where the counter comes later than is allowed for, or not at all,
//! the place is missed, and that is what is told.

use crate::coupling::{Standing, Stop};
use crate::guards::{Bug, Guards};

/// By what a replica is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Approach {
    /// The counter, and a breakpoint only where there is no other way.
    Counter,
    /// A breakpoint.
    Breakpoint,
}

/// How much too early a counter that is exact interrupts, where a breakpoint is to follow.
const EARLY: u64 = 128;

/// How much too early one interrupts at most that was later than it should be.
const EARLIEST: u64 = 1 << 16;

/// Counts behind a call's own at which it has come in any case, however late a counter was.
const BEHIND_CALL: u64 = EARLIEST;

/// What stopping by a counter depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nature {
    /// Does it count branches, not instructions?
    pub branches: bool,
    /// By how many counts its interrupt is late, as far as is known; 0 if it never is.
    pub skid: u64,
}

/// How replicas are stopped by one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    branches: bool,
    watches: bool,
    /// How much too early the counter interrupts.
    early: u64,
    /// How much that may become.
    earliest: u64,
    guards: Guards,
}

impl Way {
    /// The way of a counter of this nature.
    #[must_use]
    pub const fn new(nature: Nature, approach: Approach, guards: Guards) -> Self {
        let breaks = matches!(approach, Approach::Breakpoint);
        let early = if breaks && nature.skid < EARLY {
            EARLY
        } else {
            nature.skid
        };
        let grows = nature.skid > 0 && early < EARLIEST;
        Self {
            branches: nature.branches,
            watches: nature.branches || breaks || nature.skid > 0,
            early,
            earliest: if grows { EARLIEST } else { early },
            guards,
        }
    }

    /// By how many counts it interrupts too early.
    #[must_use]
    pub const fn early(&self) -> u64 {
        self.early
    }

    /// A place was missed. A counter that is late by nature is taken to be twice as late from here
    /// on, up to a bound; another one never is, so it was something else.
    pub const fn missed(&mut self) {
        let twice = self.early * 2;
        self.early = if twice < self.earliest {
            twice
        } else {
            self.earliest
        };
    }
}

/// What has the processor stop a program, beside the counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Nothing.
    None,
    /// A breakpoint at this instruction.
    At(u64),
    /// The same, for one that stands there and goes on, or the end of the instruction.
    Past(u64),
}

/// The program runs to a target.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    began: u64,
    end: u64,
    /// How it ends for the protocol if it gets there. It does not concern that if a place to be
    /// stopped at was looked for.
    stop: Option<Stop>,
    /// The target's instruction pointer, if a breakpoint is to stop it there.
    place: Option<u64>,
    early: u64,
    branches: bool,
    guards: Guards,
}

impl Run {
    /// At which count a run to this target ends that may go to `most`, and how. Who is well makes a
    /// call at the count at which the target made it: whoever has not come to one by then never
    /// does, so others are not kept waiting for that.
    #[must_use]
    pub fn end(target: &Standing, most: u64) -> (u64, Stop) {
        let call = target.progress.saturating_add(BEHIND_CALL);
        match target.at_call {
            true => (most.min(call), Stop::Overran),
            false if target.progress > most => (most, Stop::Overran),
            false => (target.progress, Stop::Matched),
        }
    }

    /// From the count `began` to a target that is at the count `end` and the instruction `place`,
    /// or at most to that count if the protocol has no target there. Without `breaks` no breakpoint
    /// can be set.
    #[must_use]
    pub fn to(
        (began, end): (u64, u64),
        (stop, place): (Stop, u64),
        way: &Way,
        breaks: bool,
    ) -> Self {
        let watches = breaks && way.watches && stop == Stop::Matched;
        Self {
            began,
            end,
            stop: Some(stop),
            place: watches.then_some(place),
            early: if watches { way.early } else { 0 },
            branches: way.branches,
            guards: way.guards,
        }
    }

    /// Out of an instruction that repeats itself, to the next.
    #[must_use]
    pub const fn out(began: u64, next: u64, way: &Way) -> Self {
        Self {
            began,
            end: began,
            stop: None,
            place: Some(next),
            early: 0,
            branches: way.branches,
            guards: way.guards,
        }
    }

    /// From this count on by so many, out of where nobody is to be stopped.
    #[must_use]
    pub const fn on(began: u64, by: u64, way: &Way) -> Self {
        Self {
            began,
            end: began + by,
            stop: None,
            place: None,
            early: 0,
            branches: way.branches,
            guards: way.guards,
        }
    }

    /// The same, if it is to go further than that, unless it goes to a target.
    #[must_use]
    pub fn at_least_to(self, end: u64) -> Self {
        let end = match self.stop {
            Some(Stop::Matched) => self.end,
            _ => self.end.max(end),
        };
        Self { end, ..self }
    }

    /// Where it began: counts since the last event.
    #[must_use]
    pub const fn began(&self) -> u64 {
        self.began
    }

    /// What the protocol is to be told when it is over; `None` if it does not concern that.
    #[must_use]
    pub const fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Is it over when the program has come so far, and stands before the instruction `ip`? If so,
    /// has it missed the place?
    #[must_use]
    pub fn over(&self, progress: u64, ip: u64) -> Option<bool> {
        match self.place {
            Some(_) if progress > self.end => Some(!self.guards.off(Bug::CountMissUnseen)),
            // Branches do not tell how far it is on a straight run.
            Some(place) if self.branches && progress == self.end => {
                (ip == place || self.guards.off(Bug::CountPlaceUnseen)).then_some(false)
            }
            _ => (progress >= self.end).then_some(false),
        }
    }

    /// Is a breakpoint next?
    fn is_near(&self, progress: u64) -> bool {
        progress + self.early >= self.end
    }

    /// Behind how many the counter is to interrupt.
    #[must_use]
    pub fn limit(&self, progress: u64) -> u64 {
        let left = self.end.saturating_sub(progress);
        match self.place {
            None => left,
            // One that is missed is noticed.
            Some(_) if self.is_near(progress) => left + self.early.max(1),
            Some(_) if self.guards.off(Bug::CountMarginIgnored) => left,
            Some(_) => left - self.early,
        }
    }

    /// What stops the program besides, which stands before `ip`.
    #[must_use]
    pub fn aim(&self, progress: u64, ip: u64) -> Aim {
        let near = self.is_near(progress);
        match self.place {
            Some(place) if near && place == ip && !self.guards.off(Bug::CountStuck) => {
                Aim::Past(place)
            }
            Some(place) if near => Aim::At(place),
            _ => Aim::None,
        }
    }
}
