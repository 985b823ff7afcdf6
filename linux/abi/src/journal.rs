//! What a primary notes about the effect in progress, so that its successor can finish it exactly
//! once.
//!
//! A note is three words in memory that only its writer can write: which effect it speaks of, the
//! value, and a check word over both. A successor thus tells a note about the effect it has to
//! take over from an older one, and either from a damaged one.
//!
//! Of calls that it makes through an io_uring the kernel itself keeps the result; the primary only
//! notes where that lies.
//!
//! Not covered: a primary that notes a wrong value with the right check word, its registers having
//! been hit in between. The successor compares what it can with the kernel's own state.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Names one effect: how many records the primary had published, and what the call was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectId {
    /// Records published before it.
    pub records: u64,
    /// The call: its number and descriptor in one word.
    pub call: u32,
}

impl EffectId {
    const CALL_BITS: u32 = 24;

    /// Both in one word, which is 0 for no effect at all.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.records << Self::CALL_BITS | self.call as u64 & ((1 << Self::CALL_BITS) - 1)
    }
}

/// What a note says to who asks about one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Nothing about this effect: its writer had not come that far.
    Earlier,
    /// The value.
    This(u64),
    /// It is about a later effect, or about another call, or damaged: no telling.
    Unclear,
}

/// One note.
#[derive(Debug)]
#[repr(C)]
pub struct EffectNote {
    effect: AtomicU64,
    value: AtomicU64,
    check: AtomicU64,
}

impl EffectNote {
    /// Writes the note; by its owner only.
    #[inline]
    pub fn write(&self, effect: EffectId, value: u64) {
        let effect = effect.word();
        self.effect.store(effect, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        self.check.store(check(effect, value), Ordering::Release);
    }

    /// What it says about `effect`. Its writer must have stopped.
    #[must_use]
    pub fn read(&self, effect: EffectId) -> Noted {
        let sum = self.check.load(Ordering::Acquire);
        let word = self.effect.load(Ordering::Relaxed);
        let value = self.value.load(Ordering::Relaxed);
        if word == 0 && value == 0 && sum == 0 {
            return Noted::Earlier;
        }
        if sum != check(word, value) {
            Noted::Unclear
        } else if word == effect.word() {
            Noted::This(value)
        } else if word >> EffectId::CALL_BITS < effect.records {
            Noted::Earlier
        } else {
            Noted::Unclear
        }
    }
}

/// Any two notes that differ in one bit have check words that differ in many.
const fn check(effect: u64, value: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (effect.rotate_left(32) ^ value).wrapping_mul(ODD);
    !(mixed ^ mixed >> 29 ^ effect)
}

/// Where a replica's completion queue lies within its region's queues. Written before the first
/// effect that goes through it.
#[derive(Debug)]
#[repr(C)]
pub struct RingNote {
    /// Rings made so far by replicas of this number: each has a place of its own.
    pub made: AtomicU32,
    /// How many entries the queue has; 0 while there is none.
    pub count: AtomicU32,
    /// Offset of its tail.
    pub tail: AtomicU32,
    /// Offset of its entries.
    pub entries: AtomicU32,
}

/// The notes of one replica.
#[derive(Debug)]
#[repr(C)]
pub struct Journal {
    /// What the effect changes, as it was before: a file position, a free descriptor and so on.
    pub position: EffectNote,
    /// The effect's result, once the host has given it.
    pub result: EffectNote,
    /// Where the kernel keeps the results of effects that went through a ring.
    pub ring: RingNote,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: EffectId = EffectId {
        records: 7,
        call: 3,
    };

    fn note(words: [u64; 3]) -> EffectNote {
        let [effect, value, check] = words.map(AtomicU64::new);
        EffectNote {
            effect,
            value,
            check,
        }
    }

    fn words(note: &EffectNote) -> [u64; 3] {
        [&note.effect, &note.value, &note.check].map(|word| word.load(Ordering::Relaxed))
    }

    #[test]
    fn a_fresh_note_speaks_of_nothing_yet() {
        assert_eq!(note([0; 3]).read(HERE), Noted::Earlier);
    }

    #[test]
    fn a_note_is_read_back_for_its_own_effect_only() {
        let own = note([0; 3]);
        own.write(HERE, 99);
        assert_eq!(own.read(HERE), Noted::This(99));
        let later = EffectId { records: 8, ..HERE };
        assert_eq!(own.read(later), Noted::Earlier);
        let earlier = EffectId { records: 6, ..HERE };
        assert_eq!(own.read(earlier), Noted::Unclear);
        let other = EffectId { call: 4, ..HERE };
        assert_eq!(own.read(other), Noted::Unclear);
    }

    #[test]
    fn every_flipped_bit_shows() {
        for value in [0, 99, u64::MAX] {
            let own = note([0; 3]);
            own.write(HERE, value);
            for bit in 0..192 {
                let mut damaged = words(&own);
                damaged[bit / 64] ^= 1 << (bit % 64);
                assert_eq!(note(damaged).read(HERE), Noted::Unclear, "bit {bit}");
            }
        }
    }
}
