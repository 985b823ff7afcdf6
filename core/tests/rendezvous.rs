//! What members find at a rendezvous.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{
        Done, Kind, MAX_REPLICAS, Node, Outbox, Port, Ports, ReplicaId, ReplicaSet, Step,
    };

    const MEMBERS: usize = 3;

    fn ports<'a>(outboxes: &'a [Outbox], rings: &'a [Vec<AtomicU64>]) -> Ports<'a> {
        let mut ports = [None; MAX_REPLICAS];
        for (at, (outbox, ring)) in outboxes.iter().zip(rings).enumerate() {
            ports[at] = Some(Port { outbox, ring });
        }
        ports
    }

    /// A signature that only its own copy for the rendezvous does not agree with is a damaged copy:
    /// in the vote it is made anew, and all meet.
    #[test]
    fn a_damaged_copy_of_the_signature_heals_in_the_vote() {
        // The slot of the first round, in the order of a snapshot.
        const SLOT: usize = 2;
        for (victim, bit, published) in [
            (0, 60, true),
            (1, 0, true),
            (2, 17, true),
            (0, 60, false),
            (2, 17, false),
        ] {
            let outboxes: Vec<Outbox> = (0..MEMBERS).map(|_| Outbox::new()).collect();
            let ring = || (0..64).map(|_| AtomicU64::new(0)).collect();
            let rings: Vec<Vec<AtomicU64>> = (0..MEMBERS).map(|_| ring()).collect();
            let ports = ports(&outboxes, &rings);
            let mut nodes = [0, 1, 2].map(|id| {
                let mut node = Node::new(ReplicaId::new(id), ReplicaSet::all(MEMBERS), &ports);
                node.add_event(&outboxes[usize::from(id)], Kind(1), 7);
                node
            });
            let mut calls = nodes.each_ref().map(Node::begin_rendezvous);
            nodes[victim].step(&mut calls[victim], &ports, &mut [0; 8]);
            nodes[victim].flip_slot(bit);
            if published {
                let outbox = &outboxes[victim];
                outbox.overwrite(SLOT, outbox.snapshot()[SLOT] ^ 1 << bit);
            }
            let mut met = [0; MEMBERS];
            for _ in 0..10_000 {
                for at in 0..MEMBERS {
                    match nodes[at].step(&mut calls[at], &ports, &mut [0; 8]) {
                        Step::Ready(Done::Met) if met[at] < 2 => {
                            met[at] += 1;
                            nodes[at].add_event(&outboxes[at], Kind(1), 8);
                            calls[at] = nodes[at].begin_rendezvous();
                        }
                        Step::Ready(Done::Met) => {}
                        Step::Again | Step::Pending(_) => {}
                        other => panic!("R{at}, when {victim} is hit: {other:?}"),
                    }
                }
                if met == [2; MEMBERS] {
                    break;
                }
            }
            assert_eq!(met, [2; MEMBERS], "when {victim} is hit");
        }
    }
}
