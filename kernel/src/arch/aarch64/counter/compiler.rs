//! Where programs count their own branches.

use core::arch::asm;

/// The count of the thread whose vector registers the processor holds.
pub(in crate::arch) fn own_count() -> u64 {
    let count: u64;
    // SAFETY: reading the register changes nothing.
    unsafe {
        asm!(".arch_extension fp", "fmov {}, d31", out(reg) count,
            options(nomem, nostack, preserves_flags));
    }
    count
}
