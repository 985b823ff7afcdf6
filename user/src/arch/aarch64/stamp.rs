//! A clock that goes on: the processor's own, which the kernel shows as device memory.

use rcoe_abi::Error;
use rcoe_abi::layout::{STAMP_COUNT, STAMP_FREQUENCY};

use crate::object;

/// Femtoseconds of a second.
const SECOND: u64 = 1_000_000_000_000_000;

/// It counts by itself; the femtoseconds of a tick.
///
/// # Errors
/// The kernel's.
pub(crate) fn start(device: u64) -> Result<u64, Error> {
    let frequency = object::device_status(device, STAMP_FREQUENCY, 8)?;
    Ok(SECOND / frequency.max(1))
}

/// What it has counted.
///
/// # Errors
/// The kernel's.
pub(crate) fn read(device: u64) -> Result<u64, Error> {
    object::device_status(device, STAMP_COUNT, 8)
}
