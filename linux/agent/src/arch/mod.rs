//! What the processor and the kernel's signals dictate: ways in and out, frames, rewritten code.

pub(crate) mod branches;
pub(crate) mod bulk;
mod clusters;
mod code;
pub(crate) mod context;
pub(crate) mod cpuid;
mod decoded;
pub(crate) mod delivery;
mod detour;
mod detours;
pub(crate) mod digest;
pub(crate) mod entry;
pub(crate) mod faults;
pub(crate) mod frames;
pub(crate) mod instructions;
pub(crate) mod known;
pub(crate) mod leaf;
#[cfg_attr(
    not(feature = "blob"),
    expect(dead_code, reason = "a host has its own")
)]
pub(crate) mod mem_functions;
pub(crate) mod recognise;
pub(crate) mod rewrite;
pub(crate) mod rseq;
pub(crate) mod saved;
mod search;
pub(crate) mod sites;
pub(crate) mod tsc;
pub(crate) mod vdso;
