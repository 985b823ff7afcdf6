//! The atomics of the protocol, exchangeable so that one source runs on the machine and under
//! shuttle.
//!
//! With feature `shuttle` every access becomes a scheduling point of shuttle's explorer. Normal
//! builds see `core::sync::atomic` and nothing else.

pub use core::sync::atomic::compiler_fence;

#[cfg(not(feature = "shuttle"))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
