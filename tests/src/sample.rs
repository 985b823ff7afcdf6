//! Samples of matrices: a commit tries half of a matrix of machines, another one the other.
//!
//! Intuition: the cells of a matrix mostly fail together, and each costs a machine. Contract: where
//! `RCOE_SAMPLE` has a seed, half of the cells are kept, the same ones for the same seed and place
//! in the source; without it all are. `cargo xtask test` sets it by the commit's hash and tells it.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::Location;

/// The cells to try, in their order.
///
/// # Panics
/// If `RCOE_SAMPLE` is no number.
#[must_use]
#[track_caller]
pub fn sampled<T: Debug>(cells: Vec<T>) -> Vec<T> {
    let Ok(seed) = std::env::var("RCOE_SAMPLE") else {
        return cells;
    };
    let seed: u64 = seed.parse().expect("RCOE_SAMPLE is a number");
    let place = Location::caller();
    let kept = half(cells, (seed, place.file(), place.line()));
    println!("{place}: sample {seed}: {kept:?}");
    kept
}

/// Half of the cells, rounded up, as `key` chooses them.
fn half<T>(cells: Vec<T>, key: (u64, &str, u32)) -> Vec<T> {
    let mut numbers: Vec<usize> = (0..cells.len()).collect();
    numbers.sort_by_cached_key(|number| {
        let mut hasher = DefaultHasher::new();
        (key, number).hash(&mut hasher);
        hasher.finish()
    });
    numbers.truncate(cells.len().div_ceil(2));
    let numbered = cells.into_iter().enumerate();
    let kept = numbered.filter(|(number, _)| numbers.contains(number));
    kept.map(|(_, cell)| cell).collect()
}

/// All pairs of these.
#[must_use]
pub fn pairs<A: Copy, B: Copy>(first: &[A], second: &[B]) -> Vec<(A, B)> {
    let with_all = |&one: &A| second.iter().map(move |&other| (one, other));
    first.iter().flat_map(with_all).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn half_is_kept_in_order_and_in_the_end_all_of_it() {
        let mut seen = BTreeSet::new();
        for seed in 0..50 {
            let kept = half((0..9).collect(), (seed, "here", 1));
            assert!(kept.len() == 5 && kept.is_sorted(), "{kept:?}");
            assert_eq!(kept, half((0..9).collect(), (seed, "here", 1)));
            seen.extend(kept);
        }
        assert_eq!(seen.len(), 9);
    }

    #[test]
    fn pairs_are_all_there_are() {
        assert_eq!(
            pairs(&[1, 2], &['a', 'b']),
            [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')]
        );
    }
}
