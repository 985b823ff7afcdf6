//! AArch64.

pub(crate) mod call;
pub mod counter;
pub mod fault;
pub mod foreign;
pub(crate) mod identity;
#[cfg(feature = "bare")]
mod mem_functions;
pub(crate) mod pci;
pub mod serial;
#[cfg(feature = "linux")]
pub(crate) mod stamp;
#[cfg(feature = "bare")]
mod start;
pub mod timer;
