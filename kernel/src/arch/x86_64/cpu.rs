//! Single instructions, as functions.

use core::arch::asm;

/// Reads a model-specific register.
pub(super) fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the kernel names registers that exist on every x86-64 processor.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The value must keep the kernel's own execution sound.
#[expect(clippy::cast_possible_truncation, reason = "halves")]
pub(super) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller's.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// The address whose access faulted.
pub(super) fn fault_address() -> u64 {
    let address;
    // SAFETY: reading CR2 changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Root table of the present address space.
pub(super) fn root_table() -> u64 {
    let root;
    // SAFETY: reading CR3 changes nothing.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root
}

/// Enters an address space, and forgets what is remembered of the last one.
///
/// # Safety
/// It must map the kernel as the present one does.
pub(super) unsafe fn set_root_table(root: u64) {
    // SAFETY: the caller's.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// Processor cycles.
#[must_use]
pub(crate) fn cycles() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading the counter changes nothing.
    unsafe {
        asm!("lfence", "rdtsc", out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// In every wait: lets the other hardware threads, or the emulator's other processors, run.
pub(crate) fn relax() {
    core::hint::spin_loop();
}

/// Waits for an interrupt, with interrupts on for just that long.
pub(crate) fn wait_for_interrupt() {
    // SAFETY: an interrupt that comes here finds the kernel idle: its handler takes a note and
    // returns.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Stops this core for good.
pub(crate) fn park() -> ! {
    loop {
        // SAFETY: interrupts stay off; nothing but a reset or NMI ends the halt, and then it halts
        // again.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Reads a port of 1, 2 or 4 bytes.
#[must_use]
pub(crate) fn port_in(port: u16, width: u8) -> u32 {
    let value: u32;
    // SAFETY: ports reach devices; none of those that the machine has writes memory by itself on a
    // read. Which ports a program may use is decided by capability.
    unsafe {
        match width {
            1 => asm!("xor eax, eax", "in al, dx", in("dx") port, out("eax") value,
                options(nostack)),
            2 => asm!("xor eax, eax", "in ax, dx", in("dx") port, out("eax") value,
                options(nostack)),
            _ => asm!("in eax, dx", in("dx") port, out("eax") value,
                options(nostack, preserves_flags)),
        }
    }
    value
}

/// Writes a port of 1, 2 or 4 bytes.
#[expect(clippy::cast_possible_truncation, reason = "as wide as the port")]
pub(crate) fn port_out(port: u16, width: u8, value: u32) {
    // SAFETY: as for reading. What a device does by itself that a driver configured is the driver's
    // to get right.
    unsafe {
        match width {
            1 => asm!("out dx, al", in("dx") port, in("al") value as u8,
                options(nostack, preserves_flags)),
            2 => asm!("out dx, ax", in("dx") port, in("ax") value as u16,
                options(nostack, preserves_flags)),
            _ => asm!("out dx, eax", in("dx") port, in("eax") value,
                options(nostack, preserves_flags)),
        }
    }
}

/// Sets control bits: protection of the kernel from user memory, no time stamps in programs.
///
/// # Safety
/// Once, by a kernel that never touches memory that programs can.
pub(super) unsafe fn protect() {
    const UMIP: u64 = 1 << 11;
    const TSD: u64 = 1 << 2;
    const SMEP: u64 = 1 << 20;
    const SMAP: u64 = 1 << 21;
    let features: u32;
    let more: u32;
    // SAFETY: CPUID changes nothing but its registers; rbx is kept.
    unsafe {
        asm!("push rbx", "cpuid", "mov {0:e}, ebx", "pop rbx", out(reg) features,
            inout("eax") 7 => _, inout("ecx") 0 => more, out("edx") _);
    }
    let mut bits = TSD;
    if features & 1 << 7 != 0 {
        bits |= SMEP;
    }
    if features & 1 << 20 != 0 {
        bits |= SMAP;
    }
    if more & 1 << 2 != 0 {
        bits |= UMIP;
    }
    // SAFETY: the kernel executes its own text only and touches no user page, so none of these bits
    // changes what it does.
    unsafe {
        asm!("mov {0}, cr4", "or {0}, {1}", "mov cr4, {0}", out(reg) _, in(reg) bits,
            options(nostack));
    }
}

/// Exchanges the floating-point state.
///
/// # Safety
/// Both are 512 bytes at a multiple of 16, and `to` holds a state that was saved or made by this
/// kernel.
pub(super) unsafe fn exchange_fpu(from: Option<*mut u64>, to: *const u64) {
    // SAFETY: the caller's.
    unsafe {
        if let Some(from) = from {
            asm!("fxsave64 [{}]", in(reg) from, options(nostack, preserves_flags));
        }
        asm!("fxrstor64 [{}]", in(reg) to, options(nostack, preserves_flags));
    }
}
