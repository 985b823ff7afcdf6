//! What a member says in a vote: where it stands, and its verdict so far.
//!
//! Read from memory that a faulty member wrote: whatever is there decodes to something, and the
//! vote judges it.

use crate::majority::Verdict;
use crate::node::{Ports, port};
use crate::primitive::Ordering;
use crate::{ReplicaId, ReplicaSet, Signature};

/// At what kind of wait a replica joined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum At {
    Rendezvous = 1,
    Stream = 2,
    Action = 3,
}

/// What a member said when it joined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) signature: Signature,
    pub(crate) cursor: u64,
    pub(crate) round: u64,
    pub(crate) at: At,
    pub(crate) accused: ReplicaSet,
    /// Whom it wants to take in.
    pub(crate) invites: Option<ReplicaId>,
    /// Times that actions were performed, modulo 2^16, and events at the last time.
    pub(crate) performed: u16,
    pub(crate) performed_at: u64,
    pub(crate) slots: [u64; 2],
}

/// A ballot word: number of the vote, its phase so far, and the verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BallotWord {
    pub(crate) vote: u32,
    pub(crate) phase: u8,
    pub(crate) verdict: Verdict,
}

impl BallotWord {
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.vote) << 32
            | u64::from(self.phase) << 16
            | u64::from(self.verdict.absent.bits()) << 8
            | u64::from(self.verdict.faulty.bits())
    }

    pub(crate) fn decode(word: u64) -> Self {
        let [faulty, absent, phase, _, vote @ ..] = word.to_le_bytes();
        Self {
            vote: u32::from_le_bytes(vote),
            phase,
            verdict: Verdict {
                absent: ReplicaSet::from_bits(absent),
                faulty: ReplicaSet::from_bits(faulty),
            },
        }
    }
}

impl Entry {
    pub(crate) fn context(&self) -> u64 {
        let low = u64::from(self.performed) << 16 | u64::from(self.accused.bits()) << 8;
        let invites = self.invites.map_or(0, |id| id.index() as u64 + 1);
        self.round << 32 | low | invites << 4 | self.at as u64
    }

    /// Reads a member's entry; `None` if it is none.
    pub(crate) fn read(ports: &Ports<'_>, peer: ReplicaId, parity: usize) -> Option<Self> {
        let outbox = port(ports, peer).outbox;
        let ballot = &outbox.ballots[parity];
        let context = ballot.context.load(Ordering::Relaxed);
        let [at, accused, low, high, ..] = context.to_le_bytes();
        Some(Self {
            signature: ballot.signature.load(),
            cursor: ballot.cursor.load(Ordering::Relaxed),
            round: context >> 32,
            at: match at & 0xf {
                1 => At::Rendezvous,
                2 => At::Stream,
                3 => At::Action,
                _ => return None,
            },
            accused: ReplicaSet::from_bits(accused),
            invites: match at >> 4 {
                0 => None,
                number @ 1..=8 => Some(ReplicaId::new(number - 1)),
                _ => return None,
            },
            performed: u16::from_le_bytes([low, high]),
            performed_at: ballot.performed_at.load(Ordering::Relaxed),
            slots: outbox
                .slots
                .each_ref()
                .map(|slot| slot.load(Ordering::Relaxed)),
        })
    }

    /// Same point, same past.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.signature == other.signature
            && self.cursor == other.cursor
            && self.round == other.round
    }
}
