//! x86-64.

pub(crate) mod call;
pub mod fault;
pub mod foreign;
#[cfg(feature = "bare")]
mod mem_functions;
pub mod serial;
#[cfg(feature = "bare")]
mod start;
pub mod timer;
