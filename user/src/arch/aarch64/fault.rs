//! Faults on purpose: what no program should do.

use core::arch::asm;

/// Executes an undefined instruction.
pub fn undefined() -> ! {
    // SAFETY: it changes nothing; the thread's fault handler hears of it.
    unsafe { asm!("udf #0", options(noreturn, nostack)) }
}

/// Reads where nothing is mapped.
pub fn read_nothing() {
    // SAFETY: the read faults, and the thread does not go on.
    unsafe { asm!("ldr {0}, [{0}]", inout(reg) 0x10_u64 => _, options(nostack, readonly)) };
}

/// Divides by zero, which is no fault of this processor: the quotient is zero.
pub fn divide_by_zero() {
    // SAFETY: it changes nothing but a register.
    unsafe { asm!("udiv {0}, {0}, xzr", inout(reg) 1_u64 => _, options(nostack, nomem)) };
}

/// Makes a system call that does not exist.
pub fn unknown_call() {
    // SAFETY: it becomes a message to the fault handler.
    unsafe { asm!("svc #0", in("x8") 4_711_u64, options(nostack)) };
}

/// Reads the time stamp, which differs between replicas.
pub fn time_stamp() {
    // SAFETY: it faults, and the thread does not go on.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) _, options(nostack, nomem)) };
}
