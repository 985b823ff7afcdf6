//! The supervisor of a simulated group: has a member copied, compares what was copied, and has the
//! copy admitted.
//!
//! It is outside the sphere of replication and never wrong, but it decides nothing that the
//! replicas can decide, and its orders are carried out at a point of the trace, whenever that is
//! reached.

use rcoe_core::ReplicaSet;

/// An order, as the primary publishes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Copy a member.
    Copy {
        /// Number of the copy.
        newcomer: u8,
        /// Whom to copy.
        donor: u8,
    },
    /// Take the copy in.
    Admit,
}

impl Order {
    /// As the word of a record.
    #[must_use]
    pub fn encode(order: Option<Self>) -> u64 {
        match order {
            None => 0,
            Some(Self::Admit) => 1,
            Some(Self::Copy { newcomer, donor }) => {
                2 | u64::from(newcomer) << 8 | u64::from(donor) << 16
            }
        }
    }

    /// From the word of a record.
    #[must_use]
    pub fn decode(word: u64) -> Option<Self> {
        let [kind, newcomer, donor, ..] = word.to_le_bytes();
        match kind {
            1 => Some(Self::Admit),
            2 => Some(Self::Copy { newcomer, donor }),
            _ => None,
        }
    }
}

/// How far a re-integration is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Supervisor {
    /// All are there, or nobody is to be replaced.
    #[default]
    Content,
    /// This one is to be replaced by a copy of that one.
    Wants {
        /// Number of the copy.
        newcomer: u8,
        /// Whom to copy.
        donor: u8,
    },
    /// A copy was ordered.
    Copied,
    /// What was copied is what the others have.
    Verified,
    /// Its admission was ordered.
    Over,
}

impl Supervisor {
    /// The order to give to a primary with these members.
    pub fn order(&mut self, members: ReplicaSet) -> Option<Order> {
        match *self {
            Self::Wants { newcomer, donor } => {
                let known = members.bits();
                if known & 1 << newcomer != 0 || known & 1 << donor == 0 {
                    return None;
                }
                *self = Self::Copied;
                Some(Order::Copy { newcomer, donor })
            }
            Self::Verified => {
                *self = Self::Over;
                Some(Order::Admit)
            }
            Self::Content | Self::Copied | Self::Over => None,
        }
    }
}
