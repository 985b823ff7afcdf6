//! AArch64.

pub(super) mod calls;
pub(super) mod cpu;
mod emulate;
pub(super) mod fault;
pub(super) mod frame;
pub(super) mod layout;
mod names;
pub(super) mod registers;
