//! The processor and the machine: a program's first instruction, system calls, faults on purpose,
//! copying, and the devices that every system has. Each folder has the same names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as own;
#[cfg(target_arch = "x86_64")]
use x86_64 as own;

pub(crate) use own::call::{Registers, enter};
pub use own::identity::identity;
pub(crate) use own::pci;
pub(crate) use own::stamp;
pub use own::{counter, fault, foreign, line, serial, timer};
