//! How long a primary waits for a newcomer that is a whole ring behind.
//!
//! A newcomer shares its core with others, and begins only when its memory is copied; a program
//! that reads clocks in a loop fills a ring meanwhile. It is no member, so the program must not
//! depend on it: there is one allowance for each copy, and whoever has used that up is left behind.
//!
//! Contract: begun anew where a copy is made. The allowance is no longer than a member may be late,
//! so that no sibling gives the primary up meanwhile. Not covered: a newcomer that keeps up, but
//! slowly, slows the program down until its allowance is spent.

use rcoe_core::Waited;
use rcoe_linux_abi::Report;

use crate::protocol::meeting::is_over;
use crate::sys;

/// Longest wait for one copy, altogether.
const ALLOWANCE_NS: u64 = 1_000_000_000;
/// Rounds of yielding before a sleep.
const YIELDS: u32 = 200;
/// Longest sleep before looking again.
const LOOK_NS: u64 = 200_000;

/// What is left of the allowance for a copy.
#[derive(Clone, Copy, Default)]
pub(crate) struct Courtesy {
    /// Of the re-integration.
    serial: u32,
    left: u64,
    /// When it was looked last.
    looked: u64,
}

impl Courtesy {
    /// For the copy of this re-integration, where a member may be late by `timeout` ns.
    pub(crate) fn of(serial: u32, timeout: u64) -> Self {
        Self {
            serial,
            left: timeout.min(ALLOWANCE_NS),
            looked: 0,
        }
    }

    /// The wait has lasted until `now`; is there anything left?
    const fn spend(&mut self, round: u32, now: u64) -> bool {
        if round > 0 {
            self.left = self.left.saturating_sub(now.saturating_sub(self.looked));
        }
        self.looked = now;
        self.left > 0
    }

    /// One round of a wait for the newcomer whose report this is; its doorbell is `bell`, and had
    /// the value `rung`.
    pub(super) fn wait(
        &mut self,
        report: &Report,
        bell: *const u32,
        rung: u32,
        round: u32,
    ) -> Waited {
        if !self.spend(round, sys::monotonic()) || is_over(report, self.serial) {
            return Waited::Overdue;
        }
        if round < YIELDS {
            sys::sched_yield();
        } else {
            sys::futex_wait(bell, rung, LOOK_NS);
        }
        Waited::Retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_allowance_for_all_waits() {
        let mut courtesy = Courtesy::of(7, u64::MAX);
        assert!(courtesy.spend(0, 5_000));
        assert!(courtesy.spend(1, ALLOWANCE_NS / 2));
        let later = 9 * ALLOWANCE_NS;
        assert!(courtesy.spend(0, later), "between waits nothing is spent");
        assert!(courtesy.spend(1, later + ALLOWANCE_NS / 2));
        assert!(!courtesy.spend(2, later + ALLOWANCE_NS / 2 + 5_000));
        assert!(!courtesy.spend(0, later + ALLOWANCE_NS));
    }

    #[test]
    fn it_ends_before_a_sibling_gives_up() {
        let mut courtesy = Courtesy::of(7, 1_000);
        assert!(courtesy.spend(0, 5_000) && courtesy.spend(1, 5_999));
        assert!(!courtesy.spend(2, 6_000));
    }

    #[test]
    fn without_a_copy_there_is_none() {
        assert!(!Courtesy::default().spend(0, 1));
    }
}
