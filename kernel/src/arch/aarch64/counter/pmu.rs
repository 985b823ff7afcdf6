//! The counter of instructions that programs execute (PMUv3, cycles below the kernel alone), which
//! interrupts when it overflows.
//!
//! In the emulator's counted mode an instruction takes one cycle, so cycles are instructions, and
//! the interrupt comes behind the very one that was asked for. The emulator counts for the machine
//! as a whole: a program is charged with what other cores execute meanwhile. So one core runs at a
//! time, see [`crate::coupling::Baton`]; the others wait in [`Turns::doze`], where nothing but
//! the baton, the end of their patience, and being stopped reaches them.

use core::arch::asm;

use rcoe_core::counted::Nature;

use super::super::{interrupts, level};
use super::Turns;
use crate::arch::Count;

/// This core's counter. There is one only where the processor has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pmu {
    /// Behind how many instructions it interrupts.
    armed: u64,
}

/// Armed where nobody is to be stopped.
const FAR: u64 = 1 << 62;

/// `PMCR_EL0`: on, and 64 bits wide.
const RUN: u64 = 1 | 1 << 6;
/// `PMCCFILTR_EL0`: not on level 1. Level 2 is not counted unless it is asked for.
const NOT_LEVEL_1: u64 = 1 << 31;
/// The bit of the cycle counter in registers that have one for each.
const CYCLES: u64 = 1 << 31;

impl Pmu {
    /// The counter, if there is one.
    ///
    /// # Errors
    /// What the processor lacks, if there is none.
    pub(super) fn own() -> Result<Self, &'static str> {
        let features: u64;
        // SAFETY: reading the register changes nothing.
        unsafe {
            asm!("mrs {}, id_aa64dfr0_el1", out(reg) features,
                options(nomem, nostack, preserves_flags));
        }
        let version = features >> 8 & 0xf;
        match version {
            0 | 0xf => Err("it does not count instructions"),
            _ => Ok(Self { armed: FAR }),
        }
    }
}

impl Count for Pmu {
    fn nature(&self) -> Nature {
        Nature {
            branches: false,
            skid: 0,
        }
    }

    fn turns(&self) -> Option<Turns> {
        Some(Turns(()))
    }

    fn copy(&mut self) {}

    fn begin(&mut self) {
        // Whatever runs below the kernel is counted.
        let programs = if level::is_host() { 0 } else { NOT_LEVEL_1 };
        // SAFETY: the counter is this kernel's alone: programs cannot reach it.
        unsafe {
            asm!(
                "msr pmcntenclr_el0, {all}",
                "msr pmovsclr_el0, {all}",
                "msr pmccfiltr_el0, {programs}",
                "msr pmcr_el0, {run}",
                "msr pmintenset_el1, {cycles}",
                "msr pmcntenset_el0, {cycles}",
                "isb",
                all = in(reg) 0xffff_ffff_u64,
                programs = in(reg) programs,
                run = in(reg) RUN,
                cycles = in(reg) CYCLES,
                options(nomem, nostack, preserves_flags),
            );
        }
        interrupts::open_counter();
    }

    fn arm(&mut self, counts: Option<u64>) {
        self.armed = counts.unwrap_or(FAR);
        // SAFETY: the counter is this kernel's alone.
        unsafe {
            asm!("msr pmovsclr_el0, {cycles}", "msr pmccntr_el0, {start}", "isb",
                cycles = in(reg) CYCLES,
                start = in(reg) self.armed.wrapping_neg(),
                options(nomem, nostack, preserves_flags));
        }
    }

    fn executed(&mut self) -> u64 {
        let count: u64;
        // SAFETY: the counter is this kernel's alone.
        unsafe {
            asm!("mrs {count}, pmccntr_el0", "msr pmovsclr_el0, {cycles}", "isb",
                count = out(reg) count,
                cycles = in(reg) CYCLES,
                options(nomem, nostack, preserves_flags));
        }
        count.wrapping_add(self.armed)
    }
}
