//! The outbox: all that a replica tells the others, in memory that it alone can write.
//!
//! The papers share writable words between replicas and name it as a hole (DSN'19, III-A): an error
//! there hits several replicas. Here every word has one writer. There is no shared
//! read-modify-write and no lock; a wild store of one replica cannot change what another relies on.
//! An outbox of zero bytes is a valid fresh one.

use crate::posts::POSTS;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};
use crate::recorder::Recorder;
use crate::{Halt, ReplicaId, ReplicaSet, Signature, halt};

/// Layout version. The sphere compares it before replicas of two builds talk to each other.
pub const FINGERPRINT: u32 = 0x5243_0003;

/// Words of a [`Snapshot`].
pub const SNAPSHOT_WORDS: usize = 30;

/// The protocol words of an outbox as plain numbers (without flight recorder, statistics and the
/// posts, see [`Outbox::posts`]): for model checkers and fault injectors. Where some of them stand
/// is told by [`snapshot`].
pub type Snapshot = [u64; SNAPSHOT_WORDS];

/// Places of words in a [`Snapshot`]. Those of alarm, doorbell and sleepers have 32 bits, all
/// others 64.
pub mod snapshot {
    /// Rendezvous entered.
    pub const ARRIVED: usize = 0;
    /// Number of the last vote that was called for.
    pub const ALARM: usize = 3;
    /// The doorbell.
    pub const DOORBELL: usize = 4;
    /// Position in the stream.
    pub const CURSOR: usize = 5;
    /// Why the replica has stopped, or 0.
    pub const HALT: usize = 6;
    /// Whose doorbells it sleeps on.
    pub const SLEEPING: usize = 7;
    /// The first words of the two ballots: phase, absent and faulty members.
    pub const BALLOTS: [usize; 2] = [13, 20];
    /// Posts so far.
    pub const POSTED: usize = 29;
}

/// What one replica says in one vote. Two of them alternate, so that a vote stays readable during
/// the next.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ballot {
    /// See [`crate::ballot`]: vote number, phase, absent and faulty members in one word.
    pub(crate) word: AtomicU64,
    /// Signature at entry.
    pub(crate) signature: SignatureWords,
    /// Stream position at entry.
    pub(crate) cursor: AtomicU64,
    /// Round, kind of wait, accused members and actions performed: see [`crate::ballot`].
    pub(crate) context: AtomicU64,
    /// Events at which actions were last performed.
    pub(crate) performed_at: AtomicU64,
}

/// A signature in shared memory. Not atomic as a whole: readable only once its guard word says so.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SignatureWords([AtomicU64; 3]);

impl SignatureWords {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 3])
    }

    #[inline]
    pub(crate) fn load(&self) -> Signature {
        let [events, a, b] = &self.0;
        Signature {
            events: events.load(Ordering::Relaxed),
            a: a.load(Ordering::Relaxed),
            b: b.load(Ordering::Relaxed),
        }
    }

    #[inline]
    pub(crate) fn store(&self, signature: Signature) {
        let [events, a, b] = &self.0;
        events.store(signature.events, Ordering::Relaxed);
        a.store(signature.a, Ordering::Relaxed);
        b.store(signature.b, Ordering::Relaxed);
    }
}

/// Everything a replica publishes, except its results ring.
///
/// The first cache line is what waiting peers poll, at a rendezvous and on the stream: one line to
/// get for whoever waits, and one to get back for its owner. So the doorbell, which the owner rings
/// after it has changed that line, is in none that is polled, and neither is what peers read of one
/// that sleeps.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Outbox {
    // Line 0: polled.
    pub(crate) arrived: AtomicU64,
    /// Signatures at the last two rendezvous, see [`Signature::word`].
    pub(crate) slots: [AtomicU64; 2],
    pub(crate) cursor: AtomicU64,
    pub(crate) alarm: AtomicU32,
    _line: [u32; 7],
    // Line 1: seldom changed.
    pub(crate) halt: AtomicU64,
    pub(crate) sleeping: AtomicU32,
    pub(crate) triggered: AtomicU64,
    pub(crate) action: AtomicU64,
    pub(crate) action_point: AtomicU64,
    pub(crate) action_seen: [AtomicU64; 2],
    pub(crate) membership: AtomicU64,
    // Lines 2 and 3: read in votes, by sleepers and by the supervisor.
    pub(crate) ballots: [Ballot; 2],
    pub(crate) effect: AtomicU64,
    pub(crate) doorbell: AtomicU32,
    pub(crate) fingerprint: AtomicU32,
    pub(crate) recorder: Recorder,
    pub(crate) records: AtomicU64,
    // Read by the primary: see `posts`.
    pub(crate) posted: AtomicU64,
    pub(crate) posts: [AtomicU64; POSTS],
}

#[cfg(not(feature = "shuttle"))]
const _: () = {
    assert!(
        core::mem::offset_of!(Outbox, halt) == 64,
        "polled words fill one line"
    );
    assert!(
        core::mem::offset_of!(Outbox, ballots) == 128,
        "words that seldom change fill one line"
    );
    assert!(
        core::mem::offset_of!(Outbox, recorder) == 256,
        "vote words fill two lines"
    );
};

impl Outbox {
    /// A fresh outbox; all its bytes are zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            arrived: AtomicU64::new(0),
            slots: [const { AtomicU64::new(0) }; 2],
            cursor: AtomicU64::new(0),
            alarm: AtomicU32::new(0),
            _line: [0; 7],
            halt: AtomicU64::new(0),
            sleeping: AtomicU32::new(0),
            triggered: AtomicU64::new(0),
            action: AtomicU64::new(0),
            action_point: AtomicU64::new(0),
            action_seen: [const { AtomicU64::new(0) }; 2],
            ballots: [const { Ballot::new() }; 2],
            effect: AtomicU64::new(0),
            doorbell: AtomicU32::new(0),
            fingerprint: AtomicU32::new(0),
            membership: AtomicU64::new(0),
            records: AtomicU64::new(0),
            recorder: Recorder::new(),
            posted: AtomicU64::new(0),
            posts: [const { AtomicU64::new(0) }; POSTS],
        }
    }

    /// The futex word on which peers sleep. Only its owner changes it, by one for each publication.
    #[must_use]
    #[inline]
    pub const fn doorbell(&self) -> &AtomicU32 {
        &self.doorbell
    }

    /// The doorbell's value now.
    #[must_use]
    #[inline]
    pub fn bell(&self) -> u32 {
        self.doorbell.load(Ordering::Acquire)
    }

    /// How often its owner has come to a rendezvous.
    #[must_use]
    #[inline]
    pub fn arrivals(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Was this outbox written by a build with the same layout?
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.fingerprint.load(Ordering::Relaxed) == FINGERPRINT
    }

    /// Whose doorbells this replica sleeps on.
    #[must_use]
    #[inline]
    pub fn sleeping_on(&self) -> ReplicaSet {
        ReplicaSet::from_bits(self.sleeping.load(Ordering::Relaxed).to_le_bytes()[0])
    }

    /// Does this replica sleep on that doorbell, and not for a moment only, after which it looks by
    /// itself? See [`Outbox::begin_doze`].
    #[must_use]
    #[inline]
    pub fn must_be_woken_by(&self, peer: ReplicaId) -> bool {
        let [sleeping, dozes, ..] = self.sleeping.load(Ordering::Relaxed).to_le_bytes();
        ReplicaSet::from_bits(sleeping).contains(peer) && dozes == 0
    }

    /// Sleeper's half of the handshake: announces sleep on `peer`'s doorbell and says whether
    /// sleeping is right, that is whether the bell still is at `bell`. On `true` the caller waits
    /// on the futex word `peer.doorbell()` with expected value `bell`, then calls
    /// [`Outbox::end_sleep`]; on `false` the announcement is withdrawn.
    ///
    /// `barrier` is called between the two, and has to be what the peer's
    /// [`Fences`](crate::Fences) ask for.
    #[must_use]
    pub fn begin_sleep(
        &self,
        peer: ReplicaId,
        peer_outbox: &Self,
        bell: u32,
        barrier: impl FnOnce(),
    ) -> bool {
        self.announce_sleep(peer, peer_outbox, bell, 0, barrier)
    }

    /// The same for a moment, after which this replica looks by itself whether it was rung: who
    /// rings may put off waking it, and may not have seen that it sleeps.
    #[must_use]
    pub fn begin_doze(&self, peer: ReplicaId, peer_outbox: &Self, bell: u32) -> bool {
        const DOZES: u32 = 1 << 8;
        self.announce_sleep(peer, peer_outbox, bell, DOZES, || {})
    }

    fn announce_sleep(
        &self,
        peer: ReplicaId,
        peer_outbox: &Self,
        bell: u32,
        how: u32,
        barrier: impl FnOnce(),
    ) -> bool {
        let bits = self.sleeping_on().with(peer).bits();
        self.sleeping
            .store(u32::from(bits) | how, Ordering::Relaxed);
        // Pairs with the fence of who rings, or is one for both: either the publisher sees this bit
        // or we see its new bell.
        fence(Ordering::SeqCst);
        barrier();
        if peer_outbox.bell() == bell {
            return true;
        }
        self.end_sleep();
        false
    }

    /// Withdraws all announcements of sleep.
    pub fn end_sleep(&self) {
        self.sleeping.store(0, Ordering::Release);
    }

    /// The owner has found an invariant of its own broken and will do nothing more: says so,
    /// outside of any call, so that nobody waits for it.
    pub fn declare_broken(&self) {
        let word = halt::encode(Halt::Broken, ReplicaSet::empty());
        self.halt.store(word, Ordering::Release);
        self.ring();
    }

    /// Has the owner said so?
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.halt.load(Ordering::Acquire) == halt::encode(Halt::Broken, ReplicaSet::empty())
    }

    /// Rings the doorbell after a publication.
    #[inline]
    pub(crate) fn ring(&self) {
        let bell = self.doorbell.load(Ordering::Relaxed).wrapping_add(1);
        self.doorbell.store(bell, Ordering::Release);
    }

    /// Protocol words as plain numbers. Exact only while the owner is not running.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = [0; SNAPSHOT_WORDS];
        for (index, word) in snapshot.iter_mut().enumerate() {
            *word = match self.word(index) {
                Word::Short(cell) => u64::from(cell.load(Ordering::Relaxed)),
                Word::Long(cell) => cell.load(Ordering::Relaxed),
            };
        }
        snapshot
    }

    /// Sets the protocol words to what [`Outbox::snapshot`] gave. Not for running systems.
    pub fn restore(&self, snapshot: &Snapshot) {
        for (index, &word) in snapshot.iter().enumerate() {
            self.overwrite(index, word);
        }
    }

    /// The words that its owner has posted, by number of the post modulo [`POSTS`]: as
    /// [`Outbox::snapshot`], and apart from it because mostly none of them is in use.
    pub fn posts(&self) -> impl Iterator<Item = u64> + '_ {
        self.posts.iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Sets the words posted to these, from the first on, and leaves those behind them. Not for
    /// running systems.
    pub fn restore_posts(&self, words: impl IntoIterator<Item = u64>) {
        for (cell, word) in self.posts.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    /// Overwrites one word of the snapshot order: for fault injection.
    ///
    /// # Panics
    /// If `index` is not below [`SNAPSHOT_WORDS`].
    pub fn overwrite(&self, index: usize, value: u64) {
        match self.word(index) {
            #[expect(clippy::cast_possible_truncation, reason = "the low half is what fits")]
            Word::Short(cell) => cell.store(value as u32, Ordering::Relaxed),
            Word::Long(cell) => cell.store(value, Ordering::Relaxed),
        }
    }

    fn word(&self, index: usize) -> Word<'_> {
        match index {
            snapshot::ARRIVED => Word::Long(&self.arrived),
            1 | 2 => Word::Long(&self.slots[index - 1]),
            snapshot::ALARM => Word::Short(&self.alarm),
            snapshot::DOORBELL => Word::Short(&self.doorbell),
            snapshot::CURSOR => Word::Long(&self.cursor),
            snapshot::HALT => Word::Long(&self.halt),
            snapshot::SLEEPING => Word::Short(&self.sleeping),
            8 => Word::Long(&self.triggered),
            9 => Word::Long(&self.action),
            10 => Word::Long(&self.action_point),
            11 | 12 => Word::Long(&self.action_seen[index - 11]),
            13..=26 => self.ballots[(index - 13) / 7].word_at((index - 13) % 7),
            27 => Word::Long(&self.effect),
            28 => Word::Long(&self.membership),
            snapshot::POSTED => Word::Long(&self.posted),
            _ => panic!("snapshots have {SNAPSHOT_WORDS} words"),
        }
    }
}

impl Ballot {
    const fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            signature: SignatureWords::new(),
            cursor: AtomicU64::new(0),
            context: AtomicU64::new(0),
            performed_at: AtomicU64::new(0),
        }
    }

    fn word_at(&self, index: usize) -> Word<'_> {
        Word::Long(match index {
            0 => &self.word,
            1..=3 => &self.signature.0[index - 1],
            4 => &self.cursor,
            5 => &self.context,
            _ => &self.performed_at,
        })
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

enum Word<'a> {
    Short(&'a AtomicU32),
    Long(&'a AtomicU64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_restore() {
        let outbox = Outbox::new();
        let mut snapshot = outbox.snapshot();
        assert!(snapshot.iter().all(|&word| word == 0));
        for (index, word) in snapshot.iter_mut().enumerate() {
            *word = index as u64 + 1;
        }
        outbox.restore(&snapshot);
        assert_eq!(outbox.snapshot(), snapshot);
        assert_eq!(outbox.bell(), 5);
        outbox.restore_posts(1..=POSTS as u64);
        outbox.restore_posts([7, 8]);
        assert!(
            outbox
                .posts()
                .eq([7, 8].into_iter().chain(3..=POSTS as u64))
        );
        assert_eq!(outbox.snapshot(), snapshot, "posts are apart");
    }

    #[test]
    fn who_declares_itself_broken_is_not_waited_for() {
        use crate::{MAX_REPLICAS, Node, Port, Step};
        let outboxes = [Outbox::new(), Outbox::new(), Outbox::new()];
        let rings = [const { [const { AtomicU64::new(0) }; 64] }; 3];
        let mut ports = [None; MAX_REPLICAS];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
            *port = Some(Port { outbox, ring });
        }
        let members = ReplicaSet::all(3);
        let mut nodes = [0, 1].map(|id| Node::new(ReplicaId::new(id), members, &ports));
        outboxes[2].declare_broken();
        let mut calls = nodes.each_ref().map(Node::begin_rendezvous);
        let mut done = [false; 2];
        for _ in 0..1000 {
            for at in 0..2 {
                if !done[at] {
                    let step = nodes[at].step(&mut calls[at], &ports, &mut []);
                    done[at] = matches!(step, Step::Ready(_));
                }
            }
        }
        assert_eq!(done, [true; 2], "nobody was called overdue");
        assert!(
            nodes
                .iter()
                .all(|node| node.members() == ReplicaSet::all(2))
        );
    }

    #[test]
    fn a_rung_bell_keeps_a_sleeper_awake() {
        let (own, peer) = (Outbox::new(), Outbox::new());
        let id = ReplicaId::new(2);
        let bell = peer.bell();
        assert!(own.begin_sleep(id, &peer, bell, || {}));
        assert!(own.sleeping_on().contains(id));
        own.end_sleep();
        peer.ring();
        assert!(!own.begin_sleep(id, &peer, bell, || {}));
        assert!(own.sleeping_on().is_empty());
    }

    #[test]
    fn who_dozes_sleeps_and_need_not_be_woken() {
        let (own, peer) = (Outbox::new(), Outbox::new());
        let id = ReplicaId::new(2);
        assert!(own.begin_doze(id, &peer, peer.bell()));
        assert!(own.sleeping_on().contains(id) && !own.must_be_woken_by(id));
        own.end_sleep();
        assert!(own.begin_sleep(id, &peer, peer.bell(), || {}));
        assert!(own.must_be_woken_by(id) && !own.must_be_woken_by(ReplicaId::new(1)));
    }
}
