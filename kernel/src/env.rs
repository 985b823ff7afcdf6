//! Waiting for other replicas: how long, and what happens to those that are removed.
//!
//! A wait spins, because it is short where replicas are healthy. Its length is counted in processor
//! cycles. Between two looks no more than a part of the limit counts: a machine that stood still as
//! a whole (an emulator that was stopped or starved) makes one long gap, not a replica that is
//! late.

use rcoe_core::{Outbox, ReplicaId, ReplicaSet, Wait, WaitFor, Waited, diagnose};

use crate::arch;
use crate::coupling::Baton;
use crate::diary::Diary;
use crate::recorders::Recorders;

/// The part of the limit that one gap may count for.
const GAP: u64 = 16;

/// Looks at a replica that was late before, until it is taken to be late again; and the part of the
/// limit after which it is in any case, once it was looked at twice: where cores take turns and one
/// is stuck, a look takes as long as that one's turn.
const SUSPECT_LOOKS: u32 = 1_000;
const SUSPECT_PART: u64 = 100;

/// How long a wait has taken.
#[derive(Debug, Clone, Copy)]
struct Spent {
    /// Cycles for which a replica may be late.
    limit: u64,
    /// Cycles spent in this wait.
    spent: u64,
    last: u64,
}

impl Spent {
    const fn new(limit: u64) -> Self {
        let (spent, last) = (0, 0);
        Self { limit, spent, last }
    }

    fn start(&mut self) {
        self.spent = 0;
        self.last = arch::cycles();
    }

    /// Another look.
    fn look(&mut self) {
        let present = arch::cycles();
        self.spent += present.saturating_sub(self.last).min(self.limit / GAP);
        self.last = present;
    }
}

/// Lets time pass.
pub(crate) fn pass(cycles: u64) {
    let start = arch::cycles();
    while arch::cycles() - start < cycles {
        arch::relax();
    }
}

/// Waits until something is so, for at most half of the time for which a replica may be late: those
/// who wait for this one meanwhile wait for all of it. Returns whether it is so.
pub(crate) fn wait_until(limit: u64, is_so: impl Fn() -> bool) -> bool {
    let mut spent = Spent::new(limit);
    spent.start();
    while !is_so() {
        arch::relax();
        spent.look();
        if spent.spent >= limit / 2 {
            return false;
        }
    }
    true
}

/// The surroundings of one replica.
#[derive(Debug)]
pub(crate) struct Surroundings {
    diary: Diary,
    spent: Spent,
    /// Replicas that were late for an action, and have performed none since.
    suspects: ReplicaSet,
    /// Are faults masked? If not, removing somebody ends the machine.
    mask: bool,
    /// Where one core runs at a time, its turn.
    baton: Option<Baton>,
    /// Where it can be read what the replicas did.
    pub(crate) recorders: Recorders,
}

impl Surroundings {
    pub(crate) const fn new(
        diary: Diary,
        limit: u64,
        mask: bool,
        recorders: Recorders,
        baton: Option<Baton>,
    ) -> Self {
        Self {
            baton,
            recorders,
            diary,
            spent: Spent::new(limit),
            suspects: ReplicaSet::empty(),
            mask,
        }
    }

    /// All were there to perform an action: nobody is late.
    pub(crate) const fn clear_suspects(&mut self) {
        self.suspects = ReplicaSet::empty();
    }

    /// The baton, if there is one.
    pub(crate) const fn baton(&mut self) -> Option<&mut Baton> {
        self.baton.as_mut()
    }

    /// Lets the others go on, a peer that is awaited among them; cycles that passed in vain.
    fn relax(&mut self, peer: ReplicaId) -> u64 {
        let Some(baton) = &mut self.baton else {
            arch::relax();
            return 0;
        };
        // Whoever else lost it, this peer may not have had its turn.
        let lost = baton.pass() && baton.misses(peer);
        let missed = if lost { baton.patience() } else { 0 };
        missed + baton.await_loser(peer)
    }

    /// Lets a peer go on for which this replica has waited since its first look. Is that too long?
    pub(crate) fn waits_in_vain(&mut self, peer: ReplicaId, looks: u32) -> bool {
        let lost = self.relax(peer);
        if looks == 0 {
            self.spent.start();
        } else {
            self.spent.look();
            self.spent.spent += lost;
        }
        self.spent.spent >= self.spent.limit
    }

    fn is_suspect(&self, wait: &Wait) -> bool {
        wait.reason == WaitFor::Action
            && self.suspects.contains(wait.peer)
            && (wait.round > SUSPECT_LOOKS
                || wait.round > 0 && self.spent.spent > self.spent.limit / SUSPECT_PART)
    }
}

/// The core that a replica runs on.
pub(crate) fn core_of(replica: ReplicaId) -> u32 {
    u32::try_from(replica.index()).expect("replicas are few")
}

impl rcoe_core::Env for Surroundings {
    fn wait(&mut self, _own: &Outbox, wait: &Wait) -> Waited {
        if wait.reason == WaitFor::Newcomer {
            self.relax(wait.peer);
            // It begins where all stand still, a few records before it is taken in.
            return Waited::Overdue;
        }
        if !self.waits_in_vain(wait.peer, wait.round) && !self.is_suspect(wait) {
            return Waited::Retry;
        }
        if wait.reason == WaitFor::Action {
            self.suspects = self.suspects.with(wait.peer);
        }
        Waited::Overdue
    }

    fn pause(&mut self) -> bool {
        // Where one core runs at a time, another does only if the baton is passed.
        let spins = self.baton.is_none();
        if spins {
            arch::relax();
        }
        spins
    }

    fn wake(&mut self, _own: &Outbox) {
        // Nobody sleeps on a doorbell: waits spin.
    }

    fn exclude(&mut self, own: &Outbox, gone: ReplicaSet, _primary: ReplicaId) {
        if let Some(baton) = &mut self.baton {
            baton.set_ring(baton.ring().minus(gone));
        }
        arch::permit_off(!self.mask);
        self.diary.noticed();
        let report = diagnose::report(own);
        let absent = report.absent;
        if !gone.minus(absent).is_empty() {
            self.recorders.tell(self.diary, report.members.union(gone));
        }
        for replica in gone {
            arch::permit(core_of(replica));
            let cause = if absent.contains(replica) {
                "timeout"
            } else {
                "mismatch"
            };
            let (number, vote) = (replica.index(), report.votes);
            self.diary
                .line(format_args!("removed {number} {cause} {vote}"));
            if self.mask {
                arch::interrupts::stop(core_of(replica));
                if self.baton.is_some() {
                    Baton::await_stop(replica);
                }
            } else {
                self.diary.line(format_args!("fail-stop {cause}"));
                arch::power_off();
            }
        }
    }
}
