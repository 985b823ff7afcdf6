//! Any sequence of system calls: nothing panics, invariants hold, and two kernels agree.

use std::vec::Vec;

use proptest::prelude::*;
use rcoe_abi::layout::{DMA_PAGE, HPET_PAGE};
use rcoe_abi::{Label, ObjectType, Syscall, boot};
use rcoe_core::Compare;

use super::invariants::check;
use super::world::{FREE, memory, world_at};
use crate::Fault;
use crate::arch::NUMBER;

/// What a thread does.
#[derive(Clone, Debug)]
pub(super) struct Step {
    call: u64,
    pointer: u64,
    label: u64,
    words: Vec<u64>,
}

/// Numbers that mean something: slots in use, small numbers, addresses; and some that do not.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => FREE..FREE + 24,
        3 => 0_u64..64,
        2 => boot::SLOT_CNODE..boot::SLOT_DEVICES + 1,
        2 => boot::SLOT_UNTYPED..boot::SLOT_UNTYPED + 24,
        2 => (0_u64..64).prop_map(|page| page << 12),
        1 => (0_u64..4).prop_map(|large| large << 21),
        1 => any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let call = prop_oneof![
        12 => Just(Syscall::Call as u64),
        2 => 1_u64..10,
        1 => any::<u64>(),
    ];
    let label = prop_oneof![12 => 16_u64..60, 1 => any::<u64>()];
    let words = prop::collection::vec(word(), 0..6);
    (call, word(), label, words).prop_map(|(call, pointer, label, words)| Step {
        call,
        pointer,
        label,
        words,
    })
}

/// As [`step`], more often about pages that replicas share.
fn shared_step() -> impl Strategy<Value = Step> {
    let label = prop_oneof![
        3 => Just(Label::SharedMeet as u64),
        3 => Just(Label::FrameMap as u64),
        1 => Just(Label::FrameUnmap as u64),
        1 => Just(Label::TableMap as u64),
    ];
    let page = (0_u64..4).prop_map(|page| page << 12);
    let pointer = FREE + 9..FREE + 18;
    let space = prop_oneof![Just(boot::SLOT_VSPACE), Just(FREE + 12)];
    let about = (label, pointer, space, page).prop_map(|(label, pointer, space, page)| Step {
        call: Syscall::Call as u64,
        pointer,
        label,
        words: [space, page, 3].into(),
    });
    prop_oneof![3 => about, 1 => step()]
}

/// As [`step`], more often about frames of both sizes, and tables, at few places.
pub(super) fn frame_step() -> impl Strategy<Value = Step> {
    let label = prop_oneof![
        4 => Just(Label::FrameMap),
        1 => Just(Label::FrameUnmap),
        2 => Just(Label::TableMap),
        1 => Just(Label::TableUnmap),
    ];
    let cap = prop_oneof![FREE + 7..FREE + 12, FREE + 18..FREE + 24];
    let space = prop_oneof![Just(boot::SLOT_VSPACE), Just(FREE + 12)];
    let place = prop_oneof![
        3 => (0_u64..4).prop_map(|large| large << 21),
        1 => (0_u64..4).prop_map(|page| page << 12),
    ];
    let about = (label, cap, space, place).prop_map(|(label, pointer, space, place)| Step {
        call: Syscall::Call as u64,
        pointer,
        label: label as u64,
        words: [space, place, 3].into(),
    });
    let slots = (FREE + 18..FREE + 24, FREE + 7..FREE + 24);
    let label = prop_oneof![
        3 => Just(Label::CNodeCopy),
        1 => Just(Label::CNodeMove),
        1 => Just(Label::CNodeDelete),
        1 => Just(Label::CNodeRevoke),
    ];
    let copied = (label, slots).prop_map(|(label, (to, from))| Step {
        call: Syscall::Call as u64,
        pointer: boot::SLOT_CNODE,
        label: label as u64,
        words: [to, from, 15].into(),
    });
    prop_oneof![4 => about, 2 => copied, 1 => step()]
}

/// Objects of every kind in the first slots, and a second thread.
pub(super) fn furnished(words: &mut [u64]) -> crate::Kernel<'_, super::world::Alone> {
    furnished_at(words, 0)
}

/// The same in replica `replica`, of which number 0 is the primary.
fn furnished_at(words: &mut [u64], replica: u64) -> crate::Kernel<'_, super::world::Alone> {
    let mut kernel = world_at(words, replica);
    kernel.sphere.compare = Some(Compare::Every);
    kernel.make(ObjectType::Untyped, 18, FREE, 2);
    kernel.make(ObjectType::CNode, 3, FREE + 2, 2);
    kernel.make(ObjectType::Endpoint, 0, FREE + 4, 2);
    kernel.make(ObjectType::Notification, 0, FREE + 6, 1);
    kernel.make(ObjectType::Frame, 0, FREE + 7, 2);
    kernel.make(ObjectType::PageTable, 0, FREE + 9, 3);
    kernel.make(ObjectType::VSpace, 0, FREE + 12, 1);
    kernel.thread(FREE + 14, 63);
    for (page, slot) in [(DMA_PAGE, FREE + 16), (HPET_PAGE, FREE + 17)] {
        let made = kernel.ask(boot::SLOT_DEVICES, Label::DeviceFrame, &[page, slot]);
        assert_eq!(made.0, 0);
    }
    kernel.make(ObjectType::LargeFrame, 0, FREE + 18, 1);
    kernel
}

/// Performs the steps; digest of all events, and whether somebody still runs.
fn perform(words: &mut [u64], steps: &[Step], checked: bool) -> (u64, u64) {
    let mut kernel = furnished(words);
    advance(&mut kernel, steps, checked);
    (kernel.sphere.digest, kernel.sphere.events)
}

pub(super) fn advance(
    kernel: &mut crate::Kernel<'_, super::world::Alone>,
    steps: &[Step],
    checked: bool,
) {
    for (index, step) in steps.iter().enumerate() {
        let Some(tcb) = kernel.current() else { break };
        if index % 7 == 6 {
            kernel.give_way();
            kernel.schedule();
        }
        let Some(call) = Syscall::from_number(step.call) else {
            kernel.set_register(tcb, NUMBER, step.call);
            kernel.fault(Fault::UnknownSyscall);
            kernel.schedule();
            continue;
        };
        kernel.act(call, step.pointer, step.label, &step.words);
        if checked && kernel.current().is_some() {
            check(kernel);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_of_calls_keeps_the_invariants(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut words = memory();
        perform(&mut words, &steps, true);
    }

    #[test]
    fn frames_of_both_sizes_keep_the_invariants_and_a_copy_elsewhere_alike(
        steps in prop::collection::vec(frame_step(), 1..80),
    ) {
        let (mut first, mut second) = (memory(), memory());
        let mut first = furnished_at(&mut first, 0);
        let mut second = furnished_at(&mut second, 2);
        for kernel in [&mut first, &mut second] {
            advance(kernel, &steps, true);
            kernel.finish();
        }
        prop_assert_eq!(first.sphere.digest, second.sphere.digest);
        prop_assert_eq!(first.digest(), second.digest());
        super::large::move_to(&mut first, 2);
        prop_assert_eq!(first.digest(), second.digest());
        prop_assert!(first.mem.everything() == second.mem.everything());
    }

    #[test]
    fn two_kernels_that_are_asked_the_same_do_the_same(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut first, mut second) = (memory(), memory());
        let one = perform(&mut first, &steps, false);
        let two = perform(&mut second, &steps, false);
        prop_assert_eq!(one, two);
        prop_assert!(first == second, "all words are equal");
    }

    #[test]
    fn primary_and_follower_keep_alike_through_a_change_of_the_primary(
        steps in prop::collection::vec(shared_step(), 1..60),
        change in 0_usize..60,
    ) {
        let (mut first, mut second) = (memory(), memory());
        let mut first = furnished_at(&mut first, 1);
        let mut second = furnished_at(&mut second, 2);
        let (before, after) = steps.split_at(change.min(steps.len()));
        for kernel in [&mut first, &mut second] {
            advance(kernel, before, true);
            kernel.sphere.primary = 1;
            kernel.sphere.generation += 1;
            advance(kernel, after, true);
            kernel.finish();
        }
        prop_assert_eq!(first.sphere.digest, second.sphere.digest);
        prop_assert_eq!(first.digest(), second.digest());
    }
}
