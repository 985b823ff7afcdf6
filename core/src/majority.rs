//! Counting a vote: who is the majority, who is convicted, and what two verdicts that differ come
//! to.
//!
//! Plain data in, a verdict or a halt out: nothing here reads shared memory or changes a replica,
//! so all cases of small groups are counted out in tests. Who stands with whom is found out before
//! ([`crate::behind`]); what a verdict brings is done afterwards ([`crate::vote`]).

use crate::guards::{Bug, Guards};
use crate::halt::{Cause, Halt};
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

/// Members that a vote removes, and those that it found absent, which can be more to begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Verdict {
    pub(crate) absent: ReplicaSet,
    pub(crate) faulty: ReplicaSet,
}

/// There is no verdict by which this replica could go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stop {
    pub(crate) halt: Halt,
    pub(crate) culprits: ReplicaSet,
}

impl Stop {
    pub(crate) const fn fail(cause: Cause, culprits: ReplicaSet) -> Self {
        Self {
            halt: Halt::FailStop(cause),
            culprits,
        }
    }
}

/// What the members said when they joined, so far as it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) members: ReplicaSet,
    /// Those of them that did not join.
    pub(crate) absent: ReplicaSet,
    /// With whom each stands, itself included; with nobody, if it did not join.
    pub(crate) groups: [ReplicaSet; MAX_REPLICAS],
    /// In whose outbox each found what no healthy replica writes.
    pub(crate) accused: [ReplicaSet; MAX_REPLICAS],
}

/// Is `part` a strict majority of `members`, present or not?
const fn is_majority(part: ReplicaSet, members: ReplicaSet) -> bool {
    part.len() * 2 > members.len()
}

impl Count {
    /// Listing 5 of DSN'19: the largest group, if it is a majority. Two that are as large stop all,
    /// because nobody can tell who is right.
    pub(crate) fn majority(&self, guards: Guards) -> Result<ReplicaSet, Stop> {
        let mut best = ReplicaSet::empty();
        for candidate in self.members {
            let group = self.groups[candidate.index()];
            if group.len() > best.len() {
                best = group;
            }
        }
        if is_majority(best, self.members) || guards.off(Bug::AcceptMinority) {
            return Ok(best);
        }
        let outside = self.members.minus(best);
        Err(Stop::fail(self.no_majority(outside), outside))
    }

    /// Which kind of no majority it is, for the report.
    fn no_majority(&self, outside: ReplicaSet) -> Cause {
        if outside == self.absent {
            Cause::Timeout
        } else if self.absent.is_empty() {
            Cause::Mismatch
        } else {
            Cause::NoMajority
        }
    }

    /// The verdict of `own`: faulty is who stands outside of this majority, who is condemned and
    /// who is stuck, which a majority must not be.
    pub(crate) fn convict(
        &self,
        own: ReplicaId,
        majority: ReplicaSet,
        stuck: ReplicaSet,
    ) -> Result<Verdict, Stop> {
        if !stuck.is_empty() && !is_majority(majority.minus(stuck), self.members) {
            return Err(Stop::fail(Cause::Livelock, stuck));
        }
        let outside = self.members.minus(majority);
        let verdict = Verdict {
            absent: self.absent,
            faulty: outside.union(self.condemned()).union(stuck),
        };
        verdict.spares(own)
    }

    /// Members in whose outbox a majority found what no healthy replica writes.
    fn condemned(&self) -> ReplicaSet {
        let accusers = |accused: ReplicaId| {
            let accuses = |peer: &ReplicaId| self.accused[peer.index()].contains(accused);
            let accusers = self.members.iter().filter(accuses);
            accusers.fold(ReplicaSet::empty(), ReplicaSet::with)
        };
        self.members
            .iter()
            .filter(|&peer| is_majority(accusers(peer), self.members))
            .fold(ReplicaSet::empty(), ReplicaSet::with)
    }
}

/// What to do about a peer whose verdict is another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Difference {
    /// Take over that these are absent.
    Adopt(ReplicaSet),
    /// Wait until the peer takes over what it has not found absent.
    Await,
    /// They do not agree on who is faulty.
    Disagreement,
}

impl Verdict {
    /// It, unless it is against `own`.
    fn spares(self, own: ReplicaId) -> Result<Self, Stop> {
        if self.faulty.contains(own) {
            return Err(Stop {
                halt: Halt::Convicted,
                culprits: self.faulty,
            });
        }
        Ok(self)
    }

    /// What the verdict of `peer`, which is another one, comes to. Absences alone can differ
    /// between healthy replicas.
    pub(crate) fn differs(
        self,
        members: ReplicaSet,
        peer: ReplicaId,
        theirs: Self,
        guards: Guards,
    ) -> Difference {
        let more = theirs.faulty.minus(self.faulty);
        let fewer = self.faulty.minus(theirs.faulty);
        let sane = theirs.faulty.is_subset(members) && !theirs.faulty.contains(peer);
        let resolvable = sane && more.is_subset(theirs.absent) && fewer.is_subset(self.absent);
        if !resolvable || guards.off(Bug::NoAdopt) {
            Difference::Disagreement
        } else if more.is_empty() {
            Difference::Await
        } else {
            Difference::Adopt(more)
        }
    }

    /// The verdict of `own` with more absent members in it, if a majority remains.
    pub(crate) fn with_absent(
        self,
        own: ReplicaId,
        members: ReplicaSet,
        absent: ReplicaSet,
    ) -> Result<Self, Stop> {
        let grown = Self {
            absent: self.absent.union(absent),
            faulty: self.faulty.union(absent),
        };
        let grown = grown.spares(own)?;
        if is_majority(members.minus(grown.faulty), members) {
            Ok(grown)
        } else {
            Err(Stop::fail(Cause::Timeout, grown.faulty))
        }
    }
}

#[cfg(test)]
mod tests;
