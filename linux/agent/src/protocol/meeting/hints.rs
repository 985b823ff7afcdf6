//! What registers tell of how far this replica is from a target ([`rcoe_core::coupling::Trend`]).
//!
//! Contract: only the account of progress is corrected by it, by which is chosen who goes to whom,
//! and for how long. Every third target of an attempt is chosen without it, since it can be wrong.

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
    shift: i64,
}

/// Of so many targets in a row one is chosen without hints, by what is told in this phase of them.
const TARGETS: u8 = 3;
const UNTOLD: u8 = 2;

impl Hints {
    pub(super) const NONE: Self = Self {
        trend: Trend::NONE,
        shift: 0,
    };

    /// What is added to progress in this phase of an attempt. What is told in a phase decides about
    /// the next one, too.
    pub(super) const fn told_in(&self, phase: u8) -> i64 {
        match phase % TARGETS {
            UNTOLD => 0,
            _ => self.shift,
        }
    }
}

impl Meeting {
    /// The program was interrupted here, perhaps in a stub, whose own registers tell nothing.
    pub(super) fn note_registers(&mut self, now: u64, context: &UContext) {
        let mut cpu = context.machine.cpu();
        if !self.site.original(&mut cpu) {
            return;
        }
        let general = General::new(&cpu, context::bases());
        let worked = self.worked(now);
        self.hints.trend.note(worked, &general.registers);
    }

    /// How far ahead the target is, in ns, if that is known; progress is told accordingly from here
    /// on, within what CPU time may be wrong by.
    pub(super) fn correct(&mut self, now: u64) -> Option<i64> {
        if self.coupler.stamp().phase.is_multiple_of(TARGETS) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_of_three_is_chosen_without_hints() {
        let hints = Hints {
            shift: -7,
            ..Hints::NONE
        };
        let told = [1, 2, 3, 4, 5, 6].map(|phase| hints.told_in(phase));
        assert_eq!(told, [-7, 0, -7, -7, 0, -7]);
    }
}
