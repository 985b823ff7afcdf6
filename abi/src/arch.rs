//! Machines: what is where in each. The host knows all of them, everything else its own.

pub mod aarch64;
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64 as own;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64 as own;
