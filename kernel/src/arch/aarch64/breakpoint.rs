//! The one breakpoint that the kernel has for itself, and how a program goes past it.

use core::arch::asm;

use rcoe_kernel_objects::arch::{CONTEXT_WORDS, STATUS, STEP, STEP_VECTOR};

/// `MDSCR_EL1`: breakpoints, and steps.
const WATCH: u64 = 1 << 15;
const STEPS: u64 = 1;
/// `DBGBCR0_EL1`: on, below level 2, at the instruction as a whole.
const OF_PROGRAMS: u64 = 1 | 3 << 1 | 0xf << 5;

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

/// The program is stopped before this instruction.
pub(crate) fn watch(place: u64) {
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
pub(crate) fn go_past(_place: u64, context: &mut [u64; CONTEXT_WORDS]) {
    context[STATUS] |= STEP;
    set_debug(STEPS, 0);
}

/// It is not stopped so any more. A thread that steps on its own is not stopped so.
pub(crate) fn unwatch(context: &mut [u64; CONTEXT_WORDS]) {
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
pub(crate) const fn was_watched(vector: u64) -> bool {
    vector == WATCHED
}

/// Is it what comes behind an instruction that was gone past?
pub(crate) const fn went_past(vector: u64) -> bool {
    vector == STEP_VECTOR
}
