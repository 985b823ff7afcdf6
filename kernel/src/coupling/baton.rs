//! The baton ([`rcoe_core::baton`]) where the counter counts for the machine as a whole: who has it
//! runs, kernel and program; the others doze in their kernels. It is handed on wherever a replica
//! waits, and at each of its ticks.
//!
//! Here are the interrupts by which it is handed on, the timer, and the end of cores that have lost
//! it: one that goes round for ever would be counted for whoever runs. The vote that removes a
//! replica comes where somebody waits for it, as anywhere.
//!
//! A processor that counts for itself needs none of it.

use rcoe_core::baton::{self, Next, Taken, Words};
use rcoe_core::{Guards, MAX_REPLICAS, ReplicaId, ReplicaSet};

use crate::arch;
use crate::arch::Turns;
use crate::env::core_of;

/// How often a core that has got the baton lets the others run before it goes on: the one that had
/// it may not have come to its wait yet, if the emulator interrupted it there.
const SETTLING: u32 = 4;

/// How often it is looked whether a core that was stopped is off.
const STOPPING: u32 = 10_000;

/// One replica's part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Baton {
    turns: Turns,
    part: baton::Baton,
    /// Do all run at once, because no program does?
    suspended: bool,
    /// What is left of this core's time until its next tick.
    rest: u64,
    /// Cycles for which the first core dozes at most.
    patience: u64,
}

impl Baton {
    pub(crate) const fn new(turns: Turns, own: ReplicaId, ring: ReplicaSet, patience: u64) -> Self {
        Self {
            turns,
            part: baton::Baton::new(own, ring, Guards::ON),
            suspended: false,
            rest: 0,
            patience,
        }
    }

    /// The copy of this replica that is to be `own`.
    pub(crate) const fn copy(self, own: ReplicaId) -> Self {
        Self {
            part: self.part.copy(own),
            ..self
        }
    }

    /// These take turns.
    pub(crate) const fn set_ring(&mut self, ring: ReplicaSet) {
        self.part.set_ring(ring);
    }

    /// Who takes turns.
    pub(crate) const fn ring(&self) -> ReplicaSet {
        self.part.ring()
    }

    /// Cycles for which this core dozes at most.
    pub(crate) const fn patience(&self) -> u64 {
        self.part.patience(self.patience)
    }

    /// What all have told.
    fn words(&self) -> Words {
        let mut words = [0; MAX_REPLICAS];
        for peer in self.ring().with(self.part.own()) {
            words[peer.index()] = arch::turn_of(peer);
        }
        words
    }

    /// Lets all others have their turn. Was the baton lost meanwhile?
    pub(crate) fn pass(&mut self) -> bool {
        if self.suspended {
            arch::relax();
            return false;
        }
        self.holds();
        if self.part.is_alone() {
            arch::relax();
        }
        self.give();
        self.take()
    }

    /// Does this core have it?
    fn holds(&mut self) -> bool {
        let words = self.words();
        self.part.holds(&words)
    }

    fn give(&mut self) {
        if let Some(given) = self.part.give() {
            // A tick that is due comes when it is this core's turn again.
            self.rest = self.turns.rest_of_slice().max(1);
            arch::publish_turn(self.part.own(), given.word);
            self.turns.hand_on(core_of(given.next));
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
        self.give();
    }

    /// One at a time runs from here on.
    pub(crate) const fn resume(&mut self) {
        self.suspended = false;
    }

    /// Waits until the baton is this core's.
    fn wait(&mut self) -> Taken {
        let mut wait = self.part.wait(self.patience);
        loop {
            let words = self.words();
            match self.part.look(&mut wait, &words) {
                Next::Doze(cycles) => {
                    let began = arch::cycles();
                    self.turns.doze(cycles);
                    wait.pass(arch::cycles() - began);
                }
                Next::Speak(word) => arch::publish_turn(self.part.own(), word),
                Next::Take => {
                    let words = self.words();
                    if let Some(taken) = self.part.take(&wait, &words) {
                        return taken;
                    }
                }
            }
        }
    }

    /// Waits for the baton, if this core does not have it. Was it lost?
    pub(crate) fn take(&mut self) -> bool {
        if self.holds() {
            return false;
        }
        let taken = self.wait();
        if let Some(word) = taken.word {
            arch::publish_turn(self.part.own(), word);
        }
        for accused in taken.stop {
            arch::permit(core_of(accused));
            arch::interrupts::stop(core_of(accused));
            Self::await_stop(accused);
        }
        for _ in 0..SETTLING {
            arch::relax();
        }
        self.turns.begin_slice(self.rest);
        taken.lost
    }

    /// Has this member lost the baton?
    pub(crate) const fn misses(&self, peer: ReplicaId) -> bool {
        self.part.misses(peer)
    }

    /// Is somebody accused whose core may still run? Then no program is to run.
    pub(crate) const fn accuses(&self) -> bool {
        self.part.accuses()
    }

    /// Lets time pass if this peer has lost the baton, little enough for nobody to miss it. Cycles
    /// of that.
    pub(crate) fn await_loser(&self, peer: ReplicaId) -> u64 {
        if !self.part.misses(peer) {
            return 0;
        }
        let cycles = self.patience / 16;
        self.turns.doze(cycles);
        self.turns.begin_slice(self.rest);
        cycles
    }
}
