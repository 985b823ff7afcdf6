//! What each kind of object does.

use rcoe_abi::invocation::FaultLabel;
use rcoe_abi::{Error, Label, ObjectType, Rights, Syscall, boot};
use rcoe_core::Compare;

use super::invariants::check;
use super::world::{BASE, FREE, memory, world};
use crate::arch::{CAP, MESSAGE, NUMBER};
use crate::tcb::State;
use crate::{Cap, Fault};

#[test]
fn the_root_task_boots_and_can_make_every_object() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let kinds = [
        (ObjectType::Untyped, 12),
        (ObjectType::CNode, 4),
        (ObjectType::Tcb, 0),
        (ObjectType::Endpoint, 0),
        (ObjectType::Notification, 0),
        (ObjectType::Frame, 0),
        (ObjectType::PageTable, 0),
        (ObjectType::VSpace, 0),
    ];
    for (slot, (kind, bits)) in (FREE..).zip(kinds) {
        kernel.make(kind, bits, slot, 1);
        check(&mut kernel);
    }
    assert!(matches!(
        kernel.root_cap(FREE + 1),
        Cap::CNode { bits: 4, .. }
    ));
    assert!(matches!(
        kernel.root_cap(FREE + 7),
        Cap::VSpace { asid: 2, .. }
    ));
}

#[test]
fn messages_and_replies_reach_whom_they_are_for() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Endpoint, 0, FREE, 1);
    assert_eq!(kernel.mint(FREE + 1, FREE, Rights::WRITE, 77), 0);
    let server = kernel.thread(FREE + 10, 62);
    let root = kernel.current().unwrap();
    assert_eq!(kernel.ask(FREE + 10, Label::TcbResume, &[]).0, 0);
    // The root task calls and waits, so the server runs and receives.
    let long: std::vec::Vec<u64> = (100..140).collect();
    kernel.act(Syscall::Call, FREE + 1, 5, &long);
    assert_eq!(kernel.state(root), State::Sending);
    assert_eq!(kernel.current(), Some(server));
    kernel.act(Syscall::Recv, FREE, 0, &[]);
    assert_eq!(kernel.register(server, CAP), 77);
    assert_eq!(kernel.info(server).label(), 5);
    assert_eq!(kernel.info(server).len(), 40);
    assert_eq!(kernel.word(server, 39), 139);
    assert_eq!(kernel.state(root), State::Calling);
    check(&mut kernel);
    kernel.act(Syscall::ReplyRecv, FREE, 9, &[1, 2]);
    assert_eq!(kernel.current(), Some(root));
    assert_eq!(kernel.heard(root), (9, 1));
    assert_eq!(kernel.state(server), State::Receiving);
    // Sending without waiting: taken if somebody receives, else gone.
    kernel.act(Syscall::NbSend, FREE, 6, &[8]);
    assert_eq!(kernel.heard(server), (6, 8));
    kernel.act(Syscall::NbSend, FREE, 7, &[9]);
    assert_eq!(kernel.heard(server), (6, 8));
    check(&mut kernel);
}

#[test]
fn rights_are_what_they_say() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let root = kernel.current().unwrap();
    kernel.make(ObjectType::Endpoint, 0, FREE, 1);
    assert_eq!(kernel.mint(FREE + 1, FREE, Rights::WRITE, 1), 0);
    assert_eq!(kernel.mint(FREE + 2, FREE, Rights::READ, 2), 0);
    kernel.act(Syscall::Recv, FREE + 1, 0, &[]);
    assert_eq!(kernel.heard(root).0, Error::AccessDenied as u64);
    kernel.act(Syscall::Send, FREE + 2, 0, &[]);
    assert_eq!(kernel.heard(root).0, Error::AccessDenied as u64);
    // Rights are never won back, badges never changed.
    assert_eq!(
        kernel
            .ask(boot::SLOT_CNODE, Label::CNodeCopy, &[FREE + 3, FREE + 1, 7])
            .0,
        0
    );
    kernel.act(Syscall::Recv, FREE + 3, 0, &[]);
    assert_eq!(kernel.heard(root).0, Error::AccessDenied as u64);
    let again = kernel.mint(FREE + 4, FREE + 1, Rights::ALL, 5);
    assert_eq!(again, Error::IllegalOperation as u64);
}

#[test]
fn notifications_keep_signals_and_wake_drivers() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let root = kernel.current().unwrap();
    kernel.make(ObjectType::Notification, 0, FREE, 1);
    kernel.make(ObjectType::Endpoint, 0, FREE + 1, 1);
    assert_eq!(kernel.mint(FREE + 2, FREE, Rights::WRITE, 1), 0);
    assert_eq!(kernel.mint(FREE + 3, FREE, Rights::WRITE, 4), 0);
    kernel.act(Syscall::Send, FREE + 2, 0, &[]);
    kernel.act(Syscall::Send, FREE + 3, 0, &[]);
    kernel.act(Syscall::Recv, FREE, 0, &[]);
    assert_eq!(kernel.register(root, CAP), 5);
    kernel.act(Syscall::NbRecv, FREE, 0, &[]);
    assert_eq!(kernel.register(root, CAP), 0);
    // Bound to the thread, it ends a receive on an endpoint too; so does an interrupt.
    assert_eq!(
        kernel
            .ask(boot::SLOT_TCB, Label::TcbBindNotification, &[FREE])
            .0,
        0
    );
    assert_eq!(
        kernel
            .ask(boot::SLOT_IRQ_CONTROL, Label::IrqControlGet, &[3, FREE + 4])
            .0,
        0
    );
    assert_eq!(
        kernel
            .ask(FREE + 4, Label::IrqSetNotification, &[FREE + 3])
            .0,
        0
    );
    kernel.act(Syscall::Recv, FREE + 1, 0, &[]);
    assert_eq!(
        (kernel.state(root), kernel.current()),
        (State::Receiving, None)
    );
    kernel.interrupt(3);
    kernel.schedule();
    assert_eq!(kernel.current(), Some(root));
    assert_eq!(kernel.register(root, CAP), 4);
    check(&mut kernel);
    // The last capability to the handler ends it.
    assert_eq!(
        kernel
            .ask(boot::SLOT_CNODE, Label::CNodeDelete, &[FREE + 4])
            .0,
        0
    );
    assert_eq!(kernel.irq_target(3), None);
}

#[test]
fn faults_become_messages_and_replies_let_threads_go_on() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let root = kernel.current().unwrap();
    kernel.make(ObjectType::Endpoint, 0, FREE, 1);
    assert_eq!(kernel.mint(FREE + 900, FREE, Rights::WRITE, 55), 0);
    let thread = kernel.thread(FREE + 10, 40);
    assert_eq!(kernel.ask(FREE + 10, Label::TcbResume, &[]).0, 0);
    kernel.act(Syscall::Recv, FREE, 0, &[]);
    assert_eq!(kernel.current(), Some(thread));
    let votes = kernel.sphere.votes;
    kernel.fault(Fault::Page {
        address: 0x1234,
        code: 6,
    });
    kernel.schedule();
    assert_eq!(kernel.sphere.votes, votes + 1, "replicas fault alike");
    assert_eq!(kernel.current(), Some(root));
    assert_eq!(kernel.register(root, CAP), 55);
    assert_eq!(kernel.info(root).label(), FaultLabel::Page as u64);
    assert_eq!(kernel.register(root, MESSAGE[1]), 0x1234);
    assert_eq!(kernel.state(thread), State::Calling);
    // Answered with label 0 it goes on; then it makes a call that nobody knows.
    kernel.act(Syscall::ReplyRecv, FREE, 0, &[]);
    assert_eq!(kernel.current(), Some(thread));
    kernel.set_register(thread, NUMBER, 4711);
    kernel.syscall();
    kernel.schedule();
    assert_eq!(kernel.info(root).label(), FaultLabel::UnknownSyscall as u64);
    assert_eq!(kernel.register(root, MESSAGE[0]), 4711);
    kernel.act(Syscall::ReplyRecv, FREE, 0, &[0x99]);
    assert_eq!(
        kernel.register(thread, NUMBER),
        0x99,
        "the reply sets registers"
    );
    // Any other label leaves it stopped.
    kernel.fault(Fault::Exception { vector: 0, code: 0 });
    kernel.schedule();
    kernel.act(Syscall::Reply, 0, 1, &[]);
    assert_eq!(kernel.state(thread), State::Inactive);
    assert_eq!(kernel.sphere.unhandled, 0);
    check(&mut kernel);
}

#[test]
fn a_fault_without_a_handler_is_told() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.fault(Fault::Page {
        address: 0,
        code: 4,
    });
    kernel.schedule();
    assert_eq!((kernel.sphere.unhandled, kernel.current()), (1, None));
}

#[test]
fn frames_are_mapped_by_right_and_unmapped_with_their_capability() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    kernel.make(ObjectType::Frame, 0, FREE, 1);
    kernel.make(ObjectType::PageTable, 0, FREE + 1, 3);
    let (space, address) = (boot::SLOT_VSPACE, 0x7000_0000_0000);
    let map = [space, address, 3];
    let missing = Error::MissingTable as u64;
    for table in 1..=3 {
        assert_eq!(kernel.ask(FREE, Label::FrameMap, &map).0, missing);
        assert_eq!(
            kernel
                .ask(FREE + table, Label::TableMap, &[space, address])
                .0,
            0
        );
    }
    let both = [space, address, 7];
    assert_eq!(
        kernel.ask(FREE, Label::FrameMap, &both).0,
        Error::AccessDenied as u64
    );
    let crooked = [space, address + 8, 3];
    assert_eq!(
        kernel.ask(FREE, Label::FrameMap, &crooked).0,
        Error::AlignmentError as u64
    );
    let high = [space, 0x7fff_ffff_f000, 3];
    assert_eq!(
        kernel.ask(FREE, Label::FrameMap, &high).0,
        Error::RangeError as u64
    );
    assert_eq!(kernel.ask(FREE, Label::FrameMap, &map).0, 0);
    assert_eq!(
        kernel.ask(FREE, Label::FrameMap, &map).0,
        Error::DeleteFirst as u64
    );
    check(&mut kernel);
    // Copies are not mapped, and their end unmaps nothing.
    assert_eq!(
        kernel
            .ask(boot::SLOT_CNODE, Label::CNodeCopy, &[FREE + 5, FREE, 7])
            .0,
        0
    );
    assert_eq!(
        kernel.ask(FREE + 5, Label::FrameMap, &map).0,
        Error::DeleteFirst as u64
    );
    assert_eq!(
        kernel.ask(boot::SLOT_CNODE, Label::CNodeDelete, &[FREE]).0,
        0
    );
    assert_eq!(kernel.ask(FREE + 5, Label::FrameMap, &map).0, 0);
    // Without its table it is gone, and can be unmapped all the same.
    assert_eq!(kernel.ask(FREE + 3, Label::TableUnmap, &[]).0, 0);
    assert_eq!(kernel.ask(FREE + 5, Label::FrameUnmap, &[]).0, 0);
    check(&mut kernel);
}

#[test]
fn revoking_ends_everything_that_was_derived() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let untyped = kernel.make(ObjectType::Untyped, 16, FREE, 1);
    let words = [ObjectType::CNode as u64, 4, boot::SLOT_CNODE, FREE + 1, 1];
    assert_eq!(kernel.ask(FREE, Label::UntypedRetype, &words).0, 0);
    let words = [ObjectType::Endpoint as u64, 0, FREE + 1, 0, 16];
    assert_eq!(kernel.ask(FREE, Label::UntypedRetype, &words).0, 0);
    // The table holds itself and endpoints, and so cannot end by itself.
    assert_eq!(kernel.ask(FREE + 1, Label::CNodeDelete, &[3]).0, 0);
    assert_eq!(
        kernel.ask(FREE + 1, Label::CNodeCopy, &[3, FREE + 1, 7]).0,
        0
    );
    check(&mut kernel);
    let children = kernel
        .ask(boot::SLOT_CNODE, Label::CNodeCopy, &[FREE + 9, FREE, 7])
        .0;
    assert_eq!(children, Error::RevokeFirst as u64);
    assert_eq!(
        kernel.ask(boot::SLOT_CNODE, Label::CNodeRevoke, &[FREE]).0,
        0
    );
    assert_eq!(kernel.root_cap(FREE + 1), Cap::Null);
    check(&mut kernel);
    // The memory is to be had again, all of it.
    let words = [
        ObjectType::Untyped as u64,
        16,
        boot::SLOT_CNODE,
        FREE + 1,
        1,
    ];
    assert_eq!(kernel.ask(FREE, Label::UntypedRetype, &words).0, 0);
    assert_eq!(
        kernel
            .ask(boot::SLOT_CNODE, Label::CNodeRevoke, &[untyped])
            .0,
        0
    );
    assert_eq!(kernel.root_cap(FREE), Cap::Null);
    check(&mut kernel);
}

#[test]
fn the_end_of_an_endpoint_frees_who_waits_there() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let root = kernel.current().unwrap();
    kernel.make(ObjectType::Endpoint, 0, FREE, 1);
    let waiting = kernel.thread(FREE + 10, 40);
    assert_eq!(kernel.ask(FREE + 10, Label::TcbResume, &[]).0, 0);
    assert_eq!(
        kernel.ask(boot::SLOT_TCB, Label::TcbSetPriority, &[30]).0,
        0
    );
    assert_eq!(kernel.current(), Some(waiting));
    kernel.act(Syscall::Send, FREE, 3, &[1]);
    assert_eq!(kernel.current(), Some(root));
    assert_eq!(
        kernel.ask(boot::SLOT_CNODE, Label::CNodeDelete, &[FREE]).0,
        0
    );
    assert_eq!(kernel.state(waiting), State::Ready);
    assert_eq!(kernel.heard(waiting).0, Error::InvalidCapability as u64);
    check(&mut kernel);
    // A thread that ends leaves nothing behind.
    assert_eq!(
        kernel
            .ask(boot::SLOT_CNODE, Label::CNodeDelete, &[FREE + 10])
            .0,
        0
    );
    kernel.schedule();
    assert_eq!(kernel.current(), Some(root));
    check(&mut kernel);
}

#[test]
fn ports_are_read_and_written_within_their_range() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    assert_eq!(
        kernel.mint(FREE, boot::SLOT_PORTS, Rights::ALL, 0x3f8 | 0x3ff << 16),
        0
    );
    assert_eq!(kernel.ask(FREE, Label::PortIn, &[0x3fd, 1]), (0, 0x3fd));
    for wrong in [
        [0x3f7, 1],
        [0x400, 1],
        [0x3ff, 2],
        [0x3f8, 3],
        [0x1_0000, 1],
    ] {
        assert_ne!(kernel.ask(FREE, Label::PortIn, &wrong).0, 0, "{wrong:x?}");
    }
    let text = u64::from_le_bytes(*b"replicas");
    assert_eq!(
        kernel.ask(FREE, Label::PortOutBytes, &[0x3f8, 8, text]).0,
        0
    );
    let long = kernel.ask(FREE, Label::PortOutBytes, &[0x3f8, 9, text]).0;
    assert_eq!(long, Error::RangeError as u64);
    assert_eq!(kernel.sphere.output, b"replicas");
    let wider = kernel.mint(FREE + 1, FREE, Rights::ALL, 0x3f0 | 0x3ff << 16);
    assert_eq!(wider, Error::RangeError as u64);
}

#[test]
fn equal_priorities_take_turns_and_higher_ones_go_first() {
    let mut words = memory();
    let mut kernel = world(&mut words);
    let root = kernel.current().unwrap();
    let low = kernel.thread(FREE + 10, 20);
    let peer = kernel.thread(FREE + 20, 63);
    for slot in [FREE + 10, FREE + 20] {
        assert_eq!(kernel.ask(slot, Label::TcbResume, &[]).0, 0);
    }
    assert_eq!(kernel.current(), Some(root));
    for expected in [peer, root, peer] {
        kernel.give_way();
        kernel.schedule();
        assert_eq!(kernel.current(), Some(expected));
    }
    kernel.ask(FREE + 20, Label::TcbSuspend, &[]);
    assert_eq!(kernel.current(), Some(root));
    kernel.ask(boot::SLOT_TCB, Label::TcbSuspend, &[]);
    assert_eq!(kernel.current(), Some(low));
    let above = kernel.ask(FREE + 10, Label::TcbSetPriority, &[21]).0;
    assert_eq!(above, Error::RangeError as u64, "nobody rises above itself");
}

#[test]
fn a_copy_moves_to_another_partition_by_its_page_tables_alone() {
    let mut words = memory();
    let (before, after) = {
        let mut kernel = world(&mut words);
        let before = kernel.memory().all().to_vec();
        kernel.rebase(BASE, BASE + 0x1000_0000, 0x1003);
        let after = kernel.memory().all().to_vec();
        kernel.rebase(BASE + 0x1000_0000, BASE, 0x1003);
        assert!(kernel.memory().all() == before, "there and back");
        (before, after)
    };
    let moved = before.iter().zip(&after).filter(|(a, b)| a != b);
    for (old, new) in moved {
        assert_eq!(new - old, 0x1000_0000);
        assert_eq!(old & 1, 1, "only entries that are present move");
    }
}

#[test]
fn a_call_that_lets_another_thread_run_is_an_event_in_every_mode() {
    for compare in Compare::ALL {
        let mut words = memory();
        let mut kernel = world(&mut words);
        let peer = kernel.thread(FREE + 20, 63);
        kernel.sphere.compare = Some(compare);
        // No switch, no capability, no page: but where a preemption leads differs from here on.
        let before = kernel.sphere.events;
        assert_eq!(kernel.ask(FREE + 20, Label::TcbResume, &[]).0, 0);
        assert_eq!(kernel.state(peer), State::Ready);
        let told = u64::from(compare == Compare::Every);
        assert_eq!(kernel.sphere.events, before + 1 + told, "{compare:?}");
    }
}
