//! The baton: of closely coupled replicas one core runs at a time, where the counter counts for the
//! machine as a whole.
//!
//! Who has the baton runs, kernel and program; the others doze in their kernels. It is handed on
//! wherever a replica waits, and at each of its ticks, to the next member in turn. Each replica
//! tells in its own slice to whom it handed on last, with a number that only grows; the greatest
//! that any member told is who has it.
//!
//! *Lost with its holder*: a core that dozed for longer than all others may run takes the baton
//! itself, those with higher numbers later, and accuses the one that had it. Others who have dozed
//! for so long join in. That one is passed over until it speaks again; once a majority accuses it,
//! its core is stopped, because one that goes round for ever would be counted for whoever runs. No
//! program runs before that. The vote that removes it comes where somebody waits for it, as
//! anywhere.
//!
//! A processor that counts for itself needs none of it.

use rcoe_core::{ReplicaId, ReplicaSet};

use crate::arch;
use crate::arch::Counter;
use crate::env::core_of;

/// How far a number may be ahead of those that are known. A damaged one is not followed.
const AHEAD: u64 = 1 << 32;

/// How often a core that has got the baton lets the others run before it goes on: the one that had
/// it may not have come to its wait yet, if the emulator interrupted it there.
const SETTLING: u32 = 4;

/// How often it is looked whether a core that was stopped is off.
const STOPPING: u32 = 10_000;

/// One replica's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baton {
    counter: Counter,
    own: ReplicaId,
    ring: ReplicaSet,
    /// Those that have lost it, as this replica sees it.
    losers: ReplicaSet,
    /// The greatest number when one was accused last: who told a greater one is there again.
    accused_at: u64,
    /// Those of them whose cores were stopped.
    stopped: ReplicaSet,
    /// Does this core have it?
    held: bool,
    /// Do all run at once, because no program does?
    suspended: bool,
    /// The greatest number that is known.
    newest: u64,
    /// What is left of this core's time until its next tick.
    rest: u64,
    /// Cycles for which a core dozes at most, times its place.
    patience: u64,
}

impl Baton {
    pub(crate) const fn new(
        counter: Counter,
        own: ReplicaId,
        ring: ReplicaSet,
        patience: u64,
    ) -> Self {
        Self {
            counter,
            own,
            ring,
            losers: ReplicaSet::empty(),
            accused_at: 0,
            stopped: ReplicaSet::empty(),
            held: false,
            suspended: false,
            newest: 0,
            rest: 0,
            patience,
        }
    }

    /// The copy of this replica that is to be `own`.
    pub(crate) const fn copy(self, own: ReplicaId) -> Self {
        Self {
            own,
            held: false,
            ..self
        }
    }

    /// These take turns.
    pub(crate) const fn set_ring(&mut self, ring: ReplicaSet) {
        self.ring = ring;
        self.losers = self.losers.minus(self.losers.minus(ring));
        self.stopped = self.stopped.minus(self.stopped.minus(ring));
    }

    /// Who takes turns.
    pub(crate) const fn ring(&self) -> ReplicaSet {
        self.ring
    }

    /// Cycles for which this core dozes at most.
    pub(crate) const fn patience(&self) -> u64 {
        self.patience * (1 + self.own.index() as u64)
    }

    /// Lets all others have their turn. Was the baton lost meanwhile?
    pub(crate) fn pass(&mut self) -> bool {
        if self.suspended {
            arch::relax();
            return false;
        }
        self.held = self.held && self.holder().contains(self.own);
        match self.next() {
            Some(next) => self.give(next),
            None => arch::relax(),
        }
        self.take()
    }

    /// Who is next.
    fn next(&self) -> Option<ReplicaId> {
        let others = self.ring.minus(self.losers).without(self.own);
        others.after(self.own).or(others.lowest())
    }

    fn give(&mut self, next: ReplicaId) {
        if self.held {
            self.held = false;
            // A tick that is due comes when it is this core's turn again.
            self.rest = self.counter.rest_of_slice().max(1);
            self.tell(next);
            self.counter.hand_on(core_of(next));
        }
    }

    /// A core that was stopped runs for a little while yet: until it is off.
    pub(crate) fn await_stop(stopped: ReplicaId) {
        for _ in 0..STOPPING {
            if arch::may_donate(stopped.index() as u64) {
                break;
            }
            arch::relax();
        }
    }

    /// From here on all run at once: they stand in their kernels at one point of the trace, and no
    /// program runs before [`Self::resume`].
    pub(crate) fn suspend(&mut self) {
        self.suspended = true;
        if let Some(next) = self.next() {
            self.give(next);
        }
    }

    /// One at a time runs from here on.
    pub(crate) const fn resume(&mut self) {
        self.suspended = false;
    }

    /// Waits for the baton, if this core does not have it. Was it lost?
    pub(crate) fn take(&mut self) -> bool {
        // Another that missed this core for too long may have taken it.
        self.held = self.held && self.holder().contains(self.own);
        if self.held {
            return false;
        }
        let (limit, began) = (self.patience(), arch::cycles());
        let mut spent = 0;
        while !self.holder().contains(self.own) && spent < limit {
            self.counter.doze(limit - spent);
            spent = arch::cycles() - began;
        }
        let lost = self.holder().minus(ReplicaSet::empty().with(self.own));
        if !lost.is_empty() {
            self.losers = self.losers.union(lost);
            self.accused_at = self.newest;
        }
        if spent >= self.patience / 2 {
            self.join_accusers();
        }
        if !self.losers.is_empty() {
            self.tell(self.own);
            self.stop_accused();
        }
        for _ in 0..SETTLING {
            arch::relax();
        }
        self.held = true;
        self.counter.begin_slice(self.rest);
        !lost.is_empty()
    }

    /// Has this member lost the baton?
    pub(crate) const fn misses(&self, peer: ReplicaId) -> bool {
        self.losers.contains(peer)
    }

    /// Is somebody accused whose core may still run? Then no program is to run.
    pub(crate) const fn accuses(&self) -> bool {
        self.ring.len() > 2 && !self.losers.minus(self.stopped).is_empty()
    }

    fn tell(&mut self, next: ReplicaId) {
        self.newest += 1;
        let losers = u64::from(self.losers.bits());
        let word = self.newest << 16 | losers << 8 | next.index() as u64;
        arch::publish_turn(self.own, word);
    }

    /// What a member told last: its number, whom it accuses, and whose turn it said that it is.
    /// `None` if that is no word of a healthy one.
    fn word_of(&self, peer: ReplicaId) -> Option<(u64, ReplicaSet, u64)> {
        let word = arch::turn_of(peer);
        let number = word >> 16;
        let accused = ReplicaSet::from_bits((word >> 8 & 0xff) as u8);
        let sane = number < self.newest.saturating_add(AHEAD);
        sane.then_some((number, accused, word & 0xff))
    }

    /// Whose turn it is, by the newest word of all; nobody's if no word can be trusted.
    fn holder(&mut self) -> ReplicaSet {
        let mut holder = None;
        for peer in self.ring.with(self.own) {
            let Some((number, _, next)) = self.word_of(peer) else {
                continue;
            };
            if number > self.accused_at {
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

    /// Accuses those whom another member accuses, unless they are this replica or have spoken
    /// since.
    fn join_accusers(&mut self) {
        let number = |peer| self.word_of(peer).map_or(0, |(number, ..)| number);
        let mut joined = self.losers;
        for peer in self.ring.without(self.own) {
            let Some((told, accused, _)) = self.word_of(peer) else {
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

    /// Stops the cores of those whom a majority accuses.
    fn stop_accused(&mut self) {
        for accused in self.losers.minus(self.stopped) {
            let accuses = |&peer: &ReplicaId| {
                let word = self.word_of(peer);
                peer != accused && word.is_some_and(|(_, losers, _)| losers.contains(accused))
            };
            let accusers = self.ring.iter().filter(accuses).count();
            if accusers * 2 > self.ring.len() {
                self.stopped = self.stopped.with(accused);
                arch::permit(core_of(accused));
                arch::interrupts::stop(core_of(accused));
                Self::await_stop(accused);
            }
        }
    }

    /// Lets time pass if this peer has lost the baton, little enough for nobody to miss it. Cycles
    /// of that.
    pub(crate) fn await_loser(&self, peer: ReplicaId) -> u64 {
        if !self.losers.contains(peer) {
            return 0;
        }
        let cycles = self.patience / 16;
        self.counter.doze(cycles);
        self.counter.begin_slice(self.rest);
        cycles
    }
}
