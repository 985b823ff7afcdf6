//! The interval timer of a PC.

use rcoe_abi::{layout::PORT_TIMER, service};

use crate::object::{self, Outcome};

/// Of 1.193182 MHz: a hundredth of a second.
const COUNT: u64 = 11_932;

/// Counts down a hundredth of a second once (mode 0), then interrupts.
///
/// # Errors
/// The kernel's.
pub fn start() -> Outcome {
    for (port, value) in [(3, 0x30), (0, COUNT & 0xff), (0, COUNT >> 8)] {
        object::port_out(service::SLOT_PORTS, PORT_TIMER + port, 1, value)?;
    }
    Ok(())
}
