//! The serial line of a PC.

use rcoe_abi::{layout::PORT_CONSOLE, service};

use crate::object::{self, Outcome};

/// Ports of the line, from its first.
const LINE_STATUS: u16 = 5;
/// In the status: the transmitter's queue is empty.
const EMPTY: u64 = 0x20;

/// Bytes that the queue holds.
pub const QUEUE: usize = 16;

/// Sets the line up: interrupts off, 115,200 baud, eight bits, queues on.
///
/// # Errors
/// The kernel's.
pub fn prepare() -> Outcome {
    for (port, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        object::port_set(service::SLOT_PORTS, PORT_CONSOLE + port, 1, value)?;
    }
    Ok(())
}

/// Is the transmitter's queue empty?
#[must_use]
pub fn is_empty() -> bool {
    let status = object::port_status(service::SLOT_PORTS, PORT_CONSOLE + LINE_STATUS, 1);
    status.is_ok_and(|status| status & EMPTY != 0)
}

/// Writes at most [`QUEUE`] bytes.
///
/// # Errors
/// The kernel's.
pub fn write(bytes: &[u8]) -> Outcome {
    object::port_out_bytes(service::SLOT_PORTS, PORT_CONSOLE, bytes)
}
