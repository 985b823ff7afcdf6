//! For programs that want their critical data voted before it reaches output.
//!
//! rcoe compares what a program does at its system calls. A result that stays in memory for long
//! can be wrong for as long. [`add_trace`] folds bytes into the replica's signature at once
//! (`FT_Add_Trace` of DSN'19, III-B), so that the next vote, at the latest the next output, finds
//! replicas that hold different bytes.
//!
//! Contract: all replicas call it at the same place with the same length. Without rcoe it does
//! nothing and costs one refused system call.
//!
//! Not covered: the data is only compared; what is wrong is not put right.
//!
//! ```
//! let balance: u64 = 1_000;
//! let voted = rcoe_trace::add_trace(&balance.to_le_bytes());
//! assert!(!voted, "this test runs without rcoe");
//! ```
#![no_std]
#![forbid(unsafe_code)]

/// Folds `data` into the trace. Says whether anybody compares it: `false` without rcoe.
#[must_use = "or say `let _ =` if it does not matter whether the program is replicated"]
pub fn add_trace(data: &[u8]) -> bool {
    rcoe_linux_sys::add_trace(data) == 0
}
