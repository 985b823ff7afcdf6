//! A replica that is stopped before an instruction without a change of the code.
//!
//! Not everywhere can a jump stand in code that is made at run time, which the program may read,
//! move and write at any time. A breakpoint of the processor can: it needs an address, and nothing
//! of what is there. What a stub compares, the handler of the trap does.
//!
//! A visit takes hundreds to thousands of times as long as one of a stub, so nearly all the time of
//! who comes by often is that of visits. The shortest time from one to the next tells how much.
//!
//! Contract: visits are counted; who is stopped goes on by the resume flag.
//!
//! Not covered: a visit is missed if another signal is handled at the same instruction first. The
//! replica does not match in this phase then.

use crate::sys::Errno;
use crate::sys::breakpoints::Breakpoint;

/// More than this a visit does not cost, in ns, even on machines within machines.
const MOST_NS: u64 = 60_000;

/// A breakpoint, and how often this replica has come by.
#[derive(Debug)]
pub(super) struct Watch {
    host: Breakpoint,
    pub(super) at: u64,
    visits: u64,
    /// CPU time at the last visit, and the shortest from one to the next, in ns.
    last: u64,
    least: u64,
}

impl Watch {
    /// Stops this replica before the instruction there, from now on.
    ///
    /// # Errors
    /// The host or the processor has no breakpoint.
    pub(super) fn set(at: u64, now: u64) -> Result<Self, Errno> {
        Ok(Self {
            host: Breakpoint::set(at)?,
            at,
            visits: 0,
            last: now,
            least: MOST_NS,
        })
    }

    /// The code is as any other again.
    pub(super) fn end(self) {
        self.host.remove();
    }

    /// This replica has come by, at this CPU time.
    pub(super) fn note(&mut self, now: u64) {
        self.least = self.least.min(now.saturating_sub(self.last));
        self.last = now;
        self.visits += 1;
    }

    /// How much of the time since it was set visits have taken, in ns.
    pub(super) fn toll(&self, since: u64) -> u64 {
        self.visits.saturating_mul(self.least).min(since)
    }
}
