//! The configuration of PCI devices: registers that all of them have.

pub use crate::arch::pci::{read, write};

/// Register of the identification: vendor in the low half, device in the high one.
pub const IDENTITY: u64 = 0;
/// Register of the command, in the low half.
pub const COMMAND: u64 = 4;
/// Register of the first base address.
pub const BASE: u64 = 0x10;
/// In the command: memory accesses reach the device, and it may make some of its own.
pub const MEMORY: u64 = 2;
/// See [`MEMORY`].
pub const MASTER: u64 = 4;
