//! Registers of a driver's device ([`service::SLOT_DEVICE`]), all of which can be read and written
//! twice: as DSN'19, III-E, has the primary do it for all.

use rcoe_abi::{Error, service};

use crate::object::{self, Outcome};

/// Looks at a register before the device counts as broken.
const PATIENCE: u32 = 1000;

/// Reads a register of `width` bytes.
///
/// # Errors
/// The kernel's.
pub fn status(register: u64, width: u64) -> Result<u64, Error> {
    object::device_status(service::SLOT_DEVICE, register, width)
}

/// Writes a register of `width` bytes, after a vote.
///
/// # Errors
/// The kernel's.
pub fn set(register: u64, width: u64, value: u64) -> Outcome {
    object::device_set(service::SLOT_DEVICE, register, width, value)
}

/// Looks at a register until all of these bits are as wanted.
///
/// # Errors
/// The kernel's; `IllegalOperation` if they never are.
pub fn wait_for(register: u64, width: u64, bits: u64, wanted: u64) -> Outcome {
    for _ in 0..PATIENCE {
        if status(register, width)? & bits == wanted {
            return Ok(());
        }
    }
    Err(Error::IllegalOperation)
}
