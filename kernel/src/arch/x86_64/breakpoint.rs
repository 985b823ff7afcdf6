//! The one breakpoint that the kernel has for itself, and how a program goes past it.

use core::arch::asm;

use rcoe_kernel_objects::arch::x86_64::RESUME;
use rcoe_kernel_objects::arch::{CONTEXT_WORDS, STATUS};

/// The exception of a breakpoint.
const VECTOR: u64 = 1;
/// `DR7`: what is always set, and breakpoint 0 on, at an instruction.
const OFF: u64 = 1 << 10;
const ON: u64 = OFF | 1;
/// `DR6`: what is always set, and breakpoint 0 was met.
const NOTHING: u64 = 0xffff_0ff0;
const MET: u64 = 1;

/// The program is stopped before this instruction.
pub(crate) fn watch(place: u64) {
    // SAFETY: breakpoints are this kernel's alone, and the place is a program's.
    unsafe {
        asm!("mov dr0, {place}", "mov dr7, {on}",
            place = in(reg) place, on = in(reg) ON,
            options(nomem, nostack, preserves_flags));
    }
}

/// The same, where it stands at this instruction and is to execute it first.
pub(crate) fn go_past(place: u64, context: &mut [u64; CONTEXT_WORDS]) {
    context[STATUS] |= RESUME;
    watch(place);
}

/// It is not stopped so any more.
pub(crate) fn unwatch(context: &mut [u64; CONTEXT_WORDS]) {
    context[STATUS] &= !RESUME;
    // SAFETY: as for setting it.
    unsafe {
        asm!("mov dr7, {off}", off = in(reg) OFF, options(nomem, nostack, preserves_flags));
    }
}

/// Is an exception the breakpoint, and not the end of a step of the program's own?
pub(crate) fn was_watched(vector: u64) -> bool {
    if vector != VECTOR {
        return false;
    }
    let why: u64;
    // SAFETY: the register tells why, and is the kernel's to clear.
    unsafe {
        asm!("mov {why}, dr6", "mov dr6, {nothing}",
            why = out(reg) why, nothing = in(reg) NOTHING,
            options(nomem, nostack, preserves_flags));
    }
    why & MET != 0
}

/// The same where it went past one.
pub(crate) fn went_past(vector: u64) -> bool {
    was_watched(vector)
}
