//! The interval timer of the processor, which the kernel shows as device memory.

use rcoe_abi::{layout::TIMER_START, service};

use crate::object::{self, Outcome};

/// Microseconds: a hundredth of a second.
const COUNT: u64 = 10_000;

/// Counts down a hundredth of a second once, then interrupts.
///
/// # Errors
/// The kernel's.
pub fn start() -> Outcome {
    object::device_set(service::SLOT_DEVICE, TIMER_START, 4, COUNT)
}
