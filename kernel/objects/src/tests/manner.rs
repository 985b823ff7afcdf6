//! How threads run: calls that are not the kernel's, steps, and where their own data is.

use std::vec::Vec;

use rcoe_abi::invocation::FaultLabel;
use rcoe_abi::{Error, Label, ObjectType, Syscall, ThreadFlags, boot, layout};
use rcoe_core::Compare;

use super::invariants::check;
use super::world::{Alone, FREE, memory, world};
use crate::arch::{
    self, CALL_ARGUMENTS, CAP, CONTEXT_WORDS, FLOAT_WORDS, FPU_WORDS, INFO, KERNEL_BITS, NUMBER,
    POINTERS, SP, STATUS, STEP, STEP_VECTOR,
};
use crate::fault::Fault;
use crate::field;
use crate::kernel::Kernel;
use crate::tcb::State;
use crate::{Cap, Ref};

const HANDLER: u64 = FREE;
const THREAD: u64 = FREE + 10;

/// A second thread with these flags, which runs; the root task waits for what it does.
fn stage<'m>(words: &'m mut [u64], flags: ThreadFlags) -> (Kernel<'m, Alone>, Ref, Ref) {
    let mut kernel = world(words);
    let root = kernel.current().unwrap();
    kernel.make(ObjectType::Endpoint, 0, HANDLER, 1);
    let thread = kernel.thread(THREAD, 63);
    let spaces = [boot::SLOT_CNODE, boot::SLOT_VSPACE, THREAD + 1, HANDLER];
    assert_eq!(kernel.ask(THREAD, Label::TcbConfigure, &spaces).0, 0);
    let set = kernel.ask(THREAD, Label::TcbSetFlags, &[flags.word()]);
    assert_eq!(set.0, 0);
    assert_eq!(kernel.ask(THREAD, Label::TcbResume, &[]).0, 0);
    kernel.act(Syscall::Recv, HANDLER, 0, &[]);
    assert_eq!(kernel.current(), Some(thread));
    (kernel, root, thread)
}

/// The running thread makes a call of another system.
fn foreign(kernel: &mut Kernel<'_, Alone>, number: u64, arguments: [u64; 6]) {
    let tcb = kernel.current().unwrap();
    kernel.set_register(tcb, NUMBER, number);
    for (register, argument) in CALL_ARGUMENTS.into_iter().zip(arguments) {
        kernel.set_register(tcb, register, argument);
    }
    kernel.syscall();
    kernel.schedule();
}

#[test]
fn every_call_of_a_thread_can_be_a_message_whatever_its_number() {
    for number in [0, 1, 4, 9, 10, 231, u64::MAX] {
        let mut words = memory();
        let (mut kernel, root, thread) = stage(&mut words, ThreadFlags::CALLS_ARE_FAULTS);
        foreign(&mut kernel, number, [1, 2, 3, 4, 5, 6]);
        assert_eq!(kernel.state(thread), State::Calling, "{number}");
        let label = FaultLabel::UnknownSyscall as u64;
        assert_eq!(kernel.heard(root), (label, number));
        let told = CALL_ARGUMENTS.map(|register| kernel.word(root, 1 + register));
        assert_eq!(told, [1, 2, 3, 4, 5, 6]);
        // The first word of the answer is what the call returns.
        kernel.act(Syscall::ReplyRecv, HANDLER, 0, &[77]);
        assert_eq!(kernel.current(), Some(thread));
        assert_eq!(kernel.register(thread, 0), 77);
        check(&mut kernel);
    }
}

#[test]
fn without_the_flag_calls_are_the_kernels() {
    let mut words = memory();
    let (mut kernel, root, thread) = stage(&mut words, ThreadFlags::NONE);
    kernel.act(Syscall::Call, HANDLER, 5, &[9]);
    assert_eq!(kernel.heard(root), (5, 9));
    assert_eq!(kernel.mem.get(thread, field::FAULT), 0);
}

#[test]
fn number_and_arguments_of_such_calls_are_compared_in_every_mode() {
    let digest = |compare, changed: Option<usize>| {
        let mut words = memory();
        let (mut kernel, ..) = stage(&mut words, ThreadFlags::CALLS_ARE_FAULTS);
        kernel.sphere.compare = Some(compare);
        let mut asked: [u64; 7] = core::array::from_fn(|at| 10 + at as u64);
        if let Some(at) = changed {
            asked[at] ^= 1;
        }
        let [number, arguments @ ..] = asked;
        foreign(&mut kernel, number, arguments);
        kernel.sphere.digest
    };
    for compare in [Compare::Io, Compare::Args, Compare::Every] {
        let right = digest(compare, None);
        assert_eq!(digest(compare, None), right);
        for changed in 0..7 {
            assert_ne!(
                digest(compare, Some(changed)),
                right,
                "{compare:?} {changed}"
            );
        }
    }
}

#[test]
fn a_step_is_begun_by_the_kernel_alone_and_anew_after_each() {
    let mut words = memory();
    let (mut kernel, root, thread) = stage(&mut words, ThreadFlags::STEPS);
    assert_ne!(kernel.register(thread, STATUS) & STEP, 0);
    let stepped = Fault::Exception {
        vector: STEP_VECTOR,
        code: 0,
    };
    for _ in 0..3 {
        // The processor has done it, and says so.
        let status = kernel.register(thread, STATUS) & !STEP;
        kernel.set_register(thread, STATUS, status);
        kernel.fault(stepped);
        kernel.schedule();
        assert_eq!(kernel.heard(root).0, FaultLabel::Exception as u64);
        kernel.act(Syscall::ReplyRecv, HANDLER, 0, &[]);
        assert_ne!(kernel.register(thread, STATUS) & STEP, 0);
        check(&mut kernel);
    }
    // An interrupt before the step is done changes nothing of what is left of it, and any other
    // exception begins none.
    for left in [STEP, 0] {
        kernel.set_register(thread, STATUS, left);
        kernel.restore();
        assert_eq!(kernel.context()[STATUS] & STEP, left);
    }
    kernel.fault(Fault::Page {
        address: 0,
        code: 0,
    });
    assert_eq!(kernel.register(thread, STATUS) & STEP, 0);
    kernel.schedule();
    let set = |kernel: &mut Kernel<'_, Alone>, flags: ThreadFlags| {
        assert_eq!(kernel.ask(THREAD, Label::TcbSetFlags, &[flags.word()]).0, 0);
        kernel.register(thread, STATUS) & STEP != 0
    };
    assert!(set(&mut kernel, ThreadFlags::STEPS));
    assert!(!set(&mut kernel, ThreadFlags::NONE));
    assert_eq!(kernel.ask(THREAD, Label::TcbSuspend, &[]).0, 0);
    let flags = kernel.ask(THREAD, Label::TcbSetFlags, &[1 << 40]);
    assert_eq!(flags.0, Error::InvalidArgument as u64);
}

#[test]
fn threads_that_do_not_step_are_not_begun_on_it_by_an_exception() {
    let mut words = memory();
    let (mut kernel, _, thread) = stage(&mut words, ThreadFlags::NONE);
    kernel.set_register(thread, STATUS, 0);
    kernel.fault(Fault::Exception {
        vector: STEP_VECTOR,
        code: 0,
    });
    assert_eq!(kernel.register(thread, STATUS) & STEP, 0);
}

#[test]
fn a_thread_that_has_itself_stopped_is_told_once() {
    let mut words = memory();
    let (mut kernel, _, thread) = stage(&mut words, ThreadFlags::NONE);
    // On x86-64 a program's own instruction can do so.
    kernel.set_register(thread, STATUS, STEP);
    kernel.fault(Fault::Exception {
        vector: STEP_VECTOR,
        code: 0,
    });
    assert_eq!(kernel.register(thread, STATUS) & STEP, 0);
}

#[test]
fn an_exception_is_told_with_all_registers_and_answered_with_them() {
    let mut words = memory();
    let (mut kernel, root, thread) = stage(&mut words, ThreadFlags::NONE);
    kernel.set_register(thread, NUMBER, 77);
    kernel.fault(Fault::Exception { vector: 6, code: 0 });
    kernel.schedule();
    let told = kernel.info(root);
    assert_eq!(told.label(), FaultLabel::Exception as u64);
    assert_eq!(told.len(), 4 + CONTEXT_WORDS);
    assert_eq!(kernel.word(root, 1), 6);
    assert_eq!(kernel.word(root, 4 + NUMBER), 77);
    let answer: [u64; CONTEXT_WORDS] = core::array::from_fn(|index| index as u64);
    kernel.act(Syscall::ReplyRecv, HANDLER, 0, &answer);
    assert_eq!(kernel.current(), Some(thread));
    assert_eq!(kernel.register(thread, SP), SP as u64);
    assert_eq!(kernel.register(thread, STATUS) & KERNEL_BITS, 0);
    // Without words it goes on as it was.
    kernel.fault(Fault::Exception { vector: 6, code: 0 });
    kernel.schedule();
    kernel.act(Syscall::ReplyRecv, HANDLER, 0, &[]);
    assert_eq!(kernel.register(thread, SP), SP as u64);
    check(&mut kernel);
}

#[test]
fn a_server_sets_all_registers_but_the_kernels_bits() {
    for flags in [ThreadFlags::NONE, ThreadFlags::STEPS] {
        let mut words = memory();
        let flags = flags.or(ThreadFlags::CALLS_ARE_FAULTS);
        let (mut kernel, _, thread) = stage(&mut words, flags);
        let steps = kernel.register(thread, STATUS) & KERNEL_BITS;
        foreign(&mut kernel, 1, [0; 6]);
        let answer = [u64::MAX; CONTEXT_WORDS];
        kernel.act(Syscall::ReplyRecv, HANDLER, 0, &answer);
        assert_eq!(kernel.current(), Some(thread));
        assert_eq!(kernel.register(thread, STATUS) & KERNEL_BITS, steps);
        assert_ne!(kernel.register(thread, STATUS) & !KERNEL_BITS, 0);
        assert_eq!(kernel.register(thread, SP), u64::MAX);
        let answer = [0; CONTEXT_WORDS];
        foreign(&mut kernel, 1, [0; 6]);
        kernel.act(Syscall::ReplyRecv, HANDLER, 0, &answer);
        assert_eq!(kernel.register(thread, STATUS) & KERNEL_BITS, steps);
    }
}

#[test]
fn pointers_lead_to_programs_only_and_are_what_replicas_compare() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let thread = kernel.thread(THREAD, 1);
    let given: Vec<u64> = [0x1000, 0x2000][..POINTERS.len()].to_vec();
    let both = [given[0], given.get(1).copied().unwrap_or(0)];
    assert_eq!(kernel.ask(THREAD, Label::TcbWritePointers, &both).0, 0);
    for (place, pointer) in POINTERS.into_iter().zip(given) {
        assert_eq!(kernel.mem.get(thread, place), pointer);
        let right = kernel.digest();
        kernel.mem.set(thread, place, pointer ^ 8);
        assert_ne!(kernel.digest(), right, "{place}");
        kernel.mem.set(thread, place, pointer);
    }
    for wrong in [[layout::USER_END, 0], [0, layout::USER_END], [u64::MAX, 0]] {
        let (label, _) = kernel.ask(THREAD, Label::TcbWritePointers, &wrong);
        assert_eq!(label, Error::RangeError as u64, "{wrong:x?}");
    }
    if POINTERS.len() == 1 {
        let (label, _) = kernel.ask(THREAD, Label::TcbWritePointers, &[0, 8]);
        assert_eq!(label, Error::InvalidArgument as u64);
    }
}

#[test]
fn what_the_processor_holds_of_a_thread_is_changed_there_too() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let Cap::Tcb { obj: own } = kernel.root_cap(boot::SLOT_TCB) else {
        panic!("a thread");
    };
    kernel.thread(THREAD, 1);
    kernel.sphere.switched.clear();
    assert_eq!(kernel.ask(THREAD, Label::TcbWritePointers, &[8, 0]).0, 0);
    assert_eq!(kernel.sphere.switched, []);
    let words = [8, 0];
    assert_eq!(
        kernel
            .ask(boot::SLOT_TCB, Label::TcbWritePointers, &words)
            .0,
        0
    );
    assert_eq!(kernel.sphere.switched, [(Some(own), own), (None, own)]);
    assert_eq!(kernel.register(own, CAP), 0);
    assert_eq!(kernel.register(own, INFO), 0);
}

#[test]
fn a_server_answers_later_whom_it_did_not_answer_at_once() {
    let mut words = memory();
    let (mut kernel, root, thread) = stage(&mut words, ThreadFlags::CALLS_ARE_FAULTS);
    foreign(&mut kernel, 1, [0; 6]);
    // Whoever receives again forgets whom it could have answered.
    kernel.act(Syscall::NbRecv, HANDLER, 0, &[]);
    assert_eq!(kernel.state(thread), State::Calling);
    let registers: [u64; CONTEXT_WORDS] = core::array::from_fn(|index| 100 + index as u64);
    let few = &registers[1..];
    let (label, _) = kernel.ask(THREAD, Label::TcbWriteContext, few);
    assert_eq!(label, Error::IllegalOperation as u64);
    assert_eq!(kernel.state(thread), State::Calling);
    let (label, _) = kernel.ask(boot::SLOT_TCB, Label::TcbWriteContext, &registers);
    assert_eq!(label, Error::IllegalOperation as u64);
    assert_eq!(kernel.ask(THREAD, Label::TcbWriteContext, &registers).0, 0);
    assert_eq!(kernel.state(thread), State::Ready);
    assert_eq!(kernel.mem.get(thread, field::FAULT), 0);
    for index in (0..CONTEXT_WORDS).filter(|&index| index != STATUS) {
        assert_eq!(kernel.register(thread, index), 100 + index as u64);
    }
    assert_eq!(kernel.register(thread, STATUS) & KERNEL_BITS, 0);
    // One that was not answered yet is answered no more by a reply.
    kernel.act(Syscall::Recv, HANDLER, 0, &[]);
    assert_eq!(kernel.current(), Some(thread));
    foreign(&mut kernel, 1, [0; 6]);
    assert_eq!(kernel.ask(THREAD, Label::TcbWriteContext, &registers).0, 0);
    kernel.act(Syscall::Reply, 0, 0, &[5; CONTEXT_WORDS]);
    assert_eq!(kernel.register(thread, SP), 100 + SP as u64);
    assert_eq!(kernel.current(), Some(root));
    check(&mut kernel);
}

#[test]
fn a_thread_gets_the_floating_point_state_of_another_one() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let Cap::Tcb { obj: own } = kernel.root_cap(boot::SLOT_TCB) else {
        panic!("a thread");
    };
    let thread = kernel.thread(THREAD, 1);
    for place in field::FPU..field::FPU + FPU_WORDS {
        kernel.mem.set(own, place, place as u64);
        kernel.mem.set(thread, place, 1 << 40);
    }
    kernel.sphere.switched.clear();
    let copied = kernel.ask(THREAD, Label::TcbCopyFloats, &[boot::SLOT_TCB]);
    assert_eq!(copied.0, 0);
    // What the processor holds is looked at first.
    assert_eq!(kernel.sphere.switched, [(Some(own), own)]);
    for index in 0..FPU_WORDS {
        let place = field::FPU + index;
        let own = index < FLOAT_WORDS;
        let expected = if own { place as u64 } else { 1 << 40 };
        assert_eq!(kernel.mem.get(thread, place), expected, "{index}");
    }
    let wrong = kernel.ask(THREAD, Label::TcbCopyFloats, &[HANDLER]);
    assert_ne!(wrong.0, 0);
}

#[test]
fn a_server_reads_and_writes_the_floating_point_state_of_a_thread() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let Cap::Tcb { obj: own } = kernel.root_cap(boot::SLOT_TCB) else {
        panic!("a thread");
    };
    let thread = kernel.thread(THREAD, 1);
    // The word that not every value can stand in is zero.
    let floats: [u64; FLOAT_WORDS] = core::array::from_fn(|index| (index as u64) << 33 & !0xff00);
    kernel.sphere.switched.clear();
    assert_eq!(kernel.ask(THREAD, Label::TcbWriteFloats, &floats).0, 0);
    assert_eq!(kernel.sphere.switched, []);
    for (index, &word) in floats.iter().enumerate() {
        assert_eq!(kernel.mem.get(thread, field::FPU + index), word);
    }
    assert_eq!(kernel.ask(THREAD, Label::TcbReadFloats, &[]).0, 0);
    assert_eq!(kernel.info(own).len(), FLOAT_WORDS);
    for (index, &word) in floats.iter().enumerate() {
        assert_eq!(kernel.word(own, index), word, "{index}");
    }
    // What the processor holds is saved before it is looked at, and loaded after it was changed.
    let (save, load) = ((Some(own), own), (None, own));
    let own = boot::SLOT_TCB;
    assert_eq!(kernel.ask(own, Label::TcbReadFloats, &[]).0, 0);
    assert_eq!(kernel.ask(own, Label::TcbWriteFloats, &floats).0, 0);
    assert_eq!(kernel.sphere.switched, [save, save, load]);
    let (label, _) = kernel.ask(THREAD, Label::TcbWriteFloats, &floats[1..]);
    assert_eq!(label, Error::IllegalOperation as u64);
    let mut wrong = floats;
    wrong[3] |= 1 << 16;
    let fits = arch::holds_floats(|index| wrong[index]);
    let (label, _) = kernel.ask(THREAD, Label::TcbWriteFloats, &wrong);
    assert_eq!(label == 0, fits);
    check(&mut kernel);
}

#[test]
fn a_program_of_another_system_goes_on_elsewhere_after_a_page_fault() {
    for flags in [ThreadFlags::NONE, ThreadFlags::CALLS_ARE_FAULTS] {
        let mut words = memory();
        let (mut kernel, root, thread) = stage(&mut words, flags);
        let told = flags == ThreadFlags::CALLS_ARE_FAULTS;
        kernel.set_register(thread, SP, 0x7000);
        kernel.fault(Fault::Page {
            address: 0x123,
            code: 6,
        });
        kernel.schedule();
        assert_eq!(kernel.heard(root).0, FaultLabel::Page as u64);
        let len = if told { CONTEXT_WORDS + 4 } else { 4 };
        assert_eq!(kernel.info(root).len(), len);
        if told {
            assert_eq!(kernel.word(root, 4 + SP), 0x7000);
        }
        let answer = [0x5000; CONTEXT_WORDS];
        kernel.act(Syscall::ReplyRecv, HANDLER, 0, &answer);
        assert_eq!(kernel.current(), Some(thread));
        let expected = if told { 0x5000 } else { 0x7000 };
        assert_eq!(kernel.register(thread, SP), expected);
        check(&mut kernel);
    }
}
