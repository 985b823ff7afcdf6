//! The agent: a little replicated kernel inside each replica of a Linux program.
//!
//! # Principles
//!
//! 1. *It owns every system call.* Syscall User Dispatch lets through only what the agent's own
//!    text issues; hot sites are rewritten to jump here directly.
//! 2. *It decides from one table* (`rcoe-linux-syscalls`), and what the table does not describe
//!    fails closed: ENOSYS and one warning, never an unchecked call.
//! 3. *All its state is deterministic*, except for the few words it takes from the outside on the
//!    primary, which reach the siblings as published records.
//! 4. *One kernel thread per replica.* Nothing here is shared except the outboxes of the protocol
//!    core, each with one writer. That is what makes the single global [`kernel`] state sound.
//! 5. *It leaves no trace in the program*: it runs on its own stacks, holds no file descriptor,
//!    and preserves every register a system call preserves.
//! 6. *A broken invariant is a fault.* A panic leaves an epitaph and ends this replica only; the
//!    siblings find it out.
//!
//! # What it is not
//!
//! No libc, no heap, no threads, no unwinding. It does not decide who is faulty: that is the
//! protocol core's vote, done by every replica for itself.
#![cfg_attr(not(test), no_std)]

mod arch;
mod aside;
mod boot;
mod calls;
mod convert;
mod coupling;
mod kernel;
mod lifetime;
mod memory;
mod one_thread;
mod protocol;
mod recover;
mod sched;
mod startup;
mod sys;
mod text;

pub use arch::entry::AGENT_STACK_BYTES;
pub use boot::boot;
pub use recover::epitaph::fail;
