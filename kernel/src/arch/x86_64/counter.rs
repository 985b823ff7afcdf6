//! The counter of branches that programs execute, and breakpoints.
//!
//! Emulated processors have none, so a plugin of the emulator counts (`kernel/counter`), each core
//! by itself: it writes how many there were into this replica's slice, and reads there at how many
//! it is to interrupt the core, which it does by the local interrupt line 1, right behind that
//! branch. The core may be interrupted by what was meant for another.

use core::arch::asm;

use rcoe_abi::arch::x86_64::{COUNT_PLACE, COUNT_STRIDE};
use rcoe_core::primitive::{AtomicU64 as Word, Ordering};
use rcoe_kernel_objects::arch::x86_64::RESUME;
use rcoe_kernel_objects::arch::{CONTEXT_WORDS, STATUS};

use super::interrupts;
use super::layout::{SHARED, SHARED_PHYSICAL, SLICE};

/// This core's counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    core: u64,
}

/// Where in a slice these words are.
pub(in crate::arch) const PLACE: u64 = COUNT_PLACE - SHARED_PHYSICAL;
const _: () = assert!(COUNT_STRIDE == SLICE && PLACE + 16 <= SLICE / 2);

/// At so many no core is interrupted.
const NEVER: u64 = u64::MAX;
/// The exception of a breakpoint.
const VECTOR: u64 = 1;
/// `DR7`: what is always set, and breakpoint 0 on, at an instruction.
const OFF: u64 = 1 << 10;
const ON: u64 = OFF | 1;
/// `DR6`: what is always set, and breakpoint 0 was met.
const NOTHING: u64 = 0xffff_0ff0;
const MET: u64 = 1;

impl Counter {
    /// Does it count for the machine as a whole, so that one core at a time is to run?
    pub(crate) const TURNS: bool = false;
    /// Does it count branches, not instructions?
    pub(crate) const BRANCHES: bool = true;

    /// The counter, which the host has provided for.
    #[expect(clippy::unnecessary_wraps, reason = "other processors may have none")]
    pub(crate) fn new() -> Option<Self> {
        let core = u64::from(interrupts::id());
        Some(Self { core })
    }

    fn word(self, at: u64) -> &'static Word {
        let place = SHARED + self.core * SLICE + PLACE + at * 8;
        // SAFETY: slices are mapped for as long as the kernel runs, nothing else lies there, and
        // atomic words are valid whatever they hold. It is this replica's own slice.
        unsafe { &*(place as *const Word) }
    }

    /// Branches so far.
    fn count(self) -> u64 {
        self.word(0).load(Ordering::Relaxed)
    }

    fn limit(self) -> &'static Word {
        self.word(1)
    }

    /// Begins to count on this core.
    pub(crate) fn begin(self) {
        self.limit().store(NEVER, Ordering::Relaxed);
        interrupts::open_counter();
    }

    /// The copy of this replica is on another core.
    pub(crate) fn copy(self) -> Self {
        let core = u64::from(interrupts::id());
        Self { core }
    }

    /// The program is interrupted behind this many branches.
    pub(crate) fn arm(self, branches: u64) {
        let limit = self.count().wrapping_add(branches);
        self.limit().store(limit, Ordering::Relaxed);
    }

    /// Branches that the program has executed since it was armed so.
    pub(crate) fn executed(self, armed: u64) -> u64 {
        let began = self.limit().load(Ordering::Relaxed).wrapping_sub(armed);
        self.count().wrapping_sub(began)
    }

    /// The program is stopped before this instruction.
    pub(crate) fn watch(self, place: u64) {
        // SAFETY: breakpoints are this kernel's alone, and the place is a program's.
        unsafe {
            asm!("mov dr0, {place}", "mov dr7, {on}",
                place = in(reg) place, on = in(reg) ON,
                options(nomem, nostack, preserves_flags));
        }
    }

    /// The same, where it stands at this instruction and is to execute it first.
    pub(crate) fn go_past(self, place: u64, context: &mut [u64; CONTEXT_WORDS]) {
        context[STATUS] |= RESUME;
        self.watch(place);
    }

    /// It is not stopped so any more.
    pub(crate) fn unwatch(self, context: &mut [u64; CONTEXT_WORDS]) {
        context[STATUS] &= !RESUME;
        // SAFETY: as for setting it.
        unsafe {
            asm!("mov dr7, {off}", off = in(reg) OFF, options(nomem, nostack, preserves_flags));
        }
    }

    /// Is an exception the breakpoint, and not the end of a step of the program's own?
    pub(crate) fn was_watched(self, vector: u64) -> bool {
        if vector != VECTOR {
            return false;
        }
        let why: u64;
        // SAFETY: the register tells why, and is the kernel's to clear.
        unsafe {
            asm!("mov {why}, dr6", "mov dr6, {nothing}",
                why = out(reg) why, nothing = in(reg) NOTHING,
                options(nomem, nostack, preserves_flags));
        }
        why & MET != 0
    }

    /// The same where it went past one.
    pub(crate) fn went_past(self, vector: u64) -> bool {
        self.was_watched(vector)
    }

    /// Cores run at once.
    pub(crate) const fn turns(self) -> Option<Turns> {
        None
    }

    /// The next tick comes after these units of the timer, or, if they are none, after a period.
    pub(crate) fn begin_slice(self, rest: u64) {
        interrupts::begin_slice(rest);
    }
}

/// What lets cores take turns. There is none here, so all that would need one is never reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turns {}

impl Turns {
    /// Nobody waits for a turn.
    pub(crate) const fn hand_on(self, _core: u32) {
        match self {}
    }

    /// Nobody waits for a turn.
    pub(crate) const fn doze(self, _cycles: u64) {
        match self {}
    }

    /// Turns have no end.
    pub(crate) const fn rest_of_slice(self) -> u64 {
        match self {}
    }

    /// Nor a beginning.
    pub(crate) const fn begin_slice(self, _rest: u64) {
        match self {}
    }
}
