//! What joins the trace: what threads are told and what was written, as it stands in memory, and
//! what programs with the right to do so add.

use rcoe_abi::invocation::FaultLabel;
use rcoe_abi::{Error, Label, ObjectType, Rights, Syscall, ThreadFlags, boot};
use rcoe_core::Compare;

use super::world::{Alone, FREE, memory, world};
use crate::arch::{self, CAP, INFO, MESSAGE, NUMBER};
use crate::kernel::Kernel;
use crate::{Memory, Ref};

const ENDPOINT: u64 = FREE;
const THREAD: u64 = FREE + 10;
/// Where pages are mapped, in an address space with all tables.
const PLACE: u64 = 0x1000_0000_0000;
const MODES: [Compare; 3] = [Compare::Io, Compare::Args, Compare::Every];

/// What the trace of a scene is, once its memory is healthy and once a word of it, chosen by
/// `faulty`, does not hold what is written into it by the `last` step.
fn traces(
    compare: Compare,
    scene: impl Fn(&mut Kernel<'_, Alone>),
    faulty: impl Fn(&Kernel<'_, Alone>) -> (Ref, usize),
    last: impl Fn(&mut Kernel<'_, Alone>),
) -> [u64; 2] {
    [false, true].map(|broken| {
        let mut words = memory();
        let mut kernel = world(&mut words);
        kernel.sphere.compare = Some(compare);
        kernel.make(ObjectType::Endpoint, 0, ENDPOINT, 1);
        scene(&mut kernel);
        let (place, index) = faulty(&kernel);
        if broken {
            kernel.mem.faulty = Some((Memory::at(place, index), 1 << 40));
        }
        last(&mut kernel);
        kernel.sphere.digest
    })
}

fn differ([healthy, broken]: [u64; 2]) -> bool {
    healthy != broken
}

/// The running thread makes a call whose registers were set by [`ready`].
fn go(kernel: &mut Kernel<'_, Alone>) {
    kernel.syscall();
    kernel.schedule();
}

/// The registers of a call.
fn ready(kernel: &mut Kernel<'_, Alone>, number: Syscall, pointer: u64, label: u64, words: &[u64]) {
    let tcb = kernel.current().unwrap();
    kernel.set_register(tcb, NUMBER, number as u64);
    kernel.set_register(tcb, CAP, pointer);
    let info = rcoe_abi::MessageInfo::new(label, words.len());
    kernel.set_register(tcb, INFO, info.word());
    for (index, &word) in words.iter().enumerate() {
        kernel.set_word(tcb, index, word);
    }
}

/// The root task waits for a thread with these flags, which runs.
fn serve(kernel: &mut Kernel<'_, Alone>, flags: ThreadFlags) {
    kernel.thread(THREAD, 63);
    let spaces = [boot::SLOT_CNODE, boot::SLOT_VSPACE, THREAD + 1, ENDPOINT];
    assert_eq!(kernel.ask(THREAD, Label::TcbConfigure, &spaces).0, 0);
    let set = kernel.ask(THREAD, Label::TcbSetFlags, &[flags.word()]);
    assert_eq!(set.0, 0);
    assert_eq!(kernel.ask(THREAD, Label::TcbResume, &[]).0, 0);
    kernel.act(Syscall::Recv, ENDPOINT, 0, &[]);
}

fn root(kernel: &Kernel<'_, Alone>) -> Ref {
    match kernel.cap(
        kernel
            .lookup(kernel.current().unwrap(), boot::SLOT_TCB)
            .unwrap(),
    ) {
        crate::Cap::Tcb { obj } => obj,
        other => panic!("{other:?} is no thread"),
    }
}

#[test]
fn a_message_joins_the_trace_as_it_arrived_where_all_is_compared() {
    for compare in MODES {
        // Badge, label, words in registers; then one in the buffer.
        for at in [CAP, INFO, MESSAGE[0], MESSAGE[3]] {
            let scene = |kernel: &mut Kernel<'_, Alone>| {
                serve(kernel, ThreadFlags::NONE);
                ready(kernel, Syscall::Call, ENDPOINT, 5, &[1, 2, 3, 4]);
            };
            let found = traces(compare, scene, |kernel| (root(kernel), at), go);
            assert_eq!(differ(found), compare == Compare::Every, "{compare:?} {at}");
        }
        let scene = |kernel: &mut Kernel<'_, Alone>| {
            serve(kernel, ThreadFlags::NONE);
            ready(kernel, Syscall::Call, ENDPOINT, 5, &[1, 2, 3, 4, 5, 6]);
        };
        let buffer = |kernel: &Kernel<'_, Alone>| {
            let buffer = kernel.buffer(root(kernel)).unwrap();
            (buffer, rcoe_abi::FIRST_BUFFER_WORD + 5)
        };
        let found = traces(compare, scene, buffer, go);
        assert_eq!(differ(found), compare == Compare::Every, "{compare:?}");
    }
}

#[test]
fn results_of_the_kernel_join_the_trace_where_all_is_compared() {
    for compare in MODES {
        let port = |kernel: &mut Kernel<'_, Alone>| {
            let label = Label::PortIn as u64;
            ready(kernel, Syscall::Call, boot::SLOT_PORTS, label, &[7, 1]);
        };
        let refused = |kernel: &mut Kernel<'_, Alone>| {
            let label = Label::PortIn as u64;
            ready(kernel, Syscall::Call, boot::SLOT_PORTS, label, &[7, 3]);
        };
        let nobody = |kernel: &mut Kernel<'_, Alone>| {
            ready(kernel, Syscall::NbRecv, ENDPOINT, 0, &[]);
        };
        let added = |kernel: &mut Kernel<'_, Alone>| {
            ready(kernel, Syscall::AddTrace, boot::SLOT_TRACE, 0, &[1]);
        };
        let expected = compare == Compare::Every;
        for (at, scene) in [
            (MESSAGE[0], &port as &dyn Fn(&mut Kernel<'_, Alone>)),
            (INFO, &port),
            (INFO, &refused),
            (CAP, &nobody),
            (INFO, &added),
        ] {
            let found = traces(compare, scene, |kernel| (root(kernel), at), go);
            assert_eq!(differ(found), expected, "{compare:?} {at}");
        }
    }
}

#[test]
fn signals_and_answers_join_the_trace_where_all_is_compared() {
    for compare in MODES {
        let expected = compare == Compare::Every;
        let waits = |kernel: &mut Kernel<'_, Alone>| {
            kernel.make(ObjectType::Notification, 0, ENDPOINT + 1, 1);
            assert_eq!(kernel.mint(ENDPOINT + 2, ENDPOINT + 1, Rights::ALL, 9), 0);
            kernel.thread(THREAD, 63);
            assert_eq!(kernel.ask(THREAD, Label::TcbResume, &[]).0, 0);
            kernel.act(Syscall::Recv, ENDPOINT + 1, 0, &[]);
            ready(kernel, Syscall::Send, ENDPOINT + 2, 0, &[]);
        };
        let found = traces(compare, waits, |kernel| (root(kernel), CAP), go);
        assert_eq!(differ(found), expected, "a signal, {compare:?}");
        let called = |kernel: &mut Kernel<'_, Alone>| {
            serve(kernel, ThreadFlags::NONE);
            kernel.act(Syscall::Call, ENDPOINT, 5, &[1]);
            ready(kernel, Syscall::ReplyRecv, ENDPOINT, 0, &[2]);
        };
        let thread = |kernel: &Kernel<'_, Alone>| (thread(kernel), MESSAGE[0]);
        let found = traces(compare, called, thread, go);
        assert_eq!(differ(found), expected, "an answer, {compare:?}");
    }
}

/// The thread of [`serve`].
fn thread(kernel: &Kernel<'_, Alone>) -> Ref {
    match kernel.root_cap(THREAD) {
        crate::Cap::Tcb { obj } => obj,
        other => panic!("{other:?} is no thread"),
    }
}

#[test]
fn calls_of_other_systems_join_as_told_and_as_answered() {
    for compare in MODES {
        let expected = compare == Compare::Every;
        let calls = |kernel: &mut Kernel<'_, Alone>| {
            serve(kernel, ThreadFlags::CALLS_ARE_FAULTS);
            ready(kernel, Syscall::Yield, 1, 2, &[3]);
        };
        let told = |kernel: &Kernel<'_, Alone>| {
            let buffer = kernel.buffer(root(kernel)).unwrap();
            (buffer, rcoe_abi::FIRST_BUFFER_WORD + 10)
        };
        let found = traces(compare, calls, told, |kernel| {
            go(kernel);
            let label = FaultLabel::UnknownSyscall as u64;
            assert_eq!(kernel.heard(kernel.current().unwrap()).0, label);
        });
        assert_eq!(differ(found), expected, "told, {compare:?}");
        let answers = |kernel: &mut Kernel<'_, Alone>| {
            calls(kernel);
            go(kernel);
            ready(kernel, Syscall::ReplyRecv, ENDPOINT, 0, &[77]);
        };
        let found = traces(compare, answers, |kernel| (thread(kernel), 0), go);
        assert_eq!(differ(found), expected, "answered, {compare:?}");
    }
}

/// An address space with tables for [`PLACE`], and a page.
fn furnish(kernel: &mut Kernel<'_, Alone>) {
    kernel.make(ObjectType::PageTable, 0, FREE + 4, 3);
    for table in FREE + 4..FREE + 7 {
        let words = [boot::SLOT_VSPACE, PLACE];
        assert_eq!(kernel.ask(table, Label::TableMap, &words).0, 0);
    }
    kernel.make(ObjectType::Frame, 0, FREE + 7, 1);
}

#[test]
fn a_capability_joins_the_trace_as_it_stands_in_its_slot() {
    for compare in MODES {
        let slot = |kernel: &Kernel<'_, Alone>| {
            let slot = kernel.lookup(root(kernel), FREE + 1).unwrap();
            (slot, 1)
        };
        let found = traces(
            compare,
            |_| {},
            slot,
            |kernel| {
                assert_eq!(kernel.mint(FREE + 1, ENDPOINT, Rights::ALL, 3), 0);
            },
        );
        assert!(differ(found), "{compare:?}");
    }
}

#[test]
fn a_page_table_entry_joins_the_trace_as_it_stands_in_its_table() {
    for compare in MODES {
        let entry = |kernel: &Kernel<'_, Alone>| {
            let space = kernel.space_of(root(kernel)).unwrap();
            let table = kernel.walk(space, PLACE, 0).unwrap();
            (table, arch::index(PLACE, 0))
        };
        let found = traces(compare, furnish, entry, |kernel| {
            let words = [boot::SLOT_VSPACE, PLACE, Rights::READ.word()];
            assert_eq!(kernel.ask(FREE + 7, Label::FrameMap, &words).0, 0);
        });
        assert!(differ(found), "{compare:?}");
    }
}

/// The trace of a program that adds a word by the capability in `slot`, and what it is told.
fn added(compare: Compare, slot: u64, word: u64) -> (u64, u64) {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.sphere.compare = Some(compare);
    kernel.make(ObjectType::Endpoint, 0, ENDPOINT, 1);
    let tcb = kernel.act(Syscall::AddTrace, slot, 0, &[word]);
    (kernel.sphere.digest, kernel.heard(tcb).0)
}

#[test]
fn what_a_program_adds_makes_the_difference_alone() {
    // In this mode arguments do not.
    let (one, label) = added(Compare::Io, boot::SLOT_TRACE, 1);
    assert_eq!(label, 0);
    assert_eq!(added(Compare::Io, boot::SLOT_TRACE, 1).0, one);
    assert_ne!(added(Compare::Io, boot::SLOT_TRACE, 2).0, one);
}

#[test]
fn without_the_right_nothing_is_added() {
    for (slot, error) in [
        (boot::SLOT_CNODE, Error::InvalidCapability),
        (ENDPOINT, Error::InvalidCapability),
        (FREE + 3, Error::InvalidCapability),
        (1 << 40, Error::FailedLookup),
    ] {
        let (one, label) = added(Compare::Io, slot, 1);
        assert_eq!(label, error as u64, "{slot}");
        assert_eq!(added(Compare::Io, slot, 2).0, one, "{slot}");
    }
}

#[test]
fn the_right_is_copied_deleted_and_revoked_as_others() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let add = |kernel: &mut Kernel<'_, Alone>, slot: u64| {
        let tcb = kernel.act(Syscall::AddTrace, slot, 0, &[1]);
        kernel.heard(tcb).0 == 0
    };
    let copy = [FREE, boot::SLOT_TRACE, Rights::ALL.word()];
    let table = boot::SLOT_CNODE;
    assert_eq!(kernel.ask(table, Label::CNodeCopy, &copy).0, 0);
    assert!(add(&mut kernel, FREE));
    assert_eq!(kernel.ask(table, Label::CNodeDelete, &[FREE]).0, 0);
    assert!(!add(&mut kernel, FREE) && add(&mut kernel, boot::SLOT_TRACE));
    assert_eq!(kernel.ask(table, Label::CNodeCopy, &copy).0, 0);
    let revoke = kernel.ask(table, Label::CNodeRevoke, &[boot::SLOT_TRACE]);
    assert_eq!(revoke.0, 0);
    assert!(!add(&mut kernel, FREE) && add(&mut kernel, boot::SLOT_TRACE));
}
