//! A counter in memory: the high precision event timer's.

use crate::object::{self, Outcome};

/// Registers: configuration, and the counter.
const CONFIGURATION: u64 = 0x10;
/// See [`CONFIGURATION`].
pub const COUNTER: u64 = 0xf0;

/// Has it count, given where its page is in device memory.
///
/// # Errors
/// The kernel's.
pub fn start(device: u64, page: u64) -> Outcome {
    object::device_set(device, page + CONFIGURATION, 4, 1)
}
