//! Who comes to points between calls.
//!
//! The members do, and a newcomer that is to be taken in, from its copy on: it would run past
//! points else, and be another than they are. It has no vote there.
//!
//! Contract: all replicas, the newcomer among them, find the same at one event of the trace.

use core::sync::atomic::Ordering;

use rcoe_core::{MAX_REPLICAS, Replica, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{Phase, Report};

use crate::protocol::env::LinuxEnv;
use crate::sys;

/// As this replica goes by it while it waits for others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Party {
    /// Who has a vote.
    pub(super) members: ReplicaSet,
    /// Who is to be taken in, by which re-integration.
    pub(super) newcomer: Option<(ReplicaId, u32)>,
    /// Grows with each change: a vote, a newcomer that comes, or one that is forgotten.
    pub(super) changes: u64,
}

impl Party {
    /// Before anything has changed.
    pub(super) const fn new(members: ReplicaSet) -> Self {
        Self {
            members,
            newcomer: None,
            changes: 0,
        }
    }

    /// Of this moment, after so many copies, the last one for the re-integration `serial`.
    pub(super) fn of(replica: &Replica<'_, LinuxEnv>, copies: u64, serial: u32) -> Self {
        let newcomer = replica.newcomer();
        Self {
            members: replica.members(),
            newcomer: newcomer.map(|it| (it, serial)),
            changes: replica.epoch() + 2 * copies - u64::from(newcomer.is_some()),
        }
    }

    /// All that are waited for.
    pub(super) fn all(&self) -> ReplicaSet {
        let newcomer = self.newcomer.map(|(newcomer, _)| newcomer);
        newcomer.into_iter().fold(self.members, ReplicaSet::with)
    }

    /// The number of this membership. Those that an attempt removes have the numbers in between.
    pub(super) fn epoch(&self) -> u16 {
        let number = self.changes * (MAX_REPLICAS as u64);
        u16::try_from(number & 0xffff).expect("cut down")
    }
}

/// Has the newcomer of this re-integration ended or given up? Before it has its place, the words
/// there are those of the lost one.
pub(crate) fn is_over(report: &Report, serial: u32) -> bool {
    let begun = report.twin.load(Ordering::Acquire) >> 32 == u64::from(serial);
    let phase = report.phase.load(Ordering::Acquire);
    let pid = report.pid.load(Ordering::Acquire);
    begun && (phase >= Phase::Ended as u32 || sys::cpu_time(pid).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_is_waited_for_and_numbers_begin_anew() {
        let members = ReplicaSet::all(2);
        let (newcomer, changes) = (ReplicaId::new(2), 1 << 20);
        let party = Party {
            members,
            newcomer: Some((newcomer, 7)),
            changes,
        };
        assert_eq!(party.all(), members.with(newcomer));
        assert_eq!(party.epoch(), 0);
        assert_eq!(Party::new(members).all(), members);
    }
}
