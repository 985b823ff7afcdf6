//! The address space of the program and of this replica: what is mapped, how it is touched.

pub(crate) mod deferred;
pub(crate) mod guest;
pub(crate) mod loader;
pub(crate) mod nearby;
pub(crate) mod own;
pub(crate) mod regions;
pub(crate) mod space;
pub(crate) mod withheld;
