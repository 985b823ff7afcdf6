//! The interrupt line of a PCI device: its level triggers it.

use rcoe_abi::{Error, service};

use crate::object;

/// Asks the device what it wants and has it be quiet, by `quieten`, then lets the line through: it
/// would interrupt at once if it were let through before, and does if the device wants more.
///
/// # Errors
/// The kernel's, and those of `quieten`, after which the line stays shut.
pub fn attend<T>(quieten: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let wanted = quieten()?;
    object::irq_ack(service::SLOT_IRQ)?;
    Ok(wanted)
}
