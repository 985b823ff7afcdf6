//! x86-64.

pub(crate) mod call;
pub mod counter;
pub mod fault;
pub mod foreign;
pub(crate) mod identity;
pub mod line;
#[cfg(feature = "bare")]
mod mem_functions;
pub(crate) mod pci;
pub mod serial;
pub(crate) mod stamp;
#[cfg(feature = "bare")]
mod start;
pub mod timer;
