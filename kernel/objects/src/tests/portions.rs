//! Copies that are made in portions, while programs and the kernel write.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use rcoe_abi::{Label, ObjectType, Rights, boot};

use super::random::{Step, advance, frame_step, furnished};
use super::world::{Alone, FREE, memory};
use crate::arch::{self, ENTRIES, LEVELS};
use crate::kernel::Kernel;
use crate::{Cap, Marks, Ref};

/// Where programs can write: table, entry of it, level, and what it leads to.
type Place = (Ref, usize, usize, Ref);

fn writable(kernel: &Kernel<'_, Alone>, table: Ref, level: usize, found: &mut Vec<Place>) {
    for index in 0..ENTRIES {
        let entry = kernel.mem.get(table, index);
        let Some(place) = kernel.inside(level, index, entry) else {
            continue;
        };
        if level > 0 && arch::is_table(entry) {
            writable(kernel, place, level - 1, found);
        } else if arch::is_writable(entry) {
            found.push((table, index, level, place));
        }
    }
}

/// A program writes a word, wherever `pick` says.
fn write(kernel: &mut Kernel<'_, Alone>, pick: u64) {
    let mut found = Vec::new();
    for root in kernel.spaces.iter().filter_map(|root| root.some()) {
        writable(kernel, root, LEVELS - 1, &mut found);
    }
    let picked = usize::try_from(pick >> 1).unwrap();
    let (table, index, level, place) = found[picked % found.len()];
    let entry = kernel.mem.get(table, index);
    kernel.mem.set(table, index, arch::written(entry));
    let words = 512 << (9 * level);
    kernel
        .mem
        .set(place, picked / found.len() % words, pick | 1);
}

/// A portion of the copy: all that it does not have.
fn portion(kernel: &mut Kernel<'_, Alone>, marks: &mut Marks, copy: &mut [u64], last: bool) {
    kernel.finish();
    kernel.note_written();
    kernel.mark_apart(marks);
    let words = 0..kernel.end();
    for bytes in kernel.missing(words.clone(), last) {
        let range =
            usize::try_from(bytes.start / 8).unwrap()..usize::try_from(bytes.end / 8).unwrap();
        copy[range.clone()].copy_from_slice(&kernel.mem.everything()[range]);
    }
    kernel.kept.keep(words, marks.apart());
}

/// What is not zero by itself is what the copy must have. The first page is the loader's.
fn same(kernel: &Kernel<'_, Alone>, copy: &[u64]) -> Result<(), usize> {
    let given = usize::try_from(kernel.given() / 8).unwrap();
    let all = kernel.mem.everything();
    let wrong = (512..given).find(|&word| all[word] != copy[word]);
    wrong.map_or(Ok(()), Err)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_copy_has_in_the_end_what_the_kernel_holds(
        parts in prop::collection::vec(
            (prop::collection::vec(frame_step(), 0..12), prop::collection::vec(any::<u64>(), 0..4)),
            1..8,
        ),
    ) {
        let mut words = memory();
        let mut copy = vec![u64::MAX; words.len()];
        let mut marks = Box::new(Marks::new());
        let mut kernel = furnished(&mut words);
        kernel.kept.begin();
        for (steps, writes) in &parts {
            let steps: &[Step] = steps;
            advance(&mut kernel, steps, false);
            writes.iter().for_each(|&pick| write(&mut kernel, pick));
            portion(&mut kernel, &mut marks, &mut copy, false);
        }
        portion(&mut kernel, &mut marks, &mut copy, true);
        prop_assert_eq!(same(&kernel, &copy), Ok(()));
    }
}

/// A frame is copied, written, taken from the program and mapped again, or its memory becomes
/// something of the kernel's.
#[test]
fn what_was_written_before_a_page_was_taken_away_is_copied() {
    for becomes in [ObjectType::Frame, ObjectType::CNode] {
        let mut words = memory();
        let mut copy = vec![u64::MAX; words.len()];
        let mut marks = Box::new(Marks::new());
        let mut kernel = furnished(&mut words);
        kernel.make(ObjectType::Untyped, 12, FREE + 40, 1);
        let retype = |kernel: &mut Kernel<'_, Alone>, kind: ObjectType, slot: u64| {
            let bits = if kind == ObjectType::CNode { 7 } else { 0 };
            let words = [kind as u64, bits, boot::SLOT_CNODE, slot, 1];
            assert_eq!(kernel.ask(FREE + 40, Label::UntypedRetype, &words).0, 0);
        };
        retype(&mut kernel, ObjectType::Frame, FREE + 41);
        let map = [
            boot::SLOT_VSPACE,
            rcoe_abi::layout::STACK_TOP,
            Rights::READ_WRITE.word(),
        ];
        assert_eq!(kernel.ask(FREE + 41, Label::FrameMap, &map).0, 0);
        let Cap::Frame { obj, .. } = kernel.root_cap(FREE + 41) else {
            panic!("a frame");
        };
        kernel.kept.begin();
        portion(&mut kernel, &mut marks, &mut copy, false);
        kernel.mem.set(obj, 9, 77);
        let root = kernel.space_of(kernel.current().unwrap()).unwrap();
        let table = kernel.walk(root, map[1], 0).ok().unwrap();
        let index = arch::index(map[1], 0);
        let entry = kernel.mem.get(table, index);
        kernel.mem.set(table, index, arch::written(entry));
        let cnode = boot::SLOT_CNODE;
        if becomes == ObjectType::Frame {
            assert_eq!(kernel.ask(FREE + 41, Label::FrameUnmap, &[]).0, 0);
        } else {
            assert_eq!(kernel.ask(cnode, Label::CNodeRevoke, &[FREE + 40]).0, 0);
            retype(&mut kernel, becomes, FREE + 42);
            portion(&mut kernel, &mut marks, &mut copy, false);
            let moved = [FREE + 43, FREE + 4, 15];
            assert_eq!(kernel.ask(cnode, Label::CNodeCopy, &moved).0, 0);
        }
        portion(&mut kernel, &mut marks, &mut copy, true);
        assert_eq!(same(&kernel, &copy), Ok(()), "{becomes:?}");
    }
}

/// The first write is a fault of which nobody learns where the processor does not note it.
#[test]
fn a_write_that_is_to_be_noted_is_no_fault_of_the_program() {
    let mut words = memory();
    let mut kernel = furnished(&mut words);
    kernel.note_written();
    let before = (kernel.sphere.events, kernel.digest());
    let soiled = kernel.soil(rcoe_abi::layout::STACK_TOP - 8);
    assert_eq!(soiled, cfg!(target_arch = "aarch64"));
    assert!(!kernel.soil(rcoe_abi::layout::STACK_TOP - 8), "once");
    assert!(
        !kernel.soil(rcoe_abi::layout::IMAGE),
        "it is for reading only"
    );
    assert!(
        !kernel.soil(0) && !kernel.soil(u64::MAX),
        "nothing is there"
    );
    assert_eq!((kernel.sphere.events, kernel.digest()), before);
}
