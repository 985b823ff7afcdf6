//! The microkernel without its hardware: objects, capabilities, scheduling, IPC, system calls.
//!
//! 1. *All state in one slice of words.* Objects lie in the replica's own memory, which is handed
//!    in as `&mut [u64]`; a reference to an object is an offset into it. So there is no heap and no
//!    pointer, state is the same in all replicas word by word (but for page table entries), and the
//!    whole kernel runs in a test on the host.
//! 2. *Uniprocessor and event-based.* One call for each kernel entry, which runs to its end. No
//!    locks, nothing waits.
//! 3. *Decode, then invoke.* Decoding checks everything and changes nothing; invoking cannot fail.
//!    Both halves lie beside the object: `dispatch` says which those are.
//! 4. *The sphere is a trait.* Trace, vote and device access are [`Sphere`]'s, which the
//!    replication part of the kernel implements and a test records.
//! 5. *Broken invariants are assertions*, on in release builds: in a replica a fired one makes one
//!    detected faulty replica.
//!
//! What this crate is not: it knows no processor but the two tables in `arch`, and loads no program
//! but the root task.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

// What all is made of.
pub mod arch;
mod cap;
mod digest;
mod field;
mod kernel;
mod memory;
mod queue;
mod shares;
mod sphere;

// Capabilities, threads and messages.
mod derive;
mod fault;
mod grant;
mod ipc;
mod lookup;
mod manner;
mod message;
mod sched;
mod slot;
mod space;
mod tcb;

// Each kind of object: decoding what it is asked for, and doing it.
mod cnode;
mod device;
mod dispatch;
mod frame;
mod guest;
mod interrupt;
mod notification;
mod port;
mod request;
mod shared;
mod thread;

// What goes across objects: entries, beginnings, ends, copies.
mod alike;
mod boot;
mod delete;
mod long;
mod portions;
mod retype;
mod syscall;

#[cfg(test)]
mod tests;

pub use alike::{ALIKE_MAX, Marks};
pub use boot::BootInput;
pub use cap::{Cap, Mapping};
pub use digest::{Checksum, digest};
pub use fault::Fault;
pub use kernel::Kernel;
pub use memory::{Memory, Ref};
pub use portions::KEPT_WORDS;
pub use sphere::{IRQ_LINES, Sphere, kind};
pub use tcb::{Space, fpu_words};
