//! Random numbers: a stream that follows from the bundle's seed (ChaCha20, RFC 8439), so replicas
//! draw the same.

/// A stream of random bytes.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    key: [u32; 8],
    block: u64,
    bytes: [u8; 64],
    used: usize,
}

/// "expand 32-byte k".
const CONSTANT: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

impl Random {
    pub(crate) fn new(seed: [u64; 4]) -> Self {
        let half = |index: usize| {
            let [a, b, c, d, e, f, g, h] = seed[index / 2].to_le_bytes();
            u32::from_le_bytes(if index.is_multiple_of(2) {
                [a, b, c, d]
            } else {
                [e, f, g, h]
            })
        };
        Self {
            key: core::array::from_fn(half),
            block: 0,
            bytes: [0; 64],
            used: 64,
        }
    }

    /// Fills these bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            if self.used == self.bytes.len() {
                self.next_block();
            }
            *byte = self.bytes[self.used];
            self.used += 1;
        }
    }

    fn next_block(&mut self) {
        let mut start = [0; 16];
        start[..4].copy_from_slice(&CONSTANT);
        start[4..12].copy_from_slice(&self.key);
        let [a, b, c, d, e, f, g, h] = self.block.to_le_bytes();
        start[12] = u32::from_le_bytes([a, b, c, d]);
        start[13] = u32::from_le_bytes([e, f, g, h]);
        for (place, word) in self.bytes.chunks_exact_mut(4).zip(mixed(start)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.block += 1;
        self.used = 0;
    }
}

fn mixed(start: [u32; 16]) -> [u32; 16] {
    let mut state = start;
    for _ in 0..10 {
        for column in 0..4 {
            quarter(&mut state, [0, 4, 8, 12].map(|row| row + column));
        }
        for column in 0..4 {
            let diagonal = [0, 1, 2, 3].map(|row| 4 * row + (column + row) % 4);
            quarter(&mut state, diagonal);
        }
    }
    core::array::from_fn(|index| state[index].wrapping_add(start[index]))
}

fn quarter(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    for (left, right) in [(16, 12), (8, 7)] {
        state[a] = state[a].wrapping_add(state[b]);
        state[d] = (state[d] ^ state[a]).rotate_left(left);
        state[c] = state[c].wrapping_add(state[d]);
        state[b] = (state[b] ^ state[c]).rotate_left(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_that_of_the_standard() {
        // RFC 8439, 2.3.2.
        let mut start = [0; 16];
        start[..4].copy_from_slice(&CONSTANT);
        for (index, word) in start[4..12].iter_mut().enumerate() {
            let first = u8::try_from(4 * index).unwrap();
            *word = u32::from_le_bytes([first, first + 1, first + 2, first + 3]);
        }
        start[12..].copy_from_slice(&[1, 0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(mixed(start)[..2], [0xe4e7_f110, 0x1559_3bd1]);
    }

    #[test]
    fn a_stream_follows_from_its_seed() {
        let draw = |seed, parts: &[usize]| {
            let (mut random, mut at, mut bytes) = (Random::new(seed), 0, [0; 200]);
            for &len in parts {
                random.fill(&mut bytes[at..at + len]);
                at += len;
            }
            bytes
        };
        assert_eq!(
            draw([1, 2, 3, 4], &[200]),
            draw([1, 2, 3, 4], &[1, 64, 70, 65])
        );
        assert_ne!(draw([1, 2, 3, 4], &[200]), draw([1, 2, 3, 5], &[200]));
    }
}
