//! Conversions that cannot lose anything here, or are meant to.

/// A 64-bit word as a size: the agent is a 64-bit program.
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on this target"
)]
pub(crate) const fn size(word: u64) -> usize {
    word as usize
}

/// A word or none, without gaps: replicas are compared byte by byte, and a gap holds whatever lay
/// there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maybe([u64; 2]);

impl Maybe {
    pub(crate) const NONE: Self = Self([0; 2]);

    pub(crate) const fn some(word: u64) -> Self {
        Self([1, word])
    }

    pub(crate) fn get(&self) -> Option<u64> {
        let [is_there, word] = self.0;
        (is_there != 0).then_some(word)
    }

    /// Leaves none.
    pub(crate) fn take(&mut self) -> Option<u64> {
        core::mem::replace(self, Self::NONE).get()
    }
}

/// The low half of a word.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the upper half is not wanted"
)]
pub(crate) const fn low32(word: u64) -> u32 {
    word as u32
}
