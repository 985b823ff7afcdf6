//! Short results in one record, by a shorter way than [`crate::protocol::publish`] and
//! [`crate::protocol::transfer`].
//!
//! Most results are a number and at most a few hundred bytes in one piece. Their record is the one
//! that [`publish`](crate::protocol::publish) writes, word for word, and compared with its source
//! as there; so each side takes this way or the other one. The comparison makes the record's
//! checksum on the way, of what it finds in the ring. Whatever is not so simple is left to the
//! other way, before anything was published, or taken.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_core::{Checksum, Replica};

use crate::convert;
use crate::memory::guest::{self, Fault};
use crate::protocol::env::LinuxEnv;
use crate::protocol::segments::{Filled, Segments};
use crate::protocol::transfer::{Buffer, FIRST, Outcome};

/// Results below this are neither failures nor so long that their source is read twice, nor has
/// anything been added to them.
const MOST: i64 = 4096;
/// Most words of the bytes that the call filled.
const WORDS: usize = 64;
/// Words of a record without bytes: its number, and the outcome.
const HEAD: usize = FIRST + 4;

/// Primary: publishes the outcome of a call that filled what was noted, if it is short. False if
/// nothing was done.
#[inline]
pub(crate) fn publish(
    replica: &mut Replica<'_, LinuxEnv>,
    segments: &Segments,
    outcome: &Outcome,
) -> bool {
    if !(0..MOST).contains(&outcome.result) {
        return false;
    }
    match segments.only(outcome.result) {
        Filled::Nothing => replica.try_publish_in_place(HEAD, |cells| {
            put(cells.first_chunk()?, || head(outcome), Checksum::EMPTY)
        }),
        Filled::One(filled) => {
            let bytes = convert::size(filled.end - filled.start);
            let words = bytes.div_ceil(8);
            words <= WORDS
                && replica.try_publish_in_place(HEAD + 1 + words, |cells| {
                    let (first, rest) = cells.split_first_chunk()?;
                    let (size, content) = rest.split_first_chunk()?;
                    let before = put(first, || head(outcome), Checksum::EMPTY)?;
                    let before = put(size, || [*black_box(&bytes) as u64], before)?;
                    put_content(content, filled.start, bytes, before)
                })
        }
        Filled::Many => false,
    }
}

/// The record's number is 0: it is the first and only one.
#[inline]
fn head(outcome: &Outcome) -> [u64; HEAD] {
    let &Outcome {
        result,
        due,
        taken,
        order,
    } = black_box(outcome);
    [0, result.cast_unsigned(), due, taken, order]
}

/// Stores words, and then compares what is there with the words made anew; the checksum with what
/// is there.
#[inline]
fn put<const N: usize>(
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
#[inline]
fn put_content(cells: &[AtomicU64], from: u64, bytes: usize, before: Checksum) -> Option<Checksum> {
    let Some(last) = cells.last() else {
        return Some(before);
    };
    if !bytes.is_multiple_of(8) {
        last.store(0, Ordering::Relaxed);
    }
    guest::copy_compared(cells, from, bytes, before)
}

/// Follower: takes the result of a call whose first record is in the buffer, if that is all of it
/// and fills what was noted in one piece at most. Else nothing counts of what was done.
#[inline]
pub(crate) fn take(buffer: &Buffer, segments: &Segments) -> Option<Outcome> {
    let (&[_, result, due, taken, order], content) = buffer.record().split_first_chunk()?;
    let outcome = Outcome {
        result: result.cast_signed(),
        due,
        taken,
        order,
    };
    let Some((address, room)) = segments.room(0) else {
        return content.is_empty().then_some(outcome);
    };
    let (&bytes, content) = content.split_first()?;
    let single = segments.room(1).is_none() && outcome.result != Fault::RESULT;
    if !single || bytes > room || bytes.div_ceil(8) != content.len() as u64 {
        return None;
    }
    guest::copy_from_words(address, content, convert::size(bytes)).ok()?;
    Some(outcome)
}
