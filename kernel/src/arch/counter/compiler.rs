//! The compiler's count (DSN'19, III-D): programs count their own branches in a vector register of
//! the running thread's, which `rcoe-counted` put into them. The kernel has only to read it, and
//! nothing of the machine is needed, be it of the processor's or of the emulator's.
//!
//! Nothing interrupts at a count, either: while a replica is behind, the tick's timer comes as
//! early as [`Clocked`] says, and is no tick then. What is near is a breakpoint's.
//!
//! *Not covered*: programs that are not counted, which are refused before the machine starts.

use rcoe_core::counted::{Clocked, Nature};

use super::Count;
use crate::arch::processor::counter::own_count;
use crate::arch::{Turns, interrupts};

/// By how many counts the timer is late, as far as is known at the start.
const SKID: u64 = 1_024;

/// How often in a millisecond it is looked at most how far a program has come.
const LOOKS: u64 = 200;

/// This core's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    /// The count when the program was left alone, and what the timer had until its interrupt.
    began: [u64; 2],
    /// Units of the timer between ticks.
    period: u64,
    clocked: Clocked,
    /// Does the timer come for this counter?
    hurries: bool,
    /// Did it, when the program was left alone last?
    hurried: bool,
}

impl Compiler {
    /// Given the units of the timer in a millisecond.
    pub(crate) const fn new(units: u64) -> Self {
        Self {
            began: [0; 2],
            period: 0,
            clocked: Clocked::new(units / LOOKS),
            hurries: false,
            hurried: false,
        }
    }
}

impl Count for Compiler {
    fn nature(&self) -> Nature {
        Nature {
            branches: true,
            skid: SKID,
        }
    }

    fn turns(&self) -> Option<Turns> {
        None
    }

    fn begin(&mut self) {
        self.period = interrupts::period();
    }

    fn copy(&mut self) {
        (self.hurries, self.hurried) = (false, false);
    }

    fn arm(&mut self, counts: Option<u64>) {
        if let Some(counts) = counts {
            let units = self.clocked.look_behind(counts).min(self.period);
            interrupts::begin_slice(units);
            self.hurries = true;
        }
        self.began = [own_count(), interrupts::rest_of_slice()];
    }

    fn executed(&mut self) -> u64 {
        let [count, rest] = self.began;
        let counts = own_count().wrapping_sub(count);
        // A timer that has begun anew has gone round once.
        let now = interrupts::rest_of_slice();
        let units = match rest.checked_sub(now) {
            Some(units) => units,
            None => rest + self.period.saturating_sub(now),
        };
        self.clocked.ran(counts, units);
        self.hurried = self.hurries;
        if core::mem::take(&mut self.hurries) {
            interrupts::begin_slice(self.period);
        }
        counts
    }

    fn took_timer(&mut self) -> bool {
        core::mem::take(&mut self.hurried)
    }
}
