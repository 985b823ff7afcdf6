//! What a thread is at when a handler begins, and goes on with when that returns, however the
//! processor's frame has it.

use super::{CALL_WORDS, FLOAT_WORDS};
use crate::linux::Errno;

/// What a frame keeps.
pub(crate) struct Saved<'a> {
    pub(crate) registers: &'a [u64; CALL_WORDS],
    pub(crate) floats: [u64; FLOAT_WORDS],
    pub(crate) stack: [u64; 3],
    pub(crate) mask: u64,
    /// Of the last fault: code, kind, address.
    pub(crate) trap: [u64; 3],
}

/// What a frame gives back.
pub(crate) struct Restored {
    pub(crate) registers: [u64; CALL_WORDS],
    pub(crate) floats: [u64; FLOAT_WORDS],
    pub(crate) stack: [u64; 3],
    pub(crate) mask: u64,
}

/// Why a frame gives nothing back.
pub(crate) enum Wrong {
    /// It is not there, or is none.
    Absent(Errno),
    /// It wants what nobody could have the thread do.
    Refused(&'static str),
}

impl From<Errno> for Wrong {
    fn from(error: Errno) -> Self {
        Self::Absent(error)
    }
}
