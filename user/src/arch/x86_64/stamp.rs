//! A clock that goes on: the high precision event timer's counter.

use rcoe_abi::Error;

use super::counter;
use crate::object;

/// Where its page says how long it takes to count, in femtoseconds.
const CAPABILITIES: u64 = 0;

/// What of a reading is of one moment: the lower half, as the other one may be read later.
pub const AT_ONCE: u64 = 0xffff_ffff;

/// Has it count; the femtoseconds of a tick.
///
/// # Errors
/// The kernel's.
pub fn start(device: u64) -> Result<u64, Error> {
    let period = object::device_status(device, CAPABILITIES, 8)? >> 32;
    counter::start(device, 0)?;
    Ok(period)
}

/// What it has counted.
///
/// # Errors
/// The kernel's.
pub fn read(device: u64) -> Result<u64, Error> {
    object::device_status(device, counter::COUNTER, 8)
}
