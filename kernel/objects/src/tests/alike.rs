//! What replicas hold alike, and what they need not.

use rcoe_abi::{Label, ObjectType, Rights, boot};

use super::invariants::check;
use super::world::{Alone, FREE, memory, world, world_at};
use crate::arch::{self, CONTEXT_WORDS};
use crate::kernel::Kernel;
use crate::{Cap, Ref};

const PLACE: u64 = 0x1000_0000_0000;

/// Makes a space with a page, the tables to it, and a thread in it that waits at an endpoint or
/// can run.
fn populate(kernel: &mut Kernel<'_, Alone>, waits: bool) {
    kernel.make(ObjectType::VSpace, 0, FREE, 1);
    kernel.make(ObjectType::PageTable, 0, FREE + 1, 3);
    kernel.make(ObjectType::Frame, 0, FREE + 4, 1);
    for table in 1..=3 {
        let words = [FREE, PLACE];
        assert_eq!(kernel.ask(FREE + table, Label::TableMap, &words).0, 0);
    }
    let words = [FREE, PLACE, Rights::READ_WRITE.word()];
    assert_eq!(kernel.ask(FREE + 4, Label::FrameMap, &words).0, 0);
    let thread = kernel.thread(FREE + 10, 1);
    let words = [boot::SLOT_CNODE, FREE, FREE + 11, FREE + 900];
    assert_eq!(kernel.ask(FREE + 10, Label::TcbConfigure, &words).0, 0);
    assert_eq!(kernel.ask(FREE + 10, Label::TcbResume, &[]).0, 0);
    if waits {
        kernel.suspend(thread);
    }
}

fn frame(kernel: &Kernel<'_, Alone>) -> Ref {
    match kernel.root_cap(FREE + 4) {
        Cap::Frame { obj, .. } => obj,
        other => panic!("{other:?} is no frame"),
    }
}

fn thread(kernel: &Kernel<'_, Alone>) -> Ref {
    match kernel.root_cap(FREE + 10) {
        Cap::Tcb { obj } => obj,
        other => panic!("{other:?} is no thread"),
    }
}

#[test]
fn replicas_in_different_places_are_alike() {
    for waits in [false, true] {
        let (mut one, mut other) = (memory(), memory());
        let mut one = world_at(&mut one, 0);
        let mut other = world_at(&mut other, 2);
        populate(&mut one, waits);
        populate(&mut other, waits);
        assert_eq!(one.digest(), other.digest());
        // What a processor sets, and another number for a copy.
        let Cap::VSpace { obj, .. } = one.root_cap(FREE) else {
            panic!("a space");
        };
        let used = one.mem.get(obj, arch::KERNEL_ENTRY) | 1 << 5;
        one.mem.set(obj, arch::KERNEL_ENTRY, used);
        one.set_replica(3);
        assert_eq!(one.digest(), other.digest());
    }
}

#[test]
fn a_flip_anywhere_is_seen_but_in_what_a_runnable_thread_can_change_or_nobody_was_given() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    populate(&mut kernel, true);
    let (page, tcb) = (frame(&kernel), thread(&kernel));
    let right = kernel.digest();
    let places = [
        (page, 511),
        (tcb, 3),
        (tcb, CONTEXT_WORDS),
        (tcb, 255),
        (kernel.current().unwrap(), CONTEXT_WORDS + 1),
        (kernel.info, 0),
        (Ref::from_bytes(2 * 4096), 77),
    ];
    for (place, index) in places {
        let word = kernel.mem.get(place, index);
        kernel.mem.set(place, index, word ^ 1 << 40);
        assert_ne!(kernel.digest(), right, "{place:?} {index}");
        kernel.mem.set(place, index, word);
    }
    assert_eq!(kernel.digest(), right);
    let behind = Ref::from_bytes(kernel.given().next_multiple_of(4096));
    kernel.mem.set(behind, 77, 1);
    assert_eq!(kernel.digest(), right);
    // Whoever is given it next finds it zero.
    kernel.make(ObjectType::Frame, 0, FREE + 30, 256);
    assert_eq!(kernel.mem.get(behind, 77), 0);
    kernel.resume(tcb);
    let right = kernel.digest();
    for (place, index, seen) in [(page, 511, false), (tcb, 3, false), (tcb, 255, true)] {
        let word = kernel.mem.get(place, index);
        kernel.mem.set(place, index, word ^ 1);
        assert_eq!(kernel.digest() != right, seen, "{place:?} {index}");
        kernel.mem.set(place, index, word);
    }
}

#[test]
fn a_flip_in_a_page_table_is_seen() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    populate(&mut kernel, true);
    let right = kernel.digest();
    for slot in [FREE, FREE + 1, FREE + 2, FREE + 3] {
        let (Cap::VSpace { obj, .. } | Cap::Table { obj, .. }) = kernel.root_cap(slot) else {
            panic!("a table");
        };
        for (index, bit) in [
            (0, 0),
            (0, 2),
            (0, 16),
            (0, 45),
            (1, 1),
            (511, 1),
            (511, 20),
        ] {
            let word = kernel.mem.get(obj, index);
            kernel.mem.set(obj, index, word ^ 1 << bit);
            assert_ne!(
                kernel.digest(),
                right,
                "slot {slot} entry {index} bit {bit}"
            );
            kernel.mem.set(obj, index, word);
        }
    }
    assert_eq!(kernel.digest(), right);
}

#[test]
fn a_table_that_is_in_no_space_is_empty() {
    for ended in [FREE, FREE + 1, FREE + 2, FREE + 3] {
        let mut words = memory();
        let mut kernel = world(&mut words);
        populate(&mut kernel, true);
        let tables: std::vec::Vec<Ref> = (FREE..FREE + 4)
            .map(|slot| match kernel.root_cap(slot) {
                Cap::VSpace { obj, .. } | Cap::Table { obj, .. } => obj,
                other => panic!("{other:?} is no table"),
            })
            .collect();
        let label = if ended == FREE {
            Label::CNodeRevoke
        } else {
            Label::TableUnmap
        };
        if ended == FREE {
            let cnode = boot::SLOT_CNODE;
            assert_eq!(kernel.ask(FREE + 10, Label::TcbSuspend, &[]).0, 0);
            assert_eq!(kernel.ask(cnode, label, &[FREE]).0, 0);
            assert_eq!(kernel.ask(cnode, Label::CNodeDelete, &[FREE + 10]).0, 0);
            assert_eq!(kernel.ask(cnode, Label::CNodeDelete, &[FREE]).0, 0);
        } else {
            assert_eq!(kernel.ask(ended, label, &[]).0, 0);
        }
        let first = usize::try_from(ended - FREE).unwrap();
        for &table in &tables[first..] {
            let words = kernel.mem.words(table, 0, arch::ENTRIES);
            assert!(words.iter().all(|&word| word == 0), "{ended} {table:?}");
        }
        check(&mut kernel);
    }
}
