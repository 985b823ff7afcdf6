//! Guests: what a virtual processor's levels 1 and 0 need of level 2.
//!
//! A guest runs where programs do, below the kernel; what it may not do for itself comes to level
//! 2 as what a program does. Its own registers of level 1 are other ones than those that the kernel
//! names so, which stand for level 2's.
//!
//! *Contract*: only between [`enter`] and [`leave`] is the processor anything but a host, and
//! nothing in between depends on it.
//!
//! *Not covered*: the guest's virtual timer and counter (`CNTV`), which this architecture cannot
//! keep from it: the timer's interrupt never comes, and the counter is the machine's. What depends
//! on that differs between replicas and is found as a divergence.

use core::arch::{asm, global_asm};

use rcoe_kernel_objects::arch::{GUEST_FIRST, GUEST_WORDS};

use super::level::{self, HOST, TO_GUESTS};
use super::{install, tables};

/// `HCR_EL2` while a guest runs: no host, and level 2 is told of waits (`TWI`), calls of the
/// firmware (`TSC`), what the processor's maker has added (`TIDCP`, `TACR`), and caches by set and
/// way (`TSW`).
const GUEST: u64 = HOST & !TO_GUESTS | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 21 | 1 << 22;
/// In it: an interrupt is pending (`VI`).
const PENDING: u32 = 7;

/// `VTCR_EL2`: 39 bits in pages of 4 KiB, from a table of level 1 on, which the second level of
/// this kernel's tables is; cached and shared; 40 bits of physical address.
const SPACE: u64 = 25 | 1 << 6 | 1 << 8 | 1 << 10 | 3 << 12 | 2 << 16 | 1 << 31;
const _: () = assert!(rcoe_abi::guest::SPACE_BITS == 64 - 25);

/// `MDCR_EL2`: the guest has neither counters (`TPMCR`, `TPM`) nor what debuggers use (`TDRA`,
/// `TDOSA`, `TDA`), and breakpoints are level 2's (`TDE`); level 2 is not counted (`HPMD`).
const DEBUG: u64 = 0x3f << 5 & !(1 << 7) | 1 << 8 | 1 << 11 | 1 << 17;
/// `ICH_HCR_EL2`: nor the interrupt controller's registers (`TC`, `TALL0`, `TALL1`).
const CONTROLLER: u64 = 7 << 10;
/// `VMPIDR_EL2`: its processor is the first one, whatever core this is.
const FIRST: u64 = 1 << 31;

unsafe extern "C" {
    fn save_guest(to: *mut u64);
    fn load_guest(from: *const u64);
}

// One list of the registers of level 1, two at a time, in the order of `rcoe_abi::guest`: VBAR ELR,
// SPSR ESR, FAR SCTLR, TCR TTBR0, TTBR1 MAIR, AMAIR CONTEXTIDR, CPACR CNTKCTL, AFSR0 AFSR1.
// Programs find TPIDRRO as the kernel left it.
global_asm!(
    r#"
    .text
    .macro save first second
    mrs x1, \first
    mrs x2, \second
    stp x1, x2, [x0], #16
    .endm
    .macro load first second
    ldp x1, x2, [x0], #16
    msr \first, x1
    msr \second, x2
    .endm
    .macro of_level_1 do
    \do s3_5_c12_c0_0, s3_5_c4_c0_1
    \do s3_5_c4_c0_0, s3_5_c5_c2_0
    \do s3_5_c6_c0_0, s3_5_c1_c0_0
    \do s3_5_c2_c0_2, s3_5_c2_c0_0
    \do s3_5_c2_c0_1, s3_5_c10_c2_0
    \do s3_5_c10_c3_0, s3_5_c13_c0_1
    \do s3_5_c1_c0_2, s3_5_c14_c1_0
    \do s3_5_c5_c1_0, s3_5_c5_c1_1
    \do sp_el1, tpidr_el1
    \do tpidrro_el0, par_el1
    .endm

    .globl save_guest, load_guest
save_guest:
    of_level_1 save
    mrs x1, csselr_el1
    str x1, [x0]
    msr tpidrro_el0, xzr
    ret
load_guest:
    of_level_1 load
    ldr x1, [x0]
    msr csselr_el1, x1
    ret
    "#
);

const _: () = assert!(GUEST_WORDS == 22, "registers, and the line of interrupts");

/// Is this the state of a virtual processor?
///
/// # Safety
/// It is a state that stays in the processor.
unsafe fn is_guest(words: *const u64) -> bool {
    // SAFETY: the caller's; the word before those of a guest is the mark.
    unsafe { *words.add(GUEST_FIRST - 1) != 0 }
}

/// Saves what a virtual processor has of its own, if it is one.
///
/// # Safety
/// There is room for a state that stays in the processor, of the thread that it holds it for.
pub(super) unsafe fn save(to: *mut u64) {
    // SAFETY: the caller's. Virtual processors are made on level 2 only.
    unsafe {
        if is_guest(to) {
            save_guest(to.add(GUEST_FIRST));
        }
    }
}

/// Loads it.
///
/// # Safety
/// It was saved there, or made by this kernel.
pub(super) unsafe fn load(from: *const u64) {
    // SAFETY: the caller's. None of these registers concerns a host.
    unsafe {
        if is_guest(from) {
            load_guest(from.add(GUEST_FIRST));
        }
    }
}

/// Sets level 2 up for guests, if the kernel runs there.
pub(super) fn prepare() {
    if !level::is_host() {
        return;
    }
    // SAFETY: nothing of this concerns a host.
    unsafe {
        asm!(
            "msr vtcr_el2, {space}",
            "mrs {scratch}, mdcr_el2",
            "orr {scratch}, {scratch}, {debug}",
            "msr mdcr_el2, {scratch}",
            "msr s3_4_c12_c11_0, {controller}",
            "msr vmpidr_el2, {first}",
            "mrs {scratch}, midr_el1",
            "msr vpidr_el2, {scratch}",
            "msr cntvoff_el2, xzr",
            "msr hstr_el2, xzr",
            "isb",
            space = in(reg) SPACE,
            debug = in(reg) DEBUG,
            controller = in(reg) CONTROLLER,
            first = in(reg) FIRST,
            scratch = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// What is entered next is a guest, to whose first table this entry leads, if it leads anywhere.
/// `own` is the root of the kernel's tables.
///
/// # Safety
/// It must be such an entry of a table in object memory, and that root.
pub(in crate::arch) unsafe fn enter(first: u64, own: u64, lines: u64) {
    let table = if tables::is_present(first) {
        tables::address_of(first)
    } else {
        tables::nothing(own)
    };
    let present: u64;
    // SAFETY: the caller's; the guest's translations concern nobody but the guest.
    unsafe {
        asm!("mrs {}, vttbr_el2", out(reg) present, options(nomem, nostack, preserves_flags));
        if present != table {
            asm!("dsb ish", "msr vttbr_el2, {}", "isb", in(reg) table,
                options(nostack, preserves_flags));
            level::forget_guests();
        }
        asm!("msr hcr_el2, {}", "isb", in(reg) GUEST | lines << PENDING,
            options(nostack, preserves_flags));
    }
}

/// The kernel was entered from a guest: the processor is a host again.
pub(crate) fn leave() {
    level::become_host();
    install::keep_from_programs();
}

/// Where in physical memory the running guest, with this state, has the instruction at an address,
/// if it has one that it has come to.
///
/// The guest does not see that it was asked. Its tables note what was accessed if it has told the
/// processor to do so, by which it goes at the end of a process: so meanwhile it has not, and who
/// was not there is not found.
pub(crate) fn place_of(ip: u64, status: u64) -> Option<u64> {
    /// In `TCR_EL1`: the processor notes what is accessed (`HA`) and what is written (`HD`).
    const NOTES: u64 = 3 << 39;
    const LEVEL_1: u64 = 1 << 2;
    const FAILED: u64 = 1;
    const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
    let found: u64;
    // SAFETY: the guest's own two registers are as they were afterwards, and its tables are asked
    // while they are the processor's, which is a host again behind that.
    unsafe {
        asm!(
            "msr hcr_el2, {guest}",
            "isb",
            "mrs {kept}, par_el1",
            "mrs {control}, s3_5_c2_c0_2",
            "bic {found}, {control}, {notes}",
            "msr s3_5_c2_c0_2, {found}",
            "isb",
            "cbz {level_1}, 2f",
            "at s12e1r, {ip}",
            "b 3f",
            "2: at s12e0r, {ip}",
            "3: isb",
            "mrs {found}, par_el1",
            "msr par_el1, {kept}",
            "msr s3_5_c2_c0_2, {control}",
            "msr hcr_el2, {host}",
            "isb",
            guest = in(reg) GUEST,
            host = in(reg) HOST,
            ip = in(reg) ip,
            level_1 = in(reg) status & LEVEL_1,
            notes = in(reg) NOTES,
            control = out(reg) _,
            kept = out(reg) _,
            found = out(reg) found,
            options(nostack, preserves_flags),
        );
    }
    (found & FAILED == 0).then_some(found & ADDRESS | ip & 0xfff)
}

/// The address that a guest took for a physical one when its access faulted: the page by a register
/// of its own, the place in it as in the address that was used.
pub(in crate::arch) fn fault_address(used: u64) -> u64 {
    let page: u64;
    // SAFETY: reading the register changes nothing, and there is one where there are guests.
    unsafe { asm!("mrs {}, hpfar_el2", out(reg) page, options(nomem, nostack, preserves_flags)) };
    page >> 4 << 12 | used & 0xfff
}
