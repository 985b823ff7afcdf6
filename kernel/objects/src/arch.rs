//! The two tables that differ between processors: where a context keeps which register, and how a
//! page table entry is written. Each module has the same names.

mod x86_64;

pub use x86_64::{
    ARGUMENTS, CAP, CONTEXT_WORDS, ENTRIES, FPU_START, FPU_WORDS, INFO, IP, KERNEL_ENTRY, LEVELS,
    MESSAGE, NUMBER, SP, index, is_present, is_writable, leaf, physical, register_leaf, start,
    table, unused,
};
