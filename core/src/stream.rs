//! The results stream: what the primary learnt from outside, published to the followers without a
//! barrier.
//!
//! Each record carries the primary's signature at publication, which a follower compares with its
//! own before it consumes. A follower that meets a wrong record raises the alarm and votes where it
//! stands. One that only waits first drains all that the primary published, even a dead one's, and
//! joins a vote when nothing is left and the primary is in the vote or gone: so healthy replicas
//! enter a vote at equal signatures.

use crate::guards::Bug;
use crate::node::{Await, Call, Done, Node, Ports, Step, Task, WaitFor, port};
use crate::outbox::Outbox;
use crate::primitive::{AtomicU64, Ordering};
use crate::ring::{self, Checksum, HEADER, Header, record_words, store};
use crate::{Port, ReplicaId};

impl Node {
    /// Marks that the primary is about to have an outside effect, whose result is the next record.
    /// `repeatable`: doing it twice is as good as doing it once.
    #[inline]
    pub fn begin_effect(&mut self, ports: &Ports<'_>, repeatable: bool) {
        self.begin_effect_in(port(ports, self.id).outbox, repeatable);
    }

    /// The same with the own outbox at hand.
    #[inline(always)]
    pub(crate) fn begin_effect_in(&mut self, own: &Outbox, repeatable: bool) {
        assert!(self.is_primary(), "only the primary has effects");
        self.announce_effect(own, repeatable);
    }

    /// The same where that was asked just now.
    #[inline(always)]
    pub(crate) fn announce_effect(&mut self, own: &Outbox, repeatable: bool) {
        debug_assert!(self.is_primary(), "only the primary has effects");
        self.effect = effect_word(self.records, repeatable);
        own.effect.store(self.effect, Ordering::Release);
    }

    /// May the lost primary have had an effect, not repeatable, whose result the survivors do not
    /// have? They have or can still take the stream up to `until`.
    ///
    /// Either it was inside one, or it published the result in a record that they refused or could
    /// not read.
    pub(crate) fn effect_is_lost(&self, ports: &Ports<'_>, primary: ReplicaId, until: u64) -> bool {
        if self.guards.off(Bug::SkipEffectCheck) {
            return false;
        }
        let primary = port(ports, primary);
        let word = primary.outbox.effect.load(Ordering::Acquire);
        let Some(records) = self.records_until(primary, until) else {
            return true;
        };
        self.inside_effect(word, records) || self.unread_effects(primary, until)
    }

    /// How many records there are up to position `until`, counted over those that this replica has
    /// yet to take.
    fn records_until(&self, primary: &Port<'_>, until: u64) -> Option<u64> {
        let mut position = self.cursor;
        let mut records = self.records;
        assert!(
            until.wrapping_sub(position) <= primary.ring.len() as u64,
            "survivors are close"
        );
        while position < until {
            position += record_words(primary.header(position)?.len);
            records += 1;
        }
        (position == until).then_some(records)
    }

    /// Any word but the known harmless ones, even a damaged one, leaves open what was done. One
    /// that speaks of a record which the survivors have is only the trace of a death between
    /// publication and clearing.
    fn inside_effect(&self, word: u64, records: u64) -> bool {
        let repeatable = word == effect_word(records, true);
        let published = records.checked_sub(1).is_some_and(|index| {
            word == effect_word(index, false) || word == effect_word(index, true)
        });
        let stale = published && !self.guards.off(Bug::EffectUntagged);
        !(word == 0 || repeatable || stale)
    }

    /// Is there, among the records that no survivor took, one that must not be made again?
    fn unread_effects(&self, primary: &Port<'_>, until: u64) -> bool {
        let end = primary.outbox.cursor.load(Ordering::Acquire);
        let mut left = end.wrapping_sub(until);
        if left > primary.ring.len() as u64 || self.guards.off(Bug::ForgetUnread) {
            // Never written by a healthy cursor: the stream itself is what is damaged, and the
            // effect word decides.
            return false;
        }
        while left > 0 {
            let Some(header) = primary.header(end.wrapping_sub(left)) else {
                return true;
            };
            if header.once || record_words(header.len) > left {
                return true;
            }
            left -= record_words(header.len);
        }
        false
    }

    #[inline]
    pub(crate) fn step_room(
        &mut self,
        call: &mut Call,
        words: u64,
        next: Option<ReplicaId>,
        ports: &Ports<'_>,
    ) -> Step {
        assert!(self.is_primary(), "only the primary publishes");
        let len = port(ports, self.id).ring.len() as u64;
        assert!(words <= len, "a record fits into the ring");
        let end = self.cursor + words;
        if end <= self.limit || self.members.len() == 1 || self.guards.off(Bug::NoRingCheck) {
            return Step::Ready(Done::Room);
        }
        let followers = self.others;
        let Some(peer) = next.or(followers.lowest()) else {
            return Step::Ready(Done::Room);
        };
        self.await_room(call, peer, words, ports)
    }

    fn await_room(
        &mut self,
        call: &mut Call,
        peer: ReplicaId,
        words: u64,
        ports: &Ports<'_>,
    ) -> Step {
        let len = port(ports, self.id).ring.len() as u64;
        let outbox = port(ports, peer).outbox;
        let bell = outbox.bell();
        let elsewhere = self.went_on(ports, peer);
        let behind = self
            .cursor
            .wrapping_sub(outbox.cursor.load(Ordering::Acquire));
        let absurd = behind > len;
        if !absurd && behind + words <= len {
            return self.found_room(call, peer, words, ports);
        }
        if absurd || elsewhere || self.alarmed(ports) || Self::missing(call, ports, peer) {
            return self.enter_vote(call);
        }
        self.release_leader(peer, ports);
        Step::Pending(Await {
            peer,
            bell,
            reason: WaitFor::Room,
        })
    }

    /// `peer` leaves room: on to the next member, or if it is the last one to the newcomer.
    fn found_room(
        &mut self,
        call: &mut Call,
        peer: ReplicaId,
        words: u64,
        ports: &Ports<'_>,
    ) -> Step {
        let next = self.others.after(peer);
        if next.is_none() {
            if let Some(wait) = self.await_newcomer(call, words, ports) {
                return Step::Pending(wait);
            }
            self.raise_limit(ports);
        }
        call.task = Task::Room { words, next };
        Step::Again
    }

    /// Have all others said that they have taken a record that begins at `position` or later? One
    /// that ends there may still be in use.
    #[must_use]
    pub fn all_have_passed(&self, ports: &Ports<'_>, position: u64) -> bool {
        let has_passed = |peer| {
            let told = port(ports, peer).outbox.cursor.load(Ordering::Acquire);
            told.wrapping_sub(position).cast_signed() >= self.passing().cast_signed()
        };
        self.others.iter().all(has_passed)
    }

    /// How far from a position it is passed, in words.
    pub(crate) fn passing(&self) -> u64 {
        u64::from(!self.guards.off(Bug::KeptInUse))
    }

    /// All followers were seen to leave room: remembers how far publishing may go without looking
    /// again.
    fn raise_limit(&mut self, ports: &Ports<'_>) {
        let len = port(ports, self.id).ring.len() as u64;
        let mut most = self.newcomer_lag(ports).unwrap_or(0);
        for peer in self.others {
            let cursor = port(ports, peer).outbox.cursor.load(Ordering::Acquire);
            most = most.max(self.cursor.wrapping_sub(cursor));
        }
        if most <= len {
            self.limit = self.cursor + (len - most);
        }
    }

    /// Publishes a record for which the room was awaited, and ends the effect whose result it is.
    #[inline]
    pub fn commit(&mut self, ports: &Ports<'_>, payload: &[u64]) {
        self.commit_record(ports, payload);
        self.end_effect(ports);
    }

    /// The cells for the payload of the record to publish next, for which the room was awaited.
    /// Filled in place, it is published by [`Node::seal_record`].
    #[inline]
    #[must_use]
    pub fn payload_cells<'a>(&self, ports: &Ports<'a>, len: usize) -> [&'a [AtomicU64]; 2] {
        port(ports, self.id).payload(self.cursor, len)
    }

    /// First half of [`Node::commit`]: the record becomes visible.
    #[inline]
    pub fn commit_record(&mut self, ports: &Ports<'_>, payload: &[u64]) {
        if self.members.len() > 1 {
            store(self.payload_cells(ports, payload.len()), payload);
        }
        self.seal_record(ports, payload.len());
    }

    /// As [`Node::commit_record`], for a payload of `len` words that is in place.
    #[inline]
    pub fn seal_record(&mut self, ports: &Ports<'_>, len: usize) {
        let own = port(ports, self.id);
        let filled = (self.members.len() > 1).then(|| own.payload_checksum(self.cursor, len));
        self.seal_filled(ports, len, filled);
    }

    /// The same with the checksum of the payload, if there is anybody to read it.
    #[inline]
    pub(crate) fn seal_filled(&mut self, ports: &Ports<'_>, len: usize, filled: Option<Checksum>) {
        if let Some(payload) = filled {
            self.seal(ports, len, payload);
        }
        self.count_record(port(ports, self.id).outbox);
    }

    /// Writes the header of a record that is in place, and says that it is there.
    fn seal(&mut self, ports: &Ports<'_>, len: usize, payload: Checksum) {
        let own = port(ports, self.id);
        assert!(
            self.cursor + record_words(len) <= self.limit || self.guards.off(Bug::NoRingCheck),
            "room comes first"
        );
        if self.guards.off(Bug::DoorbellFirst) {
            own.outbox.ring();
        }
        own.seal(self.cursor, &self.next_header(len, payload));
        self.pass_record(own.outbox, ports, len);
    }

    /// The header of the record to publish next.
    #[inline(always)]
    pub(crate) fn next_header(&self, len: usize, payload: Checksum) -> [u64; HEADER] {
        let once = self.effect == effect_word(self.records, false);
        ring::header(self.records, once, self.trace.signature(), len, payload)
    }

    /// A record of `len` words is in place: says that it is there.
    #[inline]
    pub(crate) fn pass_record(&mut self, own: &Outbox, ports: &Ports<'_>, len: usize) {
        self.cursor += record_words(len);
        own.cursor.store(self.cursor, Ordering::Release);
        self.ring_bell(own, ports, self.fences);
    }

    #[inline(always)]
    pub(crate) fn count_record(&mut self, own: &Outbox) {
        self.records += 1;
        own.records.store(self.records, Ordering::Relaxed);
    }

    /// Second half of [`Node::commit`]: the effect is over. A primary that dies between the halves
    /// leaves an effect word that speaks of a record which is there.
    #[inline]
    pub fn end_effect(&mut self, ports: &Ports<'_>) {
        self.end_effect_in(port(ports, self.id).outbox);
    }

    /// The same with the own outbox at hand.
    #[inline(always)]
    pub(crate) fn end_effect_in(&mut self, own: &Outbox) {
        if self.effect != 0 {
            self.effect = 0;
            own.effect.store(0, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn step_consume(
        &mut self,
        call: &mut Call,
        ports: &Ports<'_>,
        out: &mut [u64],
    ) -> Step {
        let source = self.source();
        if source == self.id {
            return Step::Ready(Done::TakeOver);
        }
        let outbox = port(ports, source).outbox;
        let bell = outbox.bell();
        // What the primary said of itself is read before how far it got, so that nothing is left
        // behind.
        let voting = outbox.alarm.load(Ordering::Acquire) > self.votes;
        let leaving = voting || Self::missing(call, ports, source) || self.went_on(ports, source);
        let available = self.available(outbox.cursor.load(Ordering::Acquire));
        if self.guards.off(Bug::NoDrain) && self.alarmed(ports) {
            return self.enter_vote(call);
        }
        if available != 0 {
            return self.consume_record(call, ports, available, out);
        }
        if leaving && !self.guards.off(Bug::SkipAlarmCheck) || call.overdue.contains(source) {
            return self.enter_vote(call);
        }
        self.release_leader(source, ports);
        Step::Pending(Await {
            peer: source,
            bell,
            reason: WaitFor::Record,
        })
    }

    /// Has `peer`, at the other end of the stream, arrived at a rendezvous after this point of the
    /// trace? It does nothing more for the stream before this replica arrives there too, so it is
    /// no use to wait for it: the two took different ways. To be asked before the cursor is read.
    #[inline]
    fn went_on(&self, ports: &Ports<'_>, peer: ReplicaId) -> bool {
        port(ports, peer).outbox.arrived.load(Ordering::Acquire) > self.round
    }

    /// Words of the stream that wait for this follower when its source has got to `position`. A new
    /// primary may itself have yet to take what the lost one left, and so be behind.
    #[inline]
    fn available(&self, position: u64) -> u64 {
        let available = position.wrapping_sub(self.cursor);
        let behind = self.former.is_some_and(|(_, until)| position < until);
        if behind && self.source() == self.primary {
            0
        } else {
            available
        }
    }

    #[inline]
    fn consume_record(
        &mut self,
        call: &mut Call,
        ports: &Ports<'_>,
        available: u64,
        out: &mut [u64],
    ) -> Step {
        let source = self.source();
        match self.verified(port(ports, source), available, out) {
            Verified::Record(len) => {
                self.cursor += record_words(len);
                self.records += 1;
                let own = port(ports, self.id).outbox;
                own.cursor.store(self.cursor, Ordering::Release);
                self.publish_bell_of_stream(ports);
                Step::Ready(Done::Record(len))
            }
            Verified::Diverged => self.enter_vote(call),
            Verified::Damaged => {
                call.accused = call.accused.with(source);
                self.enter_vote(call)
            }
        }
    }

    /// Checks everything about the next record and copies it out.
    #[inline]
    fn verified(&self, primary: &Port<'_>, available: u64, out: &mut [u64]) -> Verified {
        if available > primary.ring.len() as u64 || available < HEADER as u64 {
            return Verified::Damaged;
        }
        let Some(header) = primary.header(self.cursor) else {
            return Verified::Damaged;
        };
        if record_words(header.len) > available || !self.is_next(&header) {
            return Verified::Damaged;
        }
        let fits = header.len <= out.len();
        let sound = fits && primary.read(self.cursor, &header, &mut out[..header.len]);
        if self.is_newcomer() && self.is_overrun(primary) {
            return Verified::Damaged;
        }
        let same = header.signature == self.trace.signature().word();
        if !(same || self.guards.off(Bug::SkipStreamCompare)) || !fits {
            return Verified::Diverged;
        }
        if sound || self.guards.off(Bug::SkipStreamChecksum) {
            Verified::Record(header.len)
        } else {
            Verified::Damaged
        }
    }

    /// Newcomer, for which the primary does not wait: may it have written over what was just read?
    fn is_overrun(&self, primary: &Port<'_>) -> bool {
        // A record that is still being written has not moved the cursor; its words do not fit the
        // checksum.
        let ahead = primary.outbox.cursor.load(Ordering::Acquire);
        ahead.wrapping_sub(self.cursor) > primary.ring.len() as u64
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a header has the index's low half"
    )]
    pub(crate) const fn is_next(&self, header: &Header) -> bool {
        header.index == self.records as u32
    }

    /// Does the stream vouch that a follower which waits at `cursor` with `signature` stood there
    /// rightly: did the primary publish a record at just this point?
    pub(crate) fn vouched(
        &self,
        ports: &Ports<'_>,
        cursor: u64,
        signature: crate::Signature,
    ) -> bool {
        let primary = port(ports, self.holder(cursor));
        let available = primary
            .outbox
            .cursor
            .load(Ordering::Acquire)
            .wrapping_sub(cursor);
        let possible = available >= HEADER as u64 && available <= primary.ring.len() as u64;
        // A damaged record vouches for nobody: who stands before it cannot catch up.
        possible
            && primary.header(cursor).is_some_and(|header| {
                header.signature == signature.word() && primary.is_sound(cursor, &header)
            })
    }
}

enum Verified {
    Record(usize),
    /// The primary, or this replica, took another way.
    Diverged,
    /// No healthy primary publishes this.
    Damaged,
}

/// The effect word: which record it will become, and whether it may be done again. Never 0.
#[inline]
const fn effect_word(records: u64, repeatable: bool) -> u64 {
    (records << 2) | (repeatable as u64) << 1 | 1
}
