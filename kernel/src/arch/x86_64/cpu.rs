//! Single instructions, as functions.

use core::arch::asm;

use rcoe_abi::layout::PORT_OFF;

use crate::arch::permit::spend_off;

/// Reads a model-specific register.
pub(in crate::arch) fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the kernel names registers that every x86-64 processor has, or of which this one
    // tells; another would be an exception of the kernel, which is reported.
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
pub(in crate::arch) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller's.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// The address whose access faulted.
pub(in crate::arch) fn fault_address() -> u64 {
    let address;
    // SAFETY: reading CR2 changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Root table of the present address space.
pub(in crate::arch) fn root_table() -> u64 {
    let root;
    // SAFETY: reading CR3 changes nothing.
    unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root
}

/// Enters an address space, and forgets what is remembered of the last one.
///
/// # Safety
/// It must map the kernel as the present one does.
pub(in crate::arch) unsafe fn set_root_table(root: u64) {
    // SAFETY: the caller's.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
}

/// Leaves all programs' address spaces for the kernel's own, with this root table.
///
/// # Safety
/// It must be the one that the partition began with.
pub(in crate::arch) unsafe fn leave_space(root: u64) {
    // SAFETY: the kernel's own root table maps what every other one maps of it.
    unsafe { set_root_table(root) };
}

/// Forgets what the processor remembers of the present address space.
pub(crate) fn flush() {
    // SAFETY: it stays the same space.
    unsafe { set_root_table(root_table()) };
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

/// Stops this core for good.
pub(crate) fn park() -> ! {
    loop {
        // SAFETY: interrupts stay off; nothing but a reset or NMI ends the halt, and then it halts
        // again.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// Goes round for ever where a test says so, and an interrupt that nothing masks would reset the
/// machine: there is no table of handlers any more.
pub(crate) fn go_deaf() -> ! {
    forget_handlers();
    loop {
        core::hint::black_box(());
    }
}

/// Has the processor shut down: an exception finds no handler, and that this is so finds none
/// either. It resets the machine, but for a core of [`super::shutdown`].
pub(crate) fn shut_down() -> ! {
    forget_handlers();
    // SAFETY: this kernel does nothing more.
    unsafe { asm!("ud2", options(noreturn, nostack)) }
}

fn forget_handlers() {
    let nothing = [0_u8; 10];
    // SAFETY: interrupts are off, and the caller only goes round or shuts down.
    unsafe { asm!("lidt [{}]", in(reg) &raw const nothing, options(nostack, readonly)) };
}

/// Stops this core for good, where it can be started again once its memory holds a copy of another
/// replica.
pub(in crate::arch) fn retire() -> ! {
    park()
}

/// The port by which the machine is switched off.
pub(in crate::arch) const OFF_WORD: u32 = PORT_OFF as u32;

/// Switches the machine off.
///
/// # Panics
/// If there is no permit for it.
#[inline(never)]
#[expect(clippy::cast_possible_truncation, reason = "it is a port's number")]
pub(crate) fn power_off() -> ! {
    port_out(spend_off() as u16, 4, 0);
    park()
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

/// Words of the floating-point state; behind it are the bases of FS and GS, and four selectors.
const FPU: usize = 64;
const FS_BASE: u32 = 0xc000_0100;
const GS_BASE: u32 = 0xc000_0101;

/// Exchanges the floating-point state, and what segments the program has.
///
/// # Safety
/// Both have room for it at a multiple of 16 bytes, and `to` holds a state that was saved or made
/// by this kernel.
pub(in crate::arch) unsafe fn exchange_fpu(from: Option<*mut u64>, to: *const u64) {
    // SAFETY: the caller's.
    unsafe {
        if let Some(from) = from {
            asm!("fxsave64 [{}]", in(reg) from, options(nostack, preserves_flags));
            save_segments(from.add(FPU));
        }
        asm!("fxrstor64 [{}]", in(reg) to, options(nostack, preserves_flags));
        load_segments(to.add(FPU));
    }
}

/// Saves what a program has in segment registers. It can load selectors itself, which sets a base
/// to 0, so the processor knows best.
///
/// # Safety
/// There are three words.
unsafe fn save_segments(to: *mut u64) {
    // SAFETY: the caller's; reading these registers changes nothing.
    unsafe {
        to.write(read_msr(FS_BASE));
        to.add(1).write(read_msr(GS_BASE));
        asm!("mov word ptr [{0}], ds", "mov word ptr [{0} + 2], es", "mov word ptr [{0} + 4], fs",
            "mov word ptr [{0} + 6], gs", in(reg) to.add(2), options(nostack, preserves_flags));
    }
}

/// Loads it: first the selectors, which set the bases.
///
/// # Safety
/// They are of programs, and saved or made by this kernel.
unsafe fn load_segments(from: *const u64) {
    // SAFETY: the kernel uses no base but that of its code, which is none of these.
    unsafe {
        asm!("mov ds, word ptr [{0}]", "mov es, word ptr [{0} + 2]", "mov fs, word ptr [{0} + 4]",
            "mov gs, word ptr [{0} + 6]", in(reg) from.add(2), options(nostack, preserves_flags));
        write_msr(FS_BASE, from.read());
        write_msr(GS_BASE, from.add(1).read());
    }
}
