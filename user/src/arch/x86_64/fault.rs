//! Faults on purpose: what no program should do.

use core::arch::asm;

/// Executes an undefined instruction.
pub fn undefined() -> ! {
    // SAFETY: it changes nothing; the thread's fault handler hears of it.
    unsafe { asm!("ud2", options(noreturn, nostack)) }
}

/// Reads where nothing is mapped.
pub fn read_nothing() {
    // SAFETY: the read faults, and the thread does not go on.
    unsafe { asm!("mov {0}, [{0}]", inout(reg) 0x10_u64 => _, options(nostack, readonly)) };
}

/// Divides by zero.
pub fn divide_by_zero() {
    // SAFETY: the division faults, and the thread does not go on.
    unsafe {
        asm!("div {0}", in(reg) 0_u64, inout("rax") 1_u64 => _, inout("rdx") 0_u64 => _,
            options(nostack, nomem));
    }
}

/// Makes a system call that does not exist.
pub fn unknown_call() {
    // SAFETY: it becomes a message to the fault handler.
    unsafe {
        asm!("syscall", in("rax") 4_711_u64, out("rcx") _, out("r11") _, options(nostack));
    }
}

/// Reads the time stamp, which differs between replicas.
pub fn time_stamp() {
    // SAFETY: it faults, and the thread does not go on.
    unsafe { asm!("rdtsc", out("rax") _, out("rdx") _, options(nostack, nomem)) };
}
