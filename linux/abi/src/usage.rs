//! Resources that processes have used, as `struct rusage` counts them.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of `struct rusage` on x86-64.
pub const USAGE_WORDS: usize = 18;
const MICROSECONDS: u64 = 1_000_000;
/// The word in which the largest resident set stands; of it the greatest counts, not the sum.
const MAX_RSS: usize = 4;

/// The words of `struct rusage`: two times of seconds and microseconds, then counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage(pub [u64; USAGE_WORDS]);

impl Usage {
    /// Nothing used.
    pub const NONE: Self = Self([0; USAGE_WORDS]);

    /// Adds what another process has used.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (at, (word, more)) in self.0.iter_mut().zip(&other.0).enumerate() {
            *word = match at {
                MAX_RSS => (*word).max(*more),
                _ => word.wrapping_add(*more),
            };
        }
        for at in [0, 2] {
            let microseconds = self.0[at + 1];
            self.0[at] = self.0[at].wrapping_add(microseconds / MICROSECONDS);
            self.0[at + 1] = microseconds % MICROSECONDS;
        }
        self
    }

    /// Microseconds in the program and in the kernel.
    #[must_use]
    pub fn times(&self) -> [u64; 2] {
        [0, 2].map(|at| {
            let seconds = self.0[at].wrapping_mul(MICROSECONDS);
            seconds.wrapping_add(self.0[at + 1])
        })
    }

    /// Reads what [`Self::store`] has written.
    #[must_use]
    pub fn load(cells: &[AtomicU64; USAGE_WORDS]) -> Self {
        Self(cells.each_ref().map(|cell| cell.load(Relaxed)))
    }

    /// Publishes it; the caller orders that before whatever tells of it.
    pub fn store(&self, cells: &[AtomicU64; USAGE_WORDS]) {
        for (cell, word) in cells.iter().zip(&self.0) {
            cell.store(*word, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_and_the_largest_set_is_no_sum() {
        let mut one = Usage::NONE;
        one.0[..6].copy_from_slice(&[1, 600_000, 0, 700_000, 50, 3]);
        let mut other = Usage::NONE;
        other.0[..6].copy_from_slice(&[2, 500_000, 0, 1, 40, 4]);
        let sum = one.plus(&other);
        assert_eq!(sum.0[..6], [4, 100_000, 0, 700_001, 50, 7]);
        assert_eq!(sum.times(), [4_100_000, 700_001]);
    }
}
