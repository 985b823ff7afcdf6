//! From the primary to its siblings: a call's result, the signals that came with it, and every
//! byte the kernel wrote.
//!
//! One result is a stream of words: result, what has arrived (two words), an order of the
//! supervisor, then for each segment its length and its bytes. The stream is cut into records of
//! the protocol core wherever one is full; each begins with its number within the result. If the
//! primary is lost between two of them, its
//! successor starts again with number 0. What is short is published in another way, see [`brief`].

use core::sync::atomic::Ordering;

use rcoe_core::{Checksum, Consumed, MAX_RECORD};

use crate::convert;
use crate::kernel::{Kernel, kind};
use crate::memory::guest::{self, Fault};
use crate::protocol::direct::{Held, Taken};
use crate::protocol::{brief, direct};

/// Where the content of a record begins: its first word is its number within the result.
pub(crate) const FIRST: usize = 1;

/// The record being read.
#[repr(C)]
pub(crate) struct Buffer {
    /// Next word to read.
    next: usize,
    /// Words that can be read.
    len: usize,
    /// Number of the next record within its result.
    part: u64,
    words: [u64; MAX_RECORD],
}

impl Buffer {
    /// The first record of a result comes next.
    pub(crate) const fn expect_first(&mut self) {
        self.next = FIRST;
        self.len = FIRST;
        self.part = 0;
    }

    /// A record of so many words is there.
    fn accept(&mut self, len: usize) -> Result<(), Broken> {
        let brief = is_whole(self.words[0]);
        assert!(len > FIRST || brief && len != 0, "no record is empty");
        let (part, expected) = (if brief { 0 } else { self.words[0] }, self.part);
        assert!(part == expected || part == 0, "records come in order");
        self.next = FIRST;
        self.len = len;
        self.part = part + 1;
        if part == expected {
            Ok(())
        } else {
            Err(Broken::Anew)
        }
    }

    /// All words of the record.
    pub(crate) fn record(&self) -> &[u64] {
        &self.words[..self.len]
    }

    /// The words from `next` on as bytes.
    fn bytes(&self) -> &[u8] {
        let words = &self.words[self.next..];
        // SAFETY: words are eight bytes each, and bytes have no alignment.
        unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }
}

/// What came with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: i64,
    /// 1 if a timer of the program is due.
    pub(crate) due: u64,
    /// How many of the supervisor's queue have been taken in all.
    pub(crate) taken: u64,
    /// An order of the supervisor to carry out after the call, or 0.
    pub(crate) order: u64,
}

/// The primary is gone and this replica has to make the call itself. `torn`: part of its result
/// had come.
pub(crate) struct Lost {
    pub(crate) torn: bool,
}

/// Why a result does not go on as it began.
enum Broken {
    /// No more records: the primary is gone and this replica is the primary now.
    Lost,
    /// The next record begins the result anew: another replica is the primary now.
    Anew,
}

/// Follower: takes the outcome and fills the program's memory alike.
///
/// # Errors
/// [`Lost`].
pub(crate) fn receive(kernel: &mut Kernel) -> Result<Outcome, Lost> {
    kernel.buffer.expect_first();
    if fill(kernel).is_err() {
        return Err(Lost { torn: false });
    }
    loop {
        if let Some(result) = brief::take(kernel.buffer.record(), &kernel.segments) {
            return Ok(kernel.signals.nothing_new(result));
        }
        if let Some(result) = take_digest(kernel) {
            return Ok(kernel.signals.nothing_new(result));
        }
        match take(kernel) {
            Ok(outcome) => return Ok(outcome),
            Err(Broken::Lost) => return Err(Lost { torn: true }),
            Err(Broken::Anew) => {}
        }
    }
}

/// Follower: reads what the primary has read of a file, if the record in the buffer says so.
fn take_digest(kernel: &mut Kernel) -> Option<i64> {
    let Kernel {
        direct,
        replica,
        segments,
        last_read,
        buffer,
        ..
    } = &mut *kernel;
    let taken = direct.take(replica, segments, last_read, buffer.record());
    let Taken { fd, result, held } = taken?;
    kernel.outgoing.read_directly(fd);
    if let Held::Other(digest) = held {
        differ(kernel, digest);
    }
    Some(result)
}

/// What was read differs, nobody has changed the file, and all vote.
#[cold]
#[inline(never)]
fn differ(kernel: &mut Kernel, digest: u64) {
    let kind = kind::of(kernel.agreed.number(), kind::CONTENT);
    kernel.event(kind, digest);
    if let Err(halt) = kernel.replica.raise_alarm() {
        kernel.park(halt);
    }
}

/// Takes the outcome whose first record is in the buffer.
fn take(kernel: &mut Kernel) -> Result<Outcome, Broken> {
    let result = pull(kernel)?.cast_signed();
    let due = pull(kernel)?;
    let taken = pull(kernel)?;
    let order = pull(kernel)?;
    let mut index = 0;
    while let Some((address, room)) = kernel.segments.room(index) {
        index += 1;
        let len = pull(kernel)?;
        assert!(len <= room, "the primary filled more than the call allows");
        pull_bytes(kernel, address, len, result == Fault::RESULT)?;
    }
    assert_eq!(
        kernel.buffer.next, kernel.buffer.len,
        "the record holds this call's result"
    );
    Ok(Outcome {
        result,
        due,
        taken,
        order,
    })
}

/// Gets the next record.
#[inline]
fn fill(kernel: &mut Kernel) -> Result<(), Broken> {
    match kernel.replica.consume_promptly(&mut kernel.buffer.words) {
        Some(len) => kernel.buffer.accept(len),
        None => await_record(kernel),
    }
}

#[inline(never)]
fn await_record(kernel: &mut Kernel) -> Result<(), Broken> {
    match kernel.replica.await_record(&mut kernel.buffer.words) {
        Ok(Consumed::Record(len)) => kernel.buffer.accept(len),
        Ok(Consumed::TakeOver) => Err(Broken::Lost),
        Err(halt) => kernel.park(halt),
    }
}

fn refill(kernel: &mut Kernel) -> Result<(), Broken> {
    if kernel.buffer.next == kernel.buffer.len {
        fill(kernel)?;
    }
    Ok(())
}

fn pull(kernel: &mut Kernel) -> Result<u64, Broken> {
    refill(kernel)?;
    kernel.buffer.next += 1;
    Ok(kernel.buffer.words[kernel.buffer.next - 1])
}

/// Fills the program's memory. `maybe`: the primary does not know whether the host has written
/// there, and it may not be writable.
fn pull_bytes(kernel: &mut Kernel, mut address: u64, len: u64, maybe: bool) -> Result<(), Broken> {
    let mut left = len;
    while left > 0 {
        refill(kernel)?;
        let available = (kernel.buffer.len - kernel.buffer.next) * 8;
        let part = convert::size(left.min(available as u64));
        let bytes = &kernel.buffer.bytes()[..part];
        if !maybe || !guest::equals(bytes, address) {
            let done = guest::copy_out(address, bytes);
            let right = maybe || done.is_ok() || guest::equals(bytes, address);
            assert!(right, "the primary could write here");
        }
        kernel.buffer.next += part.div_ceil(8);
        address += part as u64;
        left -= part as u64;
    }
    Ok(())
}

/// Does a record that begins so hold a whole result, with which nothing else has come?
#[inline]
const fn is_whole(first: u64) -> bool {
    brief::is_brief(first) || direct::is_direct(first)
}

/// Follower: the result of a call, if it is there, or in a moment, and short, and nothing else has
/// come with it. Else nothing has happened.
///
/// # Panics
/// If the record is not of this call.
#[inline(always)]
pub(crate) fn receive_promptly(kernel: &mut Kernel) -> Option<i64> {
    if !kernel.segments.is_empty() {
        return receive_filled(kernel);
    }
    let word = kernel.replica.consume_word_promptly()?;
    assert!(brief::is_brief(word), "the record holds this call's result");
    Some(brief::result_of(word))
}

/// The same of a call that fills memory.
#[inline(always)]
fn receive_filled(kernel: &mut Kernel) -> Option<i64> {
    let Kernel {
        replica,
        buffer,
        segments,
        ..
    } = kernel;
    let len = replica.consume_promptly_if(&mut buffer.words, is_whole)?;
    if direct::is_direct(buffer.words[0]) {
        buffer.next = FIRST;
        buffer.len = len;
        return take_digest(kernel);
    }
    let record = buffer.words.get(..len)?;
    brief::take(record, segments)
}

/// A word that only the primary can know, and a successor as well; all replicas get the same.
pub(crate) fn agree(kernel: &mut Kernel, source: impl FnOnce() -> u64) -> u64 {
    if kernel.alone {
        return source();
    }
    if !kernel.replica.is_primary()
        && let Some(word) = receive_word(kernel)
    {
        return word;
    }
    let word = source();
    if let Err(halt) = kernel.replica.publish_word(word) {
        kernel.park(halt);
    }
    word
}

/// The same, sooner where this is the only replica, or the primary was faster.
#[inline(always)]
pub(crate) fn agree_promptly(kernel: &mut Kernel, source: impl FnOnce() -> u64) -> u64 {
    if kernel.alone {
        return source();
    }
    if !kernel.replica.is_primary()
        && let Some(word) = kernel.replica.try_consume_word()
    {
        return word;
    }
    agree(kernel, source)
}

/// Follower: a word of the primary; `None` if that is gone and this replica is the primary now.
fn receive_word(kernel: &mut Kernel) -> Option<u64> {
    if let Some(word) = kernel.replica.try_consume_word() {
        return Some(word);
    }
    let mut word = [0];
    match kernel.replica.consume(&mut word) {
        Ok(Consumed::Record(1)) => Some(word[0]),
        Ok(Consumed::Record(_)) => panic!("the record holds what was asked for"),
        Ok(Consumed::TakeOver) => None,
        Err(halt) => kernel.park(halt),
    }
}

/// Words that only the primary can know; all replicas get the same. `repeatable`: a successor may
/// ask for them again.
pub(crate) fn agree_all<const N: usize>(
    kernel: &mut Kernel,
    repeatable: bool,
    source: impl FnOnce(&mut Kernel) -> [u64; N],
) -> [u64; N] {
    const { assert!(FIRST + N <= MAX_RECORD) };
    if kernel.alone {
        return source(kernel);
    }
    kernel.buffer.expect_first();
    if !kernel.replica.is_primary() && fill(kernel).is_ok() {
        let words = &kernel.buffer.words[FIRST..kernel.buffer.len];
        return words
            .try_into()
            .expect("the record holds what was asked for");
    }
    kernel.replica.begin_effect(repeatable);
    let words = source(kernel);
    let published = kernel
        .replica
        .publish_in_place(FIRST + N, |[first, second]| {
            let cells = first.iter().chain(second);
            let pairs = cells.zip(core::iter::once(&0).chain(&words));
            pairs.fold(Checksum::EMPTY, |sum, (cell, word)| {
                cell.store(*word, Ordering::Relaxed);
                sum.add(cell.load(Ordering::Relaxed))
            })
        });
    if let Err(halt) = published {
        kernel.park(halt);
    }
    words
}
