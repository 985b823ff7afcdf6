//! The processor's own counter of branches: here are the instructions that reach it; how it is used
//! is [`rcoe_core::counted::pmu`]. It interrupts by the local controller's performance counter
//! entry.
//!
//! Emulated processors have none, so this was never executed but for [`Own::find`].

use core::arch::x86_64::__cpuid_count;

use rcoe_core::Guards;
use rcoe_core::counted::Nature;
use rcoe_core::counted::pmu::{Pmu, Processor, Unfit, find};

use super::super::{cpu, interrupts};
use super::Turns;
use crate::arch::Count;

/// This core.
#[derive(Clone, Copy, Debug)]
struct Core;

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

/// This core's counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own(Pmu);

impl Own {
    /// The counter, if the processor has one that will do.
    ///
    /// # Errors
    /// What it lacks.
    pub(super) fn find() -> Result<Self, Unfit> {
        find(&Core).map(|plan| Self(Pmu::new(plan, Guards::ON)))
    }
}

impl Count for Own {
    const TURNS: bool = false;

    fn nature(&self) -> Nature {
        self.0.nature()
    }

    fn turns(&self) -> Option<Turns> {
        None
    }

    fn begin(&mut self) {
        self.0.begin(&mut Core);
    }

    /// All cores are of one kind; it begins there.
    fn copy(&mut self) {}

    fn arm(&mut self, counts: Option<u64>) {
        self.0.arm(&mut Core, counts);
    }

    fn executed(&mut self) -> u64 {
        self.0.executed(&Core)
    }
}
