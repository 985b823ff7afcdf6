//! A replica's ways with the stream of results: the primary publishes, followers consume.
//!
//! Each has a short way, by [`crate::pair`] if there is one other member and by [`crate::prompt`]
//! else, and one that waits and votes. Which is taken is nobody else's business.

use crate::node::{Done, Node, Ports};
use crate::pair::Taken;
use crate::primitive::AtomicU64;
use crate::ring::{Checksum, Place};
use crate::{Halt, Port};

use super::{Env, Replica};

/// What [`Replica::consume`] gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consumed {
    /// The next record; so many words of the buffer are its payload.
    Record(usize),
    /// The old primary is gone and this replica is the primary now: it does the call itself.
    TakeOver,
}

/// The place of the next record, by which nothing else is published meanwhile.
#[derive(Debug)]
pub struct Placed<'r, 'a, E: Env> {
    replica: &'r mut Replica<'a, E>,
    partner: Port<'a>,
    place: Place<'a>,
}

impl<'a, E: Env> Placed<'_, 'a, E> {
    /// The cells of the payload.
    #[must_use]
    #[inline(always)]
    pub const fn payload(&self) -> &'a [AtomicU64] {
        self.place.payload()
    }

    /// Publishes the record, whose payload stands in its place, as the result of the effect that
    /// was begun as `repeatable`, or not. `checksum`: of the words as they were found there.
    #[inline(always)]
    pub fn publish_effect(self, repeatable: bool, checksum: Checksum) {
        let Replica { node, own, env, .. } = self.replica;
        let what = (repeatable, checksum);
        if node.publish_effect_for(own.outbox, self.partner.outbox, &self.place, what) {
            env.wake(own.outbox);
        }
    }
}

impl<'a, E: Env> Replica<'a, E> {
    /// Primary: about to have the outside effect whose result is the next record. `repeatable`:
    /// twice is as good as once, so that a new primary may do it again.
    ///
    /// # Panics
    /// If this replica is not the primary.
    #[inline(always)]
    pub fn begin_effect(&mut self, repeatable: bool) {
        self.node.begin_effect_in(self.own.outbox, repeatable);
    }

    /// The same of a replica that has asked just now whether it is the primary.
    #[inline(always)]
    pub fn announce_effect(&mut self, repeatable: bool) {
        self.node.announce_effect(self.own.outbox, repeatable);
    }

    /// Primary: publishes the result of a call as the next record and ends the effect.
    ///
    /// The signature at this moment goes with it: the call's arguments are folded in, its result is
    /// not yet. That is where the followers stand when they wait for this record. `payload` is at
    /// most [`crate::MAX_RECORD`] words, and with its header no longer than the ring.
    ///
    /// # Errors
    /// A [`Halt`] found while waiting for room.
    ///
    /// # Panics
    /// If this replica is not the primary or the payload is too long.
    #[inline]
    pub fn publish(&mut self, payload: &[u64]) -> Result<(), Halt> {
        assert!(payload.len() <= crate::MAX_RECORD);
        self.await_room(payload.len())?;
        self.node.commit(&self.ports, payload);
        self.wake_sleepers();
        Ok(())
    }

    /// As [`Replica::publish`], for a payload of `len` words that `fill` writes into the ring
    /// itself: into one piece, or two where the ring wraps. Nobody reads them before `fill` is
    /// done, which gives the checksum of the words as it finds them in the ring.
    ///
    /// # Errors
    /// As [`Replica::publish`].
    ///
    /// # Panics
    /// As [`Replica::publish`].
    #[inline]
    pub fn publish_in_place(
        &mut self,
        len: usize,
        fill: impl FnOnce([&'a [AtomicU64]; 2]) -> Checksum,
    ) -> Result<(), Halt> {
        assert!(len <= crate::MAX_RECORD);
        self.await_room(len)?;
        let filled =
            (self.members().len() > 1).then(|| fill(self.node.payload_cells(&self.ports, len)));
        self.node.seal_filled(&self.ports, len, filled);
        self.node.end_effect(&self.ports);
        self.wake_sleepers();
        Ok(())
    }

    /// The place of the next record, of `len` words, if nothing has to be waited for, others read
    /// it, and the ring has a place for it in one piece. What is written there is published by
    /// [`Replica::publish_at`].
    ///
    /// # Panics
    /// As [`Replica::publish`].
    #[must_use]
    #[inline(always)]
    pub fn place(&self, len: usize) -> Option<Place<'a>> {
        if self.partner.is_some() {
            return self.node.place_in(&self.own, len);
        }
        // In parts, so that no place has to stand in memory.
        let Place {
            header,
            payload,
            end,
        } = self.place_for_all(len)?;
        // So many, which who compiles this may know.
        let payload = payload.get(..len)?;
        Some(Place {
            header,
            payload,
            end,
        })
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn place_for_all(&self, len: usize) -> Option<Place<'a>> {
        self.node.place(&self.ports, len)
    }

    /// As [`Replica::publish`] of the record whose payload stands in its place. `checksum`: of the
    /// words as they were found there.
    ///
    /// # Panics
    /// As [`Replica::publish`], and if another record was published since the place was found.
    #[inline(always)]
    pub fn publish_at(&mut self, place: Place<'_>, checksum: Checksum) {
        let own = self.own.outbox;
        let Some(partner) = self.partner else {
            return self.publish_at_to_all(place, checksum);
        };
        if (self.node).publish_for(own, partner.outbox, &place, checksum) {
            self.env.wake(own);
        }
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn publish_at_to_all(&mut self, place: Place<'_>, checksum: Checksum) {
        self.node.publish_at(&self.ports, &place, checksum);
        self.wake_sleepers();
    }

    /// Primary of two that has begun an effect: the place of its record, of `len` words, as
    /// [`Replica::place`] has it. None also if there are more replicas.
    ///
    /// # Panics
    /// If `len` is more than a record has.
    #[inline(always)]
    pub fn place_for_partner(&mut self, len: usize) -> Option<Placed<'_, 'a, E>> {
        let partner = self.partner?;
        let place = self.node.place_of_effect(&self.own, len)?;
        Some(Placed {
            replica: self,
            partner,
            place,
        })
    }

    /// Primary: waits for room for a record of so many words.
    #[inline]
    fn await_room(&mut self, len: usize) -> Result<(), Halt> {
        if self.node.has_room(len) {
            return Ok(());
        }
        let call = self.node.begin_publish(len);
        self.run(call, &mut []).map(|_| ())
    }

    /// Primary: waits until [`Replica::all_have_passed`] this position, and for room for a record
    /// of `payload` words, as [`Replica::publish`] does.
    ///
    /// # Errors
    /// As [`Replica::publish`].
    ///
    /// # Panics
    /// If this replica is not the primary, or no record has been published since that position.
    pub fn await_passing(&mut self, position: u64, payload: usize) -> Result<(), Halt> {
        if self.node.has_room(payload) && self.all_have_passed(position) {
            return Ok(());
        }
        let call = (self.node).begin_publish_past(&self.ports, payload, position);
        self.run(call, &mut []).map(|_| ())
    }

    /// Follower: the next record of the primary, copied to `out`. See [`Replica::publish`] for
    /// where in the trace to call it. A record longer than `out` counts as a divergence.
    ///
    /// # Errors
    /// A [`Halt`] found while waiting.
    #[inline]
    pub fn consume(&mut self, out: &mut [u64]) -> Result<Consumed, Halt> {
        match self.consume_promptly(out) {
            Some(len) => Ok(Consumed::Record(len)),
            None => self.await_record(out),
        }
    }

    /// Follower: as [`Replica::consume`] if the record is there, or in a moment; how many words it
    /// has. Else nothing has happened, and [`Replica::await_record`] goes on.
    #[inline]
    pub fn consume_promptly(&mut self, out: &mut [u64]) -> Option<usize> {
        let Some(partner) = self.partner else {
            return self.consume_of_any(out);
        };
        let taken = self.consume_wanted(&partner, out, |_| true)?;
        Some(taken.len)
    }

    /// Follower: as [`Replica::consume_promptly`] of a record whose first word `is_wanted`; none
    /// also if that is not known, and nothing has happened then.
    #[inline(always)]
    pub fn consume_promptly_if(
        &mut self,
        out: &mut [u64],
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<usize> {
        let partner = self.partner?;
        let taken = self.consume_wanted(&partner, out, is_wanted)?;
        Some(taken.len)
    }

    #[inline(always)]
    fn consume_wanted(
        &mut self,
        partner: &Port<'a>,
        out: &mut [u64],
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<Taken> {
        if !self.node.sees_record_of(partner)
            && !self.glance(|node, _| node.sees_record_of(partner))
        {
            return None;
        }
        let own = self.own.outbox;
        let taken = self.node.consume_of(own, partner, out, is_wanted)?;
        if taken.asleep {
            self.env.wake(own);
        }
        Some(taken)
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn consume_of_any(&mut self, out: &mut [u64]) -> Option<usize> {
        let mut taken = None;
        let mut take = |node: &mut Node, ports: &Ports<'a>| {
            taken = node.try_consume(ports, out);
            taken.is_some()
        };
        if take(&mut self.node, &self.ports) || self.glance(take) {
            self.wake_sleepers();
        }
        taken
    }

    /// The same of a record of one word.
    #[inline(always)]
    pub fn consume_word_promptly(&mut self) -> Option<u64> {
        let Some(partner) = self.partner else {
            return self.consume_word_of_any();
        };
        if !self.node.sees_record_of(&partner)
            && !self.glance(|node, _| node.sees_record_of(&partner))
        {
            return None;
        }
        self.take_word_of(&partner)
    }

    /// Takes a record of one word that is there.
    #[inline(always)]
    fn take_word_of(&mut self, partner: &Port<'a>) -> Option<u64> {
        let own = self.own.outbox;
        let (word, asleep) = self.node.consume_word_of(own, partner)?;
        if asleep {
            self.env.wake(own);
        }
        Some(word)
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn consume_word_of_any(&mut self) -> Option<u64> {
        let mut taken = None;
        let mut take = |node: &mut Node, ports: &Ports<'a>| {
            taken = node.try_consume_word(ports);
            taken.is_some()
        };
        if take(&mut self.node, &self.ports) || self.glance(take) {
            self.wake_sleepers();
        }
        taken
    }

    /// Follower: waits for the next record as [`Replica::consume`] does.
    ///
    /// # Errors
    /// As [`Replica::consume`].
    #[cold]
    #[inline(never)]
    pub fn await_record(&mut self, out: &mut [u64]) -> Result<Consumed, Halt> {
        let call = self.node.begin_consume();
        match self.run(call, out)? {
            Done::Record(len) => Ok(Consumed::Record(len)),
            Done::TakeOver => Ok(Consumed::TakeOver),
            other => unreachable!("a consumption ends in {other:?}"),
        }
    }

    /// Primary: as [`Replica::publish`] of one word that is no effect's result, by a shorter way.
    ///
    /// # Errors
    /// As [`Replica::publish`].
    ///
    /// # Panics
    /// As [`Replica::publish`].
    #[inline(always)]
    pub fn publish_word(&mut self, word: u64) -> Result<(), Halt> {
        let Some(partner) = self.partner else {
            return self.publish_word_to_all(word);
        };
        let own = self.own;
        match self.node.publish_word_for(&own, partner.outbox, word) {
            Some(asleep) if asleep => self.env.wake(own.outbox),
            Some(_) => {}
            None => return self.publish_word_later(word),
        }
        Ok(())
    }

    /// The same, once there is room for it.
    #[cold]
    #[inline(never)]
    fn publish_word_later(&mut self, word: u64) -> Result<(), Halt> {
        self.publish(&[word])
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn publish_word_to_all(&mut self, word: u64) -> Result<(), Halt> {
        if self.node.try_publish_word(&self.ports, word) {
            self.wake_sleepers();
            return Ok(());
        }
        self.publish(&[word])
    }

    /// Follower: the next record if it is there already and is one word; else nothing has happened,
    /// and [`Replica::consume`] waits for it.
    #[inline]
    pub fn try_consume_word(&mut self) -> Option<u64> {
        if let Some(partner) = self.partner {
            return self.take_word_of(&partner);
        }
        self.try_consume_word_of_any()
    }

    /// The same, whoever there is.
    #[inline(never)]
    fn try_consume_word_of_any(&mut self) -> Option<u64> {
        let word = self.node.try_consume_word(&self.ports);
        self.wake_sleepers();
        word
    }
}
