//! The results ring: records that the primary publishes and the followers consume in order.
//!
//! Positions count words since the start of the group and never go back; a takeover continues them
//! in the new primary's ring. A record is a header, which carries the primary's signature in one
//! word ([`Signature::word`]) and a checksum over everything, and its payload. So one whose payload
//! is a word fills half a cache line. Whatever a reader finds is checked before it is
//! believed.

use crate::Signature;
use crate::outbox::Outbox;
use crate::primitive::{AtomicU64, Ordering};

/// Longest payload of one record, in words: 32 KiB, which is as much as many programs read at once,
/// and what a sphere has to say about them.
pub const MAX_RECORD: usize = 4096 + 64;

/// Words of a record's header.
pub const HEADER: usize = 3;

/// One replica's published memory: its outbox and its results ring.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// What it says.
    pub outbox: &'a Outbox,
    /// Its results ring; the length is a power of two and the same for all replicas.
    pub ring: &'a [AtomicU64],
}

/// Where the primary's next record goes, if the ring holds it in one piece. Nobody reads there
/// before it is published.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub(crate) header: &'a [AtomicU64; HEADER],
    pub(crate) payload: &'a [AtomicU64],
    /// The position behind the record.
    pub(crate) end: u64,
}

impl<'a> Place<'a> {
    /// The cells of the payload.
    #[must_use]
    #[inline]
    pub const fn payload(&self) -> &'a [AtomicU64] {
        self.payload
    }
}

/// A decoded, not yet verified record header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) index: u32,
    /// The record is the result of an effect that must not happen twice.
    pub(crate) once: bool,
    /// The primary's signature, see [`Signature::word`].
    pub(crate) signature: u64,
    check: u64,
}

/// In a header's first word, beside length and index: the effect is not repeatable.
pub(crate) const ONCE: u64 = 1 << 31;

impl Header {
    #[inline]
    fn first_word(&self) -> u64 {
        let once = if self.once { ONCE } else { 0 };
        self.len as u64 | once | u64::from(self.index) << 32
    }
}

/// Fletcher sums modulo 2^64 over words in their order: any single flipped bit changes the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Checksum {
    a: u64,
    b: u64,
}

/// Words of a row: see [`Checksum::add_lanes`].
pub const SUM_LANES: usize = 8;

impl Checksum {
    /// Of no words.
    pub const EMPTY: Self = Self { a: 0, b: 0 };

    /// From its two sums, as somebody else has made them: that of the words, and that of all sums
    /// of the words so far.
    #[must_use]
    #[inline]
    pub const fn of_sums(a: u64, b: u64) -> Self {
        Self { a, b }
    }

    /// With one word more.
    #[must_use]
    #[inline]
    pub const fn add(self, word: u64) -> Self {
        let a = self.a.wrapping_add(word);
        Self {
            a,
            b: self.b.wrapping_add(a),
        }
    }

    /// With these words more, in their order: faster than one by one if they are many.
    #[must_use]
    pub fn add_all(self, words: &[u64]) -> Self {
        let (rows, rest) = words.as_chunks::<SUM_LANES>();
        let [mut a, mut b] = [[0_u64; SUM_LANES]; 2];
        for row in rows {
            for ((a, b), word) in a.iter_mut().zip(&mut b).zip(row) {
                *a = a.wrapping_add(*word);
                *b = b.wrapping_add(*a);
            }
        }
        rest.iter()
            .fold(self.add_lanes(rows.len(), [a, b]), |sum, &word| {
                sum.add(word)
            })
    }

    /// With so many rows of words more, of which these are the two sums by lanes.
    ///
    /// Each lane is a sum of its own, of every eighth word. What lane `i` has counted as the `n`th
    /// from its end is the `8 n - i`th from the end of all.
    #[must_use]
    pub fn add_lanes(self, rows: usize, [a, b]: [[u64; SUM_LANES]; 2]) -> Self {
        let lanes = (0_u64..).zip(a.into_iter().zip(b));
        let all = lanes.fold(Self::EMPTY, |all, (lane, (a, b))| Self {
            a: all.a.wrapping_add(a),
            b: (all.b)
                .wrapping_add(b.wrapping_mul(SUM_LANES as u64))
                .wrapping_sub(a.wrapping_mul(lane)),
        });
        self.then((rows * SUM_LANES) as u64, all)
    }

    /// Of a header's first two words.
    #[inline]
    pub(crate) const fn header(len_index: u64, signature: u64) -> Self {
        let start = Self {
            a: 0x5243_4f45,
            b: 0,
        };
        start.add(len_index).add(signature)
    }

    /// With `count` words more, of which the other one is.
    #[inline]
    const fn then(self, count: u64, other: Self) -> Self {
        let before = self.b.wrapping_add(self.a.wrapping_mul(count));
        Self {
            a: self.a.wrapping_add(other.a),
            b: before.wrapping_add(other.b),
        }
    }

    /// Adds the words of a payload.
    #[inline]
    fn payload(self, [first, second]: [&[AtomicU64]; 2]) -> Self {
        self.cells(first).cells(second)
    }

    #[inline]
    fn cells(self, cells: &[AtomicU64]) -> Self {
        let add = |check: Self, cell: &AtomicU64| check.add(cell.load(Ordering::Relaxed));
        cells.iter().fold(self, add)
    }

    /// Bijective in each sum for a fixed other one.
    #[inline]
    pub(crate) const fn finish(self) -> u64 {
        self.a ^ self.b.rotate_left(23)
    }
}

impl<'a> Port<'a> {
    #[inline]
    fn cell(&self, position: u64) -> &AtomicU64 {
        &self.ring[self.start_of(position)]
    }

    /// The cells of `len` words from `position` on: in one piece, or in two where the ring wraps.
    #[inline]
    pub(crate) fn cells(&self, position: u64, len: usize) -> [&'a [AtomicU64]; 2] {
        assert!(len <= self.ring.len());
        let start = self.start_of(position);
        let first = len.min(self.ring.len() - start);
        [&self.ring[start..start + first], &self.ring[..len - first]]
    }

    /// Where in the ring the word at `position` is: in half a word, so that the end of what begins
    /// there is known not to overflow.
    #[inline]
    const fn start_of(&self, position: u64) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "masked to the ring's length, which half a word holds"
        )]
        let start = position as u32 & (self.ring.len() as u32).wrapping_sub(1);
        start as usize
    }

    /// `N` cells from `position` on, if the ring holds them in one piece.
    #[inline(always)]
    pub(crate) fn piece<const N: usize>(&self, position: u64) -> Option<&'a [AtomicU64; N]> {
        let start = self.start_of(position);
        self.ring.get(start..start + N)?.first_chunk()
    }

    /// Header and payload of a record at `position`, if the ring holds it in one piece.
    #[inline(always)]
    pub(crate) fn record(
        &self,
        position: u64,
        len: usize,
    ) -> Option<(&'a [AtomicU64; HEADER], &'a [AtomicU64])> {
        let start = self.start_of(position);
        let end = start.checked_add(HEADER + len)?;
        self.ring.get(start..end)?.split_first_chunk()
    }

    /// The place of a record of `len` words at `position`, if the ring holds it in one piece.
    #[inline(always)]
    pub(crate) fn place(&self, position: u64, len: usize) -> Option<Place<'a>> {
        let (header, payload) = self.record(position, len)?;
        let end = position + record_words(len);
        Some(Place {
            header,
            payload,
            end,
        })
    }

    /// The cells for the payload of a record at `position`.
    #[inline]
    pub(crate) fn payload(&self, position: u64, len: usize) -> [&'a [AtomicU64]; 2] {
        assert!(len <= MAX_RECORD && len + HEADER <= self.ring.len());
        self.cells(position.wrapping_add(HEADER as u64), len)
    }

    /// The checksum of the payload of `len` words of a record at `position`.
    #[inline]
    pub(crate) fn payload_checksum(&self, position: u64, len: usize) -> Checksum {
        Checksum::EMPTY.payload(self.payload(position, len))
    }

    /// Writes a header at `position`; the caller made sure of the room and publishes the new cursor
    /// after.
    #[inline]
    pub(crate) fn seal(&self, position: u64, header: &[u64; HEADER]) {
        match self.piece::<HEADER>(position) {
            Some(cells) => store([cells, &[]], header),
            None => store(self.cells(position, HEADER), header),
        }
    }

    /// The first word of the header at `position`.
    #[inline]
    pub(crate) fn first_word(&self, position: u64) -> u64 {
        self.cell(position).load(Ordering::Relaxed)
    }

    /// The header at `position`, or `None` if its length is impossible.
    #[inline]
    pub(crate) fn header(&self, position: u64) -> Option<Header> {
        let load = |at: u64| self.cell(position.wrapping_add(at)).load(Ordering::Relaxed);
        let len_index = load(0);
        let len = usize::try_from(len_index & (ONCE - 1)).ok()?;
        let once = len_index & ONCE != 0;
        let index = (len_index >> 32) as u32;
        (len <= MAX_RECORD).then_some(Header {
            len,
            index,
            once,
            signature: load(1),
            check: load(2),
        })
    }

    /// Does the checksum of the record at `position` hold?
    #[must_use]
    pub(crate) fn is_sound(&self, position: u64, header: &Header) -> bool {
        let check = Checksum::header(header.first_word(), header.signature);
        len_fits(header.len, self.ring)
            && check.payload(self.payload(position, header.len)).finish() == header.check
    }

    /// Copies the payload of the record at `position` to `out` and says whether the checksum holds
    /// for what was copied.
    #[inline]
    #[must_use]
    pub(crate) fn read(&self, position: u64, header: &Header, out: &mut [u64]) -> bool {
        if out.len() != header.len || !len_fits(header.len, self.ring) {
            return false;
        }
        let mut check = Checksum::header(header.first_word(), header.signature);
        let [first, second] = self.payload(position, header.len);
        let (start, rest) = out.split_at_mut(first.len());
        for (out, cells) in [(start, first), (rest, second)] {
            for (slot, cell) in out.iter_mut().zip(cells) {
                *slot = cell.load(Ordering::Relaxed);
                check = check.add(*slot);
            }
        }
        check.finish() == header.check
    }
}

fn len_fits(len: usize, ring: &[AtomicU64]) -> bool {
    len <= MAX_RECORD && len + HEADER <= ring.len()
}

/// Stores words in cells, as many as both have.
#[inline]
pub(crate) fn store([first, second]: [&[AtomicU64]; 2], words: &[u64]) {
    let (start, rest) = words.split_at(first.len().min(words.len()));
    for (cells, words) in [(first, start), (second, rest)] {
        for (cell, &word) in cells.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }
}

/// The header of a record number `index` whose payload of `len` words has this checksum. `once`:
/// the effect is not repeatable.
#[inline]
pub(crate) const fn header(
    index: u64,
    once: bool,
    signature: Signature,
    len: usize,
    payload: Checksum,
) -> [u64; HEADER] {
    let once = if once { ONCE } else { 0 };
    let len = len as u64;
    let len_index = len | once | (index & 0xffff_ffff) << 32;
    let signature = signature.word();
    let all = Checksum::header(len_index, signature).then(len, payload);
    [len_index, signature, all.finish()]
}

/// A record whose payload is one word. `once`: [`ONCE`], or 0 if its effect, if any, is repeatable.
#[inline]
pub(crate) const fn word_record(
    index: u64,
    once: u64,
    signature: Signature,
    word: u64,
) -> [u64; HEADER + 1] {
    let len_index = 1 | once | (index & 0xffff_ffff) << 32;
    let signature = signature.word();
    let check = Checksum::header(len_index, signature).add(word).finish();
    [len_index, signature, check, word]
}

/// Words that a record of `payload` words takes.
#[inline]
pub(crate) const fn record_words(payload: usize) -> u64 {
    (payload + HEADER) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> [AtomicU64; 16] {
        [const { AtomicU64::new(0) }; 16]
    }

    #[test]
    fn records_wrap_and_flips_show() {
        let (outbox, ring) = (Outbox::new(), ring());
        let port = Port {
            outbox: &outbox,
            ring: &ring,
        };
        let signature = Signature {
            events: 3,
            a: 4,
            b: 5,
        };
        store(port.payload(13, 3), &[10, 20, 30]);
        let payload = port.payload_checksum(13, 3);
        port.seal(13, &header(7, true, signature, 3, payload));
        let header = port.header(13).expect("a sane length");
        assert_eq!(
            (header.len, header.index, header.signature),
            (3, 7, signature.word())
        );
        let mut out = [0; 3];
        assert!(port.read(13, &header, &mut out));
        assert_eq!(out, [10, 20, 30]);
        for at in 0..(HEADER + 3) as u64 {
            for bit in [0, 1, 31, 32, 63] {
                let cell = port.cell(13 + at);
                let word = cell.load(Ordering::Relaxed);
                cell.store(word ^ 1 << bit, Ordering::Relaxed);
                let fine = port.header(13).is_some_and(|header| {
                    let mut out = [0; 16];
                    header.len <= 16 && port.read(13, &header, &mut out[..header.len])
                });
                assert!(!fine, "flip of bit {bit} in word {at}");
                cell.store(word, Ordering::Relaxed);
            }
        }
    }

    #[test]
    fn many_words_have_the_sum_of_one_by_one() {
        let mut word = 1_u64;
        let words: [u64; 100] = core::array::from_fn(|_| {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
            word
        });
        let before = Checksum::EMPTY.add(u64::MAX).add(3);
        for len in 0..=words.len() {
            let words = &words[..len];
            let one_by_one = words.iter().fold(before, |sum, &word| sum.add(word));
            assert_eq!(before.add_all(words), one_by_one, "{len} words");
        }
    }

    #[test]
    fn absurd_lengths_are_refused() {
        let (outbox, ring) = (Outbox::new(), ring());
        let port = Port {
            outbox: &outbox,
            ring: &ring,
        };
        ring[0].store(MAX_RECORD as u64 + 1, Ordering::Relaxed);
        assert!(port.header(0).is_none());
    }
}
