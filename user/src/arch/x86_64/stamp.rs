//! A clock that goes on: the high precision event timer's counter.

use rcoe_abi::Error;

use super::counter;
use crate::object;

/// Where its page says how long it takes to count, in femtoseconds.
const CAPABILITIES: u64 = 0;

/// Has it count; the femtoseconds of a tick.
///
/// # Errors
/// The kernel's.
pub(crate) fn start(device: u64) -> Result<u64, Error> {
    let period = object::device_status(device, CAPABILITIES, 8)? >> 32;
    counter::start(device, 0)?;
    Ok(period)
}

/// What it has counted; its upper half may be read later than the lower one.
///
/// # Errors
/// The kernel's.
pub(crate) fn read(device: u64) -> Result<u64, Error> {
    object::device_status(device, counter::COUNTER, 8)
}
