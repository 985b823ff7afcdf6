//! The personality of Linux: what serves the calls of an unmodified program.
//!
//! A program's threads are such whose every call and exception is a message to the personality,
//! which has an address space of its own for them, reads and writes that memory, and answers. One
//! of them runs at a time. What it does not have it refuses as a kernel without that call would,
//! and tells the user once.
//!
//! Everything here follows from the program, its bundle, and what the [machine](Machine) says,
//! which is the same in all replicas: so replicas need not agree on anything.
//!
//! Not covered: what the notes tell of.

mod aliases;
mod arch;
mod calls;
mod code;
mod errno;
mod facts;
mod files;
mod given;
mod journal;
#[cfg(feature = "linux")]
mod kernel;
mod load;
mod locks;
mod machine;
mod process;
mod random;
mod rights;
mod senders;
mod signals;
mod sockets;
mod space;
mod sparse;
mod stat;
mod streams;
#[cfg(any(test, feature = "linux"))]
mod tables;
mod tasks;
#[cfg(test)]
mod tests;
mod threads;
mod udp;

pub use arch::{CALL_WORDS, FLOAT_WORDS};
pub use calls::Next;
pub use errno::word as answer_word;
pub use errno::{Answer, Errno};
#[cfg(feature = "linux")]
pub use kernel::{Devices, ENDPOINT, Kernel, thread_of};
pub use machine::{Disk, Machine, Network};
pub use process::{Begin, Nodes, Process};
pub use signals::Trap;
pub use sparse::Sparse;
pub use threads::{THREADS, Turn};
