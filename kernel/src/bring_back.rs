//! A lost replica is brought back as a copy of a member, made in portions between which programs
//! run ([`rcoe_core::portions`]).
//!
//! The primary flags an action for each portion, by which all come to one point of the trace. What
//! a portion costs is bounded by [`BUDGET`], the last one included, unless programs write faster
//! than is copied. Before the last one nothing of the group changes; in it the copy's core starts.

use rcoe_core::ReplicaId;
use rcoe_core::portions::{IMPOSSIBLE, Plan, Portion};

use crate::arch;
use crate::machine::Machine;

/// Ticks between the loss of a replica and the first try to replace it, and between later ones.
pub(crate) const PAUSE: u32 = 10;
const AGAIN: u32 = 100;
/// Ticks between two portions: programs run for one at least.
const BETWEEN: u32 = 2;

/// What a portion may cost, in blocks of 2 KiB that are copied: 40 MiB.
const BUDGET: u64 = 40 << 9;

/// A copy that is being made.
#[derive(Debug)]
pub(crate) struct Copying {
    plan: Plan,
    /// Cycles for which all have waited.
    cycles: u64,
}

/// What came of a portion.
enum Outcome {
    More,
    Joined,
}

impl Machine {
    /// Flags the next portion, when its time has come. The primary alone counts: a member that was
    /// behind in the vote which removed somebody knows of the loss at an earlier point of the trace
    /// than the others do.
    pub(crate) fn look_for_lost(&mut self) {
        let sphere = &mut self.kernel.sphere;
        let counts = self.reintegrate && sphere.is_primary() && sphere.lost().is_some();
        if !counts {
            self.patience = PAUSE;
            return;
        }
        self.patience -= 1;
        if self.patience == 0 {
            self.patience = AGAIN;
            sphere.trigger(crate::sphere::REPLACE);
        }
    }

    /// A portion of the copy. All members are here, at one point of the trace at which they have
    /// just met.
    pub(crate) fn replace(&mut self, lost: ReplicaId) {
        let began = arch::cycles();
        self.kernel.sphere.suspend_turns();
        let outcome = self.portion(lost);
        self.kernel.sphere.resume_turns();
        let cycles = arch::cycles() - began;
        self.kernel.sphere.note_portion(cycles);
        if let Some(copying) = &mut self.copying {
            copying.cycles += cycles;
        }
        match outcome {
            Ok(Outcome::More) => self.patience = BETWEEN,
            Ok(Outcome::Joined) => {
                let copying = self.copying.take().expect("a copy was made");
                self.kernel.sphere.note_copy(copying.cycles);
                self.tell(format_args!("joined {}", lost.index()));
            }
            Err(why) => {
                self.copying = None;
                self.tell(format_args!("abandoned {} {why}", lost.index()));
            }
        }
    }

    fn tell(&self, line: core::fmt::Arguments<'_>) {
        let sphere = &self.kernel.sphere;
        if sphere.is_primary() {
            sphere.diary().line(line);
        }
    }

    /// The plan of the copy that is being made, or of a new one.
    fn plan(&mut self, lost: ReplicaId) -> Result<Plan, &'static str> {
        let (members, epoch) = self.kernel.sphere.group();
        let Some(copying) = &self.copying else {
            self.kernel.kept().begin();
            let plan = Plan::new(lost, members, epoch);
            let cycles = 0;
            self.copying = Some(Copying {
                plan: plan.clone(),
                cycles,
            });
            return Ok(plan);
        };
        if !copying.plan.holds(members, epoch) || copying.plan.newcomer() != lost {
            return Err("another replica was lost");
        }
        Ok(copying.plan.clone())
    }

    fn portion(&mut self, lost: ReplicaId) -> Result<Outcome, &'static str> {
        self.kernel.finish();
        self.kernel.save_fpu(arch::save_fpu);
        let mut plan = self.plan(lost)?;
        let donor = plan.donor(self.kernel.sphere.primary_id());
        let donor = donor.ok_or("no replica that can be copied is like most")?;
        self.kernel.note_written();
        arch::with_marks(|marks| self.kernel.mark_apart(marks));
        let portion = self.agree_on_portion(&plan, donor)?;
        let digest = match &portion {
            Portion::Impossible => return Err("its core has not come to a halt"),
            Portion::Words(words) => {
                arch::with_marks(|marks| self.kernel.alike_in(words.clone(), marks))
            }
            Portion::Last => self.digest(),
        };
        let differs = self.kernel.sphere.compare(&mut plan, digest)?;
        for odd in differs {
            self.tell(format_args!("differs {}", odd.index()));
        }
        if differs.contains(donor) {
            plan.begin_again(donor);
            self.kernel.kept().begin();
            self.keep_plan(plan);
            return Ok(Outcome::More);
        }
        let Portion::Words(words) = portion else {
            return self.last_portion(lost, donor);
        };
        if self.kernel.sphere.is(donor) {
            if words.start == 0 {
                arch::reset_lost(&self.parameters, lost.index() as u64);
            }
            let missing = self.kernel.missing(words.clone(), false);
            arch::donate_part(&self.parameters, lost.index() as u64, missing);
        }
        let end = self.kernel.end();
        arch::with_marks(|marks| self.kernel.kept().keep(words.clone(), marks.apart()));
        plan.advance(words.end, end);
        self.keep_plan(plan);
        // Nobody goes on before the donor does.
        self.kernel.sphere.meet_members();
        Ok(Outcome::More)
    }

    fn keep_plan(&mut self, plan: Plan) {
        if let Some(copying) = &mut self.copying {
            copying.plan = plan;
        }
    }

    /// What the donor offers. Whoever offers what is none is taken to be broken by the others: it
    /// is not copied.
    fn agree_on_portion(&mut self, plan: &Plan, donor: ReplicaId) -> Result<Portion, &'static str> {
        let end = self.kernel.end();
        let target = plan.newcomer().index() as u64;
        let offer = if arch::may_donate(target) {
            arch::with_marks(|marks| plan.offer(self.kernel.kept(), marks.apart(), end, BUDGET))
        } else {
            IMPOSSIBLE
        };
        let offer = self.kernel.sphere.offered(plan, donor, offer)?;
        plan.read(offer, end)
            .ok_or("the replica to be copied is broken")
    }

    /// All that is left is copied, and the copy taken in.
    fn last_portion(&mut self, lost: ReplicaId, donor: ReplicaId) -> Result<Outcome, &'static str> {
        self.kernel.sphere.expect(lost);
        let spent = self.copying.take();
        if self.kernel.sphere.is(donor) {
            let parameters = self.parameters;
            arch::donate(self, &parameters, lost.index() as u64);
        }
        self.copying = spent;
        if !self.kernel.sphere.has_begun() {
            return Err("no core began in the copy");
        }
        if !self.kernel.sphere.admit() {
            return Err("the copy was not admitted");
        }
        Ok(Outcome::Joined)
    }

    /// Is one replica missing, and no other?
    pub(crate) fn is_complete_but_one(&self) -> bool {
        let (members, _) = self.kernel.sphere.group();
        members.len() as u64 + 1 == self.parameters.replicas
    }

    /// What a copy in which a core is about to start does not have.
    pub(crate) fn missing(&self) -> impl Iterator<Item = core::ops::Range<u64>> {
        self.kernel.missing(0..self.kernel.end(), true)
    }
}
