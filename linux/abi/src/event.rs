//! What an event of the trace is: the code that enters the signature with its value.
//!
//! The agent makes the codes; the supervisor turns them into words when replicas differ.

/// A call: what it brings with it. An event with several values, of which each has a kind of its
/// own, this one and those behind it.
pub const CALL: u32 = 0;
/// In a call, the result of the last one before it.
pub const BEFORE: u32 = 0;
/// In a call, a digest of what its arguments point to; else a digest of what the call deals with.
pub const CONTENT: u32 = 1;
/// In a call, argument 0 to 5, as many as it has.
pub const ARG: u32 = 2;
/// Which call it is.
pub const NUMBER: u32 = 8;
/// A call's result.
pub const RESULT: u32 = 17;
/// A buffer of the program that is not readable.
pub const FAULTY_POINTER: u32 = 18;
/// A synchronous fault: the signal, then instruction and address.
pub const FAULT: u32 = 19;
/// The program's end.
pub const END: u32 = 20;
/// A trapped instruction.
pub const INSTRUCTION: u32 = 21;
/// Asynchronous signals taken at this point.
pub const SIGNALS: u32 = 22;
/// Where things lie when the program starts.
pub const LAYOUT: u32 = 23;

/// Digest of data that the program adds to its trace.
pub const TRACE: u32 = 24;
/// An order of the supervisor, carried out at this point.
pub const ORDER: u32 = 26;

/// A point between calls, which all have agreed on: which one.
pub const POINT: u32 = 27;

/// A turn taken among the processes that share memory.
pub const TURN: u32 = 25;

/// The code of event `what` in call number `nr`; never 0.
#[must_use]
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "absurd numbers only label reports"
)]
pub const fn code(nr: u64, what: u32) -> u32 {
    let nr = if nr > 0xf_ffff { 0xf_ffff } else { nr as u32 };
    (nr << 5 | what) + 1
}

/// The call number and the `what` of a code; `None` for 0, which is no event.
#[must_use]
pub const fn split(code: u32) -> Option<(u64, u32)> {
    match code.checked_sub(1) {
        Some(code) => Some(((code >> 5) as u64, code & 31)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_split() {
        assert_eq!(split(code(231, END)), Some((231, END)));
        assert_eq!(split(code(u64::MAX, LAYOUT)), Some((0xf_ffff, LAYOUT)));
        assert_eq!(split(code(0, ARG)), Some((0, ARG)));
        assert_eq!(split(0), None);
    }
}
