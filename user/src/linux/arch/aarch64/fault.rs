//! Exceptions, by their classes, and what is told of them.

use linux_raw_sys::general::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};

use super::registers::FLOAT_WORDS;

/// An instruction that is none, and classes of those that are not for programs.
const UNDEFINED: u64 = 0;
const WAITS: u64 = 0x01;
const FLOATING: u64 = 0x07;
const SYSTEM: u64 = 0x18;
const JUMP: u64 = 0x22;
const STACK: u64 = 0x26;
const FLOAT: u64 = 0x2c;
const STEPPED: u64 = 0x32;
const BREAKPOINT: u64 = 0x3c;
/// A page fault, of those that a program's data has.
const DATA: u64 = 0x24;

/// Where signals say that they are from.
const NO_OPERATION: u32 = 1;
const NOT_ALIGNED: u32 = 1;
const AT_BREAKPOINT: u32 = 1;
const TRACED: u32 = 2;
const UNKNOWN: u32 = 14;
const NOT_ALLOWED: u32 = 2;

/// In the code of a page fault: why, and that an address is not aligned.
const WHY: u64 = 0x3f;
const ALIGNMENT: u64 = 0x21;

/// What a thread is told of an exception: a signal, where that says that it is from, and an
/// address.
pub(crate) type Fault = (u32, u32, u64);

/// What is told of an exception of this class, at an instruction.
pub(crate) fn exception_fault(
    class: u64,
    ip: u64,
    _floats: impl FnOnce() -> [u64; FLOAT_WORDS],
) -> Fault {
    match class {
        UNDEFINED | WAITS | FLOATING | SYSTEM => (SIGILL, NO_OPERATION, ip),
        JUMP | STACK => (SIGBUS, NOT_ALIGNED, ip),
        FLOAT => (SIGFPE, UNKNOWN, ip),
        STEPPED => (SIGTRAP, TRACED, ip),
        BREAKPOINT => (SIGTRAP, AT_BREAKPOINT, ip),
        _ => (SIGSEGV, NOT_ALLOWED, ip),
    }
}

/// Does a page fault with this code say that an address is not aligned?
pub(crate) const fn is_misaligned(code: u64) -> bool {
    code & WHY == ALIGNMENT
}

/// What a frame tells of a page fault: code, class, address.
pub(crate) const fn page_words(code: u64, address: u64) -> [u64; 3] {
    [code, DATA, address]
}
