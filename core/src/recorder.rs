//! Flight recorder: the last events of a replica, readable from outside after a divergence.

use crate::Kind;
use crate::primitive::{AtomicU64, Ordering};

/// Events kept.
pub const RECORDED: usize = 64;

const _: () = assert!(RECORDED.is_power_of_two());

/// The last [`RECORDED`] events, each at its number modulo [`RECORDED`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Recorder([[AtomicU64; 2]; RECORDED]);

impl Recorder {
    pub(crate) const fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; 2] }; RECORDED])
    }

    /// Notes event `number` (the first is 1). The kind word carries the number's low half, so that
    /// a reader can tell entries of different laps apart.
    #[inline]
    pub(crate) fn note(&self, number: u64, kind: Kind, value: u64) {
        let entry = &self.0[place(number)];
        entry[0].store(number << 32 | u64::from(kind.0), Ordering::Relaxed);
        entry[1].store(value, Ordering::Relaxed);
    }

    /// Event `number`, if it is still there.
    pub(crate) fn get(&self, number: u64) -> Option<(Kind, u64)> {
        let entry = &self.0[place(number)];
        let head = entry[0].load(Ordering::Relaxed);
        let value = entry[1].load(Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the kind")]
        let kind = Kind(head as u32);
        (number != 0 && head >> 32 == number & 0xffff_ffff && kind.0 != 0).then_some((kind, value))
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "reduced below RECORDED")]
const fn place(number: u64) -> usize {
    (number % RECORDED as u64) as usize
}
