//! Addresses that kernel, root task and host agree on, with those of the processor that this is
//! built for ([`crate::arch`]).

pub use crate::arch::own::*;

use crate::object::LARGE;

/// Where programs are linked.
pub const PROGRAM_BASE: u64 = 0x40_0000;
/// Where the personality of Linux finds the bundle of its program ([`crate::bundle`]).
pub const BUNDLE: u64 = 0x1000_0000;
/// End of the memory that programs may be linked to.
pub const PROGRAM_END: u64 = 0x4000_0000;
/// Top of the first thread's stack.
pub const STACK_TOP: u64 = 0x7fff_f000;
/// Pages of the first thread's stack.
pub const STACK_PAGES: u64 = 16;
/// The first thread's IPC buffer.
pub const IPC_BUFFER: u64 = 0x8000_0000;
/// The root task's boot page.
pub const BOOT_INFO: u64 = 0x8000_1000;
/// The boot image, in the root task.
pub const IMAGE: u64 = 0x1_0000_0000;
/// A page at which the root task maps what it fills.
pub const SCRATCH: u64 = 0x2_0000_0000;
/// Where memory that programs ask for is mapped.
pub const HEAP: u64 = 0x10_0000_0000;
/// Where programs map frames that they share with others, [`WINDOW_PAGES`] of them.
pub const WINDOW: u64 = 0x20_0000_0000;
/// Pages of that window: as many as one page table maps.
pub const WINDOW_PAGES: u64 = 512;
/// Where they map large frames: what the table above that one maps besides.
pub const LARGE_WINDOW: u64 = WINDOW + LARGE;
/// Large frames of that window.
pub const LARGE_WINDOW_FRAMES: u64 = 511;
/// Where the personality of Linux maps the memory of its program, a page for each frame.
pub const SHADOW: u64 = 0x30_0000_0000;
/// Pages of that: more than a machine has.
pub const SHADOW_PAGES: u64 = 1 << 20;
/// End of what user programs may map.
pub const USER_END: u64 = 0x7fff_0000_0000;

/// Most replicas of one machine.
pub const MAX_CORES: usize = 4;
