//! The trace of a replica: an order-sensitive checksum of all that it did which must be the same in
//! all.
//!
//! Papers: "state signature" (DSN'19, III-B), `add_event` (EDCC'15). The checksum is Fletcher's
//! over 64-bit words with two 64-bit sums modulo 2^64 - 1. That modulus cannot tell an all-zeros
//! word from an all-ones word; values are therefore scrambled by a bijection, and the scrambled
//! word's top bit also enters the kind word, so that two different events never enter as the same
//! pair of words.

/// What an event is. The sphere defines the codes; 0 is reserved for "no event".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kind(pub u32);

/// State of a trace at one point: equal in all healthy replicas there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Signature {
    /// Events so far.
    pub events: u64,
    /// First Fletcher sum.
    pub a: u64,
    /// Second Fletcher sum: the sum of all values the first one had.
    pub b: u64,
}

impl Signature {
    /// In one word: another one if any of the three is another, and for unlike traces otherwise the
    /// same by chance only, once in 2^64.
    #[must_use]
    #[inline]
    pub const fn word(self) -> u64 {
        self.a ^ self.b.rotate_left(23) ^ self.events
    }
}

/// The running signature of one replica.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Trace(Signature);

impl Trace {
    /// The trace of a replica that did nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Signature {
            events: 0,
            a: 0,
            b: 0,
        })
    }

    /// Goes on from `signature`: for a replica copied from another.
    #[must_use]
    pub const fn resume(signature: Signature) -> Self {
        Self(signature)
    }

    /// Folds one event in. Local and without synchronisation.
    #[inline]
    pub fn add(&mut self, kind: Kind, value: u64) {
        let [first, second] = words(kind, value);
        self.fold(first);
        self.fold(second);
        self.0.events = self.0.events.wrapping_add(1);
    }

    /// Folds in an event with several values, by their digest. One of them that differs shows in
    /// it, see [`digest`].
    #[inline(always)]
    pub fn add_wide<const N: usize>(&mut self, kind: Kind, values: &[u64; N]) {
        let all = values.iter().fold(EMPTY, |all, &value| digest(all, value));
        let head = u64::from(kind.0) | (WIDE_EVENT | N as u64) << 32;
        // No word of 63 bits is all ones.
        self.fold(head << 1 | all & 1);
        self.fold(all >> 1);
        self.0.events = self.0.events.wrapping_add(1);
    }

    /// The signature of all events so far.
    #[must_use]
    #[inline]
    pub const fn signature(&self) -> Signature {
        self.0
    }

    /// Events so far.
    #[must_use]
    #[inline]
    pub const fn events(&self) -> u64 {
        self.0.events
    }

    #[inline(always)]
    fn fold(&mut self, word: u64) {
        self.0.a = add_ones(self.0.a, word);
        self.0.b = add_ones(self.0.b, self.0.a);
    }
}

/// The two words by which an event enters the checksum.
#[must_use]
#[inline]
pub const fn words(kind: Kind, value: u64) -> [u64; 2] {
    let mixed = mix(value);
    [kind.0 as u64 | 1 << 32 | (mixed >> 63) << 33, mixed]
}

/// A bijection of 64-bit words that spreads each bit over the whole word and moves 0 and all-ones
/// away from themselves.
#[must_use]
#[inline]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value ^ (value >> 32)
}

/// In the head of an event with several values, beside their number.
const WIDE_EVENT: u64 = 1 << 8;

/// The digest of no values.
const EMPTY: u64 = 0x9e37_79b9_7f4a_7c15;

/// The digest of some values with one more. A bijection of either, so that values of which one
/// differs never have the same. The rotation leads what a product has in its upper half, where all
/// bits of its factors meet, to where the next product spreads it again.
#[must_use]
#[inline]
pub const fn digest(before: u64, value: u64) -> u64 {
    (before ^ value)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .rotate_left(32)
}

/// Sum modulo 2^64 - 1 by end-around carry; 0 and all-ones stand for the same residue.
#[inline]
const fn add_ones(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum.wrapping_add(carry as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature_of(events: &[(u32, u64)]) -> Signature {
        let mut trace = Trace::new();
        for &(kind, value) in events {
            trace.add(Kind(kind), value);
        }
        trace.signature()
    }

    #[test]
    fn zeros_and_ones_differ() {
        let zeros = signature_of(&[(1, 0)]);
        let ones = signature_of(&[(1, u64::MAX)]);
        assert_ne!(zeros, ones);
        assert_ne!(signature_of(&[(1, 0), (1, 0)]), signature_of(&[(1, 0)]));
    }

    #[test]
    fn no_two_values_enter_as_the_same_residue() {
        // The two values which the bijection sends to the two names of residue 0.
        let unmix = |word: u64| {
            let word = word ^ (word >> 32);
            let mut inverse = 1u64;
            for _ in 0..6 {
                let error = 2u64.wrapping_sub(0xbf58_476d_1ce4_e5b9u64.wrapping_mul(inverse));
                inverse = inverse.wrapping_mul(error);
            }
            word.wrapping_mul(inverse) ^ 0x9e37_79b9_7f4a_7c15
        };
        assert_eq!(mix(unmix(0)), 0);
        assert_eq!(mix(unmix(u64::MAX)), u64::MAX);
        assert_ne!(
            signature_of(&[(1, unmix(0))]),
            signature_of(&[(1, unmix(u64::MAX))])
        );
    }

    #[test]
    fn order_and_kind_count() {
        assert_ne!(
            signature_of(&[(1, 5), (1, 6)]),
            signature_of(&[(1, 6), (1, 5)])
        );
        assert_ne!(signature_of(&[(1, 5)]), signature_of(&[(2, 5)]));
    }

    #[test]
    fn one_flip_anywhere_in_several_values_shows() {
        fn signature<const N: usize>(values: [u64; N]) -> Signature {
            let mut trace = Trace::new();
            trace.add_wide(Kind(1), &values);
            trace.signature()
        }
        let values = [0, 1, u64::MAX, 0, 1 << 63];
        let healthy = signature(values);
        for at in 0..values.len() {
            for bit in 0..64 {
                let mut other = values;
                other[at] ^= 1 << bit;
                assert_ne!(signature(other), healthy, "bit {bit} of value {at}");
                // The same flip in its neighbour does not make up for it.
                other[(at + 1) % values.len()] ^= 1 << bit;
                assert_ne!(signature(other), healthy, "bit {bit} of two values");
            }
        }
        assert_ne!(signature([1, 2]), signature([2, 1]), "order counts");
        assert_ne!(signature([0]), signature([0, 0]), "number counts");
        assert_ne!(signature([5]), signature_of(&[(1, 5)]), "width counts");
    }
}
