//! Faults: what goes wrong in one replica, once.

use rcoe_core::{ReplicaSet, snapshot};

use crate::group::Group;
use crate::process::{Misstep, Stage};
use crate::program::Op;
use crate::reading::VERSIONS;
use crate::rng::Rng;

/// Words of a snapshot that a random fault may hit: all but the count of posts, which stands last
/// and says something in a program with deferred effects only.
const GARBLED: usize = snapshot::POSTED;

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// One bit of the running signature flips.
    FlipTrace(u32),
    /// One bit of the program's data flips.
    FlipData(u32),
    /// One bit of the program's data at rest flips.
    FlipAtRest(u32),
    /// The program skips an operation.
    Skip,
    /// One word of the replica's own outbox is overwritten.
    Garble {
        /// Which, in snapshot order.
        word: usize,
        /// By what.
        value: u64,
    },
    /// One of the words that the replica has posted is overwritten.
    GarblePost {
        /// Which of those in use, modulo their number.
        at: usize,
        /// By what.
        value: u64,
    },
    /// One bit of the next effect in the primary's queue flips.
    FlipDeferred(u32),
    /// One bit of the replica's own ring flips.
    FlipRing {
        /// Which word.
        word: usize,
        /// Which bit.
        bit: u32,
    },
    /// One bit flips of a piece of the file that was read and is not in use yet.
    FlipPiece(u32),
    /// No fault: somebody changes the file.
    Rewrite,
    /// It stops for ever.
    Die,
    /// It stops for a while.
    Slow,
    /// It breaks within the protocol.
    Misstep(Misstep),
}

impl Fault {
    /// A random fault.
    #[must_use]
    pub fn random(rng: &mut Rng) -> Self {
        let bit = u32::try_from(rng.below(64)).expect("below 64");
        match rng.below(16) {
            0..=2 => Self::FlipTrace(bit),
            3..=4 => Self::FlipData(bit),
            5 => Self::Skip,
            6..=8 => Self::Garble {
                word: rng.index(GARBLED),
                value: garbage(rng),
            },
            9 => Self::FlipRing {
                word: rng.index(64),
                bit,
            },
            10..=12 => Self::Die,
            13 if bit & 1 == 0 => Self::Misstep(Misstep::Stop),
            13 => Self::Misstep(Misstep::Exclude(ReplicaSet::from_bits(1 << (bit / 2 % 8)))),
            _ => Self::Slow,
        }
    }

    /// A random fault for programs with deferred effects.
    #[must_use]
    pub fn random_deferring(rng: &mut Rng) -> Self {
        let value = garbage(rng);
        match rng.below(8) {
            0 | 1 => Self::FlipDeferred(u32::try_from(rng.below(64)).expect("below 64")),
            2 => Self::Garble {
                word: GARBLED,
                value,
            },
            3 => Self::GarblePost {
                at: rng.index(64),
                value,
            },
            _ => Self::random(rng),
        }
    }

    /// A random fault for programs that read the file, or a change of it.
    #[must_use]
    pub fn random_reading(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 | 1 => Self::Rewrite,
            2 => Self::FlipPiece(u32::try_from(rng.below(48)).expect("below 48")),
            _ => Self::random(rng),
        }
    }

    /// Whether the last comparison is sure to find the fault. Data that is not used any more is not
    /// activated.
    #[must_use]
    pub const fn must_show(self) -> bool {
        matches!(
            self,
            Self::FlipTrace(_) | Self::Skip | Self::FlipDeferred(_)
        )
    }

    /// Whether the fault hits only what the replica tells others.
    #[must_use]
    pub const fn garbles(self) -> bool {
        matches!(
            self,
            Self::Garble { .. } | Self::GarblePost { .. } | Self::FlipRing { .. }
        )
    }

    /// Applies the fault; false if it makes no sense there, so that it is to be tried again later.
    ///
    /// Data that flips between the vote on an output and the effect goes out wrong: no protocol
    /// above the device sees it. That window is left out here and named in the specification.
    #[must_use]
    pub fn strike(self, group: &mut Group, victim: usize) -> bool {
        let program = group.program.clone();
        let process = &mut group.processes[victim];
        if !process.runs(program.len()) {
            return false;
        }
        let op = program[process.at];
        let voted = matches!(op, Op::Output { .. }) && process.stage != Stage::Start;
        let compared = process.at + 1 == program.len() && process.stage != Stage::Start;
        match self {
            Self::FlipTrace(_) if compared => return false,
            Self::FlipTrace(bit) => process.node.flip_trace(bit),
            Self::FlipData(_) if voted => return false,
            Self::FlipData(bit) => process.accumulator ^= 1 << bit,
            Self::FlipAtRest(bit) => process.at_rest ^= 1 << bit,
            Self::Skip => {
                let last = process.at + 1 >= program.len();
                if process.stage != Stage::Start
                    || last
                    || matches!(op, Op::Act | Op::Alarm | Op::Orders)
                {
                    return false;
                }
                process.at += 1;
            }
            Self::Garble { word, value } => group.shared[victim].snapshot[word] = fit(word, value),
            Self::GarblePost { at, value } => {
                let posts = &mut group.shared[victim].posts;
                if posts.is_empty() {
                    return false;
                }
                let slot = at % posts.len();
                posts[slot] = value;
            }
            Self::FlipDeferred(bit) => return process.deferred.flip(bit),
            Self::FlipPiece(bit) => match &mut process.reading.piece {
                Some(piece) => *piece ^= 1 << bit,
                None => return false,
            },
            Self::Rewrite if group.world.version >= VERSIONS => return false,
            Self::Rewrite => group.world.version += 1,
            Self::FlipRing { word, bit } => {
                let ring = &mut group.shared[victim].ring;
                let at = word % ring.len();
                ring[at] ^= 1 << bit;
            }
            Self::Die => process.alive = false,
            Self::Slow => process.slow = true,
            Self::Misstep(_) if process.call.is_none() => return false,
            Self::Misstep(misstep) => process.misstep = Some(misstep),
        }
        true
    }
}

/// Alarm, doorbell and sleepers have half the width.
const fn fit(word: usize, value: u64) -> u64 {
    if matches!(
        word,
        snapshot::ALARM | snapshot::DOORBELL | snapshot::SLEEPING
    ) {
        value & 0xffff_ffff
    } else {
        value
    }
}

/// A word as wild stores and stuck bits leave it: any, or close to what belongs there.
fn garbage(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.below(16),
        3 => 1 << rng.below(64),
        4 => 1 << 32 | rng.below(4) << 16 | rng.below(1 << 16),
        _ => rng.draw(),
    }
}
