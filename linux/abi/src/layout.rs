//! Addresses, sizes and signal numbers.
//!
//! All agent memory lies in one window that no ordinary program asks for by address: above the
//! heaps of Go (0xc0_0000_0000) and far below where Linux places mappings top-down
//! (0x7fff_f7ff_f000 without address-space randomisation).

use rcoe_core::coupling::{self, Shape};

/// Bumped whenever [`crate::Control`], [`crate::Report`] or an offset changes.
pub const LAYOUT_VERSION: u32 = 24;

/// Bytes of a page, as addresses count.
pub const PAGE: u64 = 4096;
/// The same, as buffers count.
pub const PAGE_BYTES: usize = 4096;

/// What the kernel must find before the address at which an interrupted restartable sequence goes
/// on.
pub const RSEQ_SIGNATURE: u32 = 0x7263_6f65;

/// Largest number of replicas (`-n`).
pub const MAX_REPLICAS: usize = 8;

/// First address of the window that belongs to the agent. The host's vDSO is moved there.
pub const AGENT_BASE: usize = 0x6f00_0000_0000;
/// Where the page is executed that maps the agent; gone when the agent runs.
pub const AGENT_BOOTSTRAP: usize = AGENT_BASE;
/// Where the agent image is linked.
pub const AGENT_TEXT: usize = AGENT_BASE + 0x2_0000;
/// First address past the agent's window.
pub const AGENT_END: usize = 0x6f40_0000_0000;

/// Processes of the program that can exist at once, zombies included. Each is a group of replicas.
pub const GROUPS: usize = 128;

/// Where every replica sees the supervisor's [`crate::Control`] of group 0 (read-only); those of
/// the other groups follow at [`CONTROL_BYTES`].
pub const CONTROL_ADDR: usize = 0x6f20_0000_0000;
/// Size of one group's part of the control object in bytes.
pub const CONTROL_BYTES: usize = 64 * 1024;

/// Where every replica sees the object of replica 0; the others follow at [`OBJECT_BYTES`].
const REGION_ADDR: usize = 0x6f10_0000_0000;
/// Distance of the regions of two groups within a replica's object, in bytes.
pub const REGION_STRIDE: usize = 2 << 20;
/// Size of a replica's object: one region for every group. Untouched pages take no memory.
pub const OBJECT_BYTES: usize = GROUPS * REGION_STRIDE;
/// Offset of the protocol core's outbox within a replica region; the [`crate::Report`] is at 0.
pub const OUTBOX_OFFSET: usize = 32 * 1024;
/// Offset of the results ring within a replica region.
pub const RING_OFFSET: usize = 64 * 1024;
/// Length of the results ring in 64-bit words (a power of two).
pub const RING_WORDS: usize = 1 << 17;
/// Offset of the queues of an io_uring within a replica region: the kernel notes the results of a
/// primary's effects there.
pub const QUEUES_OFFSET: usize = RING_OFFSET + RING_WORDS * 8;
/// Size of the queues, and of the entries submitted that follow them: a page each, as the kernel
/// wants it.
pub const QUEUES_BYTES: usize = PAGE_BYTES;
/// Places for queues, used in turn: the kernel may still write to those of a ring whose process has
/// been gone for a while.
pub const QUEUES_SLOTS: usize = 16;
/// Offset of the intake within a replica region: where the host puts what a primary receives from
/// a stream, so that its successor finds it.
pub const INTAKE_OFFSET: usize = QUEUES_OFFSET + QUEUES_SLOTS * 2 * QUEUES_BYTES;
/// Size of the intake in bytes.
pub const INTAKE_BYTES: usize = 528 * 1024;
/// How large the boards are on which replicas agree on a point between calls.
pub const BOARD_SHAPE: Shape = Shape {
    replicas: MAX_REPLICAS,
    registers: coupling::REGISTERS,
    pages: coupling::PAGES,
    sheet: coupling::SHEET,
};
/// Offset of such a board within a replica region.
pub const BOARD_OFFSET: usize = INTAKE_OFFSET + INTAKE_BYTES;
/// Size of it in bytes, in whole pages.
const BOARD_BYTES: usize = (BOARD_SHAPE.words() * 8).next_multiple_of(4096);
/// Size of a replica region in bytes.
pub const REGION_BYTES: usize = BOARD_OFFSET + BOARD_BYTES;
/// Offset of a replica's [`crate::Notebook`] in its object: behind the region of group 0, and for
/// the replicas of this number of all groups.
pub const NOTEBOOK_OFFSET: usize = REGION_BYTES;
/// Size of that in bytes, in whole pages.
pub const NOTEBOOK_BYTES: usize = size_of::<crate::Notebook>().next_multiple_of(4096);

const _: () = assert!(NOTEBOOK_OFFSET.is_multiple_of(4096));
const _: () = assert!(NOTEBOOK_OFFSET + NOTEBOOK_BYTES <= REGION_STRIDE);
const _: () = assert!(RING_WORDS.is_power_of_two());
const _: () = assert!(QUEUES_OFFSET.is_multiple_of(QUEUES_BYTES));
const _: () = assert!(size_of::<crate::Report>() <= OUTBOX_OFFSET);
const _: () = assert!(size_of::<crate::Control>() <= CONTROL_BYTES);
const _: () = assert!(REGION_ADDR + MAX_REPLICAS * OBJECT_BYTES <= CONTROL_ADDR);
const _: () = assert!(CONTROL_ADDR + GROUPS * CONTROL_BYTES <= crate::arena::CLAIMS_ADDR);

/// Sent by the supervisor to a replica: leave a blocking system call, something is to be looked at.
/// Nothing else in Linux sends this one (`SIGSTKFLT`), and it is no real-time signal, so that one
/// more is never refused for the limit on pending ones.
pub const SIG_KICK: u32 = 16;

/// Address of a group's region of replica `index` in every replica.
#[must_use]
pub const fn region_addr(group: usize, index: usize) -> usize {
    assert!(group < GROUPS);
    object_addr(index) + group * REGION_STRIDE
}

/// Address of the object of replica `index` in every replica.
#[must_use]
pub const fn object_addr(index: usize) -> usize {
    assert!(index < MAX_REPLICAS);
    REGION_ADDR + index * OBJECT_BYTES
}

/// Address of a group's control in every replica.
#[must_use]
pub const fn control_addr(group: usize) -> usize {
    assert!(group < GROUPS);
    CONTROL_ADDR + group * CONTROL_BYTES
}
