//! Capabilities in messages: who gets what, and that nobody gets more than was given.

use std::vec::Vec;

use proptest::prelude::*;
use rcoe_abi::{
    CAPS_WORD, Error, Label, MAX_CAPS, MessageInfo, ObjectType, RECEIVE_WORD, Rights, Syscall, boot,
};

use super::invariants::check;
use super::world::{Alone, FREE, memory, world};
use crate::arch::{CAP, INFO, MESSAGE, NUMBER};
use crate::kernel::Kernel;
use crate::tcb::State;
use crate::{Cap, Ref};

/// What the tests use, by slot of the root task.
const ENDPOINT: u64 = FREE;
const SEND_ONLY: u64 = FREE + 1;
const NOTIFICATION: u64 = FREE + 2;
const FRAME: u64 = FREE + 3;
const PAGE_TABLE: u64 = FREE + 4;
const BADGED: u64 = FREE + 5;
const TABLE: u64 = FREE + 6;
const THREAD: u64 = FREE + 8;

/// Slots of the server's own table: the endpoint, the table, and from here on free ones.
const OWN_ENDPOINT: u64 = 1;
const OWN_TABLE: u64 = 2;
const OWN_FREE: u64 = 4;

/// A world with a server that has a capability space of its own, and runs.
struct Pair<'m> {
    kernel: Kernel<'m, Alone>,
    root: Ref,
    server: Ref,
    table: Ref,
}

impl<'m> Pair<'m> {
    fn new(words: &'m mut [u64]) -> Self {
        let mut kernel = world(words);
        let root = kernel.current().unwrap();
        kernel.make(ObjectType::Endpoint, 0, ENDPOINT, 1);
        kernel.make(ObjectType::Notification, 0, NOTIFICATION, 1);
        kernel.make(ObjectType::Frame, 0, FRAME, 1);
        kernel.make(ObjectType::PageTable, 0, PAGE_TABLE, 1);
        kernel.make(ObjectType::CNode, 4, TABLE, 1);
        assert_eq!(kernel.mint(SEND_ONLY, ENDPOINT, Rights::WRITE, 7), 0);
        assert_eq!(kernel.mint(BADGED, ENDPOINT, Rights::ALL, 99), 0);
        let server = kernel.thread(THREAD, 40);
        let spaces = [TABLE, boot::SLOT_VSPACE, THREAD + 1, 0];
        assert_eq!(kernel.ask(THREAD, Label::TcbConfigure, &spaces).0, 0);
        for (slot, source) in [(OWN_ENDPOINT, ENDPOINT), (OWN_TABLE, TABLE)] {
            let words = [slot, source, Rights::ALL.word()];
            assert_eq!(kernel.ask(TABLE, Label::CNodeCopy, &words).0, 0);
        }
        assert_eq!(kernel.ask(THREAD, Label::TcbResume, &[]).0, 0);
        let Cap::CNode { obj: table, .. } = kernel.root_cap(TABLE) else {
            panic!("the table is one");
        };
        let mut pair = Self {
            kernel,
            root,
            server,
            table,
        };
        pair.accept(server, OWN_TABLE, OWN_FREE, 3);
        pair
    }

    /// A thread says which slots are to take capabilities.
    fn accept(&mut self, tcb: Ref, table: u64, first: u64, count: u64) {
        let buffer = self.kernel.buffer(tcb).unwrap();
        for (index, word) in [table, first, count].into_iter().enumerate() {
            self.kernel.mem.set(buffer, RECEIVE_WORD + index, word);
        }
    }

    /// A thread makes a system call that names capabilities.
    fn act(&mut self, tcb: Ref, number: Syscall, pointer: u64, caps: &[u64]) {
        let kernel = &mut self.kernel;
        assert_eq!(kernel.current(), Some(tcb), "it is its turn");
        let buffer = kernel.buffer(tcb).unwrap();
        for (index, &pointer) in caps.iter().enumerate() {
            kernel.mem.set(buffer, CAPS_WORD + index, pointer);
        }
        let info = MessageInfo::new(5, 1).with_caps(caps.len(), 0);
        kernel.set_register(tcb, NUMBER, number as u64);
        kernel.set_register(tcb, CAP, pointer);
        kernel.set_register(tcb, INFO, info.word());
        kernel.set_register(tcb, MESSAGE[0], 1234);
        kernel.syscall();
        kernel.schedule();
    }

    /// The root task calls, then the server receives.
    fn call(&mut self, caps: &[u64]) {
        self.act(self.root, Syscall::Call, ENDPOINT, caps);
        self.act(self.server, Syscall::Recv, OWN_ENDPOINT, &[]);
    }

    /// What the server has in its free slots.
    fn got(&self) -> [Cap; 4] {
        [0, 1, 2, 3].map(|index| {
            let slot = self.table.slot(u32::try_from(OWN_FREE).unwrap() + index);
            self.kernel.cap(slot)
        })
    }

    /// What a thread learnt: words, capabilities, unwrapped ones.
    fn learnt(&self, tcb: Ref) -> (usize, usize, u64) {
        let info = self.kernel.info(tcb);
        (info.len(), info.caps(), info.unwrapped())
    }
}

#[test]
fn capabilities_arrive_in_the_slots_that_the_receiver_names() {
    for receiver_first in [false, true] {
        let mut words = memory();
        let mut pair = Pair::new(&mut words);
        if receiver_first {
            // The root task waits for a signal that only the server can send.
            pair.act(pair.root, Syscall::Recv, NOTIFICATION, &[]);
            pair.act(pair.server, Syscall::Recv, OWN_ENDPOINT, &[]);
            assert_eq!(pair.kernel.current(), None);
            let (notification, badge) = match pair
                .kernel
                .cap(pair.kernel.lookup(pair.root, NOTIFICATION).unwrap())
            {
                Cap::Notification { obj, .. } => (obj, 1),
                other => panic!("{other:?}"),
            };
            pair.kernel.signal(notification, badge);
            pair.kernel.schedule();
            pair.act(pair.root, Syscall::Call, ENDPOINT, &[NOTIFICATION, FRAME]);
        } else {
            pair.call(&[NOTIFICATION, FRAME]);
        }
        assert_eq!(pair.learnt(pair.server), (1, 2, 0));
        let [first, second, third, _] = pair.got();
        assert!(matches!(first, Cap::Notification { .. }), "{first:?}");
        assert!(matches!(second, Cap::Frame { .. }), "{second:?}");
        assert_eq!(third, Cap::Null);
        // What came can be used.
        pair.act(pair.server, Syscall::Send, OWN_FREE, &[]);
        assert_eq!(pair.kernel.info(pair.server).label(), 0);
        assert_eq!(pair.kernel.state(pair.root), State::Calling);
        pair.act(pair.server, Syscall::ReplyRecv, OWN_ENDPOINT, &[]);
        assert_eq!(pair.kernel.current(), Some(pair.root));
        check(&mut pair.kernel);
    }
}

#[test]
fn what_may_not_be_sent_is_refused_before_anything_is() {
    let mut words = memory();
    let mut pair = Pair::new(&mut words);
    let cases = [
        (SEND_ONLY, FRAME, Error::AccessDenied),
        (ENDPOINT, FREE + 500, Error::InvalidCapability),
        (ENDPOINT, u64::MAX, Error::FailedLookup),
        (ENDPOINT, PAGE_TABLE, Error::IllegalOperation),
        (ENDPOINT, boot::SLOT_IRQ_CONTROL, Error::IllegalOperation),
    ];
    for (through, cap, error) in cases {
        pair.act(pair.root, Syscall::Call, through, &[cap]);
        assert_eq!(pair.kernel.heard(pair.root).0, error as u64, "{cap}");
        assert_eq!(pair.kernel.state(pair.root), State::Ready);
    }
    // Untyped memory that something was made of is not to be shared.
    let untyped = pair.kernel.make(ObjectType::Endpoint, 0, FREE + 40, 1);
    pair.act(pair.root, Syscall::Call, ENDPOINT, &[untyped]);
    let refused = pair.kernel.heard(pair.root).0;
    assert_eq!(refused, Error::RevokeFirst as u64);
    check(&mut pair.kernel);
}

#[test]
fn an_endpoint_to_itself_arrives_as_its_badge() {
    let mut words = memory();
    let mut pair = Pair::new(&mut words);
    pair.call(&[FRAME, BADGED, NOTIFICATION]);
    assert_eq!(pair.learnt(pair.server), (1, 3, 0b010));
    let buffer = pair.kernel.buffer(pair.server).unwrap();
    assert_eq!(pair.kernel.mem.get(buffer, CAPS_WORD + 1), 99);
    let [first, second, third, _] = pair.got();
    assert!(matches!(first, Cap::Frame { .. }));
    assert!(matches!(second, Cap::Notification { .. }), "{second:?}");
    assert_eq!(third, Cap::Null);
}

#[test]
fn what_no_slot_takes_stays_behind_and_the_words_arrive() {
    let refusals: [(u64, u64, u64, usize); 5] = [
        (OWN_TABLE, OWN_FREE, 0, 0),
        (OWN_TABLE, OWN_FREE, 1, 1),
        (OWN_TABLE, 15, 3, 1),
        (OWN_TABLE, OWN_ENDPOINT, 3, 0),
        (OWN_ENDPOINT, OWN_FREE, 3, 0),
    ];
    for (table, first, count, taken) in refusals {
        let mut words = memory();
        let mut pair = Pair::new(&mut words);
        pair.accept(pair.server, table, first, count);
        pair.call(&[FRAME, NOTIFICATION]);
        assert_eq!(pair.learnt(pair.server), (1, taken, 0), "{first} {count}");
        assert_eq!(pair.kernel.register(pair.server, MESSAGE[0]), 1234);
        assert!(matches!(
            pair.kernel.cap(pair.table.slot(1)),
            Cap::Endpoint { .. }
        ));
        check_from(&mut pair);
    }
}

/// Checks the invariants, which are looked at from the root task.
fn check_from(pair: &mut Pair<'_>) {
    let current = core::mem::replace(&mut pair.kernel.current, pair.root);
    check(&mut pair.kernel);
    pair.kernel.current = current;
}

#[test]
fn a_reply_grants_what_its_caller_could_have() {
    for (through, taken) in [(ENDPOINT, 1), (SEND_ONLY, 0)] {
        let mut words = memory();
        let mut pair = Pair::new(&mut words);
        pair.accept(pair.root, boot::SLOT_CNODE, FREE + 60, 1);
        pair.act(pair.root, Syscall::Call, through, &[]);
        pair.act(pair.server, Syscall::Recv, OWN_ENDPOINT, &[]);
        // The endpoint too: no message goes through it here, so nothing is unwrapped.
        pair.act(pair.server, Syscall::Reply, 0, &[OWN_ENDPOINT]);
        let info = pair.kernel.info(pair.root);
        assert_eq!((info.caps(), info.unwrapped()), (taken, 0));
        let slot = pair.kernel.lookup(pair.root, FREE + 60).unwrap();
        let arrived = matches!(pair.kernel.cap(slot), Cap::Endpoint { .. });
        assert_eq!(arrived, taken == 1);
    }
}

#[test]
fn revoking_ends_what_was_handed_out() {
    let mut words = memory();
    let mut pair = Pair::new(&mut words);
    pair.call(&[FRAME, NOTIFICATION]);
    pair.act(pair.server, Syscall::ReplyRecv, OWN_ENDPOINT, &[]);
    for original in [FRAME, NOTIFICATION] {
        let words = [original];
        let kernel = &mut pair.kernel;
        assert_eq!(
            kernel.ask(boot::SLOT_CNODE, Label::CNodeRevoke, &words).0,
            0
        );
    }
    assert_eq!(pair.got(), [Cap::Null; 4]);
    check(&mut pair.kernel);
}

#[test]
fn untyped_memory_arrives_once_however_often_it_is_named() {
    let mut words = memory();
    let mut pair = Pair::new(&mut words);
    pair.kernel.make(ObjectType::Untyped, 12, FREE + 40, 1);
    pair.call(&[FREE + 40, FREE + 40]);
    assert_eq!(pair.learnt(pair.server).1, 1);
    let [first, second, ..] = pair.got();
    assert!(matches!(first, Cap::Untyped { bits: 12, .. }));
    assert_eq!(second, Cap::Null);
}

/// One step of either thread, whoever's turn it is. Slots are named by their place among those that
/// are of use to it, or as they are.
#[derive(Clone, Debug)]
enum Step {
    Talk {
        call: Syscall,
        pointer: u64,
        caps: Vec<u64>,
    },
    Accept {
        table: u64,
        first: u64,
        count: u64,
    },
    Delete {
        slot: u64,
    },
}

/// Slots that are of use to the root task and to the server.
const OF_ROOT: [u64; 8] = [
    FRAME,
    NOTIFICATION,
    ENDPOINT,
    BADGED,
    FRAME,
    FREE + 20,
    FREE + 21,
    FREE + 22,
];
const OF_SERVER: [u64; 8] = [
    OWN_FREE,
    OWN_FREE + 1,
    OWN_FREE + 2,
    OWN_ENDPOINT,
    OWN_TABLE,
    OWN_FREE,
    OWN_FREE + 1,
    OWN_FREE + 3,
];

/// A number below 8 stands for one of those.
fn slot() -> impl Strategy<Value = u64> {
    prop_oneof![12 => 0_u64..8, 1 => FREE..FREE + 40, 1 => 8_u64..100]
}

fn step() -> impl Strategy<Value = Step> {
    let call = prop_oneof![
        6 => Just(Syscall::Call),
        1 => Just(Syscall::NbSend),
        1 => Just(Syscall::NbRecv),
        6 => Just(Syscall::ReplyRecv),
    ];
    let through = prop_oneof![20 => Just(u64::MAX), 1 => slot()];
    let talk = (call, through, prop::collection::vec(slot(), 0..=MAX_CAPS));
    let table = prop_oneof![12 => Just(u64::MAX), 1 => slot()];
    prop_oneof![
        8 => talk.prop_map(|(call, pointer, caps)| Step::Talk { call, pointer, caps }),
        2 => (table, 0_u64..4, 0_u64..4)
            .prop_map(|(table, first, count)| Step::Accept { table, first, count }),
        2 => slot().prop_map(|slot| Step::Delete { slot }),
    ]
}

/// What both know of: objects in slots that either names, and what may be done with them.
fn rights_to(pair: &Pair<'_>, object: &Cap) -> Rights {
    let slots = [(pair.root, FREE..FREE + 64), (pair.server, 0..16)];
    let mut rights = Rights::NONE;
    for (tcb, range) in slots {
        for pointer in range {
            let cap = pair.kernel.lookup(tcb, pointer);
            let cap = cap.map_or(Cap::Null, |slot| pair.kernel.cap(slot));
            if let Cap::Frame { rights: own, .. } = cap
                && cap.same_object(object)
            {
                rights = rights.or(own);
            }
        }
    }
    rights
}

fn perform(pair: &mut Pair<'_>, step: &Step) {
    let Some(tcb) = pair.kernel.current() else {
        return;
    };
    let serves = tcb == pair.server;
    let named = |place: u64| {
        let slots = if serves { OF_SERVER } else { OF_ROOT };
        let found = usize::try_from(place).ok().and_then(|at| slots.get(at));
        found.copied().unwrap_or(place)
    };
    let or_own = |place: u64, own: u64| if place == u64::MAX { own } else { named(place) };
    let (endpoint, table, free) = if serves {
        (OWN_ENDPOINT, OWN_TABLE, OWN_FREE)
    } else {
        (ENDPOINT, boot::SLOT_CNODE, FREE + 20)
    };
    match step {
        Step::Talk {
            call,
            pointer,
            caps,
        } => {
            // Each in its part, for the most part: else both wait for each other.
            let call = match call {
                Syscall::Call if serves => Syscall::ReplyRecv,
                Syscall::ReplyRecv if !serves => Syscall::Call,
                other => *other,
            };
            let caps: Vec<u64> = caps.iter().map(|&place| named(place)).collect();
            pair.act(tcb, call, or_own(*pointer, endpoint), &caps);
        }
        Step::Accept {
            table: place,
            first,
            count,
        } => pair.accept(tcb, or_own(*place, table), free + first, *count),
        Step::Delete { slot } => {
            let slot = named(*slot);
            // Those that the test itself needs stay.
            if ![ENDPOINT, FRAME, OWN_ENDPOINT, OWN_TABLE].contains(&slot) {
                pair.kernel.ask(table, Label::CNodeDelete, &[slot]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_exchange_keeps_the_invariants_and_gives_no_right_twice(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut first, mut second) = (memory(), memory());
        let mut one = Pair::new(&mut first);
        let mut two = Pair::new(&mut second);
        // A frame that may only be read: however it travels, nobody may ever write it.
        let slot = FREE + 3;
        for pair in [&mut one, &mut two] {
            let only = [slot + 40, slot, Rights::READ.word()];
            prop_assert_eq!(pair.kernel.ask(boot::SLOT_CNODE, Label::CNodeCopy, &only).0, 0);
            prop_assert_eq!(pair.kernel.ask(boot::SLOT_CNODE, Label::CNodeDelete, &[slot]).0, 0);
            let back = [slot, slot + 40];
            prop_assert_eq!(pair.kernel.ask(boot::SLOT_CNODE, Label::CNodeMove, &back).0, 0);
        }
        let frame = one.kernel.root_cap(slot);
        for pair in [&mut one, &mut two] {
            pair.accept(pair.root, boot::SLOT_CNODE, FREE + 20, 3);
        }
        for step in &steps {
            perform(&mut one, step);
            perform(&mut two, step);
            check_from(&mut one);
            prop_assert!(!rights_to(&one, &frame).contains(Rights::WRITE));
            if one.kernel.current().is_none() {
                break;
            }
        }
        let (a, b) = (&one.kernel.sphere, &two.kernel.sphere);
        prop_assert_eq!((a.digest, a.events), (b.digest, b.events), "traces are alike");
        drop((one, two));
        prop_assert!(first == second, "all words are equal");
    }
}
