//! Raw Linux system calls for x86-64 without libc.
//!
//! The agent lives inside a program whose libc it must not enter, so it speaks to the kernel
//! directly. Each wrapper returns the kernel's own word: a value, or `-errno`.
//!
//! Contract: the `syscall` instruction is inlined into the caller's text. That matters: Syscall
//! User Dispatch lets exactly the agent's text range through, so a wrapper must never be placed
//! in code outside of the agent image.
//!
//! Not covered: argument checking. Whoever calls owns the meaning of the pointers.
#![no_std]

#[cfg(feature = "host")]
extern crate std;

#[cfg(feature = "host")]
pub mod host;

mod raw;

pub use raw::{errno_of, syscall0, syscall1, syscall2, syscall3, syscall4, syscall5, syscall6};
