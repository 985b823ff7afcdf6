//! Results with which nothing else has come, and which fill little, in one short record.
//!
//! Most results are a number and at most a few hundred bytes in one piece, and no signal, timer or
//! order has come. Their record is the number, marked so that it cannot be taken for the number of
//! a record within its result, and the bytes: how many follows from the call. It is compared with
//! its source as [`publish`](crate::protocol::publish) does, which makes its checksum on the way,
//! of what is found in the ring. Whatever is not so simple is left to
//! [`publish`](crate::protocol::publish), before anything was published. Followers take either.

use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_core::{Checksum, Replica};

use crate::arch::leaf;
use crate::convert;
use crate::memory::guest;
use crate::protocol::env::LinuxEnv;
use crate::protocol::segments::{Filled, Segments};

/// Results below this are neither failures nor so long that their source is read twice, nor has
/// anything been added to them.
const MOST: i64 = 4096;
/// Most words of the bytes that the call filled.
const WORDS: usize = 64;
/// In the first word of such a record.
const BRIEF: u64 = 1 << 63;

/// Is this how such a record begins?
#[inline]
pub(crate) const fn is_brief(first: u64) -> bool {
    first & BRIEF != 0
}

/// The result that such a first word tells.
#[inline]
pub(crate) const fn result_of(first: u64) -> i64 {
    (first & !BRIEF).cast_signed()
}

/// May a record of this result be a short one?
#[inline]
pub(crate) fn is_short(result: i64) -> bool {
    (0..MOST).contains(&result)
}

/// Primary: publishes the result of a call, which has filled this, if it is short. `source` is
/// asked for it each time that it is written or compared. False if nothing was done.
#[inline(always)]
pub(crate) fn publish(
    replica: &mut Replica<'_, LinuxEnv>,
    (result, filled): (i64, Filled),
    source: impl Fn() -> i64,
) -> bool {
    if !is_short(result) {
        return false;
    }
    match filled {
        Filled::Nothing => publish_with(replica, source, 0, 0),
        Filled::One(filled) => {
            let bytes = convert::size(filled.end - filled.start);
            bytes <= 8 * WORDS && publish_with(replica, source, filled.start, bytes)
        }
        Filled::Many => false,
    }
}

/// Primary of two: the same of the effect that was begun just so, if there is nothing to wait for.
#[inline(always)]
pub(crate) fn publish_effect(
    replica: &mut Replica<'_, LinuxEnv>,
    repeatable: bool,
    (result, filled): (i64, Filled),
    source: impl Fn() -> i64,
) -> bool {
    if !is_short(result) {
        return false;
    }
    let (from, bytes) = match filled {
        Filled::Nothing => (0, 0),
        Filled::One(filled) => (filled.start, convert::size(filled.end - filled.start)),
        Filled::Many => return false,
    };
    if bytes > 8 * WORDS {
        return false;
    }
    let Some(placed) = replica.place_for_partner(1 + bytes.div_ceil(8)) else {
        return false;
    };
    let Some(checksum) = put_record(placed.payload(), source, from, bytes) else {
        return false;
    };
    placed.publish_effect(repeatable, checksum);
    true
}

/// The same with so many bytes of the program behind the result.
#[inline(always)]
fn publish_with(
    replica: &mut Replica<'_, LinuxEnv>,
    source: impl Fn() -> i64,
    from: u64,
    bytes: usize,
) -> bool {
    let Some(place) = replica.place(1 + bytes.div_ceil(8)) else {
        return false;
    };
    let Some(checksum) = put_record(place.payload(), source, from, bytes) else {
        return false;
    };
    replica.publish_at(place, checksum);
    true
}

/// Writes result and bytes to the cells, and compares; the checksum of what is there.
#[inline(always)]
fn put_record(
    cells: &[AtomicU64],
    source: impl Fn() -> i64,
    from: u64,
    bytes: usize,
) -> Option<Checksum> {
    let (first, content) = cells.split_first()?;
    let there = put(first, || BRIEF | source().cast_unsigned())?;
    put_content(content, from, bytes, there)
}

/// Stores a word, and then compares what is there with the word made anew; what is there.
#[inline(always)]
fn put(cell: &AtomicU64, word: impl Fn() -> u64) -> Option<u64> {
    cell.store(word(), Ordering::Relaxed);
    let there = cell.load(Ordering::Relaxed);
    (there == word()).then_some(there)
}

/// Stores several words, and then compares what is there with the words made anew; the checksum
/// with what is there.
#[inline]
pub(super) fn put_all<const N: usize>(
    cells: &[AtomicU64; N],
    words: impl Fn() -> [u64; N],
    before: Checksum,
) -> Option<Checksum> {
    for (cell, word) in cells.iter().zip(words()) {
        cell.store(word, Ordering::Relaxed);
    }
    let (mut checksum, mut difference) = (before, 0);
    for (cell, word) in cells.iter().zip(words()) {
        let there = cell.load(Ordering::Relaxed);
        difference |= there ^ word;
        checksum = checksum.add(there);
    }
    (difference == 0).then_some(checksum)
}

/// The same with bytes of the program; none if they cannot be read.
#[inline(always)]
fn put_content(cells: &[AtomicU64], from: u64, bytes: usize, first: u64) -> Option<Checksum> {
    if let Some(room) = leaf::Room::of(cells, bytes) {
        return room.put(from, first);
    }
    if bytes == 0 {
        return Some(Checksum::EMPTY.add(first));
    }
    put_rarer(cells, from, bytes, first)
}

/// The same with another number of bytes than most.
#[inline(never)]
fn put_rarer(cells: &[AtomicU64], from: u64, bytes: usize, first: u64) -> Option<Checksum> {
    if !bytes.is_multiple_of(8) {
        cells.last()?.store(0, Ordering::Relaxed);
    }
    guest::copy_compared(cells, from, bytes, first)
}

/// Follower: takes the result of this record, if it is such a one, and fills the program's memory.
///
/// # Panics
/// If the record is not of this call.
#[inline(always)]
pub(crate) fn take(record: &[u64], segments: &Segments) -> Option<i64> {
    let (&first, content) = record.split_first()?;
    if !is_brief(first) {
        return None;
    }
    let result = result_of(first);
    let range = match segments.only(result) {
        Filled::Nothing => 0..0,
        Filled::One(range) => range,
        Filled::Many => panic!("the record holds this call's result"),
    };
    let bytes = convert::size(range.end - range.start);
    assert_eq!(
        content.len(),
        bytes.div_ceil(8),
        "the record holds this call's result"
    );
    if bytes != 0 {
        fill(range.start, content, bytes);
    }
    Some(result)
}

#[inline(always)]
fn fill(address: u64, content: &[u64], bytes: usize) {
    let done = guest::copy_from_words(address, content, bytes);
    assert!(
        done.is_ok() || guest::equals_words(address, content, bytes),
        "the primary could write here"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_told_from_the_number_of_a_record() {
        for result in [0, 1, MOST - 1] {
            let first = BRIEF | result.cast_unsigned();
            assert!(is_brief(first));
            assert_eq!(result_of(first), result);
        }
        assert!(![0, 1, 1 << 40].into_iter().any(is_brief));
    }
}
