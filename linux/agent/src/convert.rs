//! Conversions that cannot lose anything here, or are meant to.

/// A 64-bit word as a size: the agent is a 64-bit program.
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on this target"
)]
pub(crate) const fn size(word: u64) -> usize {
    word as usize
}

/// The low half of a word.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper half is not wanted"
)]
pub(crate) const fn low32(word: u64) -> u32 {
    word as u32
}
