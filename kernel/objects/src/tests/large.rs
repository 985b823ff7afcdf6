//! Frames of 2 MiB beside those of 4 KiB.

use std::vec::Vec;

use rcoe_abi::object::{LARGE, PAGE};
use rcoe_abi::{Error, Label, ObjectType, Rights, boot};

use super::invariants::check;
use super::long::entries;
use super::world::{Alone, FREE, memory, world, world_at};
use crate::arch;
use crate::kernel::Kernel;
use crate::long::Budget;
use crate::sphere::Sphere as _;
use crate::{Cap, Ref};

/// Slots: a space, tables, pages, a large frame, a copy of it, and memory.
const SPACE: u64 = FREE;
const TABLES: u64 = FREE + 1;
const PAGES: u64 = FREE + 6;
const FRAME: u64 = FREE + 8;
const COPY: u64 = FREE + 9;
const THREAD: u64 = FREE + 10;
const UNTYPED: u64 = FREE + 14;

const PLACE: u64 = 0x1000_0000_0000;

/// Everything but the table in which large frames are mapped, and the memory that one is made of.
fn furnished(kernel: &mut Kernel<'_, Alone>) {
    kernel.make(ObjectType::VSpace, 0, SPACE, 1);
    kernel.make(ObjectType::PageTable, 0, TABLES, 5);
    kernel.make(ObjectType::Frame, 0, PAGES, 2);
    kernel.make(ObjectType::Untyped, 21, UNTYPED, 1);
    assert_eq!(make(kernel, ObjectType::LargeFrame, FRAME), 0);
    assert_eq!(table(kernel, TABLES, PLACE), 0);
}

fn make(kernel: &mut Kernel<'_, Alone>, kind: ObjectType, slot: u64) -> u64 {
    let words = [kind as u64, 0, boot::SLOT_CNODE, slot, 1];
    kernel.ask(UNTYPED, Label::UntypedRetype, &words).0
}

fn table(kernel: &mut Kernel<'_, Alone>, table: u64, place: u64) -> u64 {
    kernel.ask(table, Label::TableMap, &[SPACE, place]).0
}

fn map(kernel: &mut Kernel<'_, Alone>, frame: u64, place: u64, rights: Rights) -> u64 {
    let words = [SPACE, place, rights.word()];
    kernel.ask(frame, Label::FrameMap, &words).0
}

fn unmap(kernel: &mut Kernel<'_, Alone>, frame: u64) -> u64 {
    kernel.ask(frame, Label::FrameUnmap, &[]).0
}

fn in_table(kernel: &mut Kernel<'_, Alone>, label: Label, words: &[u64]) -> u64 {
    kernel.ask(boot::SLOT_CNODE, label, words).0
}

fn object(kernel: &Kernel<'_, Alone>, slot: u64) -> Ref {
    match kernel.root_cap(slot) {
        Cap::Frame { obj, .. } | Cap::Table { obj, .. } | Cap::VSpace { obj, .. } => obj,
        Cap::Tcb { obj } => obj,
        other => panic!("{other:?} has no memory"),
    }
}

/// The entry of the level above pages that leads to `place`.
fn entry(kernel: &Kernel<'_, Alone>, place: u64) -> u64 {
    let table = kernel.walk(object(kernel, SPACE), place, 1).unwrap();
    kernel.mem.get(table, arch::index(place, 1))
}

/// Has all that a kernel holds lie in the partition of another replica.
pub(super) fn move_to(kernel: &mut Kernel<'_, Alone>, replica: u64) {
    let from = kernel.sphere.base();
    kernel.sphere.shift = replica << 25;
    kernel.sphere.own = replica;
    let (to, entry) = (kernel.sphere.base(), kernel.sphere.kernel_entry());
    kernel.rebase(from, to, entry);
    kernel.set_replica(replica);
}

#[test]
fn one_entry_maps_a_large_frame_where_nothing_else_is() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    furnished(&mut kernel);
    let (kernel, data) = (&mut kernel, Rights::READ_WRITE);
    assert_eq!(map(kernel, FRAME, PLACE, data), Error::MissingTable as u64);
    assert_eq!(table(kernel, TABLES + 1, PLACE), 0);
    for (place, error) in [
        (PLACE + PAGE, Error::AlignmentError),
        (PLACE + LARGE / 2, Error::AlignmentError),
        (rcoe_abi::layout::USER_END, Error::RangeError),
        (PLACE + (1 << 39), Error::MissingTable),
    ] {
        assert_eq!(map(kernel, FRAME, place, data), error as u64, "{place:#x}");
    }
    assert_eq!(map(kernel, FRAME, PLACE + LARGE, data), 0);
    let place = kernel.sphere.base() + object(kernel, FRAME).bytes();
    assert_eq!(entry(kernel, PLACE + LARGE), arch::large_leaf(place, data));
    // Nothing comes over it or below it.
    let taken = Error::DeleteFirst as u64;
    assert_eq!(map(kernel, FRAME, PLACE, data), taken);
    assert_eq!(table(kernel, TABLES + 2, PLACE + LARGE), taken);
    for page in [0, 511 * PAGE] {
        assert_eq!(map(kernel, PAGES, PLACE + LARGE + page, data), taken);
    }
    // Beside it is place, and where it was.
    assert_eq!(table(kernel, TABLES + 2, PLACE), 0);
    assert_eq!(map(kernel, PAGES, PLACE + 511 * PAGE, data), 0);
    assert_eq!(unmap(kernel, FRAME), 0);
    assert_eq!(entry(kernel, PLACE + LARGE), 0);
    assert_eq!(table(kernel, TABLES + 3, PLACE + LARGE), 0);
    assert_eq!(map(kernel, PAGES + 1, PLACE + LARGE, data), 0);
    // Nor does it come over a table, though that were empty.
    assert_eq!(unmap(kernel, PAGES + 1), 0);
    for place in [PLACE, PLACE + LARGE] {
        assert_eq!(map(kernel, FRAME, place, data), taken);
    }
    check(kernel);
}

#[test]
fn copies_of_a_large_frame_end_with_it() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    furnished(&mut kernel);
    let kernel = &mut kernel;
    assert_eq!(table(kernel, TABLES + 1, PLACE), 0);
    let read = Rights::READ.word();
    assert_eq!(in_table(kernel, Label::CNodeCopy, &[COPY, FRAME, read]), 0);
    assert_eq!(map(kernel, FRAME, PLACE, Rights::READ_WRITE), 0);
    assert_eq!(map(kernel, COPY, PLACE + LARGE, Rights::READ_WRITE), 0);
    assert!(arch::is_writable(entry(kernel, PLACE)));
    assert!(!arch::is_writable(entry(kernel, PLACE + LARGE)));
    assert_eq!(in_table(kernel, Label::CNodeRevoke, &[FRAME]), 0);
    assert_eq!(entry(kernel, PLACE + LARGE), 0);
    assert_ne!(entry(kernel, PLACE), 0);
    let small = make(kernel, ObjectType::Frame, COPY);
    assert_eq!(small, Error::NotEnoughMemory as u64);
    // With all that was made of its memory it ends, and pages come of it.
    let flushes = kernel.sphere.flushes;
    let untyped = [UNTYPED];
    assert_eq!(in_table(kernel, Label::CNodeRevoke, &untyped), 0);
    assert_eq!(entry(kernel, PLACE), 0);
    assert!(kernel.sphere.flushes > flushes, "the processor forgets it");
    assert_eq!(make(kernel, ObjectType::Frame, COPY), 0);
    check(kernel);
}

#[test]
fn a_large_frame_is_zeroed_in_steps() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    furnished(&mut kernel);
    let frame = object(&kernel, FRAME);
    let len = usize::try_from(LARGE / 8).unwrap();
    kernel.mem.words_mut(frame, 0, len).fill(u64::MAX);
    let words = [UNTYPED];
    assert_eq!(in_table(&mut kernel, Label::CNodeRevoke, &words), 0);
    let kind = ObjectType::LargeFrame as u64;
    let words = [kind, 0, boot::SLOT_CNODE, FRAME, 1];
    let count = entries(&mut kernel, UNTYPED, Label::UntypedRetype, &words);
    let steps = usize::try_from(LARGE / Budget::new().bytes()).unwrap();
    assert!((steps..=steps + 1).contains(&count), "{count}");
    assert!(
        kernel
            .mem
            .words(frame, 0, len)
            .iter()
            .all(|&word| word == 0)
    );
}

/// What a program writes into its memory may look like page tables, that of others even.
#[test]
fn what_is_in_a_large_frame_is_no_table() {
    for ended in [SPACE, TABLES, TABLES + 1] {
        let mut words = memory();
        let mut kernel = world(&mut words);
        furnished(&mut kernel);
        let kernel = &mut kernel;
        assert_eq!(table(kernel, TABLES + 1, PLACE), 0);
        let places: Vec<u64> = (0..512).map(|index| PLACE + index * LARGE).collect();
        assert_eq!(map(kernel, FRAME, places[0], Rights::READ_WRITE), 0);
        let all = Rights::ALL.word();
        assert_eq!(in_table(kernel, Label::CNodeCopy, &[COPY, FRAME, all]), 0);
        assert_eq!(map(kernel, COPY, places[77], Rights::READ_WRITE), 0);
        let (frame, page) = (object(kernel, FRAME), object(kernel, PAGES));
        let base = kernel.sphere.base();
        let lure = arch::table(base + page.bytes());
        kernel.mem.words_mut(frame, 0, 512).fill(lure);
        kernel.mem.words_mut(page, 0, 512).fill(lure);
        let digest = kernel.digest();
        move_to(kernel, 1);
        assert_eq!(kernel.digest(), digest);
        let (label, pointer, words) = match ended {
            SPACE => (Label::CNodeDelete, boot::SLOT_CNODE, &[SPACE][..]),
            _ => (Label::TableUnmap, ended, &[][..]),
        };
        assert_eq!(kernel.ask(pointer, label, words).0, 0);
        for place in [frame, page] {
            let words = kernel.mem.words(place, 0, 512);
            assert!(words.iter().all(|&word| word == lure), "{ended}");
        }
        check(kernel);
    }
}

#[test]
fn a_flip_in_a_large_frame_is_seen_but_where_a_runnable_thread_can_write() {
    for (rights, runs, seen) in [
        (Rights::READ_WRITE, false, true),
        (Rights::READ_WRITE, true, false),
        (Rights::READ, true, true),
    ] {
        let digests = [0, 2].map(|replica| {
            let mut words = memory();
            let mut kernel = world_at(&mut words, replica);
            furnished(&mut kernel);
            let kernel = &mut kernel;
            assert_eq!(table(kernel, TABLES + 1, PLACE), 0);
            assert_eq!(map(kernel, FRAME, PLACE, rights), 0);
            let thread = kernel.thread(THREAD, 1);
            let words = [boot::SLOT_CNODE, SPACE, THREAD + 1, FREE + 900];
            assert_eq!(kernel.ask(THREAD, Label::TcbConfigure, &words).0, 0);
            assert_eq!(kernel.ask(THREAD, Label::TcbResume, &[]).0, 0);
            if !runs {
                kernel.suspend(thread);
            }
            let right = kernel.digest();
            let frame = object(kernel, FRAME);
            let last = usize::try_from(LARGE / 8).unwrap() - 1;
            for index in [0, 512, 1 << 17, last] {
                kernel.mem.set(frame, index, 1 << 40);
                assert_eq!(kernel.digest() != right, seen, "{rights:?} {index}");
                kernel.mem.set(frame, index, 0);
            }
            // What lies before it is not left out with it.
            let before = Ref::from_bytes(frame.bytes() - 32);
            kernel.mem.set(before, 3, 1);
            assert_ne!(kernel.digest(), right);
            right
        });
        assert_eq!(digests[0], digests[1]);
    }
}
