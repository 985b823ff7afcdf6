//! How code is decoded where several candidates look at it.
//!
//! Code that asks `cpuid` asks often, so what stands before one candidate mostly stands before the
//! next one, too. Decoding takes longer than all else about a candidate.
//!
//! Contract: the code stays as it is while one of these is in use.

use crate::convert::size;

/// Places that are kept: nearly twice what is looked at for a candidate.
const PLACES: usize = 256;
/// Bits of an entry that hold the length, whether the instruction is sound, and whether it ends.
const LENGTH: u32 = 4;
const LOW: u32 = LENGTH + 2;
/// Bytes of the longest instruction: one that they may cut off is not kept.
const LONGEST: usize = 15;

/// What is asked of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its length, or 1 if there is none.
    pub(crate) len: u8,
    /// There is one, and compilers emit it.
    pub(crate) is_sound: bool,
    /// What comes behind it need not be code.
    pub(crate) ends: bool,
}

impl Step {
    fn pack(self) -> u32 {
        let flags = u32::from(self.is_sound) | u32::from(self.ends) << 1;
        flags << LENGTH | u32::from(self.len)
    }

    fn unpack(entry: u32) -> Self {
        let [low, ..] = entry.to_le_bytes();
        let flag = |bit| low >> (LENGTH + bit) & 1 != 0;
        Self {
            len: low & ((1 << LENGTH) - 1),
            is_sound: flag(0),
            ends: flag(1),
        }
    }
}

/// What stands at places that were looked at lately.
pub(crate) struct Decoded {
    /// Where the code begins that is given.
    pub(crate) start: u64,
    /// The rest of the place, whether it is sound, and the length; 0 if nothing is known.
    entries: [u32; PLACES],
}

impl Decoded {
    pub(crate) const fn new() -> Self {
        Self {
            start: 0,
            entries: [0; PLACES],
        }
    }

    /// What stands at `at` of the code; `decode` finds it out.
    pub(crate) fn at(
        &mut self,
        code: &[u8],
        at: usize,
        decode: impl FnOnce(&[u8]) -> Step,
    ) -> Step {
        let place = self.start.wrapping_add(at as u64);
        let code = &code[at..];
        let rest = u32::try_from(place / PLACES as u64).unwrap_or(u32::MAX);
        if rest >> (u32::BITS - LOW) != 0 {
            return decode(code);
        }
        let entry = &mut self.entries[size(place) % PLACES];
        if *entry >> LOW == rest && *entry != 0 {
            return Step::unpack(*entry);
        }
        let step = decode(code);
        if code.len() >= LONGEST {
            *entry = rest << LOW | step.pack();
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Step = Step {
        len: 15,
        is_sound: true,
        ends: false,
    };

    #[test]
    fn what_was_decoded_is_known_at_its_place_only() {
        let mut decoded = Decoded::new();
        let code = [0; 2 * PLACES];
        for step in [
            STEP,
            Step {
                len: 1,
                ends: true,
                is_sound: false,
            },
        ] {
            let mut decoded = Decoded::new();
            assert_eq!(decoded.at(&code, 7, |_| step), step);
            assert_eq!(decoded.at(&code, 7, |_| panic!("known")), step);
        }
        assert_eq!(decoded.at(&code, 7, |_| STEP), STEP);
        decoded.start = 3;
        assert_eq!(decoded.at(&code, 4, |_| panic!("the same place")), STEP);
        let other = Step { len: 2, ..STEP };
        assert_eq!(decoded.at(&code, 4 + PLACES, |_| other), other);
        assert_eq!(decoded.at(&code, 4, |_| other), other, "no more");
    }

    #[test]
    fn what_may_be_cut_off_is_not_kept() {
        let mut decoded = Decoded::new();
        let code = [0; LONGEST];
        assert_eq!(decoded.at(&code, 1, |_| STEP), STEP);
        let other = Step { len: 3, ..STEP };
        assert_eq!(decoded.at(&code, 1, |_| other), other);
        // Nor what is far off.
        decoded.start = 1 << 40;
        assert_eq!(decoded.at(&code, 0, |_| STEP), STEP);
        assert_eq!(decoded.at(&code, 0, |_| other), other);
    }
}
