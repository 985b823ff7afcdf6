//! What must hold of every world between two kernel entries.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use rcoe_abi::Rights;
use rcoe_abi::object::LARGE;

use super::world::Alone;
use crate::arch;
use crate::field;
use crate::kernel::Kernel;
use crate::sphere::Sphere as _;
use crate::tcb::State;
use crate::{Cap, Ref};

/// All slots that can be reached from the root task's table, with what they hold.
fn reachable(kernel: &Kernel<'_, Alone>, root: Ref) -> BTreeMap<Ref, Cap> {
    let mut found = BTreeMap::new();
    let mut tables = BTreeSet::new();
    let mut open: Vec<Cap> = [kernel.cap(Kernel::<Alone>::cspace_slot(root))].into();
    let mut threads = BTreeSet::from([root]);
    for slot in Kernel::<Alone>::slots_of(root) {
        found.insert(slot, kernel.cap(slot));
    }
    while let Some(Cap::CNode { obj, bits, .. }) = open.pop() {
        if !tables.insert(obj) {
            continue;
        }
        for slot in (0..1 << bits).map(|index| obj.slot(index)) {
            let cap = kernel.cap(slot);
            found.insert(slot, cap);
            match cap {
                Cap::CNode { .. } => open.push(cap),
                Cap::Tcb { obj } if threads.insert(obj) => {
                    for slot in Kernel::<Alone>::slots_of(obj) {
                        found.insert(slot, kernel.cap(slot));
                        if let cap @ Cap::CNode { .. } = kernel.cap(slot) {
                            open.push(cap);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    found.retain(|_, cap| *cap != Cap::Null);
    found
}

/// The extent of an object, of those that have memory of their own and no parts.
fn extent(cap: &Cap) -> Option<(u64, u64, u64)> {
    let (obj, bits) = match *cap {
        Cap::CNode { obj, bits, .. } => (obj, bits + 5),
        Cap::Tcb { obj } => (obj, 11),
        Cap::Endpoint { obj, .. } | Cap::Notification { obj, .. } => (obj, 6),
        Cap::Frame { obj, level: 1, .. } => (obj, 21),
        Cap::Frame { obj, .. } | Cap::Table { obj, .. } | Cap::VSpace { obj, .. } => (obj, 12),
        _ => return None,
    };
    Some((
        obj.bytes(),
        obj.bytes() + (1 << bits),
        cap.encode()[0] & 0xff,
    ))
}

/// Asserts all invariants that can be seen from the root task.
pub(super) fn check(kernel: &mut Kernel<'_, Alone>) {
    kernel.finish();
    let root = kernel.current().expect("a thread runs");
    let slots = reachable(kernel, root);
    for (&slot, cap) in &slots {
        assert!(!matches!(cap, Cap::Zombie { .. }), "{slot:?} is a zombie");
        let next = kernel.next(slot);
        if let Some(next) = next.some() {
            assert!(
                kernel.cap(next) != Cap::Null,
                "{slot:?} leads to an empty slot"
            );
        }
    }
    objects_do_not_overlap(&slots);
    queues_hold_who_waits(kernel, &slots);
    tables_lead_to_pages(kernel);
}

fn objects_do_not_overlap(slots: &BTreeMap<Ref, Cap>) {
    let extents: BTreeSet<(u64, u64, u64)> = slots.values().filter_map(extent).collect();
    let mut last = (0, 0, 0);
    for it in extents {
        assert!(it.0 >= last.1, "objects {last:x?} and {it:x?} overlap");
        last = it;
    }
}

fn queues_hold_who_waits(kernel: &Kernel<'_, Alone>, slots: &BTreeMap<Ref, Cap>) {
    let threads = slots.values().filter_map(|cap| match cap {
        Cap::Tcb { obj } => Some(*obj),
        _ => None,
    });
    for tcb in threads {
        let state = kernel.state(tcb);
        let waits = matches!(state, State::Sending | State::Receiving | State::Waiting);
        let place = kernel.held(tcb, field::WAITS_AT);
        assert_eq!(waits, !place.is_none(), "{tcb:?} is {state:?}");
        if waits {
            let mut queue = kernel.waiters(place).first();
            let mut found = false;
            while let Some(waiter) = queue {
                found |= waiter == tcb;
                let links = kernel.mem.get(waiter, field::QUEUE);
                queue = crate::queue::Queue::from_word(links).last();
            }
            assert!(found, "{tcb:?} is in the queue where it waits");
        }
        let called = kernel.held(tcb, field::CALLED);
        if !called.is_none() {
            assert_eq!(
                kernel.held(called, field::CALLER),
                tcb,
                "calls are known on both ends"
            );
        }
    }
}

/// Every entry of every address space leads into object memory.
fn tables_lead_to_pages(kernel: &Kernel<'_, Alone>) {
    for root in kernel.spaces.iter().filter_map(|root| root.some()) {
        walk(kernel, root, arch::LEVELS - 1);
    }
}

fn walk(kernel: &Kernel<'_, Alone>, table: Ref, level: usize) {
    let base = kernel.sphere.base();
    for index in 0..arch::ENTRIES {
        let entry = kernel.mem.get(table, index);
        let kernels = level == arch::LEVELS - 1 && index == arch::KERNEL_ENTRY;
        if !arch::is_present(entry) || kernels {
            continue;
        }
        let place = arch::physical(entry);
        if level == 0 && kernel.shared_page(entry).is_some() {
            let own = place >> 24 == 1 + kernel.sphere.own;
            assert!(own || !arch::is_writable(entry), "{entry:#x} is another's");
            assert_eq!(arch::leaf(0, Rights::READ) & !entry, 0, "it is no code");
            continue;
        }
        assert!(
            place >= base && place < base + kernel.mem.bytes(),
            "{entry:#x} leads astray"
        );
        if level > 0 && !arch::is_table(entry) {
            assert_eq!((level, (place - base) % LARGE), (1, 0), "{entry:#x}");
            let code = arch::large_leaf(0, Rights::READ) & !entry;
            assert!(code == 0 || !arch::is_writable(entry), "{entry:#x}");
        } else if level > 0 {
            walk(kernel, Ref::from_bytes(place - base), level - 1);
        }
    }
}
