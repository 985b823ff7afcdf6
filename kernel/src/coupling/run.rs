//! How a replica that is behind comes to the instruction at which the target is.
//!
//! *By the counter*: it interrupts behind that very instruction; where it counts branches, behind
//! the last branch before that, and a breakpoint does the rest, which comes at once. *By a
//! breakpoint*: real counters interrupt some instructions late, so this one does that many too
//! early; a breakpoint at the target's instruction pointer does the rest, looked at by its count
//! each time and stepped over until that is right (DSN'19, III-C).

use rcoe_core::coupling::Stop;

use crate::arch::Counter;

/// By what it is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Approach {
    /// The counter.
    Counter,
    /// A breakpoint.
    Breakpoint,
}

impl Approach {
    /// How much too early the counter interrupts where a breakpoint follows.
    const fn early(self) -> u64 {
        match self {
            Self::Counter => 0,
            Self::Breakpoint => EARLY,
        }
    }

    /// Does a breakpoint follow?
    const fn watches(self) -> bool {
        Counter::BRANCHES || matches!(self, Self::Breakpoint)
    }
}

const EARLY: u64 = 128;

/// What has the processor stop a program, beside the counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// Nothing.
    None,
    /// A breakpoint at this instruction.
    At(u64),
    /// The same, for one that stands there and goes on, or the end of the instruction.
    Past(u64),
}

/// The program runs to a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Where it began, by the count since the last event, and where it ends.
    pub(super) began: u64,
    end: u64,
    /// How it ends for the protocol if it gets there. It does not concern that if a place to be
    /// stopped at was looked for.
    stop: Option<Stop>,
    /// The target's instruction pointer, if a breakpoint is to stop it there.
    place: Option<u64>,
    early: u64,
}

impl Run {
    /// To a target that is at `end` and `place`, or at most to there, if it can be stopped at a
    /// breakpoint.
    pub(super) fn to(
        (began, end): (u64, u64),
        (stop, place): (Stop, u64),
        approach: Option<Approach>,
    ) -> Self {
        let approach = approach.filter(|it| stop == Stop::Matched && it.watches());
        Self {
            began,
            end,
            stop: Some(stop),
            place: approach.map(|_| place),
            early: approach.map_or(0, Approach::early),
        }
    }

    /// Out of an instruction that repeats itself, to the next.
    pub(super) const fn out(began: u64, next: u64) -> Self {
        Self {
            began,
            end: began,
            stop: None,
            place: Some(next),
            early: 0,
        }
    }

    /// What the protocol is to be told when it is over.
    pub(super) const fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Is it over when the program has come so far? If so, has it missed the place?
    pub(super) fn over(&self, progress: u64, ip: u64) -> Option<bool> {
        match self.place {
            Some(_) if progress > self.end => Some(true),
            // Branches do not tell how far it is on a straight run.
            Some(place) if Counter::BRANCHES && progress == self.end => {
                (ip == place).then_some(false)
            }
            _ => (progress >= self.end).then_some(false),
        }
    }

    /// Is a breakpoint next?
    const fn is_near(&self, progress: u64) -> bool {
        progress + self.early >= self.end
    }

    /// Behind how many the counter interrupts.
    pub(super) fn limit(&self, progress: u64) -> u64 {
        let left = self.end.saturating_sub(progress);
        match self.place {
            None => left,
            // One that is missed is noticed.
            Some(_) if self.is_near(progress) => left + self.early.max(1),
            Some(_) => left - self.early,
        }
    }

    /// What stops the program besides, which is at `ip`.
    pub(super) fn aim(&self, progress: u64, ip: u64) -> Aim {
        match self.place {
            Some(place) if self.is_near(progress) && place == ip => Aim::Past(place),
            Some(place) if self.is_near(progress) => Aim::At(place),
            _ => Aim::None,
        }
    }
}
