//! What `cpuid` answers: the same in all replicas, and asked of the machine once.
//!
//! A dynamic loader asks dozens of times, in every program that is executed, and where the machine
//! is a virtual one each question leaves it. So answers are kept, and as the agent outlives
//! exec and is inherited at fork, a process asks only for what no ancestor has asked for.
//!
//! Each replica asks for itself, and keeps its answers in memory that replicas have alike: a wrong
//! one is found as any flip is.
//!
//! Not covered: answers that change while the machine runs, but for the one that is left out.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::one_thread::OneThread;
use crate::sys;

/// Most answers that are kept: a loader asks for less than 40 different ones.
const MOST: usize = 64;

/// The four registers.
pub(crate) type Answer = [u32; 4];

/// Can this machine make `cpuid` fault: one of the words below.
static ABLE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const UNABLE: u8 = 1;
const CAN: u8 = 2;
/// Does it, in this process?
static TRAPPED: AtomicBool = AtomicBool::new(false);

/// Read by [`detour`](crate::arch::detour), too.
pub(super) static ANSWERS: OneThread<Answers> = OneThread::new(Answers::new());

/// Answers that were given, in the order of the questions; one that is not known ends them.
#[repr(C)]
pub(super) struct Answers {
    entries: [Entry; MOST + 1],
    count: usize,
}

/// One answer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    leaf: u32,
    sub: u32,
    /// The bits of `ecx` that the question is about: all or none.
    mask: u32,
    /// Not 0: there is such an answer.
    known: u32,
    answer: Answer,
}

/// Offsets within an entry, and its size.
pub(super) const LEAF: usize = offset_of!(Entry, leaf);
pub(super) const SUB: usize = offset_of!(Entry, sub);
pub(super) const MASK: usize = offset_of!(Entry, mask);
pub(super) const KNOWN: usize = offset_of!(Entry, known);
pub(super) const ANSWER: usize = offset_of!(Entry, answer);
pub(super) const ENTRY: usize = size_of::<Entry>();

impl Answers {
    const fn new() -> Self {
        const NONE: Entry = Entry {
            leaf: 0,
            sub: 0,
            mask: 0,
            known: 0,
            answer: [0; 4],
        };
        Self {
            entries: [NONE; MOST + 1],
            count: 0,
        }
    }

    /// The answer for a leaf, from `machine` if it was never given before.
    fn get(&mut self, leaf: u32, sub: u32, machine: impl FnOnce() -> Answer) -> Answer {
        let mask = if has_sub_leaves(leaf) { u32::MAX } else { 0 };
        let mut known = self.entries[..self.count].iter();
        if let Some(known) = known.find(|it| it.leaf == leaf && it.sub == sub & mask) {
            return known.answer;
        }
        let answer = same_everywhere(leaf, sub, machine());
        if self.count < MOST {
            self.entries[self.count] = Entry {
                leaf,
                sub: sub & mask,
                mask,
                known: 1,
                answer,
            };
            self.count += 1;
        }
        answer
    }
}

/// In a new process: makes `cpuid` trap, or not, as was last said.
///
/// A process begins as its parent was, by which it also knows whether the machine can; the first
/// one finds that out. In a virtual machine each change leaves it.
pub(crate) fn arm() {
    if ABLE.load(Ordering::Relaxed) == UNKNOWN {
        let able = sys::set_cpuid(false).is_ok();
        ABLE.store(if able { CAN } else { UNABLE }, Ordering::Relaxed);
        if able && !TRAPPED.load(Ordering::Relaxed) {
            let_through(true);
        }
    } else if TRAPPED.load(Ordering::Relaxed) {
        let_through(false);
    }
}

/// Can the machine make `cpuid` trap?
pub(crate) fn can_trap() -> bool {
    ABLE.load(Ordering::Relaxed) == CAN
}

/// From now on it traps, if the machine can, or does not.
pub(crate) fn trap(trapped: bool) {
    if can_trap() && TRAPPED.swap(trapped, Ordering::Relaxed) != trapped {
        let_through(!trapped);
    }
}

fn let_through(through: bool) {
    sys::set_cpuid(through).expect("a machine that can trap it once always can");
}

/// What the program is told.
pub(crate) fn answer(leaf: u32, sub: u32) -> Answer {
    // SAFETY: a replica is one kernel thread, and nothing below comes here again.
    let answers = unsafe { &mut *ANSWERS.get() };
    answers.get(leaf, sub, || ask(leaf, sub))
}

fn ask(leaf: u32, sub: u32) -> Answer {
    let trapped = TRAPPED.load(Ordering::Relaxed);
    if trapped {
        let_through(true);
    }
    let answer = machine(leaf, sub);
    if trapped {
        let_through(false);
    }
    answer
}

/// What the machine says, while that does not trap.
pub(crate) fn machine(leaf: u32, sub: u32) -> Answer {
    let raw = core::arch::x86_64::__cpuid_count(leaf, sub);
    [raw.eax, raw.ebx, raw.ecx, raw.edx]
}

/// False only for leaves whose answer does not depend on `ecx`, in which programs leave anything.
const fn has_sub_leaves(leaf: u32) -> bool {
    !matches!(leaf, 0..=3 | 5 | 6 | 0x8000_0000..=0x8000_0008)
}

/// An answer without what differs between cores and what offers untrappable randomness.
fn same_everywhere(leaf: u32, sub: u32, [a, b, c, d]: Answer) -> Answer {
    const RDRAND: u32 = 1 << 30;
    const HLE_RTM: u32 = 1 << 4 | 1 << 11;
    const RDSEED: u32 = 1 << 18;
    const RDPID: u32 = 1 << 22;
    const WAITPKG: u32 = 1 << 5;
    const RDPRU: u32 = 1 << 4;
    const KIN_OF_XSAVE: u32 = 0b1111;
    match (leaf, sub) {
        // The initial APIC id is the top byte.
        (1, _) => [a, b & 0x00ff_ffff, c & !RDRAND, d],
        (7, 0) => [a, b & !(HLE_RTM | RDSEED), c & !(RDPID | WAITPKG), d],
        // The x2APIC id.
        (0xb | 0x1f, _) => [a, b, c, 0],
        // In-use state size of the moment. What of `xsave`'s kin leaves out what is not in use is
        // not offered, nor what tells that: it depends on the moment (`saved`).
        (0xd, 1) => [a & !KIN_OF_XSAVE, 0, c, d],
        // It tells of the core's own counters.
        (0x8000_0008, _) => [a, b & !RDPRU, c, d],
        // Extended APIC id, core and node.
        (0x8000_001e, _) => [0, b & 0xffff_ff00, c & 0xffff_ff00, d],
        _ => [a, b, c, d],
    }
}

#[cfg(test)]
mod tests {
    use crate::arch::cpuid::{Answers, MOST, same_everywhere};

    /// How often the machine is asked in these questions.
    fn asked(answers: &mut Answers, questions: &[(u32, u32)]) -> usize {
        let mut asked = 0;
        for &(leaf, sub) in questions {
            let given = answers.get(leaf, sub, || {
                asked += 1;
                [leaf, sub, 3, 4]
            });
            assert_eq!((given[0], given[2]), (leaf, 3));
        }
        asked
    }

    #[test]
    fn the_machine_is_asked_once() {
        let mut answers = Answers::new();
        let leaves = [(0, 0), (4, 0), (4, 1), (2, 0)];
        assert_eq!(asked(&mut answers, &leaves), 4);
        assert_eq!(asked(&mut answers, &leaves), 0);
        assert_eq!(asked(&mut answers, &[(2, 77), (4, 2)]), 1, "ecx and leaf 2");
        let [.., sub, _, _] = answers.get(4, 1, || unreachable!("known"));
        assert_eq!(sub, 1, "sub-leaves are told apart");
    }

    #[test]
    fn what_finds_no_room_is_asked_again() {
        let mut answers = Answers::new();
        let most = u32::try_from(MOST).unwrap();
        let all: Vec<_> = (0..most + 3).map(|sub| (4, sub)).collect();
        assert_eq!(asked(&mut answers, &all), MOST + 3);
        assert_eq!(asked(&mut answers, &all), 3);
    }

    #[test]
    fn answers_hide_the_core_and_the_dice() {
        let all = u32::MAX;
        assert_eq!(same_everywhere(1, 0, [all; 4])[1] >> 24, 0, "APIC id");
        assert_eq!(same_everywhere(1, 0, [all; 4])[2] & 1 << 30, 0, "RDRAND");
        assert_eq!(same_everywhere(7, 0, [all; 4])[1] & 1 << 18, 0, "RDSEED");
        assert_eq!(same_everywhere(0xb, 1, [all; 4])[3], 0, "x2APIC id");
        assert_eq!(same_everywhere(0, 0, [1, 2, 3, 4]), [1, 2, 3, 4]);
    }

    #[test]
    fn answers_offer_no_way_to_save_what_is_in_use_only() {
        assert_eq!(same_everywhere(0xd, 1, [0x1f, 2, 3, 4]), [0x10, 0, 3, 4]);
        assert_eq!(same_everywhere(0xd, 0, [1, 2, 3, 4]), [1, 2, 3, 4]);
    }
}
