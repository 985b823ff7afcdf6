//! Tables of capabilities that lead to others.

use rcoe_abi::boot::{ROOT_CNODE_BITS, SLOT_CNODE, SLOT_TCB, SLOT_VSPACE};
use rcoe_abi::{Error, Label, ObjectType, Rights};

use super::invariants::check;
use super::world::{Alone, FREE, memory, world};
use crate::Cap;
use crate::kernel::Kernel;

/// Slots: a table of tables, and one that follows the first.
const TOP: u64 = FREE;
const NEXT: u64 = FREE + 1;
/// Logarithms of their slots.
const TOP_BITS: u64 = 2;
const NEXT_BITS: u64 = 5;

const OWN_BITS: u64 = ROOT_CNODE_BITS as u64;
/// Bits of a pointer that are zero.
const ZEROS: u64 = 64 - TOP_BITS - OWN_BITS;

/// The root task's table in the first slot of a table of tables, and a shorter one behind it.
fn two_levels(kernel: &mut Kernel<'_, Alone>) {
    kernel.make(ObjectType::CNode, TOP_BITS, TOP, 1);
    kernel.make(ObjectType::CNode, NEXT_BITS, NEXT, 1);
    let shorter = OWN_BITS - NEXT_BITS;
    for (place, table, zeros) in [(0, SLOT_CNODE, 0), (1, NEXT, shorter)] {
        let words = [place, table, Rights::ALL.word(), zeros];
        assert_eq!(kernel.ask(TOP, Label::CNodeMint, &words).0, 0);
    }
    let set = kernel.ask(SLOT_TCB, Label::TcbSetTable, &[TOP, ZEROS]);
    assert_eq!(set.0, 0);
}

#[test]
fn pointers_lead_where_they_led_and_those_behind_into_the_next_table() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let tcb = kernel.current().unwrap();
    let old = [SLOT_CNODE, SLOT_VSPACE, (1 << OWN_BITS) - 1];
    let before = old.map(|pointer| kernel.lookup(tcb, pointer));
    two_levels(&mut kernel);
    assert_eq!(old.map(|pointer| kernel.lookup(tcb, pointer)), before);
    let Cap::CNode { obj, .. } = kernel.root_cap(NEXT) else {
        panic!("a table");
    };
    let far = 1 << OWN_BITS;
    assert_eq!(kernel.lookup(tcb, far + 7), Ok(obj.slot(7)));
    for lost in [
        far + (1 << NEXT_BITS),
        2 * far,
        3 * far + 5,
        4 * far,
        SLOT_CNODE | 1 << 63,
        u64::MAX,
    ] {
        let found = kernel.lookup(tcb, lost);
        assert_eq!(found, Err(Error::FailedLookup), "{lost:#x}");
    }
    // What is made there is used from there.
    let made = kernel.make_in(ObjectType::Notification, NEXT, 7);
    assert_eq!(made, 0);
    let kind = kernel.lookup_cap(tcb, far + 7).map(|(_, cap)| cap);
    assert!(matches!(kind, Ok(Cap::Notification { .. })), "{kind:?}");
    check(&mut kernel);
}

#[test]
fn guards_that_do_not_fit_are_refused() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let before = kernel.cap(Kernel::<Alone>::cspace_slot(kernel.current().unwrap()));
    for (words, error) in [
        ([SLOT_CNODE, 64 - OWN_BITS + 1], Error::InvalidArgument),
        ([SLOT_CNODE, 63], Error::InvalidArgument),
        ([SLOT_CNODE, 2 | 4 << 6], Error::InvalidArgument),
        ([SLOT_VSPACE, 0], Error::InvalidCapability),
        ([FREE, 0], Error::InvalidCapability),
    ] {
        let (label, _) = kernel.ask(SLOT_TCB, Label::TcbSetTable, &words);
        assert_eq!(label, error as u64, "{words:?}");
    }
    let short = kernel.ask(SLOT_TCB, Label::TcbSetTable, &[SLOT_CNODE]);
    assert_eq!(short.0, Error::IllegalOperation as u64);
    let after = kernel.cap(Kernel::<Alone>::cspace_slot(kernel.current().unwrap()));
    assert_eq!(before, after);
}

/// A table that leads to itself is walked until the pointer has no bits left.
#[test]
fn a_ring_of_tables_is_walked_to_its_end() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::CNode, 1, TOP, 1);
    let ring = [1, TOP, Rights::ALL.word(), 0];
    assert_eq!(kernel.ask(TOP, Label::CNodeMint, &ring).0, 0);
    let tcb = kernel.thread(FREE + 2, 1);
    let set = kernel.ask(FREE + 2, Label::TcbSetTable, &[TOP, 0]);
    assert_eq!(set.0, 0);
    let Cap::CNode { obj, .. } = kernel.root_cap(TOP) else {
        panic!("a table");
    };
    assert_eq!(kernel.lookup(tcb, u64::MAX), Ok(obj.slot(1)));
    assert_eq!(kernel.lookup(tcb, u64::MAX - 1), Ok(obj.slot(0)));
    assert_eq!(kernel.lookup(tcb, 1), Err(Error::FailedLookup));
    check(&mut kernel);
}
