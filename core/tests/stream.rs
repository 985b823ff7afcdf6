//! What a primary makes of damage to the words by which followers tell where they are.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{
        Done, MAX_REPLICAS, Node, Outbox, Port, ReplicaId, ReplicaSet, Step, snapshot,
    };

    const RING: usize = 8;

    /// A primary whose ring is full, and a follower that says it is at `position`: the call ends,
    /// waits or votes.
    fn publish_with_follower_at(position: u64) -> (Step, bool) {
        let outboxes = [Outbox::new(), Outbox::new()];
        let rings = [const { [const { AtomicU64::new(0) }; RING] }; 2];
        let mut ports = [None; MAX_REPLICAS];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
            *port = Some(Port { outbox, ring });
        }
        let mut node = Node::new(ReplicaId::new(0), ReplicaSet::all(2), &ports);
        for _ in 0..2 {
            let mut call = node.begin_publish(1);
            let room = node.step(&mut call, &ports, &mut []);
            assert_eq!(room, Step::Ready(Done::Room));
            node.commit(&ports, &[7]);
        }
        outboxes[1].overwrite(snapshot::CURSOR, position);
        let mut call = node.begin_publish(1);
        for _ in 0..100 {
            match node.step(&mut call, &ports, &mut []) {
                Step::Again if call.in_vote() => return (Step::Again, true),
                Step::Again => {}
                other => return (other, call.in_vote()),
            }
        }
        panic!("goes on for ever with a follower at {position}: {call}");
    }

    #[test]
    fn a_position_that_nobody_can_be_at_calls_for_a_vote() {
        let written = 8;
        for absurd in [written + 1, written + 2, written + 100, 1 << 40] {
            assert!(publish_with_follower_at(absurd).1, "position {absurd}");
        }
        let ready = (Step::Ready(Done::Room), false);
        assert_eq!(publish_with_follower_at(written), ready);
        let (step, voting) = publish_with_follower_at(0);
        assert!(matches!(step, Step::Pending(_)) && !voting, "{step:?}");
    }
}
