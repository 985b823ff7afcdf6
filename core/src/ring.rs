//! The results ring: records that the primary publishes and the followers consume in order.
//!
//! Positions count words since the start of the group and never go back; a takeover continues them
//! in the new primary's ring. A record is a header, which carries the primary's signature and a
//! checksum over everything, and its payload. Whatever a reader finds is checked before it is
//! believed.

use crate::Signature;
use crate::outbox::Outbox;
use crate::primitive::{AtomicU64, Ordering};

/// Longest payload of one record, in words.
pub const MAX_RECORD: usize = 4096;

/// Words of a record's header.
pub const HEADER: usize = 5;

/// One replica's published memory: its outbox and its results ring.
#[derive(Clone, Copy, Debug)]
pub struct Port<'a> {
    /// What it says.
    pub outbox: &'a Outbox,
    /// Its results ring; the length is a power of two and the same for all replicas.
    pub ring: &'a [AtomicU64],
}

/// A decoded, not yet verified record header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) len: usize,
    pub(crate) index: u32,
    /// The record is the result of an effect that must not happen twice.
    pub(crate) once: bool,
    pub(crate) signature: Signature,
    check: u64,
}

/// In a header's first word, beside length and index: the effect is not repeatable.
const ONCE: u64 = 1 << 31;

impl Header {
    #[inline]
    fn first_word(&self) -> u64 {
        let once = if self.once { ONCE } else { 0 };
        self.len as u64 | once | u64::from(self.index) << 32
    }
}

/// Fletcher sums modulo 2^64 over a record: any single flipped bit changes the first.
#[derive(Clone, Copy)]
struct Check {
    a: u64,
    b: u64,
}

impl Check {
    #[inline]
    const fn new() -> Self {
        Self {
            a: 0x5243_4f45,
            b: 0,
        }
    }

    #[inline]
    const fn add(self, word: u64) -> Self {
        let a = self.a.wrapping_add(word);
        Self {
            a,
            b: self.b.wrapping_add(a),
        }
    }

    #[inline]
    const fn header(len_index: u64, signature: Signature) -> Self {
        Self::new()
            .add(len_index)
            .add(signature.events)
            .add(signature.a)
            .add(signature.b)
    }

    /// Bijective in each sum for a fixed other one.
    #[inline]
    const fn finish(self) -> u64 {
        self.a ^ self.b.rotate_left(23)
    }
}

impl Port<'_> {
    #[inline]
    fn cell(&self, position: u64) -> &AtomicU64 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "masked to the ring's length"
        )]
        let at = position as usize & (self.ring.len() - 1);
        &self.ring[at]
    }

    /// Writes a record at `position`; the caller made sure of the room and publishes the new cursor
    /// after.
    #[inline]
    pub(crate) fn write(
        &self,
        position: u64,
        index: u64,
        once: bool,
        signature: Signature,
        payload: &[u64],
    ) {
        assert!(payload.len() <= MAX_RECORD && payload.len() + HEADER <= self.ring.len());
        let once = if once { ONCE } else { 0 };
        let len_index = payload.len() as u64 | once | (index & 0xffff_ffff) << 32;
        let mut check = Check::header(len_index, signature);
        let start = position.wrapping_add(HEADER as u64);
        for (&word, at) in payload.iter().zip(0u64..) {
            check = check.add(word);
            self.cell(start.wrapping_add(at))
                .store(word, Ordering::Relaxed);
        }
        let header = [
            len_index,
            signature.events,
            signature.a,
            signature.b,
            check.finish(),
        ];
        for (word, at) in header.into_iter().zip(0u64..) {
            self.cell(position.wrapping_add(at))
                .store(word, Ordering::Relaxed);
        }
    }

    /// The header at `position`, or `None` if its length is impossible.
    #[inline]
    pub(crate) fn header(&self, position: u64) -> Option<Header> {
        let load = |at: u64| self.cell(position.wrapping_add(at)).load(Ordering::Relaxed);
        let len_index = load(0);
        let len = usize::try_from(len_index & (ONCE - 1)).ok()?;
        let once = len_index & ONCE != 0;
        let index = (len_index >> 32) as u32;
        let signature = Signature {
            events: load(1),
            a: load(2),
            b: load(3),
        };
        (len <= MAX_RECORD).then_some(Header {
            len,
            index,
            once,
            signature,
            check: load(4),
        })
    }

    /// Does the checksum of the record at `position` hold?
    #[must_use]
    pub(crate) fn is_sound(&self, position: u64, header: &Header) -> bool {
        let mut check = Check::header(header.first_word(), header.signature);
        for at in HEADER as u64..record_words(header.len) {
            check = check.add(self.cell(position.wrapping_add(at)).load(Ordering::Relaxed));
        }
        check.finish() == header.check
    }

    /// Copies the payload of the record at `position` to `out` and says whether the checksum holds.
    #[inline]
    #[must_use]
    pub(crate) fn read(&self, position: u64, header: &Header, out: &mut [u64]) -> bool {
        let mut check = Check::header(header.first_word(), header.signature);
        let start = position.wrapping_add(HEADER as u64);
        for (slot, at) in out.iter_mut().zip(0u64..) {
            *slot = self.cell(start.wrapping_add(at)).load(Ordering::Relaxed);
            check = check.add(*slot);
        }
        out.len() == header.len && check.finish() == header.check
    }
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
        port.write(13, 7, true, signature, &[10, 20, 30]);
        let header = port.header(13).expect("a sane length");
        assert_eq!(
            (header.len, header.index, header.signature),
            (3, 7, signature)
        );
        let mut out = [0; 3];
        assert!(port.read(13, &header, &mut out));
        assert_eq!(out, [10, 20, 30]);
        for at in 0..8u64 {
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
