//! x86-64.

pub(super) mod calls;
pub(super) mod cpu;
pub(super) mod fault;
pub(super) mod frame;
mod identity;
pub(super) mod layout;
pub(super) mod registers;
