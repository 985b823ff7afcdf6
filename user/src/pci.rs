//! The configuration of PCI devices, by the ports of old. Only drivers that have these ports get
//! on.

use rcoe_abi::layout::{PORT_PCI, PORT_PCI as ADDRESS};
use rcoe_abi::{Error, service};

use crate::object::{self, Outcome};

/// Register of the identification: vendor in the low half, device in the high one.
pub const IDENTITY: u64 = 0;
/// Register of the command, in the low half.
pub const COMMAND: u64 = 4;
/// Register of the first base address.
pub const BASE: u64 = 0x10;
/// In the command: memory accesses reach the device, and it may make some of its own.
pub const MEMORY: u64 = 2;
/// See [`MEMORY`].
pub const MASTER: u64 = 4;

const DATA: u16 = PORT_PCI + 4;

fn choose(slot: u64, register: u64) -> Outcome {
    let address = 1 << 31 | slot << 11 | register;
    object::port_out(service::SLOT_PORTS, ADDRESS, 4, address)
}

/// Reads a register of the device in this slot of the first bus.
///
/// # Errors
/// The kernel's.
pub fn read(slot: u64, register: u64) -> Result<u64, Error> {
    choose(slot, register)?;
    object::port_status(service::SLOT_PORTS, DATA, 4)
}

/// Writes such a register.
///
/// # Errors
/// The kernel's.
pub fn write(slot: u64, register: u64, value: u64) -> Outcome {
    choose(slot, register)?;
    object::port_out(service::SLOT_PORTS, DATA, 4, value)
}
