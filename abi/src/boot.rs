//! What the root task finds at boot: its capabilities by slot, and a page that tells the rest. The
//! lower slots are free for it to give itself what other programs find there ([`crate::service`]).

/// Slot of the root task's own capability table (of `1 << ROOT_CNODE_BITS` slots).
pub const SLOT_CNODE: u64 = 33;
/// Slot of its address space.
pub const SLOT_VSPACE: u64 = 34;
/// Slot of its thread.
pub const SLOT_TCB: u64 = 35;
/// Slot of the control over interrupts.
pub const SLOT_IRQ_CONTROL: u64 = 36;
/// Slot of the capability to all I/O ports.
pub const SLOT_PORTS: u64 = 37;
/// Slot of the capability to all device memory.
pub const SLOT_DEVICES: u64 = 38;
/// Slot of the right to add to the trace: where all programs find theirs.
pub const SLOT_TRACE: u64 = crate::service::SLOT_TRACE;
/// First slot of untyped memory; [`Word::UntypedCount`] says how many there are.
pub const SLOT_UNTYPED: u64 = 64;
/// First slot that is free for the root task.
pub const SLOT_FREE: u64 = 104;
/// Logarithm of the number of slots of the root task's table.
pub const ROOT_CNODE_BITS: u32 = 14;

/// Words of the boot page, which is mapped for reading at [`crate::layout::BOOT_INFO`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Word {
    /// [`MAGIC`].
    Magic = 0,
    /// Number of untyped memories.
    UntypedCount = 1,
    /// Bytes of the boot image, mapped for reading at [`crate::layout::IMAGE`].
    ImageBytes = 2,
    /// Bytes of the command line, which begins at word [`COMMAND_LINE`] of the page.
    CommandBytes = 3,
    /// The replica's number: the one thing that differs between replicas, for drivers only.
    ReplicaId = 4,
    /// First of the words that hold the logarithm of each untyped memory's bytes.
    UntypedBits = 8,
}

/// First word of a boot page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rcoeboot");

/// Word of the boot page at which the command line begins.
pub const COMMAND_LINE: usize = 64;
/// Longest command line, in bytes.
pub const COMMAND_MAX: usize = 2048;

const _: () = assert!(
    COMMAND_LINE * 8 + COMMAND_MAX <= 4096,
    "the boot page is a page"
);
const _: () = assert!(
    Word::UntypedBits as u64 + SLOT_FREE - SLOT_UNTYPED <= COMMAND_LINE as u64,
    "all untyped memories are listed"
);
