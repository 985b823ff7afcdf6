//! The level that the kernel runs on: 2 where the machine has it, as a host does (`E2H`), else 1.
//!
//! On level 2 as a host's the registers of level 1 lead to those of level 2, programs run on level
//! 0 below it as they do below level 1, and every interrupt comes to level 2. So the same kernel
//! runs on both, and only what stands here differs: how the firmware is called, and which timers
//! are this core's.

use core::arch::asm;

/// `HCR_EL2` while the kernel or a program runs: a host (`E2H`, `TGE`) of 64 bits (`RW`), to which
/// interrupts come (`AMO`, `IMO`, `FMO`). That guests have a second stage of translation (`VM`) is
/// nothing to it; it stays set, as the emulator forgets all translations when it changes.
pub(super) const HOST: u64 = 1 << 34 | 1 << 31 | TO_GUESTS | 0b111 << 3 | 1;
/// What is clear while a guest runs: `TGE`.
pub(super) const TO_GUESTS: u64 = 1 << 27;

/// Does the kernel run on level 2?
pub(super) fn is_host() -> bool {
    let level: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, currentel", out(reg) level, options(nomem, nostack, preserves_flags)) };
    level == 2 << 2
}

/// Has the interval timer interrupt after so many of its units; 0 stops it. It is a timer that
/// nobody else has: on level 2 level 1's, else the virtual one.
pub(super) fn start_timer(units: u64) {
    let run = u64::from(units != 0);
    // SAFETY: the timer is the driver's; its interrupt is masked but for its line's handler.
    unsafe {
        if is_host() {
            // CNTP_TVAL_EL02, CNTP_CTL_EL02
            asm!("msr s3_5_c14_c2_0, {units}", "msr s3_5_c14_c2_1, {run}", "isb",
                units = in(reg) units, run = in(reg) run, options(nostack, preserves_flags));
        } else {
            asm!("msr cntv_tval_el0, {units}", "msr cntv_ctl_el0, {run}", "isb",
                units = in(reg) units, run = in(reg) run, options(nostack, preserves_flags));
        }
    }
}

/// Whatever this core ran, it is a host from here on.
pub(super) fn become_host() {
    if is_host() {
        // SAFETY: that is what the kernel is.
        unsafe {
            asm!("msr hcr_el2, {}", "isb", in(reg) HOST, options(nostack, preserves_flags));
        }
    }
}

/// Forgets what the processor remembers of guests' spaces.
pub(super) fn forget_guests() {
    if is_host() {
        // SAFETY: what is remembered is read anew from the same tables.
        unsafe {
            asm!(
                "dsb ish",
                "tlbi vmalls12e1",
                "dsb ish",
                "isb",
                options(nostack, preserves_flags)
            );
        }
    }
}
