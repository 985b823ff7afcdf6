//! What the supervisor needs and only unsafe code can do.
//!
//! The supervisor forbids unsafe code; everything it does beyond `rustix` is here, behind safe
//! functions: the shared objects, the signals, the birth of the starter, and the probes of
//! `rcoe doctor`. This half runs in an ordinary process with std and libc; the rest of the crate
//! is for the agent, which has neither.

mod birth;
mod bootstrap;
mod branches;
mod deputy;
mod doorbell;
mod guardian;
mod held;
mod identity;
mod probe;
mod shared;
mod signals;
mod stand_in;
mod starter;
mod tracing;
mod usage;

pub use birth::Inherited;
pub use bootstrap::{Image, Paged, Part};
pub use branches::{Event, conditional_branches, exact_branches};
pub use deputy::{Deputy, terminal_device};
pub use doorbell::Bell;
pub use guardian::Guardian;
pub use held::{Held, can_signal_by_descriptor, signal_child};
pub use identity::{process_group, session};
pub use probe::{Answer, Probe, in_child, probe};
pub use shared::{Access, SharedLayout, SharedObject};
pub use signals::{
    SignalFd, SignalInfo, block_all_signals, default_child_signal, die_by_signal, stop_self,
};
pub use stand_in::StandIn;
pub use starter::Starter;
pub use tracing::listen_traced;
pub use usage::{children_cpu_time, limited_cpu_time, next_usage};
