//! x86-64: boot, page table entries, kernel entries, interrupt controllers, and single
//! instructions.

pub(super) mod boot;
pub(crate) mod breakpoint;
pub(crate) mod counter;
pub(super) mod cpu;
pub(super) mod device;
pub(crate) mod guest;
pub(super) mod install;
pub(crate) mod interrupts;
pub(super) mod layout;
mod shutdown;
pub(super) mod start;
pub(super) mod tables;
pub(super) mod trap;
