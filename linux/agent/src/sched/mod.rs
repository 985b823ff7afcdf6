//! Who runs: threads, processes that share memory, and calls that wait.

pub(crate) mod blocking;
pub(crate) mod polled;
pub(crate) mod schedule;
pub(crate) mod threads;
pub(crate) mod timeouts;
pub(crate) mod turns;
