//! The configuration of PCI devices, in memory. A driver's device memory begins with that of its
//! device, so it reaches no other's.

use rcoe_abi::{Error, service};

use crate::object::{self, Outcome};

const DEVICE: u64 = service::SLOT_DEVICE;

/// Reads a register of the driver's device, whatever slot of the bus it is in.
///
/// # Errors
/// The kernel's.
pub fn read(_slot: u64, register: u64) -> Result<u64, Error> {
    object::device_status(DEVICE, register, 4)
}

/// Writes such a register.
///
/// # Errors
/// The kernel's.
pub fn write(_slot: u64, register: u64, value: u64) -> Outcome {
    object::device_set(DEVICE, register, 4, value)
}
