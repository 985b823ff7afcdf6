//! What a core is set to once: its vectors, and protection.

use core::arch::asm;

use super::guest;
use super::trap::trap_vectors;

/// Control bits that differ from those of the boot: nothing that can be written is executed; the
/// stack is aligned; entering the kernel keeps it from programs' memory, where the processor can.
/// What programs may not: wait in the processor, mask interrupts, maintain caches.
const SET: u64 = 1 << 19 | 1 << 3 | 1 << 4;
const CLEAR: u64 = 1 << 23 | 1 << 16 | 1 << 18 | 1 << 9 | 1 << 14 | 1 << 15 | 1 << 26 | 1 << 1;

/// Sets everything up for this core.
///
/// # Safety
/// Once, in a partition, with interrupts off, by a kernel that never touches memory that programs
/// can.
pub(in crate::arch) unsafe fn install() {
    let vectors = trap_vectors as *const () as u64;
    // SAFETY: the vectors are complete and stay; none of the bits changes what this kernel does.
    // Floating point is for programs; the kernel only saves and loads it. Counters and timers are
    // not for programs. Nobody steps at the start, but the processor is ready for it.
    unsafe {
        asm!(
            "msr vbar_el1, {vectors}",
            "msr cpacr_el1, {float}",
            "msr cntkctl_el1, xzr",
            "msr mdscr_el1, xzr",
            "msr oslar_el1, xzr",
            "msr tpidrro_el0, xzr",
            "msr pmuserenr_el0, xzr",
            "mrs {scratch}, sctlr_el1",
            "orr {scratch}, {scratch}, {set}",
            "bic {scratch}, {scratch}, {clear}",
            "msr sctlr_el1, {scratch}",
            "isb",
            vectors = in(reg) vectors,
            float = in(reg) 3_u64 << 20,
            set = in(reg) SET,
            clear = in(reg) CLEAR,
            scratch = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    keep_from_programs();
    guest::prepare();
}

/// Keeps the kernel from programs' memory, if the processor can. Later entries set this themselves.
pub(super) fn keep_from_programs() {
    let features: u64;
    // SAFETY: the kernel touches no memory of programs, so this changes nothing that it does.
    unsafe {
        asm!("mrs {}, id_aa64mmfr1_el1", out(reg) features,
            options(nomem, nostack, preserves_flags));
        if features >> 20 & 0xf != 0 {
            asm!(
                ".arch_extension pan",
                "msr pan, #1",
                options(nomem, nostack)
            );
        }
    }
}
