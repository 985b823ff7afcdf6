//! From the primary to its siblings: a call's result, the signals that came with it, and every
//! byte the kernel wrote.
//!
//! One result is a stream of words: result, signals (two words), then for each segment its length
//! and its bytes. The stream is cut into records of the protocol core wherever one is full.

use rcoe_core::{Consumed, MAX_RECORD};

use super::segments::Walk;
use crate::convert;
use crate::guest;
use crate::kernel::Kernel;

/// Words of the record under construction or being read.
pub(crate) struct Buffer {
    words: [u64; MAX_RECORD],
    /// Next word to write or read.
    next: usize,
    /// Words that can be read.
    len: usize,
}

impl Buffer {
    pub(crate) const fn new() -> Self {
        Self {
            words: [0; MAX_RECORD],
            next: 0,
            len: 0,
        }
    }

    /// The words from `next` on as bytes.
    fn bytes(&mut self) -> &mut [u8] {
        let words = &mut self.words[self.next..];
        // SAFETY: words are eight bytes each, and any bytes make a word.
        unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
    }
}

/// What came with a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: i64,
    /// Signals that arrived at the primary, as a mask.
    pub(crate) signals: u64,
    /// How many of the supervisor's queue have been taken in all.
    pub(crate) taken: u64,
}

/// Primary: publishes the outcome and what the call filled.
pub(crate) fn publish(kernel: &mut Kernel, outcome: Outcome) {
    kernel.buffer.next = 0;
    push(kernel, outcome.result.cast_unsigned());
    push(kernel, outcome.signals);
    push(kernel, outcome.taken);
    let mut walk = Walk::default();
    loop {
        match kernel.segments.next_filled(&mut walk, outcome.result) {
            Ok(Some((address, len))) => push_bytes(kernel, address, len),
            Ok(None) => break,
            Err(guest::Fault) => panic!("the kernel wrote a length that cannot be read"),
        }
    }
    flush(kernel);
}

fn push(kernel: &mut Kernel, word: u64) {
    if kernel.buffer.next == MAX_RECORD {
        flush(kernel);
    }
    kernel.buffer.words[kernel.buffer.next] = word;
    kernel.buffer.next += 1;
}

fn push_bytes(kernel: &mut Kernel, mut address: u64, len: u64) {
    push(kernel, len);
    let mut left = len;
    while left > 0 {
        if kernel.buffer.next == MAX_RECORD {
            flush(kernel);
        }
        let room = kernel.buffer.bytes();
        let part = convert::size(left.min(room.len() as u64));
        guest::copy_in(&mut room[..part], address).expect("the kernel has just written here");
        kernel.buffer.next += part.div_ceil(8);
        address += part as u64;
        left -= part as u64;
    }
}

fn flush(kernel: &mut Kernel) {
    let words = &kernel.buffer.words[..kernel.buffer.next];
    let published = kernel.replica.publish(words);
    kernel.buffer.next = 0;
    if let Err(halt) = published {
        kernel.park(halt);
    }
}

/// Follower: takes the outcome and fills the program's memory alike. `None` if the primary is gone
/// and this replica has to make the call itself.
pub(crate) fn receive(kernel: &mut Kernel) -> Option<Outcome> {
    kernel.buffer.next = 0;
    kernel.buffer.len = 0;
    if !fill(kernel) {
        return None;
    }
    let result = pull(kernel).cast_signed();
    let signals = pull(kernel);
    let taken = pull(kernel);
    let mut walk = Walk::default();
    while let Some((address, room)) = kernel.segments.next_room(&mut walk) {
        let len = pull(kernel);
        assert!(len <= room, "the primary filled more than the call allows");
        pull_bytes(kernel, address, len);
    }
    assert_eq!(
        kernel.buffer.next, kernel.buffer.len,
        "the record holds this call's result"
    );
    Some(Outcome {
        result,
        signals,
        taken,
    })
}

/// Gets the next record; `false` if there is none because this replica is the primary now.
fn fill(kernel: &mut Kernel) -> bool {
    let consumed = kernel.replica.consume(&mut kernel.buffer.words);
    match consumed {
        Ok(Consumed::Record(len)) => {
            kernel.buffer.next = 0;
            kernel.buffer.len = len;
            true
        }
        Ok(Consumed::TakeOver) => false,
        Err(halt) => kernel.park(halt),
    }
}

fn refill(kernel: &mut Kernel) {
    if kernel.buffer.next == kernel.buffer.len {
        assert!(
            fill(kernel),
            "the primary was lost in the middle of a long result"
        );
        assert!(kernel.buffer.len > 0, "no record is empty");
    }
}

fn pull(kernel: &mut Kernel) -> u64 {
    refill(kernel);
    kernel.buffer.next += 1;
    kernel.buffer.words[kernel.buffer.next - 1]
}

fn pull_bytes(kernel: &mut Kernel, mut address: u64, len: u64) {
    let mut left = len;
    while left > 0 {
        refill(kernel);
        let available = (kernel.buffer.len - kernel.buffer.next) * 8;
        let part = convert::size(left.min(available as u64));
        let bytes = &kernel.buffer.bytes()[..part];
        guest::copy_out(address, bytes).expect("the primary could write here");
        kernel.buffer.next += part.div_ceil(8);
        address += part as u64;
        left -= part as u64;
    }
}

/// A word that only the primary can know; all replicas get the same.
pub(crate) fn agree(kernel: &mut Kernel, mut source: impl FnMut() -> u64) -> u64 {
    if kernel.alone {
        return source();
    }
    kernel.buffer.len = 0;
    kernel.buffer.next = 0;
    if !kernel.replica.is_primary() && fill(kernel) {
        return pull(kernel);
    }
    kernel.replica.begin_effect(true);
    let value = source();
    kernel.buffer.next = 0;
    push(kernel, value);
    flush(kernel);
    value
}
