//! Digests: of what goes out, and of memory.

use rcoe_core::mix;

/// A digest of bytes in which every byte, its place and the length count.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    bytes
        .chunks(8)
        .fold(mix(bytes.len() as u64), |digest, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(digest.rotate_left(9) ^ u64::from_le_bytes(word))
        })
}

/// A checksum of words in which their order counts (Fletcher).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checksum {
    sum: u64,
    sums: u64,
}

impl Checksum {
    /// Adds a word.
    #[inline]
    pub const fn word(&mut self, word: u64) {
        self.sum = self.sum.wrapping_add(word);
        self.sums = self.sums.wrapping_add(self.sum);
    }

    /// Adds words, one after the other.
    #[inline]
    pub fn words(&mut self, words: &[u64]) {
        for &word in words {
            self.word(word);
        }
    }

    /// The digest.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        mix(self.sum ^ mix(self.sums))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let text = *b"a line of output, longer than a word";
        let whole = digest(&text);
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut other = text;
                other[at] ^= 1 << bit;
                assert_ne!(digest(&other), whole, "byte {at} bit {bit}");
            }
            assert_ne!(digest(&text[..at]), whole);
        }
    }
}
