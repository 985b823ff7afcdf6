//! How a call of Linux fails.

/// An error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub u32);

/// The call has to wait: it is made again later. No program gets this number.
pub(crate) const LATER: Errno = Errno(512);

/// What a call comes to.
pub type Answer = Result<u64, Errno>;

/// The word that a program gets.
#[must_use]
pub const fn word(answer: Answer) -> u64 {
    match answer {
        Ok(value) => value,
        Err(Errno(number)) => (number as u64).wrapping_neg(),
    }
}
