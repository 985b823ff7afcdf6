//! Long operations: how much one kernel entry does, what stands in between, and that others may
//! come in between.

use std::vec::Vec;

use rcoe_abi::{Error, Label, MessageInfo, ObjectType, Syscall, boot};

use super::invariants::check;
use super::world::{Alone, FREE, memory, world};
use crate::arch::{CAP, ENTRIES, INFO, NUMBER};
use crate::kernel::Kernel;
use crate::long::STEP;
use crate::sphere::Sphere as _;
use crate::{Cap, Ref};

const UNTYPED: u64 = FREE;
const TABLE: u64 = FREE + 1;
const SMALL: u64 = FREE + 2;
/// A second thread and its buffer.
const OTHER: u64 = FREE + 10;

/// Sets the running thread's registers to an invocation.
fn ready(kernel: &mut Kernel<'_, Alone>, pointer: u64, label: Label, words: &[u64]) -> Ref {
    let tcb = kernel.current().unwrap();
    kernel.set_register(tcb, NUMBER, Syscall::Call as u64);
    kernel.set_register(tcb, CAP, pointer);
    let info = MessageInfo::new(label as u64, words.len());
    kernel.set_register(tcb, INFO, info.word());
    for (index, &word) in words.iter().enumerate() {
        kernel.set_word(tcb, index, word);
    }
    tcb
}

/// Makes an invocation to its end; how many entries it took.
pub(super) fn entries(
    kernel: &mut Kernel<'_, Alone>,
    pointer: u64,
    label: Label,
    words: &[u64],
) -> usize {
    let tcb = ready(kernel, pointer, label, words);
    let mut count = 1;
    while kernel.enter_once(tcb) {
        assert_eq!(kernel.current(), Some(tcb), "nobody else runs");
        count += 1;
    }
    assert_eq!(kernel.heard(tcb).0, 0, "{label:?}");
    count
}

/// A table of `1 << bits` slots, in all of which are endpoints made from `SMALL`.
fn full_table(kernel: &mut Kernel<'_, Alone>, bits: u64) {
    kernel.make(ObjectType::Untyped, 21, UNTYPED, 1);
    kernel.make(ObjectType::Untyped, bits + 6, SMALL, 1);
    let words = [ObjectType::CNode as u64, bits, boot::SLOT_CNODE, TABLE, 1];
    assert_eq!(kernel.ask(UNTYPED, Label::UntypedRetype, &words).0, 0);
    for first in (0..1 << bits).step_by(256) {
        let words = [ObjectType::Endpoint as u64, 0, TABLE, first, 256];
        assert_eq!(kernel.ask(SMALL, Label::UntypedRetype, &words).0, 0);
    }
}

#[test]
fn deleting_a_table_takes_an_entry_for_each_step_of_its_slots() {
    for bits in [8, 10, 12] {
        let mut words = memory();
        let mut kernel = world(&mut words);
        full_table(&mut kernel, bits);
        let Cap::CNode { obj, .. } = kernel.root_cap(TABLE) else {
            panic!("a table");
        };
        let count = entries(&mut kernel, boot::SLOT_CNODE, Label::CNodeDelete, &[TABLE]);
        let slots = 1_usize << bits;
        let least = slots / STEP as usize;
        assert!((least..=least + 1).contains(&count), "{slots}: {count}");
        for slot in (0..1 << bits).map(|index| obj.slot(index)) {
            assert_eq!(kernel.cap(slot), Cap::Null);
        }
        check(&mut kernel);
    }
}

#[test]
fn revoking_takes_an_entry_for_each_step_of_what_was_derived() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    full_table(&mut kernel, 12);
    let count = entries(&mut kernel, boot::SLOT_CNODE, Label::CNodeRevoke, &[SMALL]);
    assert!((16..=17).contains(&count), "{count}");
    let tcb = kernel.current().unwrap();
    let small = kernel.lookup(tcb, SMALL).unwrap();
    assert!(!kernel.has_children(small));
    check(&mut kernel);
}

#[test]
fn objects_are_zeroed_in_steps_and_their_memory_is_zero() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Untyped, 21, UNTYPED, 1);
    let Cap::Untyped { obj, .. } = kernel.root_cap(UNTYPED) else {
        panic!("untyped memory");
    };
    let all = 1 << 18;
    for round in 0..2 {
        kernel.mem.words_mut(obj, 0, all).fill(u64::MAX);
        let table = [ObjectType::CNode as u64, 16, boot::SLOT_CNODE, TABLE, 1];
        let count = entries(&mut kernel, UNTYPED, Label::UntypedRetype, &table);
        assert_eq!(count, 32, "2 MiB by 64 KiB, in round {round}");
        assert!(kernel.mem.words(obj, 0, all).iter().all(|&word| word == 0));
        entries(
            &mut kernel,
            boot::SLOT_CNODE,
            Label::CNodeRevoke,
            &[UNTYPED],
        );
    }
    // What stays untyped is not zeroed before something else is made of it.
    let smaller = [ObjectType::Untyped as u64, 20, boot::SLOT_CNODE, TABLE, 2];
    assert_eq!(
        entries(&mut kernel, UNTYPED, Label::UntypedRetype, &smaller),
        1
    );
    check(&mut kernel);
}

/// The thread at `OTHER`, ready, of the root task's priority.
fn other(kernel: &mut Kernel<'_, Alone>) -> Ref {
    let tcb = kernel.thread(OTHER, 63);
    assert_eq!(kernel.ask(OTHER, Label::TcbResume, &[]).0, 0);
    tcb
}

#[test]
fn others_run_between_steps_and_get_no_memory_in_which_something_is_left() {
    for turn in 0..16 {
        let mut words = memory();
        let mut kernel = world(&mut words);
        full_table(&mut kernel, 12);
        let other = other(&mut kernel);
        let root = ready(&mut kernel, boot::SLOT_CNODE, Label::CNodeDelete, &[TABLE]);
        for _ in 0..turn {
            assert!(kernel.enter_once(root), "{turn}");
        }
        // A tick, in the midst but for the first turn.
        kernel.proceed();
        kernel.give_way();
        kernel.schedule();
        assert_eq!(kernel.current(), Some(other));
        // The table was the only object: its memory is free as soon as nothing is left of it.
        let words = [ObjectType::CNode as u64, 16, boot::SLOT_CNODE, FREE + 3, 1];
        let (label, _) = kernel.ask(UNTYPED, Label::UntypedRetype, &words);
        if turn == 0 {
            assert_eq!(label, Error::NotEnoughMemory as u64);
        } else {
            assert_eq!(label, 0, "{turn}");
            // What the first thread is about to delete it has deleted: this is another.
            let moved = kernel.ask(boot::SLOT_CNODE, Label::CNodeMove, &[TABLE, FREE + 3]);
            assert_eq!(moved.0, 0, "{turn}");
        }
        kernel.give_way();
        kernel.schedule();
        assert_eq!(kernel.current(), Some(root));
        kernel.enter(root);
        assert_eq!(kernel.heard(root).0, 0, "{turn}");
        let kept = !matches!(kernel.root_cap(TABLE), Cap::Null);
        assert_eq!(kept, turn > 0, "{turn}");
        check(&mut kernel);
    }
}

#[test]
fn what_another_makes_while_memory_is_zeroed_is_zero_and_apart() {
    for turn in 0..32 {
        let mut words = memory();
        let mut kernel = world(&mut words);
        kernel.make(ObjectType::Untyped, 22, UNTYPED, 1);
        let other = other(&mut kernel);
        let Cap::Untyped { obj, .. } = kernel.root_cap(UNTYPED) else {
            panic!("untyped memory");
        };
        kernel.mem.words_mut(obj, 0, 1 << 19).fill(u64::MAX);
        let table = [ObjectType::CNode as u64, 16, boot::SLOT_CNODE, TABLE, 1];
        let root = ready(&mut kernel, UNTYPED, Label::UntypedRetype, &table);
        for _ in 0..turn {
            assert!(kernel.enter_once(root), "{turn}");
        }
        kernel.give_way();
        kernel.schedule();
        assert_eq!(kernel.current(), Some(other));
        let frames = [ObjectType::Frame as u64, 0, boot::SLOT_CNODE, FREE + 3, 2];
        assert_eq!(kernel.ask(UNTYPED, Label::UntypedRetype, &frames).0, 0);
        kernel.give_way();
        kernel.schedule();
        kernel.enter(root);
        assert_eq!(kernel.heard(root).0, 0, "{turn}");
        let Cap::CNode { obj: table, .. } = kernel.root_cap(TABLE) else {
            panic!("a table");
        };
        let frames = [FREE + 3, FREE + 4].map(|slot| match kernel.root_cap(slot) {
            Cap::Frame { obj, .. } => obj,
            other => panic!("{other:?} is no frame"),
        });
        for (place, len) in [(table, 1 << 18), (frames[0], 512), (frames[1], 512)] {
            let words = kernel.mem.words(place, 0, len);
            assert!(words.iter().all(|&word| word == 0), "{turn} {place:?}");
        }
        check(&mut kernel);
    }
}

/// A space with `count` page tables of the lowest level, in slots from `FREE + 20` on.
fn space(kernel: &mut Kernel<'_, Alone>, count: u64) -> Ref {
    kernel.make(ObjectType::VSpace, 0, FREE + 5, 1);
    kernel.make(ObjectType::PageTable, 0, FREE + 20, count + 2);
    for table in 0..count + 2 {
        let address = table.saturating_sub(2) << 21;
        let words = [FREE + 5, address];
        let mapped = kernel.ask(FREE + 20 + table, Label::TableMap, &words);
        assert_eq!(mapped.0, 0, "{table}");
    }
    match kernel.root_cap(FREE + 5) {
        Cap::VSpace { obj, .. } => obj,
        other => panic!("{other:?} is no space"),
    }
}

#[test]
fn the_page_tables_of_a_space_are_emptied_in_steps() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let root = space(&mut kernel, 100);
    let tables: Vec<Ref> = (FREE + 20..FREE + 122)
        .map(|slot| match kernel.root_cap(slot) {
            Cap::Table { obj, .. } => obj,
            other => panic!("{other:?} is no table"),
        })
        .collect();
    let count = entries(
        &mut kernel,
        boot::SLOT_CNODE,
        Label::CNodeDelete,
        &[FREE + 5],
    );
    // Sixteen units each, and one for each that hangs on another.
    assert!((103 * 16 / 256..=9).contains(&count), "{count}");
    for &table in tables.iter().chain([&root]) {
        let words = kernel.mem.words(table, 0, ENTRIES);
        assert!(words.iter().all(|&word| word == 0), "{table:?}");
    }
    check(&mut kernel);
}

#[test]
fn a_chain_of_tables_in_first_slots_ends_in_steps() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Untyped, 21, UNTYPED, 1);
    // Each table has in its first slot the only capability to the one made before it.
    let depth = 1_000;
    for _ in 0..depth {
        let words = [ObjectType::CNode as u64, 1, boot::SLOT_CNODE, TABLE, 1];
        assert_eq!(kernel.ask(UNTYPED, Label::UntypedRetype, &words).0, 0);
        if !matches!(kernel.root_cap(SMALL), Cap::Null) {
            let moved = kernel.ask(TABLE, Label::CNodeMove, &[0, SMALL]);
            assert_eq!(moved.0, 0);
        }
        let moved = kernel.ask(boot::SLOT_CNODE, Label::CNodeMove, &[SMALL, TABLE]);
        assert_eq!(moved.0, 0);
    }
    let count = entries(&mut kernel, boot::SLOT_CNODE, Label::CNodeDelete, &[SMALL]);
    // Its second slot and the table that was in the first.
    assert!((2 * depth / 256..=10).contains(&count), "{count}");
    let tcb = kernel.current().unwrap();
    let untyped = kernel.lookup(tcb, UNTYPED).unwrap();
    assert!(!kernel.has_children(untyped));
    check(&mut kernel);
}

#[test]
fn a_chain_of_threads_that_hold_tables_that_hold_threads_ends_in_steps() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Untyped, 22, UNTYPED, 1);
    kernel.make(ObjectType::Frame, 0, OTHER, 1);
    let make = |kernel: &mut Kernel<'_, Alone>, kind, bits, slot| {
        let words = [kind as u64, bits, boot::SLOT_CNODE, slot, 1];
        assert_eq!(kernel.ask(UNTYPED, Label::UntypedRetype, &words).0, 0);
    };
    let cnode = boot::SLOT_CNODE;
    make(&mut kernel, ObjectType::CNode, 1, TABLE);
    let depth = 600;
    for _ in 0..depth {
        make(&mut kernel, ObjectType::Tcb, 0, SMALL);
        let words = [TABLE, boot::SLOT_VSPACE, OTHER, 0];
        assert_eq!(kernel.ask(SMALL, Label::TcbConfigure, &words).0, 0);
        assert_eq!(kernel.ask(cnode, Label::CNodeDelete, &[TABLE]).0, 0);
        make(&mut kernel, ObjectType::CNode, 1, TABLE);
        assert_eq!(kernel.ask(TABLE, Label::CNodeMove, &[0, SMALL]).0, 0);
    }
    let count = entries(&mut kernel, cnode, Label::CNodeDelete, &[TABLE]);
    assert!((2 * depth / 256..=7).contains(&count), "{count}");
    let tcb = kernel.current().unwrap();
    let untyped = kernel.lookup(tcb, UNTYPED).unwrap();
    assert!(!kernel.has_children(untyped));
    check(&mut kernel);
}

#[test]
fn a_thread_that_ends_in_the_midst_leaves_the_rest_to_ticks() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    full_table(&mut kernel, 12);
    let other = other(&mut kernel);
    kernel.give_way();
    kernel.schedule();
    assert_eq!(kernel.current(), Some(other));
    ready(&mut kernel, boot::SLOT_CNODE, Label::CNodeDelete, &[TABLE]);
    assert!(kernel.enter_once(other));
    kernel.suspend(other);
    kernel.schedule();
    assert!(!kernel.dying.is_none(), "in the midst");
    for _ in 0..16 {
        kernel.proceed();
    }
    assert!(kernel.dying.is_none());
    // Resumed, it calls for something else, which is done.
    kernel.resume(other);
    kernel.give_way();
    kernel.schedule();
    assert_eq!(kernel.current(), Some(other));
    let words = [ObjectType::Endpoint as u64, 0, boot::SLOT_CNODE, TABLE, 1];
    assert_eq!(kernel.ask(SMALL, Label::UntypedRetype, &words).0, 0);
    assert!(matches!(kernel.root_cap(TABLE), Cap::Endpoint { .. }));
    check(&mut kernel);
}

#[test]
fn every_step_is_a_call_in_the_trace() {
    let traces = [0, 1].map(|shift| {
        let mut words = memory();
        let mut kernel = world(&mut words);
        full_table(&mut kernel, 12);
        kernel.sphere.votes = 0;
        kernel.sphere.compare = Some(rcoe_core::Compare::Every);
        // A digest before the end tells how far it is.
        let root = ready(&mut kernel, boot::SLOT_CNODE, Label::CNodeDelete, &[TABLE]);
        let mut digests = Vec::new();
        loop {
            let again = kernel.enter_once(root);
            digests.push(kernel.sphere.digest);
            if shift == 1 && digests.len() == 5 {
                kernel.sphere.event(0, 0);
            }
            if !again {
                break;
            }
        }
        assert_eq!(kernel.sphere.votes, digests.len() as u64);
        digests
    });
    assert_eq!(traces[0].len(), traces[1].len());
    assert_eq!(traces[0][..5], traces[1][..5]);
    assert!(
        traces[0][5..]
            .iter()
            .zip(&traces[1][5..])
            .all(|(a, b)| a != b)
    );
}
