//! The interrupt line of a PCI device, as this kernel programs the I/O APIC: its edge triggers it,
//! and an edge that comes while the line is shut is lost.

use rcoe_abi::{Error, service};

use crate::object;

/// Lets the line through, then asks the device what it wants and has it be quiet, by `quieten`:
/// what it wants afterwards is another edge.
///
/// # Errors
/// The kernel's, and those of `quieten`.
pub fn attend<T>(quieten: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    object::irq_ack(service::SLOT_IRQ)?;
    quieten()
}
