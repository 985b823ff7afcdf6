//! What the processor says of itself.

use core::arch::asm;

/// Leaf and part of it, of eax, ebx, ecx and edx the bits of `kept`. Others may differ between
/// replicas, and never get into memory.
#[must_use]
pub fn identity(leaf: u32, part: u32, kept: [u32; 4]) -> [u32; 4] {
    let (bx, dx): (u32, u32);
    let (mut ax, mut cx) = (leaf, part);
    let [keep_ax, keep_bx, keep_cx, keep_dx] = kept;
    // SAFETY: it changes these registers only, and rbx, which the compiler may have for itself or
    // for any of the masks: so that is as it was before it is used.
    unsafe {
        asm!(
            "mov {bx:r}, rbx",
            "cpuid",
            "xchg {bx:r}, rbx",
            "and eax, {keep_ax:e}",
            "and {bx:e}, {keep_bx:e}",
            "and ecx, {keep_cx:e}",
            "and edx, {keep_dx:e}",
            bx = out(reg) bx,
            keep_ax = in(reg) keep_ax,
            keep_bx = in(reg) keep_bx,
            keep_cx = in(reg) keep_cx,
            keep_dx = in(reg) keep_dx,
            inout("eax") ax,
            inout("ecx") cx,
            out("edx") dx,
            options(nostack, nomem),
        );
    }
    [ax, bx, cx, dx]
}
