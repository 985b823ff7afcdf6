//! What becomes of a core that shuts down: it stops, and the machine goes on.
//!
//! *Idea: a processor that can deliver no exception, nor the double fault that stands for it, shuts
//! down, and a board answers by a reset of the whole machine: one replica's damaged tables would
//! end all of them.* So where the processor has secure virtual machines (AMD64 Architecture
//! Programmer's Manual, volume 2, chapter 15), each replica's kernel runs as a guest for whom
//! nothing is intercepted but the shutdown and the instructions that make guests. Memory is
//! translated by the kernel's own tables, interrupts and devices are its own, and no instruction
//! costs more than a check.
//!
//! What a core goes back to is the trampoline below 1 MiB, by the boot core's page tables and on a
//! stack of its own: no partition maps any of them, so that nothing a replica does can reach it.
//! There it says for its replica that it is broken, and halts; a reset by the others starts it
//! anew. If all replicas are broken then, it shuts down in earnest, since nobody would ever find
//! out.
//!
//! Not covered: a replica that runs alone, for whom a reset says at once what happened; processors
//! without these instructions, or whose firmware refuses them; other ways to reset a board.

use core::arch::global_asm;
use core::arch::x86_64::__cpuid;

use rcoe_abi::arch::x86_64::FIRST_CORE;
use rcoe_abi::layout::MAX_CORES;
use rcoe_core::Outbox;

use super::super::memory::{read_physical, write_physical};
use super::cpu::{self, read_msr};
use super::layout::{SHARED_PHYSICAL, SLICE};
use super::start::{TRAMPOLINE, TRAMPOLINE_BLOCKS, TRAMPOLINE_CORES};
use crate::diary::Diary;

/// Words of a control block: what ends the guest's run.
const INTERCEPTS: u64 = 0x008;
const MORE_INTERCEPTS: u64 = 0x010;
/// Which guest it is to the processor's translations.
const SPACE: u64 = 0x058;
/// The guest's registers.
const CODE_SEGMENT: u64 = 0x410;
const GDT_LIMIT: u64 = 0x460;
const GDT_BASE: u64 = 0x468;
const DR7: u64 = 0x560;
const DR6: u64 = 0x568;
const FLAGS: u64 = 0x570;
const IP: u64 = 0x578;
const FAULT_ADDRESS: u64 = 0x640;
/// Those that each core writes as it has them itself.
pub(super) const EFER: u64 = 0x4d0;
pub(super) const CR0: u64 = 0x558;
pub(super) const CR3: u64 = 0x550;
pub(super) const CR4: u64 = 0x548;

/// The register that tells where a core keeps what it goes back to.
pub(super) const HOST_STATE: u32 = 0xc001_0117;
/// The register by which firmware refuses guests, and its bit.
const REFUSALS: u32 = 0xc001_0114;
const REFUSED: u64 = 1 << 4;

/// The shutdown, among those of the upper half.
const SHUTDOWN: u64 = 1 << 63;
/// `vmrun`, `vmmcall`, `vmload`, `vmsave`, `stgi`, `clgi`, `skinit`: none is the kernel's.
const INSTRUCTIONS: u64 = 0x7f;

/// A control block for a core, what the processor keeps of it meanwhile, and its stack.
pub(super) const ROOM: u64 = 4 * 4096;
/// Cores that there may be, by their local APIC's id. The room of the first one, which starts the
/// others, has the block that theirs are copies of.
pub(super) const CORES: u64 = FIRST_CORE as u64 + MAX_CORES as u64;

global_asm!(
    r#"
    .section .boot.bss, "aw", @nobits
    .align 4096
    .globl control_blocks
control_blocks:
    .skip {room} * {cores}
    "#,
    room = const ROOM,
    cores = const CORES,
);

unsafe extern "C" {
    static control_blocks: u8;
    static trampoline_start: u8;
    static trampoline_gdt: u8;
    static trampoline_enter: u8;
}

/// Has the cores of these replicas enter as guests, if they can: before any is started, with the
/// trampoline in place.
pub(super) fn prepare(replicas: u64) {
    if replicas < 2 || !has_guests() {
        return;
    }
    let block = &raw const control_blocks as u64;
    let start = &raw const trampoline_start as u64;
    let copied = |symbol: *const u8| TRAMPOLINE + (symbol as u64 - start);
    let registers = [
        (INTERCEPTS, SHUTDOWN),
        (MORE_INTERCEPTS, INSTRUCTIONS),
        (SPACE, 1),
        // Selector 8 of the trampoline's table: code of 64 bits, all of memory.
        (CODE_SEGMENT, 0xffff_ffff_0a9b_0008),
        (GDT_LIMIT, 31 << 32),
        (GDT_BASE, copied(&raw const trampoline_gdt)),
        (DR7, 0x400),
        (DR6, 0xffff_0ff0),
        (FLAGS, 2),
        (IP, copied(&raw const trampoline_enter)),
    ];
    for (at, value) in registers {
        write_physical(block + at, value);
    }
    write_physical(TRAMPOLINE + TRAMPOLINE_BLOCKS, block);
}

/// A replica's core has shut down, whose control block is `block`. This is the boot core's world.
///
/// # Panics
/// Never: there is nobody who would hear of it.
#[unsafe(no_mangle)]
extern "C" fn on_shutdown(block: u64) -> ! {
    let replica = (block - &raw const control_blocks as u64) / ROOM - u64::from(FIRST_CORE);
    let (ip, address) = (
        read_physical(block + IP),
        read_physical(block + FAULT_ADDRESS),
    );
    Diary::of(replica as u16).line(format_args!("shutdown ip={ip:#x} address={address:#x}"));
    outbox(replica).declare_broken();
    let replicas = (0..MAX_CORES as u64).filter(|&replica| is_used(replica));
    if replicas.map(outbox).all(Outbox::is_broken) {
        cpu::shut_down();
    }
    cpu::park()
}

/// What a replica publishes.
fn outbox(replica: u64) -> &'static Outbox {
    let slice = SHARED_PHYSICAL + replica * SLICE;
    // SAFETY: the boot tables map the slices, and an outbox is made of atomics.
    unsafe { &*(slice as *const Outbox) }
}

/// Is there such a replica?
fn is_used(replica: u64) -> bool {
    read_physical(TRAMPOLINE + TRAMPOLINE_CORES + 8 * (u64::from(FIRST_CORE) + replica)) != 0
}

/// Does the processor have guests, and its firmware let it?
fn has_guests() -> bool {
    let most = __cpuid(0x8000_0000).eax;
    most >= 0x8000_0001
        && __cpuid(0x8000_0001).ecx & 1 << 2 != 0
        && read_msr(REFUSALS) & REFUSED == 0
}
