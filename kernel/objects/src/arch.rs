//! The two tables that differ between processors: where a context keeps which register, and how a
//! page table entry is written. Each module has the same names, and both are built and tested
//! everywhere.

pub mod aarch64;
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as own;
#[cfg(target_arch = "x86_64")]
use x86_64 as own;

#[cfg(test)]
pub(crate) use own::written;
pub use own::{
    ARGUMENTS, CALL_ARGUMENTS, CALL_BYTES, CAP, CONTEXT_WORDS, ENTRIES, FLOAT_WORDS, FPU_START,
    FPU_WORDS, GUEST, GUEST_ENTRY, GUEST_FIRST, GUEST_MARK, GUEST_START, GUEST_WORDS, INFO, IP,
    KERNEL_BITS, KERNEL_ENTRY, LEVELS, MESSAGE, NUMBER, POINTERS, SP, STATUS, STEP, STEP_VECTOR,
    STEPPING, holds_floats, holds_guest, index, is_present, is_table, is_writable, large_leaf,
    leaf, noted, of_guest, physical, register_leaf, repetition, start, start_guest, table, unused,
    unwritten,
};
