//! Evidence for what cannot be undone: a removal, and the end of the group.
//!
//! A replica may break within the protocol itself: a flipped register tells it that a vote has
//! removed somebody, or that the group cannot go on. So whoever is about to shut another out or to
//! end all of the group first reads in the outboxes of the others whether they say so too.

use crate::guards::Bug;
use crate::halt::Halt;
use crate::node::{Node, Ports, Step, port};
use crate::primitive::{Ordering, fence};
use crate::{MAX_REPLICAS, ReplicaId, ReplicaSet};

impl Node {
    /// What a step asked for, if there is evidence for it. A removal that the members have not
    /// confirmed, and a stop that this replica has not decided, are signs that it is broken: it
    /// halts.
    #[inline]
    pub fn checked(&mut self, step: Step, ports: &Ports<'_>) -> Step {
        match step {
            Step::Exclude(_) | Step::Halted(_) => self.check(step, ports),
            step => step,
        }
    }

    #[cold]
    fn check(&mut self, step: Step, ports: &Ports<'_>) -> Step {
        let founded = match step {
            Step::Exclude(gone) => self.is_confirmed(gone, ports),
            Step::Halted(halt) => self.halted() == Some(halt),
            _ => true,
        };
        if founded || self.guards.off(Bug::ActUnchecked) {
            step
        } else {
            self.halt(ports, Halt::Broken, ReplicaSet::empty())
        }
    }

    /// Have most members confirmed, in the vote that this replica is completing, that `gone` are
    /// faulty?
    fn is_confirmed(&self, gone: ReplicaSet, ports: &Ports<'_>) -> bool {
        let confirms = |&peer: &ReplicaId| {
            let ballot = self.ballot(peer, ports);
            ballot.is_some_and(|word| word.phase == 3 && word.verdict.faulty == gone)
        };
        let others = self.others.iter();
        let confirming = others
            .filter(confirms)
            .fold(ReplicaSet::empty().with(self.id), ReplicaSet::with);
        let concerned = self.members.union(gone);
        !gone.contains(self.id) && confirming.len() * 2 > concerned.len()
    }

    /// This replica has halted: do others go on? They do if some of them, none halted, are a
    /// majority of the members as each of them knows these. A newcomer that the others have taken
    /// in, but that has not seen so yet, will know what they know. For a sphere in which one
    /// replica can end all: the last of those that halt may, and has to.
    #[must_use]
    pub fn others_go_on(&self, ports: &Ports<'_>) -> bool {
        if self.guards.off(Bug::EndAlone) {
            return false;
        }
        // Pairs with itself in others that halt: who looks last sees all halts.
        fence(Ordering::SeqCst);
        let runs = |&peer: &ReplicaId| {
            let present = ports[peer.index()].is_some();
            present && port(ports, peer).outbox.halt.load(Ordering::Acquire) == 0
        };
        let others = ReplicaSet::all(MAX_REPLICAS).without(self.id).iter();
        let running = others
            .filter(runs)
            .fold(ReplicaSet::empty(), ReplicaSet::with);
        let known = |peer: ReplicaId| {
            let word = port(ports, peer).outbox.membership.load(Ordering::Acquire);
            ReplicaSet::from_bits(word.to_le_bytes()[0]).with(peer)
        };
        (1..=u8::MAX)
            .map(ReplicaSet::from_bits)
            .filter(|group| group.is_subset(running) && group.len() > 1)
            .any(|group| {
                let leads = |members: ReplicaSet| {
                    group.is_subset(members) && group.len() * 2 > members.len()
                };
                group.iter().all(|peer| leads(known(peer)))
            })
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::primitive::AtomicU64;
    use crate::{Cause, Outbox, Port};

    const STOP: Halt = Halt::FailStop(Cause::Timeout);

    /// Runs a test with the nodes of so many replicas.
    fn with_nodes(n: usize, test: impl FnOnce(&mut [Node], &Ports<'_>)) {
        let outboxes = [const { Outbox::new() }; MAX_REPLICAS];
        let rings = [const { [const { AtomicU64::new(0) }; 64] }; MAX_REPLICAS];
        let mut ports = [None; MAX_REPLICAS];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)).take(n) {
            *port = Some(Port { outbox, ring });
        }
        let members = ReplicaSet::all(n);
        let mut nodes: std::vec::Vec<Node> = members
            .iter()
            .map(|id| Node::new(id, members, &ports))
            .collect();
        test(&mut nodes, &ports);
    }

    #[test]
    fn the_last_that_halts_finds_nobody_who_goes_on() {
        for (n, alone) in [(2, 0), (3, 1), (4, 1), (5, 2)] {
            with_nodes(n, |nodes, ports| {
                for (halted, node) in nodes.iter_mut().enumerate() {
                    node.halt(ports, STOP, ReplicaSet::empty());
                    assert_eq!(node.others_go_on(ports), halted < alone, "{halted} of {n}");
                }
            });
        }
    }

    #[test]
    fn who_was_lost_before_does_not_count() {
        with_nodes(3, |nodes, ports| {
            let two = ReplicaSet::all(2).bits();
            for node in &nodes[..2] {
                let own = port(ports, node.id).outbox;
                own.membership.store(u64::from(two), Ordering::Release);
            }
            nodes[0].halt(ports, STOP, ReplicaSet::empty());
            assert!(!nodes[0].others_go_on(ports), "two cannot mask");
        });
    }

    #[test]
    fn a_newcomer_that_was_taken_in_goes_on_with_the_others() {
        with_nodes(4, |nodes, ports| {
            let before = u64::from(ReplicaSet::all(3).bits());
            let own = port(ports, nodes[3].id).outbox;
            own.membership.store(before, Ordering::Release);
            nodes[0].halt(ports, STOP, ReplicaSet::empty());
            assert!(nodes[0].others_go_on(ports), "it sees it yet");
            for node in &nodes[1..3] {
                let own = port(ports, node.id).outbox;
                own.membership.store(before, Ordering::Release);
            }
            assert!(nodes[0].others_go_on(ports), "two of three do");
            nodes[1].halt(ports, STOP, ReplicaSet::empty());
            assert!(!nodes[1].others_go_on(ports), "they have not taken it in");
        });
    }

    #[test]
    fn who_acts_without_evidence_is_broken() {
        with_nodes(3, |nodes, ports| {
            let peer = ReplicaSet::empty().with(nodes[0].id);
            for step in [Step::Exclude(peer), Step::Halted(STOP)] {
                let mut node = nodes[1].clone();
                assert_eq!(node.checked(step, ports), Step::Halted(Halt::Broken));
                assert_eq!(node.halted(), Some(Halt::Broken));
            }
            nodes[1].halt(ports, STOP, ReplicaSet::empty());
            let stop = Step::Halted(STOP);
            assert_eq!(nodes[1].checked(stop, ports), stop, "it was decided");
        });
    }
}
