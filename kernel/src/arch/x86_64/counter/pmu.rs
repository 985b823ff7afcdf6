//! The processor's own counter of branches: here are the instructions that reach it; how it is used
//! is [`rcoe_core::counted::pmu`]. It interrupts by the local controller's performance counter
//! entry.
//!
//! Emulated processors have none, so [`Core`] was never executed but for `cpuid`.

use core::arch::x86_64::__cpuid_count;

use rcoe_core::Guards;
use rcoe_core::counted::Nature;
use rcoe_core::counted::pmu::{Pmu, Processor, Unfit, find};

use super::super::{cpu, interrupts};
use super::Turns;
use crate::arch::Count;

/// This core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core;

impl Processor for Core {
    fn cpuid(&self, leaf: u32, part: u32) -> [u32; 4] {
        let told = __cpuid_count(leaf, part);
        [told.eax, told.ebx, told.ecx, told.edx]
    }

    fn read(&self, register: u32) -> u64 {
        cpu::read_msr(register)
    }

    fn write(&mut self, register: u32, value: u64) {
        // SAFETY: registers of counters, and bits of two others that the plan for this model
        // names: none of them changes what the kernel executes.
        unsafe { cpu::write_msr(register, value) };
    }

    fn open(&mut self) {
        interrupts::open_overflow();
    }
}

/// A core's counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own<P> {
    counter: Pmu,
    core: P,
}

impl<P: Processor> Own<P> {
    /// The counter, if the processor has one that will do.
    ///
    /// # Errors
    /// What it lacks.
    pub(super) fn find(core: P) -> Result<Self, Unfit> {
        let counter = Pmu::new(find(&core)?, Guards::ON);
        Ok(Self { counter, core })
    }
}

impl<P: Processor + Copy> Count for Own<P> {
    fn nature(&self) -> Nature {
        self.counter.nature()
    }

    fn turns(&self) -> Option<Turns> {
        None
    }

    fn begin(&mut self) {
        self.counter.begin(&mut self.core);
    }

    /// All cores are of one kind, and it begins anew there.
    fn copy(&mut self) {}

    fn arm(&mut self, counts: Option<u64>) {
        self.counter.arm(&mut self.core, counts);
    }

    fn executed(&mut self) -> u64 {
        self.counter.executed(&self.core)
    }
}
