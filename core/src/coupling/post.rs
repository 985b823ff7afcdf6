//! Posts: what a replica says on its board, such that damage shows and does no harm.
//!
//! Intuition: a post names the moment to which it belongs (its [`Stamp`]) and carries a checksum
//! over everything, and it is there twice. A reader takes the first copy that is whole. One
//! overwritten word hits one copy only, so it is masked; a copy that is just being written is not
//! whole, so nobody takes half of it; a post of an earlier moment has another stamp, so nobody
//! takes it for one of now.
//!
//! Contract: one writer, any number of readers; a reader that finds no whole copy finds nothing,
//! and looks again.

use crate::digest;
use crate::primitive::{AtomicU64, Ordering};

/// The moment to which a post belongs; ordered. All fields zero stand for "never".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// Which attempt to agree, from 1.
    pub generation: u32,
    /// How often the membership had changed.
    pub epoch: u16,
    /// Which target of the attempt.
    pub phase: u8,
    /// Which question to the target's owner.
    pub turn: u8,
}

impl Stamp {
    /// Had the membership changed more often? The number begins anew after its last.
    pub(super) const fn is_of_later_members(self, other: Self) -> bool {
        let ahead = self.epoch.wrapping_sub(other.epoch);
        ahead != 0 && ahead < 1 << 15
    }

    const fn word(self) -> u64 {
        (self.generation as u64) << 32
            | (self.epoch as u64) << 16
            | (self.phase as u64) << 8
            | self.turn as u64
    }

    const fn from_word(word: u64) -> Self {
        let [turn, phase, e0, e1, g0, g1, g2, g3] = word.to_le_bytes();
        Self {
            generation: u32::from_le_bytes([g0, g1, g2, g3]),
            epoch: u16::from_le_bytes([e0, e1]),
            phase,
            turn,
        }
    }
}

/// Words of a copy beside what it says: stamp, length, checksum.
const FRAME: usize = 3;

/// One post in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post<'a>(pub(crate) &'a [AtomicU64]);

/// Words that a post of up to `capacity` words takes.
pub(crate) const fn size(capacity: usize) -> usize {
    2 * (FRAME + capacity)
}

impl<'a> Post<'a> {
    fn copies(self) -> [&'a [AtomicU64]; 2] {
        let (first, second) = self.0.split_at(self.0.len() / 2);
        [first, second]
    }

    /// Says `words`, one copy after the other.
    ///
    /// # Panics
    /// If there are more than fit.
    pub(crate) fn write(self, stamp: Stamp, words: &[u64]) {
        let check = checksum(stamp.word(), words);
        for copy in self.copies() {
            let (frame, cells) = copy.split_at(FRAME);
            assert!(words.len() <= cells.len(), "a post has room");
            frame[0].store(stamp.word(), Ordering::Release);
            frame[1].store(words.len() as u64, Ordering::Release);
            for (cell, &word) in cells.iter().zip(words) {
                cell.store(word, Ordering::Release);
            }
            frame[2].store(check, Ordering::Release);
        }
    }

    /// What is said there, by the first copy that is whole: its moment and how many words, which
    /// stand at the begin of `out`. With `trust` a copy counts as whole unseen.
    pub(crate) fn read(self, out: &mut [u64], trust: bool) -> Option<(Stamp, usize)> {
        let copies = self.copies();
        copies
            .into_iter()
            .find_map(|copy| read_copy(copy, out, trust))
    }
}

fn read_copy(copy: &[AtomicU64], out: &mut [u64], trust: bool) -> Option<(Stamp, usize)> {
    let (frame, cells) = copy.split_at(FRAME);
    let check = frame[2].load(Ordering::Acquire);
    let stamp = frame[0].load(Ordering::Acquire);
    let len = usize::try_from(frame[1].load(Ordering::Acquire)).ok()?;
    let cells = cells.get(..len)?;
    let out = out.get_mut(..len)?;
    for (word, cell) in out.iter_mut().zip(cells) {
        *word = cell.load(Ordering::Acquire);
    }
    let whole = stamp != 0 && (trust || checksum(stamp, out) == check);
    whole.then(|| (Stamp::from_word(stamp), len))
}

/// Any one word that differs changes it.
fn checksum(stamp: u64, words: &[u64]) -> u64 {
    let head = digest(digest(0x706f_7374, stamp), words.len() as u64);
    words.iter().fold(head, |sum, &word| digest(sum, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        generation: 7,
        epoch: 2,
        phase: 3,
        turn: 1,
    };

    fn cells() -> [AtomicU64; size(4)] {
        [const { AtomicU64::new(0) }; size(4)]
    }

    #[test]
    fn stamps_are_words_and_have_an_order() {
        assert_eq!(Stamp::from_word(STAMP.word()), STAMP);
        let later = Stamp { phase: 4, ..STAMP };
        let next = Stamp {
            generation: 8,
            ..Stamp::default()
        };
        assert!(STAMP < later && later < next);
    }

    #[test]
    fn the_number_of_changes_begins_anew() {
        let of = |epoch| Stamp { epoch, ..STAMP };
        let is_later = |one, other| of(one).is_of_later_members(of(other));
        assert!(is_later(3, 2) && is_later(2, u16::MAX) && is_later(0x7fff, 0));
        assert!(!is_later(2, 2) && !is_later(2, 3) && !is_later(u16::MAX, 2));
    }

    #[test]
    fn nothing_is_said_on_a_fresh_board() {
        assert_eq!(Post(&cells()).read(&mut [0; 4], false), None);
    }

    #[test]
    fn a_flip_of_any_bit_is_masked() {
        let cells = cells();
        let post = Post(&cells);
        post.write(STAMP, &[5, 0, u64::MAX]);
        for cell in &cells {
            for bit in 0..64 {
                cell.fetch_xor(1 << bit, Ordering::Relaxed);
                let mut out = [9; 4];
                assert_eq!(post.read(&mut out, false), Some((STAMP, 3)));
                assert_eq!(out[..3], [5, 0, u64::MAX]);
                cell.fetch_xor(1 << bit, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn nobody_takes_half_of_a_post() {
        let (cells, next) = (cells(), cells());
        Post(&cells).write(STAMP, &[5, 6, 7]);
        let later = Stamp { phase: 4, ..STAMP };
        Post(&next).write(later, &[8, 9, 7]);
        // The first copy is written word by word over the older post.
        for at in 0..size(4) / 2 {
            let mut out = [0; 4];
            let read = Post(&cells).read(&mut out, false);
            match read {
                Some((stamp, 3)) if stamp == STAMP => assert_eq!(out[..3], [5, 6, 7]),
                Some((stamp, 3)) if stamp == later => assert_eq!(out[..3], [8, 9, 7]),
                other => panic!("{other:?}"),
            }
            cells[at].store(next[at].load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
