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

pub mod perf;
mod raw;
pub mod tracking;

pub use raw::{errno_of, syscall0, syscall1, syscall2, syscall3, syscall4, syscall5, syscall6};

/// Number of the call by which a program adds data to its trace; none of Linux's.
pub const ADD_TRACE: u64 = 0x7263_6f65;

/// Asks rcoe to fold `data` into the trace: 0, or `-ENOSYS` without rcoe.
pub fn add_trace(data: &[u8]) -> i64 {
    // SAFETY: Linux knows no such call; rcoe's agent only reads the bytes, which are valid.
    unsafe { syscall2(ADD_TRACE, data.as_ptr() as u64, data.len() as u64) }
}
