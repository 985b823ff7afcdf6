//! The configuration of PCI devices, by the ports of old. Only drivers that have these ports get
//! on.

use rcoe_abi::layout::{PORT_PCI, PORT_PCI as ADDRESS};
use rcoe_abi::{Error, service};

use crate::object::{self, Outcome};

const DATA: u16 = PORT_PCI + 4;

fn choose(slot: u64, register: u64) -> Outcome {
    let address = 1 << 31 | slot << 11 | register;
    object::port_set(service::SLOT_PORTS, ADDRESS, 4, address)
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
    object::port_set(service::SLOT_PORTS, DATA, 4, value)
}
