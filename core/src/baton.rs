//! The baton: whose turn it is, where of several replicas one runs at a time.
//!
//! Who has the baton runs; the others doze. It is handed on to the next member in turn. Each
//! replica tells in a word of its own to whom it handed on last, with a number that only grows; the
//! greatest that any member told is who has it.
//!
//! *Lost with its holder*: who dozed for longer than all others may run, while nobody told
//! anything, takes the baton itself, those with higher numbers later ([`Wait`]), and accuses the
//! one that had it. Others who have dozed for long join in. That one is passed over until it speaks
//! again, which one that waits does when it sees that it is accused. Once a majority accuses it, it
//! is to be stopped, because what it executes would be counted for whoever runs; no program is to
//! run before that ([`Baton::accuses`]). Whoever dozes looks now and then: who handed on may have
//! been lost before it woke anybody.
//!
//! Contract: the caller publishes each word that it is given before it does anything else, and
//! wakes whom it hands on to. With one fault no two healthy replicas have the baton, and it is
//! never lost for good: `rcoe-sim` explores all schedules. A word in which a bit flips counts for
//! nothing. *Not covered*: a replica that tells nonsense with the right check may have a healthy
//! one stopped; and votes, by which one that was lost is removed.

use crate::{Bug, Guards, MAX_REPLICAS, ReplicaId, ReplicaSet};

/// How far a number may be ahead of those that are known. A damaged one is not followed.
const AHEAD: u64 = 1 << 32;

/// Numbers have so many bits, above 16 others; where a word's check is.
const NUMBERS: u64 = (1 << 40) - 1;
const CHECK: u32 = 56;

/// Somebody who waits looks so many times in the time for which the first of them does.
const PARTS: u64 = 4;

/// By which a flipped bit of a word is seen: the sum of its bytes but the highest, bit by bit.
const fn check(word: u64) -> u64 {
    let [_, a, b, c, d, e, f, g] = word.to_be_bytes();
    (a ^ b ^ c ^ d ^ e ^ f ^ g) as u64
}

/// What all have told, by replica.
pub type Words = [u64; MAX_REPLICAS];

/// A replica waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wait {
    /// For how long the first replica waits while nobody tells anything, and for how long this one.
    base: u64,
    limit: u64,
    /// For how long it has, and for how long in all.
    spent: u64,
    total: u64,
    /// The newest number then.
    newest: u64,
}

impl Wait {
    /// Has it dozed for half as long as the first of them waits?
    const fn is_long(&self) -> bool {
        self.total >= self.base / 2
    }

    /// It has dozed for so long.
    pub const fn pass(&mut self, time: u64) {
        self.spent += time;
        // Longer than that makes no difference.
        let total = self.total + time;
        self.total = if total < self.base { total } else { self.base };
    }
}

/// What somebody who waits is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Doze until it is woken, or for so long.
    Doze(u64),
    /// Tell this, which says no more than is known: others take it to be lost.
    Speak(u64),
    /// Take the baton.
    Take,
}

/// The baton is handed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// What the others are to be told.
    pub word: u64,
    /// Who is to be woken.
    pub next: ReplicaId,
}

/// The baton was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// What the others are to be told, if anything.
    pub word: Option<u64>,
    /// Was it lost?
    pub lost: bool,
    /// Who is to be stopped.
    pub stop: ReplicaSet,
}

/// One replica's part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Baton {
    own: ReplicaId,
    ring: ReplicaSet,
    /// Those that have lost it, as this replica sees it.
    losers: ReplicaSet,
    /// The greatest number when one was accused last: who told a greater one is there again.
    accused_at: u64,
    /// Those of them who were stopped.
    stopped: ReplicaSet,
    /// Does this replica have it?
    held: bool,
    /// The greatest number that is known.
    newest: u64,
    guards: Guards,
}

impl Baton {
    /// The part of one of these.
    #[must_use]
    pub const fn new(own: ReplicaId, ring: ReplicaSet, guards: Guards) -> Self {
        Self {
            own,
            ring,
            losers: ReplicaSet::empty(),
            accused_at: 0,
            stopped: ReplicaSet::empty(),
            held: false,
            newest: 0,
            guards,
        }
    }

    /// The copy of this replica that is to be `own`.
    #[must_use]
    pub const fn copy(self, own: ReplicaId) -> Self {
        Self {
            own,
            held: false,
            ..self
        }
    }

    /// These take turns.
    pub const fn set_ring(&mut self, ring: ReplicaSet) {
        self.ring = ring;
        self.losers = self.losers.minus(self.losers.minus(ring));
        self.stopped = self.stopped.minus(self.stopped.minus(ring));
    }

    /// Who takes turns.
    #[must_use]
    pub const fn ring(&self) -> ReplicaSet {
        self.ring
    }

    /// Whose part this is.
    #[must_use]
    pub const fn own(&self) -> ReplicaId {
        self.own
    }

    /// Does this replica still have it? Another that missed it for too long may have taken it.
    pub fn holds(&mut self, words: &Words) -> bool {
        if !self.guards.off(Bug::BatonUnheld) {
            self.held = self.held && self.is_own_turn(words);
        }
        self.held
    }

    /// Is it this replica's turn?
    pub fn is_own_turn(&mut self, words: &Words) -> bool {
        self.holder(words).contains(self.own)
    }

    /// Who is next.
    fn next(&self) -> Option<ReplicaId> {
        let passed = if self.guards.off(Bug::BatonToLoser) {
            ReplicaSet::empty()
        } else {
            self.losers
        };
        let others = self.ring.minus(passed).without(self.own);
        others.after(self.own).or(others.lowest())
    }

    /// Is there nobody to hand it on to?
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.next().is_none()
    }

    /// Hands it on, if this replica has it and there is another one.
    pub fn give(&mut self) -> Option<Given> {
        let next = self.next().filter(|_| self.held)?;
        self.held = false;
        let word = self.tell(next);
        Some(Given { word, next })
    }

    /// Begins to wait, given for how long the first of them does. Others wait longer, so that no
    /// two take it at once.
    #[must_use]
    pub const fn wait(&self, base: u64) -> Wait {
        Wait {
            base,
            limit: self.patience(base),
            spent: 0,
            total: 0,
            newest: self.newest,
        }
    }

    /// For how long this replica waits while nobody tells anything, given how long the first does.
    #[must_use]
    pub const fn patience(&self, base: u64) -> u64 {
        let at_once = self.guards.off(Bug::BatonAtOnce);
        let place = if at_once { 0 } else { self.own.index() as u64 };
        base * (1 + place)
    }

    /// What somebody who waits is to do now.
    pub fn look(&mut self, wait: &mut Wait, words: &Words) -> Next {
        let holder = self.holder(words);
        if holder.contains(self.own) {
            return Next::Take;
        }
        if wait.newest != self.newest && !self.guards.off(Bug::BatonImpatient) {
            (wait.newest, wait.spent) = (self.newest, 0);
        }
        if let Some(holder) = holder.lowest()
            && self.is_accused(words)
        {
            return Next::Speak(self.word(holder));
        }
        if wait.spent < wait.limit {
            let left = wait.limit - wait.spent;
            let part = (wait.base / PARTS).max(1);
            let looks = !self.guards.off(Bug::BatonUnlooking);
            return Next::Doze(if looks { part.min(left) } else { left });
        }
        Next::Take
    }

    /// Takes it, because it is this replica's turn, or because it has waited in vain. `None` if
    /// somebody has told something meanwhile: it has to look again.
    pub fn take(&mut self, wait: &Wait, words: &Words) -> Option<Taken> {
        let holder = self.holder(words);
        let late = wait.newest != self.newest && !holder.contains(self.own);
        if late && !self.guards.off(Bug::BatonImpatient) {
            return None;
        }
        let lost = holder.without(self.own);
        if !lost.is_empty() {
            self.losers = self.losers.union(lost);
            self.accused_at = self.newest;
        }
        if wait.is_long() && !self.guards.off(Bug::BatonUnjoined) {
            self.join_accusers(words);
        }
        self.held = true;
        let mut taken = Taken {
            word: None,
            lost: !lost.is_empty(),
            stop: ReplicaSet::empty(),
        };
        // Who takes it in vain tells, so that no other does, too.
        if !self.losers.is_empty() || !holder.contains(self.own) {
            let mut words = *words;
            let word = self.tell(self.own);
            words[self.own.index()] = word;
            taken.word = Some(word);
            taken.stop = self.stops(&words);
        }
        Some(taken)
    }

    /// Has this member lost it?
    #[must_use]
    pub const fn misses(&self, peer: ReplicaId) -> bool {
        self.losers.contains(peer)
    }

    /// Is somebody accused who may still run? Then no program is to run.
    #[must_use]
    pub const fn accuses(&self) -> bool {
        self.ring.len() > 2
            && !self.losers.minus(self.stopped).is_empty()
            && !self.guards.off(Bug::BatonUnstopped)
    }

    fn tell(&mut self, next: ReplicaId) -> u64 {
        self.newest += 1;
        self.word(next)
    }

    /// What the others are told: the newest number, and whose turn it is.
    fn word(&self, next: ReplicaId) -> u64 {
        let losers = u64::from(self.losers.bits());
        let body = (self.newest & NUMBERS) << 16 | losers << 8 | next.index() as u64;
        body | check(body) << CHECK
    }

    /// What a member told last: its number, whom it accuses, and whose turn it said that it is.
    /// `None` if that is no word of a healthy one.
    fn word_of(&self, words: &Words, peer: ReplicaId) -> Option<(u64, ReplicaSet, u64)> {
        let word = words[peer.index()];
        let number = word >> 16 & NUMBERS;
        let [.., accused, _] = word.to_be_bytes();
        let strangers = ReplicaSet::from_bits(accused).minus(self.ring);
        let accused = ReplicaSet::from_bits(accused).minus(strangers);
        let near = number < self.newest.saturating_add(AHEAD);
        let whole = word >> CHECK == check(word) || self.guards.off(Bug::BatonUnchecked);
        let sane = whole && near;
        sane.then_some((number, accused, word & 0xff))
    }

    /// Whose turn it is, by the newest word of all; nobody's if no word can be trusted.
    fn holder(&mut self, words: &Words) -> ReplicaSet {
        let mut holder = None;
        for peer in self.ring.with(self.own) {
            let Some((number, _, next)) = self.word_of(words, peer) else {
                continue;
            };
            if number > self.accused_at && !self.guards.off(Bug::BatonUnforgiven) {
                self.losers = self.losers.without(peer);
            }
            if number > self.newest || number == self.newest && holder.is_none() {
                self.newest = number;
                holder = Some(next);
            }
        }
        let is_holder = |peer: &ReplicaId| holder == Some(peer.index() as u64);
        let found = self.ring.iter().find(is_holder);
        found.map_or(ReplicaSet::empty(), |it| ReplicaSet::empty().with(it))
    }

    /// Does a member accuse this replica that has said nothing since?
    fn is_accused(&self, words: &Words) -> bool {
        let own = self.word_of(words, self.own).map_or(0, |(told, ..)| told);
        let accuses = |peer| {
            let word = self.word_of(words, peer);
            word.is_some_and(|(told, losers, _)| losers.contains(self.own) && told > own)
        };
        let mute = self.guards.off(Bug::BatonMute);
        !mute && self.ring.without(self.own).iter().any(accuses)
    }

    /// Accuses those whom another member accuses, unless they are this replica or have spoken
    /// since.
    fn join_accusers(&mut self, words: &Words) {
        let number = |peer| self.word_of(words, peer).map_or(0, |(number, ..)| number);
        let mut joined = self.losers;
        for peer in self.ring.without(self.own) {
            let Some((told, accused, _)) = self.word_of(words, peer) else {
                continue;
            };
            let silent = accused
                .without(self.own)
                .iter()
                .filter(|&it| number(it) < told);
            joined = silent.fold(joined, ReplicaSet::with);
        }
        if joined != self.losers {
            self.losers = joined;
            self.accused_at = self.newest;
        }
    }

    /// Those whom a majority accuses, and who were not stopped yet.
    fn stops(&mut self, words: &Words) -> ReplicaSet {
        let mut stop = ReplicaSet::empty();
        for accused in self.losers.minus(self.stopped) {
            let accuses = |&peer: &ReplicaId| {
                let word = self.word_of(words, peer);
                peer != accused && word.is_some_and(|(_, losers, _)| losers.contains(accused))
            };
            let accusers = self.ring.iter().filter(accuses).count();
            if accusers * 2 > self.ring.len() || self.guards.off(Bug::BatonMinority) {
                stop = stop.with(accused);
            }
        }
        self.stopped = self.stopped.union(stop);
        stop
    }
}
