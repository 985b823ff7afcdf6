//! Short results in one record, by a shorter way than [`crate::protocol::publish`].
//!
//! Most results are a number and at most a few hundred bytes in one piece. Their record is the one
//! that [`publish`](crate::protocol::publish) writes, word for word, and compared with its source
//! as there; followers cannot tell. Whatever is not so simple is left to it, before anything was
//! published.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_core::Replica;

use crate::convert;
use crate::memory::guest;
use crate::protocol::env::LinuxEnv;
use crate::protocol::segments::{Filled, Segments};
use crate::protocol::transfer::{FIRST, Outcome};

/// Results below this are neither failures nor so long that their source is read twice, nor has
/// anything been added to them.
const MOST: i64 = 4096;
/// Most words of the bytes that the call filled.
const WORDS: usize = 64;
/// Words before them: the record's number, the outcome, how many bytes.
const HEAD: usize = FIRST + 5;

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
    let (filled, head) = match segments.only(outcome.result) {
        Filled::Nothing => (0..0, HEAD - 1),
        Filled::One(filled) => (filled, HEAD),
        Filled::Many => return false,
    };
    let bytes = convert::size(filled.end - filled.start);
    let words = bytes.div_ceil(8);
    words <= WORDS
        && replica.try_publish_in_place(head + words, |cells| {
            let (head, content) = cells.split_at(head);
            store_head(head, outcome, bytes);
            let copied = store_content(content, filled.start, bytes);
            copied
                && holds_head(head, black_box(outcome), black_box(bytes))
                && (bytes == 0 || guest::equals_cells(content, black_box(filled.start), bytes))
        })
}

/// The record's number is 0: it is the first and only one.
#[inline]
const fn words(outcome: &Outcome, bytes: usize) -> [u64; HEAD] {
    let &Outcome {
        result,
        due,
        taken,
        order,
    } = outcome;
    [0, result.cast_unsigned(), due, taken, order, bytes as u64]
}

#[inline]
fn store_head(cells: &[AtomicU64], outcome: &Outcome, bytes: usize) {
    for (cell, word) in cells.iter().zip(words(outcome, bytes)) {
        cell.store(word, Ordering::Relaxed);
    }
}

#[inline]
fn holds_head(cells: &[AtomicU64], outcome: &Outcome, bytes: usize) -> bool {
    let pairs = cells.iter().zip(words(outcome, bytes));
    let difference =
        |all, (cell, word): (&AtomicU64, u64)| all | cell.load(Ordering::Relaxed) ^ word;
    pairs.fold(0, difference) == 0
}

/// Copies bytes of the program; false if they cannot be read.
#[inline]
fn store_content(cells: &[AtomicU64], from: u64, bytes: usize) -> bool {
    let Some(last) = cells.last() else {
        return true;
    };
    if !bytes.is_multiple_of(8) {
        last.store(0, Ordering::Relaxed);
    }
    guest::copy_to_cells(cells, from, bytes).is_ok()
}
