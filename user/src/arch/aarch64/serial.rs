//! A serial line in device memory (PL011).

use rcoe_abi::service;

use crate::object::{self, Outcome};

const DEVICE: u64 = service::SLOT_DEVICE;

/// Registers: data, flags, divisors, line control, control, interrupt mask.
const DATA: u64 = 0;
const FLAGS: u64 = 0x18;
const DIVISOR: u64 = 0x24;
const FRACTION: u64 = 0x28;
const LINE: u64 = 0x2c;
const CONTROL: u64 = 0x30;
const MASK: u64 = 0x38;

/// In the flags: the transmitter's queue is empty.
const EMPTY: u64 = 0x80;

/// Bytes that the queue holds.
pub const QUEUE: usize = 16;

/// Sets the line up: interrupts off, 115,200 baud from 24 MHz, eight bits, queues on, to send only.
///
/// # Errors
/// The kernel's.
pub fn prepare() -> Outcome {
    for (register, value) in [
        (CONTROL, 0),
        (MASK, 0),
        (DIVISOR, 13),
        (FRACTION, 1),
        (LINE, 0x70),
        (CONTROL, 0x101),
    ] {
        object::device_set(DEVICE, register, 4, value)?;
    }
    Ok(())
}

/// Is the transmitter's queue empty?
#[must_use]
pub fn is_empty() -> bool {
    let flags = object::device_status(DEVICE, FLAGS, 4);
    flags.is_ok_and(|flags| flags & EMPTY != 0)
}

/// Writes at most [`QUEUE`] bytes, each of which is voted.
///
/// # Errors
/// The kernel's.
pub fn write(bytes: &[u8]) -> Outcome {
    for &byte in bytes {
        object::device_write(DEVICE, DATA, 4, byte.into())?;
    }
    Ok(())
}
