//! Files that each replica reads by itself: what a replica keeps for it, and the file.
//!
//! Intuition: the bytes are there for everybody, so a record needs a digest of them only, and what
//! a follower reads is the second reading without which a flip in the primary would reach all.
//!
//! Contract: the version that a record tells was looked at before the primary read. If digests
//! differ and the file has that version still, a replica was hit, and all vote; if it has another,
//! the follower takes the bytes that the primary keeps. These are overwritten only when the
//! follower has taken a later record, for which the primary waits; while there is none, and while
//! no version is known, the bytes themselves are in the record. So they are, always, where the
//! group goes on without a lost primary.
//!
//! Not covered: a flip in the primary before the digest, and a change of the file before the
//! follower looks at its version.

use rcoe_core::{Bug, Guards, mix};

/// Bits of a piece and of a digest.
const PIECE: u64 = (1 << 48) - 1;
/// In a record: it has a digest, not the piece.
const DIRECT: u64 = 1 << 63;
const VERSION_SHIFT: u32 = 56;
/// Times that a follower reads.
const ATTEMPTS: u8 = 2;
/// Times that somebody may change the file.
pub const VERSIONS: u8 = 2;

/// The piece that operation `at` reads from this version of the file.
#[must_use]
pub fn content(at: usize, version: u8) -> u64 {
    mix(mix(at as u64 + 1) ^ u64::from(version)) & PIECE
}

/// The digest of a piece.
#[must_use]
pub const fn digest(piece: u64) -> u64 {
    mix(piece) & PIECE
}

/// What a record tells of a reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The piece itself.
    Piece(u64),
    /// Its digest, and the version that the file had before it was read.
    Digest(u64, u8),
}

impl Told {
    /// As a record.
    #[must_use]
    pub const fn word(self) -> u64 {
        match self {
            Self::Piece(piece) => piece,
            Self::Digest(digest, version) => DIRECT | (version as u64) << VERSION_SHIFT | digest,
        }
    }

    /// From a record.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        if word & DIRECT == 0 {
            return Self::Piece(word & PIECE);
        }
        let [.., version] = (word & !DIRECT).to_le_bytes();
        Self::Digest(word & PIECE, version)
    }
}

/// What one replica keeps of its reading.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reading {
    /// What has been read and is not in use yet.
    pub piece: Option<u64>,
    /// Follower: times that it has read this piece.
    tries: u8,
    /// Follower: the version that the file had when it was read ahead. What comes of that is taken
    /// if it is what the primary has, and shows nothing if not.
    pub ahead: Option<u8>,
    /// Primary: the version of the file, if it was looked at.
    known: Option<u8>,
    /// Primary: where the record of the piece that is kept ends.
    pub kept_until: Option<u64>,
    /// Checks in force.
    pub guards: Guards,
}

impl Reading {
    /// Nothing yet.
    #[must_use]
    pub const fn new(guards: Guards) -> Self {
        Self {
            piece: None,
            tries: 0,
            ahead: None,
            known: None,
            kept_until: None,
            guards,
        }
    }

    /// Primary, after operation `at` has read: the version that the file had before, if it is
    /// known. Whether it has changed is looked at now and then.
    pub fn version(&mut self, at: usize, present: u8) -> Option<u8> {
        if self.guards.off(Bug::VersionLate) {
            return Some(present);
        }
        match self.known {
            Some(known) if at.is_multiple_of(2) && known != present => self.known = None,
            Some(_) => {}
            None => {
                self.known = Some(present);
                return None;
            }
        }
        self.known
    }

    /// Follower: does it read this piece once more?
    pub const fn reads_again(&mut self) -> bool {
        self.tries += 1;
        self.tries < ATTEMPTS
    }

    /// The piece is in use.
    pub const fn done(&mut self) {
        self.piece = None;
        self.tries = 0;
    }
}
