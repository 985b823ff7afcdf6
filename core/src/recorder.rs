//! Flight recorder: the last events of a replica, readable from outside after a divergence.

use crate::Kind;
use crate::primitive::{AtomicU64, Ordering};

/// Events kept.
pub const RECORDED: usize = 32;
/// Most values of an event.
pub const WIDE: usize = 8;

const _: () = assert!(RECORDED.is_power_of_two());

/// How many bits of a kind are kept; above it stands the number of values.
const KIND_BITS: u32 = 28;
const KIND: u64 = (1 << KIND_BITS) - 1;
const LENGTH: u64 = 0xf;
const _: () = assert!(WIDE as u64 <= LENGTH);

/// One event: number, number of values and kind in one word, then the values.
#[derive(Debug)]
#[repr(C)]
struct Line {
    head: AtomicU64,
    values: [AtomicU64; WIDE],
}

impl Line {
    const fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            values: [const { AtomicU64::new(0) }; WIDE],
        }
    }
}

/// An event as it was noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(crate) kind: Kind,
    /// How many of the values it has; the rest are zeroes.
    pub(crate) len: usize,
    pub(crate) values: [u64; WIDE],
}

/// The last [`RECORDED`] events, each at its number modulo [`RECORDED`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Recorder([Line; RECORDED]);

impl Recorder {
    pub(crate) const fn new() -> Self {
        Self([const { Line::new() }; RECORDED])
    }

    /// Notes event `number` (the first is 1). The first word carries the number's low half, so
    /// that a reader can tell entries of different laps apart.
    #[inline(always)]
    pub(crate) fn note<const N: usize>(&self, number: u64, kind: Kind, values: &[u64; N]) {
        const { assert!(0 < N && N <= WIDE) };
        let line = &self.0[place(number)];
        let kind = u64::from(kind.0) & KIND;
        let head = number << 32 | (N as u64) << KIND_BITS | kind;
        line.head.store(head, Ordering::Relaxed);
        for (cell, &value) in line.values.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Event `number`, if it is still there.
    pub(crate) fn get(&self, number: u64) -> Option<Noted> {
        let line = &self.0[place(number)];
        let head = line.head.load(Ordering::Relaxed);
        let kind = Kind((head & KIND).try_into().ok()?);
        let len = usize::try_from(head >> KIND_BITS & LENGTH).ok()?.min(WIDE);
        let mut values = [0; WIDE];
        for (value, cell) in values.iter_mut().zip(&line.values).take(len) {
            *value = cell.load(Ordering::Relaxed);
        }
        let there = number != 0 && head >> 32 == number & 0xffff_ffff && kind.0 != 0;
        there.then_some(Noted { kind, len, values })
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "reduced below RECORDED")]
const fn place(number: u64) -> usize {
    (number % RECORDED as u64) as usize
}
