//! What members agree on while a lost replica is brought back ([`crate::bring_back`]), and how the
//! copy becomes one of them.

use rcoe_core::portions::Plan;
use rcoe_core::{ReplicaId, ReplicaSet};
use rcoe_kernel_objects::{Sphere as _, kind};

use super::Replicated;
use crate::arch::{self, Parameters};
use crate::diary::Diary;
use crate::env::{Surroundings, wait_until};
use crate::meter::Meter;
use crate::report;

impl Replicated {
    /// The lowest replica that was lost, if there are at least two left that agree.
    pub(crate) fn lost(&self) -> Option<ReplicaId> {
        let members = self.replica.members();
        let lost = ReplicaSet::all(self.wanted).minus(members).lowest();
        lost.filter(|_| members.len() >= 2)
    }

    /// The members, and how often they changed.
    pub(crate) const fn group(&self) -> (ReplicaSet, u64) {
        (self.replica.members(), self.replica.epoch())
    }

    /// All members meet: nobody has gone on from here.
    pub(crate) fn meet_members(&mut self) {
        self.vote();
    }

    /// Each tells a word; what a group then has that is still the one of the plan.
    fn exchange_words(&mut self, plan: &Plan, word: u64) -> Result<(), &'static str> {
        arch::publish_digest(self.replica.id(), word);
        // All have told theirs when they have met.
        self.vote();
        self.check_group(plan)
    }

    fn check_group(&self, plan: &Plan) -> Result<(), &'static str> {
        let (members, epoch) = self.group();
        let holds = plan.holds(members, epoch);
        holds.then_some(()).ok_or("another replica was lost")
    }

    /// What the donor offers, given what this replica would.
    pub(crate) fn offered(
        &mut self,
        plan: &Plan,
        donor: ReplicaId,
        offer: u64,
    ) -> Result<u64, &'static str> {
        self.exchange_words(plan, offer)?;
        let offered = arch::digest_of(donor);
        // What was read is compared before anything is done about it.
        self.event(kind::ALIKE, offered);
        self.vote();
        self.check_group(plan)?;
        Ok(offered)
    }

    /// Given a digest of what this replica has in the portion: which members were found to differ
    /// from most. All members say the same.
    pub(crate) fn compare(
        &mut self,
        plan: &mut Plan,
        digest: u64,
    ) -> Result<ReplicaSet, &'static str> {
        self.exchange_words(plan, digest)?;
        let before = plan.odd();
        let alike = plan.judge(arch::digest_of);
        self.event(kind::ALIKE, alike.map_or(0, |alike| alike.bits().into()));
        self.vote();
        self.check_group(plan)?;
        alike.ok_or("the replicas left differ in memory")?;
        Ok(plan.odd().minus(before))
    }

    /// Is this replica that one?
    pub(crate) fn is(&self, replica: ReplicaId) -> bool {
        self.replica.id() == replica
    }

    /// All members: one of them is about to be copied.
    pub(crate) fn expect(&mut self, lost: ReplicaId) {
        self.replica.expect_newcomer(lost);
        self.set_ring();
    }

    /// The copy: it is somebody else from here on.
    pub(crate) fn become_copy(&mut self, parameters: &Parameters) {
        let number = u16::try_from(parameters.replica).expect("a small number");
        self.diary = Diary::of(number);
        self.pause = None;
        self.breaks_at = None;
        self.misreads.set(None);
        self.meter = Meter::default();
        self.routes = false;
        self.base = arch::objects_base(parameters);
        self.transfer = arch::transfer_offset(parameters);
        self.root = parameters.root;
        self.kernel_entry = arch::kernel_entry(parameters);
        let recorders = self.replica.env().recorders;
        let own = ReplicaId::new(u8::try_from(parameters.replica).expect("a small number"));
        let baton = self.replica.env_mut().baton().map(|baton| baton.copy(own));
        let surroundings = Surroundings::new(self.diary, self.limit, self.mask, recorders, baton);
        self.replica.become_newcomer(surroundings);
    }

    /// Members and copy, once the copy is made: has a core begun in it? All say the same.
    pub(crate) fn has_begun(&mut self) -> bool {
        // Copying takes its time: before all have met, nobody is waited for.
        self.vote();
        let limit = self.limit;
        let came = self.effect(true, |sphere| {
            u64::from(wait_until(limit, || sphere.replica.newcomer_came()))
        });
        if came == 0 {
            self.replica.forget_newcomer();
            self.set_ring();
        }
        came != 0
    }

    /// Members and copy: the copy is taken in, or not.
    pub(crate) fn admit(&mut self) -> bool {
        let result = self.replica.admit();
        let admitted = self.go_on(result);
        report::set_alone(self.members() == 1);
        if !admitted {
            self.replica.forget_newcomer();
        }
        self.set_ring();
        admitted
    }

    /// A portion of a copy was made; all waited so many cycles for that.
    pub(crate) const fn note_portion(&mut self, cycles: u64) {
        self.meter.portion(cycles);
    }

    /// A replica was brought back; all waited so many cycles for that.
    pub(crate) const fn note_copy(&mut self, cycles: u64) {
        self.meter.copied(cycles);
    }
}
