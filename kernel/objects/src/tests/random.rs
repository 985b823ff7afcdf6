//! Any sequence of system calls: nothing panics, invariants hold, and two kernels agree.

use std::vec::Vec;

use proptest::prelude::*;
use rcoe_abi::{ObjectType, Syscall, boot};

use super::invariants::check;
use super::world::{FREE, memory, world};
use crate::Fault;
use crate::arch::NUMBER;

/// What a thread does.
#[derive(Clone, Debug)]
struct Step {
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
        1 => any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let call = prop_oneof![
        12 => Just(Syscall::Call as u64),
        2 => 1_u64..10,
        1 => any::<u64>(),
    ];
    let label = prop_oneof![12 => 16_u64..58, 1 => any::<u64>()];
    let words = prop::collection::vec(word(), 0..6);
    (call, word(), label, words).prop_map(|(call, pointer, label, words)| Step {
        call,
        pointer,
        label,
        words,
    })
}

/// Objects of every kind in the first slots, and a second thread.
pub(super) fn furnished(words: &mut [u64]) -> crate::Kernel<'_, super::world::Alone> {
    let mut kernel = world(words);
    kernel.make(ObjectType::Untyped, 18, FREE, 2);
    kernel.make(ObjectType::CNode, 3, FREE + 2, 2);
    kernel.make(ObjectType::Endpoint, 0, FREE + 4, 2);
    kernel.make(ObjectType::Notification, 0, FREE + 6, 1);
    kernel.make(ObjectType::Frame, 0, FREE + 7, 2);
    kernel.make(ObjectType::PageTable, 0, FREE + 9, 3);
    kernel.make(ObjectType::VSpace, 0, FREE + 12, 1);
    kernel.thread(FREE + 14, 63);
    kernel
}

/// Performs the steps; digest of all events, and whether somebody still runs.
fn perform(words: &mut [u64], steps: &[Step], checked: bool) -> (u64, u64) {
    let mut kernel = furnished(words);
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
            check(&mut kernel);
        }
    }
    (kernel.sphere.digest, kernel.sphere.events)
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
    fn two_kernels_that_are_asked_the_same_do_the_same(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut first, mut second) = (memory(), memory());
        let one = perform(&mut first, &steps, false);
        let two = perform(&mut second, &steps, false);
        prop_assert_eq!(one, two);
        prop_assert!(first == second, "all words are equal");
    }
}
