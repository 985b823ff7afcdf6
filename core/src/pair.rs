//! What two replicas do with each other while nothing else is under way.
//!
//! Intuition: most groups have one other member, no admission and no lost primary, which changes
//! in votes only. So it is found out after each operation that was not prompt ([`Node::partner`]);
//! and the operations here do as those in [`crate::prompt`], without asking again who there is.
//!
//! Contract: that of [`crate::prompt`]. The caller knows the partner, and that it still is one.

use crate::fences::Fences;
use crate::node::Node;
use crate::outbox::Outbox;
use crate::primitive::Ordering;
use crate::prompt::LONG;
use crate::ring::{self, Checksum, HEADER, ONCE, Place, record_words, word_record};
use crate::{MAX_RECORD, Port, ReplicaId, ReplicaSet};

impl Node {
    /// The only other member, if this replica is an ordinary one and nothing is under way.
    #[must_use]
    pub(crate) fn partner(&self) -> Option<ReplicaId> {
        let ordinary = self.halted.is_none() && self.admission.is_none() && !self.is_newcomer();
        let settled = self.has_drained() && self.guards.all_on();
        let only = self.others.lowest().filter(|_| self.others.len() == 1);
        only.filter(|_| ordinary && settled)
    }

    /// Rings the own bell; does the partner sleep on it?
    #[inline(always)]
    fn ring_for(&self, own: &Outbox, partner: &Outbox, fences: Fences) -> bool {
        own.ring();
        fences.after_ring();
        let asleep = partner.sleeping_on();
        // Mostly it sleeps on nobody's, and that is told at once.
        !asleep.is_empty() && is_one_of(self.id, asleep)
    }

    /// Arrives at a rendezvous: its round, and does the partner sleep on this replica's bell?
    #[inline(always)]
    pub(crate) fn arrive_for(&mut self, own: &Outbox, partner: &Outbox) -> (u64, bool) {
        // The bell that tells of the arrival tells of the position, too.
        own.cursor.store(self.cursor, Ordering::Release);
        self.arrive_unheard(own);
        let round = self.round;
        (round, self.ring_for(own, partner, Fences::Each))
    }

    /// Primary: as [`Node::place`], with the own memory at hand.
    #[inline(always)]
    pub(crate) fn place_in<'a>(&self, own: &Port<'a>, len: usize) -> Option<Place<'a>> {
        assert!(self.primary == self.id, "only the primary publishes");
        self.place_of_next(own, len)
    }

    /// The same of the record that ends an effect, which only the primary begins.
    #[inline(always)]
    pub(crate) fn place_of_effect<'a>(&self, own: &Port<'a>, len: usize) -> Option<Place<'a>> {
        debug_assert!(self.effect != 0 && self.primary == self.id);
        self.place_of_next(own, len)
    }

    #[inline(always)]
    fn place_of_next<'a>(&self, own: &Port<'a>, len: usize) -> Option<Place<'a>> {
        assert!(len <= MAX_RECORD);
        if self.cursor + record_words(len) > self.limit {
            return None;
        }
        own.place(self.cursor, len)
    }

    /// Primary: as [`Node::publish_at`]; does the partner sleep on this replica's bell?
    #[inline(always)]
    pub(crate) fn publish_for(
        &mut self,
        own: &Outbox,
        partner: &Outbox,
        place: &Place<'_>,
        checksum: Checksum,
    ) -> bool {
        self.put_header(place, checksum);
        self.cursor = place.end;
        own.cursor.store(place.end, Ordering::Release);
        let asleep = self.ring_for(own, partner, self.fences);
        self.count_record(own);
        self.end_effect_in(own);
        asleep
    }

    /// Primary: as [`Node::publish_for`] of the result of an effect that was announced just so, in
    /// the place that was found last: nothing was published since.
    #[inline(always)]
    pub(crate) fn publish_effect_for(
        &mut self,
        own: &Outbox,
        partner: &Outbox,
        place: &Place<'_>,
        (repeatable, checksum): (bool, Checksum),
    ) -> bool {
        let len = place.payload.len();
        let signature = self.trace.signature();
        let words = ring::header(self.records, !repeatable, signature, len, checksum);
        for (cell, word) in place.header.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        self.cursor += record_words(len);
        own.cursor.store(self.cursor, Ordering::Release);
        let asleep = self.ring_for(own, partner, self.fences);
        self.count_record(own);
        self.effect = 0;
        own.effect.store(0, Ordering::Release);
        asleep
    }

    /// Primary: as [`Node::try_publish_word`]; none if nothing has happened, else whether the
    /// partner sleeps on this replica's bell.
    #[inline(always)]
    pub(crate) fn publish_word_for(
        &mut self,
        own: &Port<'_>,
        partner: &Outbox,
        word: u64,
    ) -> Option<bool> {
        assert!(self.primary == self.id, "only the primary publishes");
        let end = self.cursor + record_words(1);
        if self.effect != 0 || end > self.limit {
            return None;
        }
        let cells = own.piece::<{ HEADER + 1 }>(self.cursor)?;
        let words = word_record(self.records, 0, self.trace.signature(), word);
        for (cell, word) in cells.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        self.cursor = end;
        own.outbox.cursor.store(end, Ordering::Release);
        self.count_record(own.outbox);
        Some(self.ring_for(own.outbox, partner, self.fences))
    }

    /// Follower: has the partner published another record?
    #[inline(always)]
    pub(crate) fn sees_record_of(&mut self, partner: &Port<'_>) -> bool {
        self.sees(partner, self.cursor + HEADER as u64)
    }

    /// Follower: as [`Node::try_consume`], from the partner that has published another record; if
    /// it begins with a word that `is_wanted`.
    #[inline(always)]
    pub(crate) fn consume_of(
        &mut self,
        own: &Outbox,
        partner: &Port<'_>,
        out: &mut [u64],
        is_wanted: impl Fn(u64) -> bool,
    ) -> Option<Taken> {
        if self.primary == self.id {
            return None;
        }
        // A position is the end of a record: if there is a header, there is what belongs to it.
        let first = partner.first_word(self.cursor);
        let len = usize::try_from(first & (ONCE - 1)).ok()?;
        let out = out.get_mut(..len)?;
        let end = self.cursor + record_words(len);
        let (header, payload) = partner.record(self.cursor, len)?;
        let begins = payload.first()?.load(Ordering::Relaxed);
        if !is_wanted(begins) || !self.has_seen(end) || !self.copy_right(header, payload, out) {
            return None;
        }
        let asleep = self.take_for(own, partner, end);
        Some(Taken { len, asleep })
    }

    /// Follower: as [`Node::try_consume_word`], from the partner.
    #[inline(always)]
    pub(crate) fn consume_word_of(
        &mut self,
        own: &Outbox,
        partner: &Port<'_>,
    ) -> Option<(u64, bool)> {
        let end = self.cursor + record_words(1);
        if self.primary == self.id || !self.sees(partner, end) {
            return None;
        }
        let cells = partner.piece::<{ HEADER + 1 }>(self.cursor)?;
        let [first, signature, checksum, word] =
            cells.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        // Word by word: whole arrays would be compared in memory.
        let expected = word_record(self.records, first & ONCE, self.trace.signature(), word);
        let difference = first ^ expected[0] | signature ^ expected[1] | checksum ^ expected[2];
        (difference == 0).then(|| (word, self.take_for(own, partner, end)))
    }

    /// The record up to `end` is taken, of which the partner is told now and then only; does it
    /// sleep on this replica's bell then?
    #[inline(always)]
    fn take_for(&mut self, own: &Outbox, partner: &Port<'_>, end: u64) -> bool {
        self.cursor = end;
        self.records += 1;
        let told = own.cursor.load(Ordering::Relaxed);
        let due = end.wrapping_sub(told) >= Self::LAZY_WORDS || partner.ring.len() < LONG;
        due && self.tell_position_to(own, partner.outbox)
    }

    #[cold]
    fn tell_position_to(&self, own: &Outbox, partner: &Outbox) -> bool {
        own.cursor.store(self.cursor, Ordering::Release);
        self.ring_for(own, partner, self.fences)
    }
}

#[cold]
#[inline(never)]
fn is_one_of(id: ReplicaId, set: ReplicaSet) -> bool {
    set.contains(id)
}

/// A record that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// Its words.
    pub(crate) len: usize,
    /// The partner sleeps on this replica's bell.
    pub(crate) asleep: bool,
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::node::Ports;
    use crate::primitive::AtomicU64;
    use crate::{Kind, MAX_REPLICAS};

    const RING: usize = 2 * LONG;

    /// Two nodes and their memory; what they leave there is compared with nobody's.
    fn pair(test: impl FnOnce([Node; 2], &Ports<'_>)) {
        let outboxes = [Outbox::new(), Outbox::new()];
        let rings = [(); 2].map(|()| {
            let cells = (0..RING).map(|_| AtomicU64::new(0));
            cells.collect::<std::vec::Vec<_>>()
        });
        let mut ports = [None; MAX_REPLICAS];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
            *port = Some(Port { outbox, ring });
        }
        let members = ReplicaSet::all(2);
        let nodes = [0, 1].map(|id| Node::new(ReplicaId::new(id), members, &ports));
        test(nodes, &ports);
    }

    fn fill(place: &Place<'_>, word: u64) -> Checksum {
        let add = |sum: Checksum, cell: &AtomicU64| {
            cell.store(word, Ordering::Relaxed);
            sum.add(word)
        };
        place.payload().iter().fold(Checksum::EMPTY, add)
    }

    #[test]
    fn each_side_may_take_either_way() {
        pair(|[mut primary, mut follower], ports| {
            let [first, second] = [0, 1].map(|id| ports[id].expect("a member has a port"));
            for round in 1..2000_u64 {
                for (node, port) in [(&mut primary, first), (&mut follower, second)] {
                    node.add_wide_event(port.outbox, Kind(5), &[round, 7]);
                }
                let len = 1 + usize::from((round % 40).to_le_bytes()[0]);
                let place = match round % 3 {
                    0 => primary.place(ports, len),
                    _ => primary.place_in(&first, len),
                };
                let effect = round % 7 == 0 && place.is_some();
                let sum = place.as_ref().map(|place| fill(place, round));
                if effect {
                    let repeatable = round % 2 == 0;
                    primary.begin_effect_in(first.outbox, repeatable);
                    let (place, begins) = (place.expect("as said"), primary.cursor);
                    let what = (repeatable, sum.expect("of the place"));
                    primary.publish_effect_for(first.outbox, second.outbox, &place, what);
                    assert!(primary.effect == 0 && primary.cursor == place.end);
                    let header = first.header(begins).expect("a sane length");
                    assert_eq!((header.len, header.once), (len, !repeatable));
                } else if let (Some(place), Some(sum)) = (place, sum) {
                    if round % 3 == 0 {
                        primary.publish_at(ports, &place, sum);
                    } else {
                        primary.publish_for(first.outbox, second.outbox, &place, sum);
                    }
                } else {
                    // No room is known, or none in one piece: the way that looks for it.
                    let mut call = primary.begin_publish(len);
                    let _ = primary.step(&mut call, ports, &mut []);
                    primary.commit(ports, &[round; 40][..len]);
                }
                let mut words = [0; 64];
                let taken = match round % 5 {
                    0 => None,
                    1 => follower.try_consume(ports, &mut words),
                    _ if follower.sees_record_of(&first) => {
                        let no = follower.consume_of(second.outbox, &first, &mut words, |_| false);
                        assert!(no.is_none(), "nobody wanted it");
                        let is_wanted = |word| word == round;
                        let taken =
                            follower.consume_of(second.outbox, &first, &mut words, is_wanted);
                        taken.map(|taken| taken.len)
                    }
                    _ => None,
                };
                if taken.is_none() {
                    let mut call = follower.begin_consume();
                    let _ = follower.step(&mut call, ports, &mut words);
                }
                assert!(words[..len].iter().all(|word| *word == round), "{round}");
                assert_eq!(follower.records(), round);
                assert_eq!(primary.cursor, follower.cursor);
            }
        });
    }

    #[test]
    fn words_are_records() {
        pair(|[mut primary, mut follower], ports| {
            let [first, second] = [0, 1].map(|id| ports[id].expect("a member has a port"));
            for word in 0..100 {
                let asleep = primary.publish_word_for(&first, second.outbox, word);
                assert_eq!(asleep, Some(false));
                let taken = match word % 2 {
                    0 => follower.try_consume_word(ports),
                    _ => {
                        let taken = follower.consume_word_of(second.outbox, &first);
                        taken.map(|(word, _)| word)
                    }
                };
                assert_eq!(taken, Some(word));
            }
            assert_eq!(follower.consume_word_of(second.outbox, &first), None);
            primary.begin_effect(ports, true);
            let refused = primary.publish_word_for(&first, second.outbox, 1);
            assert_eq!(refused, None, "an effect is under way");
        });
    }

    #[test]
    fn a_meeting_is_one_for_both() {
        pair(|[mut one, mut other], ports| {
            let [first, second] = [0, 1].map(|id| ports[id].expect("a member has a port"));
            for round in 0..10 {
                assert!(!one.arrive_for(first.outbox, second.outbox).1);
                assert!(!one.has_met_at(second.outbox), "nobody is there");
                match round % 2 {
                    0 => assert!(!other.arrive_for(second.outbox, first.outbox).1),
                    _ => assert_eq!(other.try_meet(ports), crate::Meeting::Met),
                }
                assert!(one.has_met_at(second.outbox) && other.has_met_at(first.outbox));
            }
            one.add_event(first.outbox, Kind(1), 1);
            one.arrive_for(first.outbox, second.outbox);
            other.arrive_for(second.outbox, first.outbox);
            assert!(!one.has_met_at(second.outbox), "they differ");
        });
    }

    #[test]
    fn who_sleeps_is_noticed() {
        pair(|[mut one, _], ports| {
            let [first, second] = [0, 1].map(|id| ports[id].expect("a member has a port"));
            let bell = first.outbox.bell();
            assert!(second.outbox.begin_sleep(one.id, first.outbox, bell, || {}));
            assert!(one.arrive_for(first.outbox, second.outbox).1);
            let asleep = one.publish_word_for(&first, second.outbox, 1);
            assert_eq!(asleep, Some(true));
        });
    }

    #[test]
    fn only_an_ordinary_pair_is_one() {
        pair(|[mut one, other], ports| {
            assert_eq!(one.partner(), Some(other.id));
            one.expect_newcomer(ReplicaId::new(2));
            assert_eq!(one.partner(), None, "a newcomer is to hear the bell, too");
            one.forget_newcomer();
            assert_eq!(one.partner(), Some(other.id));
            one.former = Some((other.id, 1));
            assert_eq!(one.partner(), None, "a lost primary's records come first");
            one.former = None;
            one.set_members(ReplicaSet::all(3));
            assert_eq!(one.partner(), None, "there are two");
            one.set_members(ReplicaSet::all(1));
            assert_eq!(one.partner(), None, "there is nobody");
            one.set_members(ReplicaSet::all(2));
            let _ = one.halt(ports, crate::Halt::LostEffect, ReplicaSet::empty());
            assert_eq!(one.partner(), None, "it has stopped");
        });
    }
}
