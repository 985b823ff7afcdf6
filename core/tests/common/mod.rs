//! A group of replicas in one thread, for tests that step them by hand.

use rcoe_core::primitive::AtomicU64;
use rcoe_core::{MAX_REPLICAS, Node, Outbox, Port, Ports, ReplicaId, ReplicaSet};

/// Words of each ring.
const RING: usize = 1024;

/// So many replicas, the first the primary, with what they share.
pub(crate) fn group<const N: usize, T>(test: impl FnOnce([Node; N], &Ports<'_>) -> T) -> T {
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
    test(nodes, &ports)
}
