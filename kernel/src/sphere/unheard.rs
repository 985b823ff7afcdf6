//! Interrupt lines of which nothing is heard.
//!
//! *Idea: whoever alone hears the devices may go deaf, and no comparison shows that.* The others
//! learn of interrupts from the primary. So a line that is on, and of which nothing was performed
//! for a second, is taken to have come, as where a new primary cannot know what its predecessor
//! took: drivers look at their devices then, and wait again if there is nothing.
//!
//! Contract: all count the same ticks and actions, so the same lines are due in all.
//!
//! Not covered: machines without ticks. What the devices of a deaf primary want takes a second each
//! time.

use super::actions::{TICK, action_of, lines_of};

/// Microseconds after which a line counts as unheard.
const LONG: u64 = 1_000_000;

/// What was heard since the last look.
#[derive(Debug)]
pub(super) struct Unheard {
    /// Ticks from one look to the next, and since the last.
    every: u64,
    ticks: u64,
    heard: u64,
}

impl Unheard {
    /// With ticks of so many microseconds.
    pub(super) fn new(tick: u64) -> Self {
        Self {
            every: (LONG / tick.max(1)).max(1),
            ticks: 0,
            heard: 0,
        }
    }

    /// These actions are performed, while these lines are on. The actions of lines that are due.
    pub(super) fn note(&mut self, actions: u64, on: u32) -> u64 {
        self.heard |= actions;
        self.ticks += u64::from(actions & TICK != 0);
        if self.ticks < self.every {
            return 0;
        }
        let heard = core::mem::take(&mut self.heard);
        self.ticks = 0;
        lines_of(u64::from(on) << 1)
            .map(action_of)
            .filter(|action| heard & action == 0)
            .sum()
    }
}
