//! What is seen of the replicas at a divergence: where the program stood in each, with which call,
//! and what each had recorded of the event that differs.
//!
//! Intuition: replicas that vote leave their own word on where the program stands, since those who
//! go on are elsewhere as soon as anybody looks. One that did not come to the vote is looked at
//! from outside before it is ended.
//!
//! Contract: only for reports. A faulty replica can have written anything; nothing is decided by
//! it. Of the program's stack only words are told that may be addresses of code, or of the stack
//! itself: enough to find who called whom, and none of the program's data.
//!
//! Not covered: names of functions and lines, which `rcoe explain` finds from what is told here.

mod mappings;
pub(crate) mod outside;

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rcoe_core::ReplicaSet;
use rcoe_linux_abi::scene::{ARGUMENTS, GENERAL, RBP, RIP, RSP, STUB_BYTES, STUB_RETURN, Scene};
use serde::{Serialize, Serializer};

pub use mappings::Mapping;
pub(crate) use mappings::{Area, areas, code_of};

use crate::memory::Memory;

/// Bytes of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;

/// A word of a replica, told in hexadecimal digits: not every reader of JSON has 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

/// The call at which a replica stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSeen {
    /// Its number.
    pub number: u64,
    /// Its name.
    pub name: &'static str,
    /// Its arguments, as many as it has.
    pub arguments: Vec<Word>,
}

/// The program's registers. Told are those that tell where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// The others, in the order of the scene.
    pub general: [u64; GENERAL],
}

impl Serialize for Registers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rbp = self.general[RBP];
        let told = [("rip", self.rip), ("rsp", self.rsp), ("rbp", rbp)];
        serializer.collect_map(told.map(|(name, value)| (name, Word(value))))
    }
}

/// Where the program stood in one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) registers: Registers,
    pub(crate) bases: [u64; 2],
    /// If the instruction pointer is in a stub: the call that it stands for.
    pub(crate) behind: u64,
    /// The call it had made; `None` if it computed.
    pub(crate) call: Option<CallSeen>,
    /// The stack, from the stack pointer on.
    pub(crate) stack: Vec<u64>,
}

/// What is known of one replica at a divergence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Its number.
    pub replica: usize,
    /// Whether it is at fault.
    pub faulty: bool,
    /// What it had recorded as the first event that differs, in words.
    pub recorded: Option<String>,
    /// The call it had made when this was found out; `None` if it computed, or nobody knows.
    pub call: Option<CallSeen>,
    /// The program's registers then.
    pub registers: Option<Registers>,
    /// Words of the stack that may be addresses, with their distance from the stack pointer.
    pub stack: Vec<(u64, Word)>,
}

/// The call with this number and these registers.
fn call_of(number: u64, general: &[u64; GENERAL]) -> CallSeen {
    let raw = ARGUMENTS.map(|at| general[at]);
    let known = rcoe_linux_syscalls::entry(number);
    let count = known.map_or(6, |call| usize::from(call.nargs));
    let argument = |at| known.map_or(raw[at], |call| call.kind(at, &raw).cut(raw[at]));
    CallSeen {
        number,
        name: rcoe_linux_syscalls::name(number),
        arguments: (0..count).map(|at| Word(argument(at))).collect(),
    }
}

/// The word that a replica has left, if it is certain of it, and if it is about a vote that
/// removed this replica, or about its own halt.
pub(crate) fn left(scene: &Scene, suspect: Option<usize>) -> Option<Place> {
    if scene.count.load(Acquire) == 0 || scene.known.load(Relaxed) == 0 {
        return None;
    }
    let gone = u8::try_from(scene.gone.load(Relaxed)).unwrap_or(0);
    let gone = ReplicaSet::from_bits(gone);
    let about = |index| gone.iter().any(|id| id.index() == index);
    if !gone.is_empty() && !suspect.is_some_and(about) {
        return None;
    }
    let word = |at: usize| scene.registers[at].load(Relaxed);
    let general = std::array::from_fn(word);
    let length = usize::try_from(scene.stack_len.load(Relaxed)).unwrap_or(0);
    let stack = scene.stack.iter().take(length);
    Some(Place {
        registers: Registers {
            rip: word(RIP),
            rsp: word(RSP),
            general,
        },
        behind: scene.behind.load(Relaxed),
        bases: [scene.bases[0].load(Relaxed), scene.bases[1].load(Relaxed)],
        call: Some(call_of(scene.call.load(Relaxed), &general)),
        stack: stack.map(|cell| cell.load(Relaxed)).collect(),
    })
}

/// A call that was rewritten returns into a stub beside the code: moves the place to the call that
/// the stub stands for.
pub(crate) fn leave_stub(place: &mut Place, areas: &[Area]) {
    let code_at = |address: u64| {
        let mut code = areas.iter().filter(|it| it.may.contains('x'));
        code.find(|it| (it.start..it.end).contains(&address))
    };
    let stub = place.registers.rip.wrapping_sub(STUB_RETURN);
    let in_none = code_at(stub).is_some_and(|it| it.name.is_empty());
    let of_file = code_at(place.behind).is_some_and(Area::is_file);
    if in_none && of_file && stub.is_multiple_of(STUB_BYTES) {
        place.registers.rip = place.behind + SYSCALL_BYTES;
    }
}

/// How many scenes each replica has left.
pub(crate) fn counts(memory: &Memory) -> Vec<u32> {
    let count = |index| memory.report(index).scene.count.load(Acquire);
    (0..memory.replicas()).map(count).collect()
}

/// The words of a stack that may be addresses of code or of the stack.
fn addresses(place: &Place, mappings: &[Mapping]) -> Vec<(u64, Word)> {
    let from = place.registers.rsp;
    let reach = u64::try_from(place.stack.len()).unwrap_or(0) * 8;
    let around = from..=from.saturating_add(reach);
    let of_stack = |word: u64| word.is_multiple_of(8) && around.contains(&word);
    let of_code = |word: u64| mappings.iter().any(|it| it.holds(word));
    let words = place.stack.iter().zip((0_u64..).step_by(8));
    let told = words.filter(|(word, _)| of_stack(**word) || of_code(**word));
    told.map(|(&word, at)| (at, Word(word))).collect()
}

/// Puts together what is known: `places` by replica, `recorded` likewise.
pub(crate) fn seen(
    suspect: Option<usize>,
    places: &[Option<Place>],
    recorded: &[Option<String>],
    mappings: &[Mapping],
) -> Vec<Seen> {
    let known = places.iter().zip(recorded).enumerate();
    let known = known.filter(|(_, (place, recorded))| place.is_some() || recorded.is_some());
    let told = known.map(|(replica, (place, recorded))| Seen {
        replica,
        faulty: suspect == Some(replica),
        recorded: recorded.clone(),
        call: place.as_ref().and_then(|it| it.call.clone()),
        registers: place.as_ref().map(|it| it.registers),
        stack: place
            .as_ref()
            .map_or_else(Vec::new, |it| addresses(it, mappings)),
    });
    told.collect()
}
