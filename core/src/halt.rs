//! Why a replica stops for good, and how it says so in its halt word.

use crate::ReplicaSet;

/// The end of a replica. Whoever gets one parks for ever; the halt word is already published.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Halt {
    /// No safe way on: the group stops.
    FailStop(Cause),
    /// The others outvoted this replica; they go on without it.
    Convicted,
    /// The primary was lost inside an effect that cannot be repeated, and nobody knows whether it
    /// happened (DSN'19, IV-A: no downgrade while a replica accesses a device).
    LostEffect,
    /// This replica found an invariant of its own broken, and goes no further.
    Broken,
    /// A newcomer that the group does not take in, or that cannot follow it.
    NotAdmitted,
}

/// What made a fail-stop necessary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// Signatures differ and too few agree to tell who is right.
    Mismatch,
    /// A replica is missing, and those left are no majority.
    Timeout,
    /// The replicas do not agree on who is faulty.
    Disagreement,
    /// Signatures differ and replicas are missing: no majority.
    NoMajority,
    /// Vote after vote finds nothing, and no replica gets on.
    Livelock,
}

/// Decoded halt word of an outbox.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HaltState {
    /// Not halted.
    Running,
    /// Halted for this reason; `culprits` are those whom its last vote found at fault.
    Halted {
        /// Why.
        halt: Halt,
        /// Members found faulty or missing by the vote that ended in this halt.
        culprits: ReplicaSet,
    },
    /// Not a halt word: the outbox is damaged.
    Garbled(u64),
}

const MAGIC: u64 = 0x4841_4c54 << 32;
const TABLE: [Halt; 9] = [
    Halt::Convicted,
    Halt::LostEffect,
    Halt::FailStop(Cause::Mismatch),
    Halt::FailStop(Cause::Timeout),
    Halt::FailStop(Cause::Disagreement),
    Halt::FailStop(Cause::NoMajority),
    Halt::FailStop(Cause::Livelock),
    Halt::NotAdmitted,
    Halt::Broken,
];

/// The halt word for `halt`; never 0.
#[must_use]
pub(crate) fn encode(halt: Halt, culprits: ReplicaSet) -> u64 {
    let code = TABLE
        .iter()
        .position(|&entry| entry == halt)
        .map_or(0, |at| at as u64 + 1);
    assert!(code != 0, "every halt is in the table");
    MAGIC | u64::from(culprits.bits()) << 8 | code
}

/// What a halt word says.
#[must_use]
pub(crate) fn decode(word: u64) -> HaltState {
    if word == 0 {
        return HaltState::Running;
    }
    let [code, culprits, rest @ ..] = word.to_le_bytes();
    let known = rest == [0, 0, b'T', b'L', b'A', b'H'];
    match TABLE.get(usize::from(code).wrapping_sub(1)) {
        Some(&halt) if known => HaltState::Halted {
            halt,
            culprits: ReplicaSet::from_bits(culprits),
        },
        _ => HaltState::Garbled(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halt_words_round_trip() {
        for halt in TABLE {
            let culprits = ReplicaSet::from_bits(0b101);
            let word = encode(halt, culprits);
            assert_ne!(word, 0);
            assert_eq!(decode(word), HaltState::Halted { halt, culprits });
        }
        assert_eq!(decode(0), HaltState::Running);
        assert_eq!(decode(7), HaltState::Garbled(7));
        assert_eq!(decode(MAGIC | 99), HaltState::Garbled(MAGIC | 99));
    }
}
