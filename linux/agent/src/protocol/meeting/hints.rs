//! What registers tell of how far this replica is from a target ([`rcoe_core::coupling::Trend`]).
//!
//! Contract: only the account of progress is corrected by it, by which is chosen who goes to whom,
//! and for how long. Every third target of an attempt is gone to without it, since it can be wrong.

use rcoe_core::coupling::{MOVING, Trend};

use crate::arch::context;
use crate::arch::frames::UContext;
use crate::coupling::state::{GENERAL, General};
use crate::protocol::meeting::Meeting;

/// A replica that is further beyond a target, in ns, does not run to it.
pub(super) const BEYOND_NS: i64 = 1_000_000;

const _: () = assert!(GENERAL == MOVING);

/// What was seen, and what follows.
pub(super) struct Hints {
    trend: Trend,
    /// What is to be added to the progress that CPU time tells, in ns.
    pub(super) shift: i64,
}

impl Hints {
    pub(super) const NONE: Self = Self {
        trend: Trend::NONE,
        shift: 0,
    };
}

impl Meeting {
    /// The interrupted program's registers are these now.
    pub(super) fn note_registers(&mut self, now: u64, context: &UContext) {
        let general = General::new(&context.machine.cpu(), context::bases());
        let worked = self.worked(now);
        self.hints.trend.note(worked, &general.registers);
    }

    /// How far ahead the target is, in ns, if that is known; progress is told accordingly from here
    /// on, within what CPU time may be wrong by.
    pub(super) fn correct(&mut self, now: u64) -> Option<i64> {
        if self.coupler.stamp().phase.is_multiple_of(3) {
            return None;
        }
        let mut registers = [0; MOVING];
        registers.copy_from_slice(&self.coupler.stub().registers[..MOVING]);
        let ahead = self.hints.trend.ahead(&registers)?;
        let worked = i64::try_from(self.worked(now)).ok()?;
        let target = i64::try_from(self.coupler.target().progress).ok()?;
        let most = worked.max(target);
        self.hints.shift = (target - ahead - worked).clamp(-most, most);
        Some(ahead)
    }
}
