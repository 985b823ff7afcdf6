//! How a primary waits for a newcomer that is a whole ring behind.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{
        Await, Call, Done, MAX_REPLICAS, Node, Outbox, Port, Ports, ReplicaId, ReplicaSet, Step,
        WaitFor, snapshot,
    };

    const RING: usize = 8;
    const NEWCOMER: ReplicaId = ReplicaId::new(2);

    /// The primary of two members that expects a third, at whose start it is; the other member has
    /// taken all that was published.
    struct Scene<'a> {
        node: Node,
        ports: &'a Ports<'a>,
        outboxes: &'a [Outbox; 3],
    }

    fn with_scene(test: impl FnOnce(Scene<'_>)) {
        let outboxes = [const { Outbox::new() }; 3];
        let rings = [const { [const { AtomicU64::new(0) }; RING] }; 3];
        let mut ports = [None; MAX_REPLICAS];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
            *port = Some(Port { outbox, ring });
        }
        let mut node = Node::new(ReplicaId::new(0), ReplicaSet::all(2), &ports);
        node.expect_newcomer(NEWCOMER);
        test(Scene {
            node,
            ports: &ports,
            outboxes: &outboxes,
        });
    }

    impl Scene<'_> {
        /// Asks for room until it is there or is to be waited for.
        fn room(&mut self, call: &mut Call) -> Step {
            for _ in 0..100 {
                match self.node.step(call, self.ports, &mut []) {
                    Step::Again => assert!(!call.in_vote(), "nobody has done wrong"),
                    other => return other,
                }
            }
            panic!("goes on for ever: {call}");
        }

        /// Publishes until somebody is waited for: how many records, and for whom.
        fn publish(&mut self) -> (u64, Call, Await) {
            for count in 0..100 {
                let mut call = self.node.begin_publish(1);
                match self.room(&mut call) {
                    Step::Ready(Done::Room) => self.node.commit(self.ports, &[7]),
                    Step::Pending(wait) => return (count, call, wait),
                    other => panic!("{other:?}"),
                }
                self.member_is_at(self.cursor());
            }
            panic!("nobody is waited for");
        }

        /// How far was published.
        fn cursor(&self) -> u64 {
            self.outboxes[0].snapshot()[snapshot::CURSOR]
        }

        fn member_is_at(&self, position: u64) {
            self.outboxes[1].overwrite(snapshot::CURSOR, position);
        }

        fn newcomer_is_at(&self, position: u64) {
            self.outboxes[2].overwrite(snapshot::CURSOR, position);
        }
    }

    #[test]
    fn one_that_is_a_ring_behind_is_waited_for() {
        with_scene(|mut scene| {
            let (count, mut call, wait) = scene.publish();
            assert_eq!((wait.peer, wait.reason), (NEWCOMER, WaitFor::Newcomer));
            assert!(count > 0, "the ring was empty");
            scene.newcomer_is_at(scene.cursor());
            assert_eq!(scene.room(&mut call), Step::Ready(Done::Room));
            scene.node.commit(scene.ports, &[7]);
            scene.member_is_at(scene.cursor());
            assert_eq!(scene.publish().2.peer, NEWCOMER, "and again");
        });
    }

    #[test]
    fn one_that_is_overdue_is_left_behind_for_good() {
        with_scene(|mut scene| {
            let (_, mut call, wait) = scene.publish();
            call.overdue(wait.peer);
            assert_eq!(scene.room(&mut call), Step::Ready(Done::Room));
            for _ in 0..4 * RING {
                scene.node.commit(scene.ports, &[7]);
                scene.member_is_at(scene.cursor());
                let mut call = scene.node.begin_publish(1);
                assert_eq!(scene.room(&mut call), Step::Ready(Done::Room));
            }
        });
    }

    /// What stands there before the copy has begun is a lost replica's.
    #[test]
    fn a_position_that_it_cannot_be_at_counts_as_its_start() {
        for left in [1 << 40, u64::MAX] {
            with_scene(|mut scene| {
                scene.newcomer_is_at(left);
                let (_, mut call, wait) = scene.publish();
                assert_eq!(wait.reason, WaitFor::Newcomer);
                scene.newcomer_is_at(scene.cursor());
                assert_eq!(scene.room(&mut call), Step::Ready(Done::Room));
            });
        }
    }

    #[test]
    fn nobody_waits_where_none_is_expected() {
        with_scene(|mut scene| {
            scene.node.forget_newcomer();
            for _ in 0..4 * RING {
                let mut call = scene.node.begin_publish(1);
                assert_eq!(scene.room(&mut call), Step::Ready(Done::Room));
                scene.node.commit(scene.ports, &[7]);
                scene.member_is_at(scene.cursor());
            }
        });
    }
}
