//! Posts: an effect is agreed on when all have passed it alike, and not before.

#![cfg(not(feature = "shuttle"))]

#[cfg(test)]
mod tests {
    use rcoe_core::primitive::AtomicU64;
    use rcoe_core::{Kind, MAX_REPLICAS, Node, Outbox, POSTS, Port, Ports, ReplicaId, ReplicaSet};

    const RING: usize = 64;

    /// So many replicas, the first the primary, with what they share.
    fn group<const N: usize>(test: impl FnOnce([Node; N], &Ports<'_>)) {
        let outboxes = [const { Outbox::new() }; N];
        let rings = [const { [const { AtomicU64::new(0) }; RING] }; N];
        let mut ports = [None; MAX_REPLICAS];
        for (port, (outbox, ring)) in ports.iter_mut().zip(outboxes.iter().zip(&rings)) {
            *port = Some(Port { outbox, ring });
        }
        let mut id = 0;
        let nodes = [(); N].map(|()| {
            id += 1;
            Node::new(ReplicaId::new(id - 1), ReplicaSet::all(N), &ports)
        });
        test(nodes, &ports);
    }

    /// An effect of this value, asked for.
    fn ask(node: &mut Node, ports: &Ports<'_>, value: u64) -> u64 {
        let own = ports[node.id().index()].expect("a port").outbox;
        node.add_event(own, Kind(3), value);
        node.post(ports)
    }

    #[test]
    fn an_effect_is_agreed_on_once_all_others_have_passed_it() {
        group(|[mut primary, mut second, mut third], ports| {
            let index = ask(&mut primary, ports, 7);
            assert!(!primary.is_posted_alike(index, ports), "nobody else");
            ask(&mut third, ports, 7);
            assert!(!primary.is_posted_alike(index, ports), "not all");
            for value in [7, 8, 9] {
                ask(&mut second, ports, value);
            }
            assert!(primary.is_posted_alike(index, ports), "one is further");
        });
    }

    #[test]
    fn one_that_differs_is_not_agreed_with_then_or_later() {
        group(|[mut primary, mut second], ports| {
            ask(&mut second, ports, 6);
            let first = ask(&mut primary, ports, 7);
            assert!(!primary.is_posted_alike(first, ports));
            ask(&mut second, ports, 5);
            let next = ask(&mut primary, ports, 5);
            assert!(
                !primary.is_posted_alike(next, ports),
                "all of the past counts"
            );
        });
    }

    #[test]
    fn posts_stay_readable_until_so_many_later_ones() {
        group(|[mut primary, mut second], ports| {
            let index = ask(&mut primary, ports, 1);
            ask(&mut second, ports, 1);
            for value in 1..POSTS as u64 {
                ask(&mut second, ports, value);
                assert!(primary.is_posted_alike(index, ports), "after {value} more");
            }
            ask(&mut second, ports, 99);
            assert!(!primary.is_posted_alike(index, ports), "it is overwritten");
        });
    }

    #[test]
    fn garbage_in_the_count_is_no_agreement() {
        /// Of a snapshot.
        const POSTED: usize = 33;
        group(|[mut primary, mut second], ports| {
            let index = ask(&mut primary, ports, 1);
            ask(&mut second, ports, 1);
            let outbox = ports[1].expect("a port").outbox;
            for count in [0, u64::MAX, 1 << 40] {
                outbox.overwrite(POSTED, count);
                assert!(!primary.is_posted_alike(index, ports), "{count}");
            }
            outbox.overwrite(POSTED, 1);
            assert!(primary.is_posted_alike(index, ports));
        });
    }
}
