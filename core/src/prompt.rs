//! Operations that find all that they need: no wait, no vote, no step machine.
//!
//! Intuition: mostly the record is in the ring, the ring has room, and the others stand where this
//! replica stands. Then an operation is a few loads and stores, and a [`Call`] with all that it
//! may come to would cost more than they do.
//!
//! Contract: each of these does what the step machine would do with what it finds, or nothing and
//! says so; then the step machine goes on from there. So each replica may take either way, and
//! whatever is wrong is left to the way that can vote.

use crate::node::{Call, Node, Ports, Task, port};
use crate::outbox::Outbox;
use crate::primitive::{AtomicU64, Ordering};
use crate::rendezvous::Stage;
use crate::ring::{Checksum, HEADER, ONCE, Place, record_words};
use crate::word::Seen;
use crate::{MAX_RECORD, Port, ReplicaId};

/// Words of a ring with room for any record beside those that a follower has taken without saying
/// so. In a shorter one a primary might wait for room that is there.
pub(crate) const LONG: usize = (MAX_RECORD + HEADER).next_power_of_two();
const _: () = assert!((LONG - (MAX_RECORD + HEADER)) as u64 >= 2 * Node::LAZY_WORDS);

/// What came of a rendezvous without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// All members are there, with equal signatures.
    Met,
    /// This replica has arrived; [`Node::begin_inspection`] goes on.
    Arrived,
    /// Nothing was done; [`Node::begin_rendezvous`] does it all.
    Unable,
}

impl Node {
    /// Arrives at a rendezvous and looks once whether all others are there.
    #[inline]
    pub fn try_meet(&mut self, ports: &Ports<'_>) -> Meeting {
        self.try_meet_in(port(ports, self.id).outbox, ports)
    }

    /// The same with the own outbox at hand.
    #[inline]
    pub(crate) fn try_meet_in(&mut self, own: &Outbox, ports: &Ports<'_>) -> Meeting {
        if self.halted.is_some() || self.is_newcomer() {
            return Meeting::Unable;
        }
        // The bell that tells of the arrival tells of the position, too.
        own.cursor.store(self.cursor, Ordering::Release);
        self.arrive(own, ports);
        if self.all_met(ports) {
            Meeting::Met
        } else {
            Meeting::Arrived
        }
    }

    /// After the arrival: are all others there with the same signature?
    #[must_use]
    #[inline]
    pub fn all_met(&self, ports: &Ports<'_>) -> bool {
        self.others.iter().all(|peer| self.has_met(peer, ports))
    }

    /// The rest of a rendezvous at which this replica has arrived.
    #[must_use]
    #[inline]
    pub fn begin_inspection(&self) -> Call {
        let first = self.others.lowest();
        Call::new(Task::Rendezvous(Stage::Inspect(first.unwrap_or(self.id))))
    }

    /// Is there `peer` with the same signature?
    #[inline]
    fn has_met(&self, peer: ReplicaId, ports: &Ports<'_>) -> bool {
        self.has_met_at(port(ports, peer).outbox)
    }

    /// The same of a member with this outbox.
    #[inline(always)]
    pub(crate) fn has_met_at(&self, outbox: &Outbox) -> bool {
        self.has_met_in(outbox, self.round)
    }

    /// The same where the present round is at hand.
    #[inline(always)]
    pub(crate) fn has_met_in(&self, outbox: &Outbox, round: u64) -> bool {
        let ahead = outbox.arrived.load(Ordering::Acquire).wrapping_sub(round);
        let slot = self.slot_of(round);
        ahead <= 1 && outbox.slots[slot].load(Ordering::Relaxed) == self.slots[slot]
    }

    /// Primary: is there room for a record of `payload` words, as far as was seen before? Then
    /// [`Node::seal_record`] cannot fail.
    ///
    /// # Panics
    /// If this replica is not the primary.
    #[must_use]
    #[inline]
    pub fn has_room(&self, payload: usize) -> bool {
        assert!(self.is_primary(), "only the primary publishes");
        let end = self.cursor + record_words(payload);
        self.halted.is_none() && end <= self.limit
    }

    /// Primary: the place of a record of `len` words, if there are others to read it, room for it
    /// as far as was seen before, and the ring holds it in one piece.
    ///
    /// # Panics
    /// If this replica is not the primary, or the payload is longer than a record.
    #[must_use]
    #[inline]
    pub fn place<'a>(&self, ports: &Ports<'a>, len: usize) -> Option<Place<'a>> {
        assert!(len <= MAX_RECORD);
        if !self.has_room(len) || self.others.is_empty() {
            return None;
        }
        port(ports, self.id).place(self.cursor, len)
    }

    /// Primary: publishes the record whose payload was written to its place, and ends the effect.
    /// `checksum`: of the words as they were found there.
    ///
    /// # Panics
    /// If the place is not that of the next record.
    #[inline]
    pub fn publish_at(&mut self, ports: &Ports<'_>, place: &Place<'_>, checksum: Checksum) {
        let own = port(ports, self.id);
        self.put_header(place, checksum);
        self.pass_record(own.outbox, ports, place.payload.len());
        self.count_record(own.outbox);
        self.end_effect_in(own.outbox);
    }

    /// Writes the header of the record whose payload has this checksum.
    #[inline(always)]
    pub(crate) fn put_header(&self, place: &Place<'_>, checksum: Checksum) {
        let len = place.payload.len();
        assert!(place.end == self.cursor + record_words(len));
        let words = self.next_header(len, checksum);
        for (cell, word) in place.header.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    /// Follower: copies the next record to `out` and takes it, if it is there in one piece and
    /// right in all; how many words it has. Else nothing has happened.
    #[inline]
    #[must_use]
    pub fn try_consume(&mut self, ports: &Ports<'_>, out: &mut [u64]) -> Option<usize> {
        let primary = self.prompt_source(ports)?;
        // A position is the end of a record: if there is a header, there is what belongs to it.
        if !self.sees(primary, self.cursor + HEADER as u64) {
            return None;
        }
        let first = primary.first_word(self.cursor);
        let len = usize::try_from(first & (ONCE - 1)).ok()?;
        let out = out.get_mut(..len)?;
        let end = self.cursor + record_words(len);
        let (header, payload) = primary.record(self.cursor, len)?;
        if !self.has_seen(end) || !self.copy_right(header, payload, out) {
            return None;
        }
        self.take_promptly(ports, end);
        if primary.ring.len() < LONG {
            self.settle(ports);
        }
        Some(len)
    }

    /// Copies a payload and says whether it and its header are what this follower awaits.
    #[inline(always)]
    pub(crate) fn copy_right(
        &self,
        header: &[AtomicU64; HEADER],
        payload: &[AtomicU64],
        out: &mut [u64],
    ) -> bool {
        let signature = self.trace.signature().word();
        let first = header[0].load(Ordering::Relaxed);
        let mut checksum = Checksum::header(first, signature);
        for (slot, cell) in out.iter_mut().zip(payload) {
            *slot = cell.load(Ordering::Relaxed);
            checksum = checksum.add(*slot);
        }
        let index = (self.records & 0xffff_ffff) << 32;
        // Word by word: an iteration over both would be a function of its own.
        let [found_first, found_signature, found_checksum] =
            header.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        let difference = found_first ^ (index | payload.len() as u64 | first & ONCE)
            | found_signature ^ signature
            | found_checksum ^ checksum.finish();
        difference == 0
    }

    /// Whose ring has the next record, if that is the present primary's and this replica is an
    /// ordinary follower.
    #[inline]
    pub(crate) fn prompt_source<'p, 'a>(&self, ports: &'p Ports<'a>) -> Option<&'p Port<'a>> {
        let follows = self.has_drained() && self.primary != self.id && !self.is_newcomer();
        (follows && self.halted.is_none()).then(|| port(ports, self.primary))
    }

    /// Is the ring known to be filled up to `end`? Looks at the primary's position only if it was
    /// not known before.
    #[inline(always)]
    pub(crate) fn sees(&mut self, primary: &Port<'_>, end: u64) -> bool {
        if self.has_seen(end) {
            return true;
        }
        let position = primary.outbox.cursor.load(Ordering::Acquire);
        if position.wrapping_sub(self.cursor) > primary.ring.len() as u64 {
            return false;
        }
        let epoch = self.epoch;
        self.seen = Seen { epoch, position };
        self.has_seen(end)
    }

    /// Is the record that ends there known to be in the ring?
    #[inline(always)]
    pub(crate) const fn has_seen(&self, end: u64) -> bool {
        self.seen.epoch == self.epoch && end <= self.seen.position
    }

    /// The record up to `end` is taken, of which the others are told now and then only.
    #[inline]
    pub(crate) fn take_promptly(&mut self, ports: &Ports<'_>, end: u64) {
        self.cursor = end;
        self.records += 1;
        let told = port(ports, self.id).outbox.cursor.load(Ordering::Relaxed);
        if end.wrapping_sub(told) >= Self::LAZY_WORDS {
            self.tell_position(ports);
        }
    }
}
