//! The counter of instructions that programs execute (PMUv3, cycles at EL0 alone), which interrupts
//! when it overflows.
//!
//! In the emulator's counted mode an instruction takes one cycle, so cycles are instructions, and
//! the interrupt comes behind the very one that was asked for. The emulator counts for the machine
//! as a whole: a program is charged with what other cores execute meanwhile. So one core runs at a
//! time, see [`crate::coupling::Baton`]; the others wait in [`Turns::doze`], where nothing but
//! the baton, the end of their patience, and being stopped reaches them.

use core::arch::asm;

use rcoe_kernel_objects::arch::{CONTEXT_WORDS, STATUS, STEP, STEP_VECTOR};

use super::interrupts;

/// This core's counter. There is one only where the processor has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(());

/// `PMCR_EL0`: on, and 64 bits wide.
const RUN: u64 = 1 | 1 << 6;
/// `PMCCFILTR_EL0`: not in the kernel.
const PROGRAMS: u64 = 1 << 31;
/// The bit of the cycle counter in registers that have one for each.
const CYCLES: u64 = 1 << 31;

/// `MDSCR_EL1`: breakpoints, and steps.
const WATCH: u64 = 1 << 15;
const STEPS: u64 = 1;
/// `DBGBCR0_EL1`: on, for programs, at the instruction as a whole.
const OF_PROGRAMS: u64 = 1 | 2 << 1 | 0xf << 5;

/// The exceptions of a breakpoint, and of a step.
const WATCHED: u64 = 0x30;

/// Sets and clears bits of what the processor stops at.
fn set_debug(set: u64, clear: u64) {
    // SAFETY: it concerns programs alone; what the kernel has for a thread is loaded with that.
    unsafe {
        asm!(
            "mrs {word}, mdscr_el1",
            "orr {word}, {word}, {set}",
            "bic {word}, {word}, {clear}",
            "msr mdscr_el1, {word}",
            "isb",
            word = out(reg) _,
            set = in(reg) set,
            clear = in(reg) clear,
            options(nomem, nostack, preserves_flags),
        );
    }
}

impl Counter {
    /// Does it count for the machine as a whole, so that one core at a time is to run?
    pub(crate) const TURNS: bool = true;
    /// Does it count branches, not instructions?
    pub(crate) const BRANCHES: bool = false;

    /// The program is stopped before this instruction.
    pub(crate) fn watch(self, place: u64) {
        // SAFETY: breakpoints are this kernel's alone, and concern programs alone.
        unsafe {
            asm!("msr dbgbvr0_el1, {place}", "msr dbgbcr0_el1, {how}",
                place = in(reg) place,
                how = in(reg) OF_PROGRAMS,
                options(nomem, nostack, preserves_flags));
        }
        set_debug(WATCH, 0);
    }

    /// The program stands at this instruction, and is stopped behind it.
    pub(crate) fn go_past(self, _place: u64, context: &mut [u64; CONTEXT_WORDS]) {
        context[STATUS] |= STEP;
        set_debug(STEPS, 0);
    }

    /// It is not stopped so any more. A thread that steps on its own is not stopped so.
    pub(crate) fn unwatch(self, context: &mut [u64; CONTEXT_WORDS]) {
        context[STATUS] &= !STEP;
        // SAFETY: as for setting it.
        unsafe {
            asm!(
                "msr dbgbcr0_el1, xzr",
                options(nomem, nostack, preserves_flags)
            );
        }
        set_debug(0, WATCH | STEPS);
    }

    /// Is an exception the breakpoint?
    pub(crate) const fn was_watched(self, vector: u64) -> bool {
        vector == WATCHED
    }

    /// Is it what comes behind an instruction that was gone past?
    pub(crate) const fn went_past(self, vector: u64) -> bool {
        vector == STEP_VECTOR
    }

    /// The copy of this replica is on another core.
    pub(crate) const fn copy(self) -> Self {
        self
    }

    /// The counter, if there is one.
    pub(crate) fn new() -> Option<Self> {
        let features: u64;
        // SAFETY: reading the register changes nothing.
        unsafe {
            asm!("mrs {}, id_aa64dfr0_el1", out(reg) features,
                options(nomem, nostack, preserves_flags));
        }
        let version = features >> 8 & 0xf;
        (version != 0 && version != 0xf).then_some(Self(()))
    }

    /// Begins to count on this core.
    pub(crate) fn begin(self) {
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
                programs = in(reg) PROGRAMS,
                run = in(reg) RUN,
                cycles = in(reg) CYCLES,
                options(nomem, nostack, preserves_flags),
            );
        }
        interrupts::open_counter();
    }

    /// The program is interrupted behind this many instructions.
    pub(crate) fn arm(self, instructions: u64) {
        // SAFETY: the counter is this kernel's alone.
        unsafe {
            asm!("msr pmovsclr_el0, {cycles}", "msr pmccntr_el0, {start}", "isb",
                cycles = in(reg) CYCLES,
                start = in(reg) instructions.wrapping_neg(),
                options(nomem, nostack, preserves_flags));
        }
    }

    /// Instructions that the program has executed since it was armed so. Ends the interrupt.
    pub(crate) fn executed(self, armed: u64) -> u64 {
        let count: u64;
        // SAFETY: the counter is this kernel's alone.
        unsafe {
            asm!("mrs {count}, pmccntr_el0", "msr pmovsclr_el0, {cycles}", "isb",
                count = out(reg) count,
                cycles = in(reg) CYCLES,
                options(nomem, nostack, preserves_flags));
        }
        count.wrapping_add(armed)
    }

    /// Cores take turns.
    pub(crate) const fn turns(self) -> Option<Turns> {
        Some(Turns(()))
    }

    /// The next tick comes after these units of the timer, or, if they are none, after a period.
    pub(crate) fn begin_slice(self, rest: u64) {
        interrupts::begin_slice(rest);
    }
}

/// What lets cores take turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns(());

impl Turns {
    /// Hands the baton on to another core.
    pub(crate) fn hand_on(self, core: u32) {
        interrupts::hand_on(core);
    }

    /// Waits until the baton is handed on, for at most so many cycles.
    pub(crate) fn doze(self, cycles: u64) {
        interrupts::doze(cycles);
    }

    /// Units of the timer until the next tick; 0 if it is due.
    pub(crate) fn rest_of_slice(self) -> u64 {
        interrupts::rest_of_slice()
    }

    /// This core's turn: its next tick comes after these units of the timer, or, if they are none,
    /// after a period.
    pub(crate) fn begin_slice(self, rest: u64) {
        interrupts::begin_slice(rest);
    }
}
