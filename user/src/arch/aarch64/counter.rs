//! A counter in memory: the wall clock of a sound controller, of 24 MHz.

use crate::object::{self, Outcome};

/// Registers: interrupts, of which there are to be none, and the counter.
const INTERRUPTS: u64 = 0x20;
/// See [`INTERRUPTS`].
pub const COUNTER: u64 = 0x30;

/// It counts by itself.
///
/// # Errors
/// The kernel's.
pub fn start(device: u64, page: u64) -> Outcome {
    object::device_set(device, page + INTERRUPTS, 4, 0)
}
