//! The counter of branches that x86-64's processors have (Intel's architectural performance
//! monitoring, AMD's core performance counters), as far as it needs no instruction of its own.
//!
//! Two counters count what programs alone retire: all branches, and far ones. The first counts the
//! processor's own transfers, too: interrupts, faults and calls, as many in a replica as happen to
//! come. So does the second, and the difference is exact (DSN'19, III-C, for Haswell and Skylake).
//! Where AMD's processors are counted, both are of branches that were taken: between two of those
//! the code is one straight run, too.
//!
//! The first counter interrupts when it overflows, some branches late: [`Plan::skid`] tells how
//! late it is taken to be, and [`super::Run`] arms it so much too early. What a counter cannot
//! count up to at once it counts in parts: its interrupt then changes nothing but that it is armed
//! for the next.
//!
//! What is set up, and why:
//! * *Programs only*: the kernel's branches differ between replicas.
//! * *No freeze at an overflow*: what a program retires until the interrupt is there would be lost.
//! * *Width*: differences are modulo 2 to the width that `cpuid` tells. Where a counter's upper
//!   half cannot be written it is filled with bit 31, so no more than 2^31 are armed.
//! * *At each arming*: the overflow is cleared, without which none is told of any more, and the
//!   interrupt opened, which the processor masks when it is taken.
//! * *AMD's speculation past locks* ("SpecLockMap") is switched off: what it takes back stays
//!   counted. In a virtual machine that is out of reach, so there the counter is refused.
//!
//! Not covered: transactions that abort (TSX), whose branches stay counted; errata of a single
//! model but for the above; other users of the same counters, as some firmware is.

mod find;

pub use find::{Plan, Unfit, find};

use super::Nature;
use crate::guards::{Bug, Guards};
use find::{AMD_LOCKS, DEBUG, FREEZES, NO_SPECULATIVE_LOCKS};

/// What reaches a core's counters.
pub trait Processor {
    /// What `cpuid` answers for this leaf and part of it: EAX, EBX, ECX, EDX.
    fn cpuid(&self, leaf: u32, part: u32) -> [u32; 4];

    /// Reads a model-specific register, which the processor has.
    fn read(&self, register: u32) -> u64;

    /// Writes one; only those of counting are written.
    fn write(&mut self, register: u32, value: u64);

    /// Has the interrupt of overflows come: a processor masks it whenever it is taken.
    fn open(&mut self);
}

/// One core's counter.
#[derive(Clone, Copy, Debug)]
pub struct Pmu {
    plan: Plan,
    /// What both counters held when it was armed last.
    began: [u64; 2],
    /// What they held when they were read last.
    last: [u64; 2],
    /// Is an overflow due that somebody waits for?
    armed: bool,
    guards: Guards,
}

impl Pmu {
    /// A counter that has not begun.
    #[must_use]
    pub const fn new(plan: Plan, guards: Guards) -> Self {
        Self {
            plan,
            began: [0; 2],
            last: [0; 2],
            armed: true,
            guards,
        }
    }

    /// What stopping by it depends on.
    #[must_use]
    pub const fn nature(&self) -> Nature {
        Nature {
            branches: true,
            skid: self.plan.skid,
        }
    }

    /// Begins to count on this core, whatever counted there before.
    pub fn begin(&mut self, core: &mut impl Processor) {
        let plan = self.plan;
        let freezes = if self.guards.off(Bug::CountFreezes) {
            0
        } else {
            FREEZES
        };
        core.write(DEBUG, core.read(DEBUG) & !freezes);
        if plan.quiets_locks && !self.guards.off(Bug::CountLocksSpeculative) {
            core.write(AMD_LOCKS, core.read(AMD_LOCKS) | NO_SPECULATIVE_LOCKS);
        }
        if let Some(global) = plan.global {
            core.write(global.control, 0);
        }
        for (control, counter) in plan.controls.into_iter().zip(plan.counters) {
            core.write(control, 0);
            core.write(counter, 0);
        }
        self.began = [0; 2];
        self.last = [0; 2];
        self.armed = true;
        let kernel = u64::from(self.guards.off(Bug::CountKernel)) << 17;
        for (control, event) in plan.controls.into_iter().zip(plan.events) {
            core.write(control, event | kernel);
        }
        if let Some(global) = plan.global {
            core.write(global.clear, global.bits);
            core.write(global.control, global.bits);
        }
        core.open();
    }

    /// The program is interrupted behind this many branches and a few more, or before, where so
    /// many cannot be counted in one part. `None`: by nothing that it has to heed.
    pub fn arm(&mut self, core: &mut impl Processor, branches: Option<u64>) {
        let reach = if self.guards.off(Bug::CountReachIgnored) {
            self.plan.mask
        } else {
            self.plan.reach
        };
        let goes_on = match branches {
            None => !self.armed,
            Some(more) => self.armed && more > reach && self.guards.off(Bug::CountUnarmed),
        };
        if goes_on {
            self.began = self.last;
            return;
        }
        let start = branches.map_or(0, |more| more.min(reach).wrapping_neg() & self.plan.mask);
        self.began = [start, self.last[1]];
        self.armed = branches.is_some();
        core.write(self.plan.counters[0], start);
        if let Some(global) = self.plan.global
            && !self.guards.off(Bug::CountOverflowKept)
        {
            core.write(global.clear, global.bits);
        }
        if !self.guards.off(Bug::CountUnopened) {
            core.open();
        }
    }

    /// Branches that the program has executed since it was armed.
    pub fn executed(&mut self, core: &impl Processor) -> u64 {
        let mask = if self.guards.off(Bug::CountWidthIgnored) {
            u64::MAX
        } else {
            self.plan.mask
        };
        self.last = self.plan.counters.map(|counter| core.read(counter));
        let since = |which: usize| self.last[which].wrapping_sub(self.began[which]) & mask;
        let far = if self.guards.off(Bug::CountFarKept) {
            0
        } else {
            since(1)
        };
        since(0).saturating_sub(far)
    }
}
