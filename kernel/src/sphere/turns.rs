//! What close coupling ([`crate::coupling`]) asks of the protocol: whose turn it is to run, who is
//! late, and how a replica ends.

use rcoe_core::{Halt, ReplicaId, ReplicaSet, Signature};
use rcoe_kernel_objects::kind;

use super::Replicated;
use crate::arch;

impl Replicated {
    /// This replica.
    pub(crate) const fn id(&self) -> ReplicaId {
        self.replica.id()
    }

    /// The members.
    pub(crate) const fn group_members(&self) -> ReplicaSet {
        self.replica.members()
    }

    /// Events so far.
    pub(crate) const fn events(&self) -> u64 {
        self.replica.events()
    }

    /// Events so far, and their sums.
    pub(crate) const fn signature(&self) -> Signature {
        self.replica.signature()
    }

    /// Instructions that programs have executed since the last event.
    pub(crate) const fn progress(&self) -> u64 {
        self.progress
    }

    /// They have executed so many more.
    pub(crate) const fn advance(&mut self, instructions: u64) {
        self.progress += instructions;
    }

    /// So many of those count as not executed: they are going to be executed again.
    pub(crate) const fn take_back(&mut self, instructions: u64) {
        self.progress = self.progress.saturating_sub(instructions);
    }

    /// All members stand at one instruction or call, to which they began to go at this cycle.
    pub(crate) fn agreed(&mut self, began: u64, at_call: bool) {
        let cycles = arch::cycles().saturating_sub(began);
        self.meter.agreed(cycles, at_call || self.progress == 0);
    }

    /// Lets a peer go on for which this replica has waited since its first look. Is that in vain?
    pub(crate) fn waits_in_vain(&mut self, peer: ReplicaId, looks: u32) -> bool {
        let late = self.replica.env_mut().waits_in_vain(peer, looks);
        late || arch::is_retired(peer.index() as u64)
    }

    /// Waits for this core's turn, if cores take turns; and for as long as another core might run.
    pub(crate) fn take_turn(&mut self) {
        let limit = self.limit;
        let Some(baton) = self.replica.env_mut().baton() else {
            return;
        };
        let began = arch::cycles();
        baton.take();
        while baton.accuses() && arch::cycles() - began < limit {
            baton.pass();
        }
    }

    /// Lets the others have their turn, if cores take turns.
    pub(crate) fn pass_turn(&mut self) {
        if let Some(baton) = self.replica.env_mut().baton() {
            baton.pass();
        }
    }

    /// All cores run at once until turns are resumed: no program runs before.
    pub(crate) fn suspend_turns(&mut self) {
        if let Some(baton) = self.replica.env_mut().baton() {
            baton.suspend();
        }
    }

    /// Cores take turns again, if they did.
    pub(crate) fn resume_turns(&mut self) {
        if let Some(baton) = self.replica.env_mut().baton() {
            baton.resume();
        }
    }

    /// Nobody can run here. The primary waits for an interrupt; where cores take turns, the others
    /// wait for theirs. Is the primary, or whose turn it was, lost?
    pub(crate) fn idle(&mut self) -> bool {
        let primary = self.replica.primary();
        let waits = self.replica.is_primary();
        match self.replica.env_mut().baton() {
            Some(baton) if !waits => baton.pass() || baton.misses(primary),
            _ => {
                arch::wait_for_interrupt();
                false
            }
        }
    }

    /// These take turns from here on: members, and a copy that is being made.
    pub(super) fn set_ring(&mut self) {
        let ring = self
            .replica
            .newcomer()
            .iter()
            .fold(self.replica.members(), |ring, &newcomer| {
                ring.with(newcomer)
            });
        if let Some(baton) = self.replica.env_mut().baton() {
            baton.set_ring(ring);
        }
    }

    /// This replica does not go on. One that a majority found to differ lets them vote on it.
    #[cold]
    pub(crate) fn end(&mut self, why: Halt) -> ! {
        if why == Halt::Convicted {
            let accused = self.replica.accuse_self(rcoe_core::Kind(kind::ALIKE), 1);
            self.go_on(accused);
        }
        self.halt(why)
    }
}
