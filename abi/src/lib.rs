//! What the microkernel of the system sphere and the programs on it agree on.
//!
//! Numbers and layouts only: system calls, messages, invocations, capability types, what the root
//! task is told at boot, and the boot image. No physical address appears anywhere here. Shared too
//! with the host, which packs boot images.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arch;
pub mod boot;
pub mod bundle;
pub mod error;
pub mod guest;
pub mod image;
pub mod input;
pub mod invocation;
pub mod layout;
pub mod message;
pub mod object;
pub mod service;
pub mod syscall;
pub mod trace;

pub use error::Error;
pub use invocation::{Label, ThreadFlags};
pub use message::{
    CAPS_WORD, FIRST_BUFFER_WORD, IN_REGISTERS, MAX_CAPS, MAX_MESSAGE, MessageInfo, RECEIVE_WORD,
};
pub use object::{ObjectType, Rights};
pub use syscall::Syscall;
