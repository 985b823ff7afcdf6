//! What registers tell of how far this replica is from a target ([`rcoe_core::coupling::Trend`]).
//!
//! Contract: only the account of progress is corrected by it, by which is chosen who goes to whom,
//! and for how long. Four in a row of every seven targets of an attempt do without it, since it can
//! be wrong.

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
    /// There is something to be forgotten.
    noted: bool,
}

/// Of so many targets in a row those behind the first few do without hints: of two replicas each is
/// the target of two of them, of three each of one, and with ticks they are those that are searched
/// for longest. The number is prime to two and three, so all take part in turn.
const TARGETS: u8 = 7;
const TOLD: u8 = 3;

/// Is the target of this phase, from 1, one of those?
pub(super) const fn does_without(phase: u8) -> bool {
    phase.is_multiple_of(TARGETS) || phase % TARGETS > TOLD
}

impl Hints {
    pub(super) const NONE: Self = Self {
        trend: Trend::NONE,
        shift: 0,
        noted: false,
    };

    /// Nothing was seen.
    #[inline]
    pub(super) fn forget(&mut self) {
        if self.noted {
            *self = Self::NONE;
        }
    }

    /// This is how far this replica has come, which has worked for so long.
    pub(super) fn shift_to(&mut self, progress: u64, worked: u64) {
        self.noted = true;
        self.shift = i64::try_from(progress)
            .unwrap_or(i64::MAX)
            .saturating_sub(i64::try_from(worked).unwrap_or(i64::MAX));
    }

    /// What is added to progress in this phase of an attempt. What is told in a phase decides about
    /// the next one, too.
    pub(super) const fn told_in(&self, phase: u8) -> i64 {
        match does_without(phase.wrapping_add(1)) {
            true => 0,
            false => self.shift,
        }
    }
}

impl Meeting {
    /// The program was interrupted here, perhaps in a stub, whose own registers tell nothing.
    pub(super) fn note_registers(&mut self, now: u64, context: &UContext) {
        let mut cpu = context.machine.cpu();
        if self.site.original(&mut cpu).is_none() {
            return;
        }
        let general = General::new(&cpu, context::bases());
        let worked = self.worked(now);
        self.hints.noted = true;
        self.hints.trend.note(worked, &general.registers);
    }

    /// How far ahead the target is, in ns, if that is known; progress is told accordingly from here
    /// on, within what CPU time may be wrong by.
    pub(super) fn correct(&mut self, now: u64) -> Option<i64> {
        let phase = self.coupler.stamp();
        if does_without(phase.phase) {
            return None;
        }
        // What visits tell is more exact. That the target is behind by now does not follow from it:
        // whoever is looked after makes less of its time.
        if self.visits.have_told(phase) {
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
    fn four_targets_of_seven_do_without_hints() {
        let without = (1..=10).filter(|&phase| does_without(phase));
        assert_eq!(without.collect::<Vec<u8>>(), [4, 5, 6, 7]);
        let hints = Hints {
            shift: -7,
            ..Hints::NONE
        };
        let told = [1, 2, 3, 4, 5, 6, 7].map(|phase| hints.told_in(phase));
        assert_eq!(told, [-7, -7, 0, 0, 0, 0, -7]);
    }
}
