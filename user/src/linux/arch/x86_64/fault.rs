//! Exceptions, by their vectors, and what is told of them.

use linux_raw_sys::general::{SI_KERNEL, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};

use super::registers::FLOAT_WORDS;

const DIVISION: u64 = 0;
const STEPPED: u64 = 1;
const BREAKPOINT: u64 = 3;
const UNDEFINED: u64 = 6;
const ABSENT: u64 = 11;
const STACK: u64 = 12;
const PAGE: u64 = 14;
const FLOAT: u64 = 16;
const ALIGNMENT: u64 = 17;
const VECTOR: u64 = 19;

/// Where signals say that they are from.
const DIVIDED_BY_ZERO: u32 = 1;
const TRACED: u32 = 2;
const NO_OPERATION: u32 = 2;
const NOT_ALIGNED: u32 = 1;

/// The end of what programs can have, and what the processor says of an address above it.
const PROGRAMS_END: u64 = 0x7fff_ffff_f000;
const IS_THERE: u64 = 1;

/// What a thread is told of an exception: a signal, where that says that it is from, and an
/// address.
pub(crate) type Fault = (u32, u32, u64);

/// Why floating-point arithmetic has an exception, of those that are not masked: bits for invalid
/// operations, unnormalized operands, division by zero, overflow, underflow and inexact results.
fn float_code(vector: u64, floats: &[u64; FLOAT_WORDS]) -> u32 {
    let unmasked = if vector == FLOAT {
        (floats[0] >> 16) & !floats[0]
    } else {
        floats[3] & !(floats[3] >> 7)
    };
    match unmasked & 0x3f {
        it if it & 1 != 0 => 7,
        it if it & 4 != 0 => 3,
        it if it & 8 != 0 => 4,
        it if it & 0x12 != 0 => 5,
        it if it & 0x20 != 0 => 6,
        _ => 0,
    }
}

/// What is told of an exception by this vector, at an instruction.
pub(crate) fn exception_fault(
    vector: u64,
    ip: u64,
    floats: impl FnOnce() -> [u64; FLOAT_WORDS],
) -> Fault {
    match vector {
        DIVISION => (SIGFPE, DIVIDED_BY_ZERO, ip),
        STEPPED => (SIGTRAP, TRACED, ip),
        BREAKPOINT => (SIGTRAP, SI_KERNEL, 0),
        UNDEFINED => (SIGILL, NO_OPERATION, ip),
        ABSENT | STACK => (SIGBUS, SI_KERNEL, 0),
        FLOAT | VECTOR => (SIGFPE, float_code(vector, &floats()), ip),
        ALIGNMENT => (SIGBUS, NOT_ALIGNED, 0),
        _ => (SIGSEGV, SI_KERNEL, 0),
    }
}

/// Does a page fault with this code say that an address is not aligned? That is an exception of its
/// own.
pub(crate) const fn is_misaligned(_code: u64) -> bool {
    false
}

/// What a frame tells of a page fault: code, vector, address.
pub(crate) const fn page_words(code: u64, address: u64) -> [u64; 3] {
    let beyond = if address >= PROGRAMS_END { IS_THERE } else { 0 };
    [code | beyond, PAGE, address]
}
