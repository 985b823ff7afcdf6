//! How a replica that is behind comes to the instruction at which the target is.
//!
//! *By the counter*: it interrupts behind that very instruction. *By a breakpoint*: real counters
//! interrupt some instructions late, so this one does that many too early; a breakpoint at the
//! target's instruction pointer does the rest, looked at by its count each time and stepped over
//! until that is right (DSN'19, III-C).

use rcoe_core::coupling::Stop;

/// By what it is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Approach {
    /// The counter.
    Counter,
    /// A breakpoint.
    Breakpoint,
}

/// How many instructions too early the counter interrupts where a breakpoint follows.
const EARLY: u64 = 128;

/// What has the processor stop a program, beside the counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// Nothing.
    None,
    /// A breakpoint at this instruction.
    At(u64),
    /// The end of one instruction.
    Step,
}

/// The program runs to a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Where it began, in instructions since the last event, and where it ends.
    pub(super) began: u64,
    pub(super) end: u64,
    /// How it ends if it gets there.
    pub(super) stop: Stop,
    /// The target's instruction pointer, if a breakpoint is to stop it there.
    pub(super) place: Option<u64>,
}

impl Run {
    /// How it is over when the program has come so far, if it is.
    pub(super) const fn over(&self, progress: u64) -> Option<Stop> {
        if progress < self.end {
            None
        } else if progress > self.end && self.place.is_some() {
            Some(Stop::Overran)
        } else {
            Some(self.stop)
        }
    }

    /// Is a breakpoint next?
    const fn is_near(&self, progress: u64) -> bool {
        progress + EARLY >= self.end
    }

    /// Behind how many instructions the counter interrupts.
    pub(super) const fn limit(&self, progress: u64) -> u64 {
        let left = self.end.saturating_sub(progress);
        match self.place {
            None => left,
            // One that is missed is noticed.
            Some(_) if self.is_near(progress) => left + EARLY,
            Some(_) => left - EARLY,
        }
    }

    /// What stops the program besides, which is at `ip`.
    pub(super) fn aim(&self, progress: u64, ip: u64) -> Aim {
        match self.place {
            Some(place) if self.is_near(progress) && place == ip => Aim::Step,
            Some(place) if self.is_near(progress) => Aim::At(place),
            _ => Aim::None,
        }
    }
}
