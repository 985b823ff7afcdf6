//! Records of one word, by the straight way.
//!
//! Such a record is no other than one that [`Node::commit`] publishes and [`Node::step`] consumes;
//! each side may take either way. Here is only what nothing stands in the way of: a record whose
//! words the ring holds in one piece, room that was seen before, a checksum that holds and a
//! signature that is the own one. For all else the answer is no, nothing has been done, and the
//! call that can wait and vote finds out what is the matter.
//!
//! What makes it cheap is which lines of memory it touches. A follower looks at the primary's
//! position only when it has taken all that it had seen, and tells its own position after
//! [`Node::LAZY_WORDS`] words or with its next other call, because the primary reads that line,
//! too.
//!
//! Contract: the ring is long against a record and [`Node::LAZY_WORDS`], or a primary may wait for
//! room that is there until the follower makes another call.

use crate::node::{Node, Ports, port};
use crate::primitive::Ordering;
use crate::ring::{self, HEADER, ONCE};

/// Words of such a record.
const WORDS: usize = HEADER + 1;

/// What a follower has seen of the primary's position.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Seen {
    /// Membership changes when it looked.
    pub(crate) epoch: u64,
    pub(crate) position: u64,
}

impl Node {
    /// Words that a follower may have taken without saying so.
    pub const LAZY_WORDS: u64 = 32 * WORDS as u64;

    /// Primary: publishes a word as the next record, which ends no effect. False if that cannot be
    /// done at once; then nothing has happened.
    ///
    /// # Panics
    /// If this replica is not the primary.
    #[inline]
    #[must_use]
    pub fn try_publish_word(&mut self, ports: &Ports<'_>, word: u64) -> bool {
        assert!(self.is_primary(), "only the primary publishes");
        let own = port(ports, self.id);
        let end = self.cursor + WORDS as u64;
        let alone = self.members.len() == 1;
        if self.halted.is_some() || self.effect != 0 || alone || end > self.limit {
            return false;
        }
        let Some(cells) = own.piece::<WORDS>(self.cursor) else {
            return false;
        };
        let words = ring::word_record(self.records, 0, self.trace.signature(), word);
        for (cell, word) in cells.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        self.cursor = end;
        self.records += 1;
        own.outbox.cursor.store(end, Ordering::Release);
        self.publish_bell_of_stream(ports);
        own.outbox.records.store(self.records, Ordering::Relaxed);
        true
    }

    /// Follower: takes the next record if it is there, holds one word, and is right in all; else
    /// nothing has happened.
    #[inline]
    #[must_use]
    pub fn try_consume_word(&mut self, ports: &Ports<'_>) -> Option<u64> {
        let primary = self.prompt_source(ports)?;
        let end = self.cursor + WORDS as u64;
        if !self.sees(primary, end) {
            return None;
        }
        let cells = primary.piece::<WORDS>(self.cursor)?;
        let word = cells[HEADER].load(Ordering::Relaxed);
        let once = cells[0].load(Ordering::Relaxed) & ONCE;
        let expected = ring::word_record(self.records, once, self.trace.signature(), word);
        let pairs = cells.iter().zip(expected);
        let difference = pairs.fold(0, |all, (cell, word)| {
            all | cell.load(Ordering::Relaxed) ^ word
        });
        if difference != 0 {
            return None;
        }
        self.take_promptly(ports, end);
        Some(word)
    }

    /// Before any other call: says how far this replica has come.
    #[inline]
    pub(crate) fn settle(&mut self, ports: &Ports<'_>) {
        let told = port(ports, self.id).outbox.cursor.load(Ordering::Relaxed);
        if told != self.cursor && !self.is_newcomer() {
            self.tell_position(ports);
        }
    }

    #[cold]
    pub(crate) fn tell_position(&mut self, ports: &Ports<'_>) {
        let own = port(ports, self.id).outbox;
        own.cursor.store(self.cursor, Ordering::Release);
        self.publish_bell_of_stream(ports);
    }
}
