//! Single instructions, as functions.

use core::arch::{asm, global_asm};

use rcoe_abi::layout::{CORES_EACH, PORT_OFF, PORT_PAUSE};

use super::super::memory::{read_register, write_register};
use super::super::permit::{permit_off, spend_off};
use super::layout::{PAUSE, PORTS, PORTS_BYTES};
use super::{guest, interrupts, level, psci, tables};

/// The address whose access faulted.
pub(in crate::arch) fn fault_address() -> u64 {
    let address;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, far_el1", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}

/// Why the kernel was entered.
pub(in crate::arch) fn syndrome() -> u64 {
    let syndrome;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, esr_el1", out(reg) syndrome, options(nomem, nostack, preserves_flags)) };
    syndrome
}

/// The instruction at which it was.
pub(in crate::arch) fn fault_place() -> u64 {
    let place;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, elr_el1", out(reg) place, options(nomem, nostack, preserves_flags)) };
    place
}

/// What the machine calls the core of a replica.
pub(in crate::arch) const fn affinity(number: u64) -> u64 {
    number * CORES_EACH
}

/// This core's number: that of its replica.
pub(in crate::arch) fn number() -> u64 {
    let affinity: u64;
    // SAFETY: reading the register changes nothing.
    unsafe {
        asm!("mrs {}, mpidr_el1", out(reg) affinity, options(nomem, nostack, preserves_flags));
    }
    (affinity & 0xff) / CORES_EACH
}

/// Root table of the present address space of programs.
pub(in crate::arch) fn root_table() -> u64 {
    let root;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, ttbr0_el1", out(reg) root, options(nomem, nostack, preserves_flags)) };
    root
}

/// Enters an address space of programs, and forgets what is remembered of the last one.
///
/// # Safety
/// It must be one: a table of that form, whose tables are in object memory.
pub(in crate::arch) unsafe fn set_root_table(root: u64) {
    // SAFETY: the caller's; the kernel's own half is another root table's.
    unsafe {
        asm!("dsb ish", "msr ttbr0_el1, {}", "isb", in(reg) root,
            options(nostack, preserves_flags));
    }
    forget_programs();
}

/// Leaves all programs' address spaces for none. `root` is that of the kernel's own half.
///
/// # Safety
/// It must be the one that the partition began with.
pub(in crate::arch) unsafe fn leave_space(root: u64) {
    // What broke in a guest may still be one.
    level::become_host();
    // SAFETY: nothing is mapped there.
    unsafe { set_root_table(tables::nothing(root)) };
}

/// Forgets what the processor remembers of address spaces, of programs and of guests.
pub(crate) fn flush() {
    forget_programs();
    level::forget_guests();
}

/// Forgets what it remembers of programs' spaces.
fn forget_programs() {
    // SAFETY: what is remembered is read anew from the same tables.
    unsafe {
        asm!(
            "dsb ish",
            "tlbi vmalle1",
            "dsb ish",
            "isb",
            options(nostack, preserves_flags)
        );
    }
}

/// The generic timer's count: this kernel's cycles.
#[must_use]
pub(crate) fn cycles() -> u64 {
    let count;
    // SAFETY: reading the counter changes nothing.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", out(reg) count,
            options(nomem, nostack, preserves_flags));
    }
    count
}

/// How often that counts in a second.
#[must_use]
pub(crate) fn frequency() -> u64 {
    let frequency;
    // SAFETY: reading the register changes nothing.
    unsafe {
        asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags));
    }
    frequency
}

/// In every wait: lets the emulator's other processors run. `spin_loop` would be an instruction
/// that does not.
pub(crate) fn relax() {
    // SAFETY: it changes nothing.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Stops this core for good.
pub(crate) fn park() -> ! {
    // What is masked only here ends a wait all the same.
    interrupts::close();
    loop {
        // SAFETY: interrupts stay off; whatever ends the wait, it begins again.
        unsafe { asm!("wfi", options(nomem, nostack, preserves_flags)) };
    }
}

/// Goes round for ever where a test says so, and takes no interrupt, not even the one that stops a
/// replica which was removed.
pub(crate) fn go_deaf() -> ! {
    // SAFETY: this kernel does nothing more.
    unsafe { asm!("msr daifset, #0xf", options(nomem, nostack)) };
    loop {
        core::hint::black_box(());
    }
}

/// As [`go_deaf`]: this processor knows no shutdown.
pub(crate) fn shut_down() -> ! {
    go_deaf()
}

/// Stops this core for good, where it can be started again once its memory holds a copy of another
/// replica.
pub(in crate::arch) fn retire() -> ! {
    psci::core_off();
    park()
}

/// The firmware's function by which the machine is switched off.
pub(in crate::arch) const OFF_WORD: u32 = psci::SYSTEM_OFF as u32;

/// Switches the machine off.
///
/// # Panics
/// If there is no permit for it.
#[inline(never)]
pub(crate) fn power_off() -> ! {
    psci::system_off(spend_off());
    park()
}

/// The address of a port: of the PCI bus, or of what stands for one.
fn port_address(port: u16, width: u8) -> Option<u64> {
    if port == PORT_PAUSE {
        return Some(PAUSE);
    }
    let port = u64::from(port);
    let whole = port.is_multiple_of(u64::from(width)) && port < PORTS_BYTES;
    whole.then_some(PORTS + port)
}

/// Reads a port of 1, 2 or 4 bytes. One that is not aligned reads as one at which nothing is.
#[must_use]
pub(crate) fn port_in(port: u16, width: u8) -> u32 {
    // SAFETY: the ports of the bus are mapped here in every partition, and no Rust object lies
    // there. Which ports a program may use is decided by capability.
    let read = |address| unsafe { read_register(address, width) };
    port_address(port, width).map_or(u32::MAX >> (32 - 8 * u32::from(width)), |address| {
        read(address) as u32
    })
}

/// Writes a port of 1, 2 or 4 bytes; not one that is not aligned.
pub(crate) fn port_out(port: u16, width: u8, value: u32) {
    if port == PORT_OFF {
        permit_off(true);
        power_off();
    }
    if let Some(address) = port_address(port, width) {
        // SAFETY: as for reading. What a device does by itself that a driver configured is the
        // driver's to get right.
        unsafe { write_register(address, width, value.into()) };
    }
}

unsafe extern "C" {
    fn save_vectors(to: *mut u64);
    fn load_vectors(from: *const u64);
}

// The registers, then control and status, and whether the program steps, which it cannot change.
// The kernel's own code uses none of them, and does not step.
global_asm!(
    r#"
    .arch_extension fp
    .arch_extension simd
    .text
    .globl save_vectors, load_vectors
save_vectors:
    stp q0, q1, [x0], #32
    stp q2, q3, [x0], #32
    stp q4, q5, [x0], #32
    stp q6, q7, [x0], #32
    stp q8, q9, [x0], #32
    stp q10, q11, [x0], #32
    stp q12, q13, [x0], #32
    stp q14, q15, [x0], #32
    stp q16, q17, [x0], #32
    stp q18, q19, [x0], #32
    stp q20, q21, [x0], #32
    stp q22, q23, [x0], #32
    stp q24, q25, [x0], #32
    stp q26, q27, [x0], #32
    stp q28, q29, [x0], #32
    stp q30, q31, [x0], #32
    mrs x1, fpcr
    mrs x2, fpsr
    stp x1, x2, [x0]
    ret
load_vectors:
    ldp q0, q1, [x0], #32
    ldp q2, q3, [x0], #32
    ldp q4, q5, [x0], #32
    ldp q6, q7, [x0], #32
    ldp q8, q9, [x0], #32
    ldp q10, q11, [x0], #32
    ldp q12, q13, [x0], #32
    ldp q14, q15, [x0], #32
    ldp q16, q17, [x0], #32
    ldp q18, q19, [x0], #32
    ldp q20, q21, [x0], #32
    ldp q22, q23, [x0], #32
    ldp q24, q25, [x0], #32
    ldp q26, q27, [x0], #32
    ldp q28, q29, [x0], #32
    ldp q30, q31, [x0], #32
    ldp x1, x2, [x0]
    msr fpcr, x1
    msr fpsr, x2
    ldr x1, [x0, #16]
    msr mdscr_el1, x1
    ret
    "#
);

/// Exchanges the floating-point state, has the processor step or not, and exchanges what virtual
/// processors have beside that.
///
/// # Safety
/// Both have room for it, and `to` holds a state that was saved or made by this kernel.
pub(in crate::arch) unsafe fn exchange_fpu(from: Option<*mut u64>, to: *const u64) {
    // SAFETY: the caller's.
    unsafe {
        if let Some(from) = from {
            save_vectors(from);
            guest::save(from);
        }
        load_vectors(to);
        guest::load(to);
    }
}
