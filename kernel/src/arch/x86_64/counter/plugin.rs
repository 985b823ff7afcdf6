//! The counter of branches that a plugin of the emulator is (`kernel/counter`): emulated processors
//! have none.
//!
//! It counts each core by itself: it writes how many branches there were into this replica's slice,
//! and reads there at how many it is to interrupt the core, which it does by the local interrupt
//! line 1, right behind that branch. The core may be interrupted by what was meant for another.

use rcoe_abi::arch::x86_64::{COUNT_PLACE, COUNT_STRIDE};
use rcoe_core::counted::Nature;
use rcoe_core::primitive::{AtomicU64 as Word, Ordering};

use super::super::interrupts;
use super::super::layout::{SHARED, SHARED_PHYSICAL, SLICE};
use super::Turns;
use crate::arch::Count;

/// This core's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plugin {
    core: u64,
    /// The count when it was armed.
    began: u64,
}

/// Where in a slice these words are.
const PLACE: u64 = COUNT_PLACE - SHARED_PHYSICAL;
const _: () = assert!(COUNT_STRIDE == SLICE && PLACE + 16 <= SLICE / 2);

/// At so many no core is interrupted.
const NEVER: u64 = u64::MAX;

impl Plugin {
    /// The plugin, which the host has provided for.
    pub(super) fn new() -> Self {
        Self {
            core: u64::from(interrupts::id()),
            began: 0,
        }
    }

    fn word(self, at: u64) -> &'static Word {
        let place = SHARED + self.core * SLICE + PLACE + at * 8;
        // SAFETY: slices are mapped for as long as the kernel runs, nothing else lies there, and
        // atomic words are valid whatever they hold. It is this replica's own slice.
        unsafe { &*(place as *const Word) }
    }

    /// Branches so far.
    pub(super) fn count(self) -> u64 {
        self.word(0).load(Ordering::Relaxed)
    }

    fn limit(self) -> &'static Word {
        self.word(1)
    }

    /// The core is interrupted behind so many more.
    pub(super) fn stop_behind(self, more: u64) {
        let limit = self.count().wrapping_add(more);
        self.limit().store(limit, Ordering::Relaxed);
    }
}

impl Count for Plugin {
    fn nature(&self) -> Nature {
        Nature {
            branches: true,
            skid: 0,
        }
    }

    fn turns(&self) -> Option<Turns> {
        None
    }

    fn begin(&mut self) {
        self.limit().store(NEVER, Ordering::Relaxed);
        interrupts::open_counter();
    }

    fn copy(&mut self) {
        *self = Self::new();
    }

    fn arm(&mut self, counts: Option<u64>) {
        self.began = self.count();
        let limit = counts.map_or(NEVER, |more| self.began.wrapping_add(more));
        self.limit().store(limit, Ordering::Relaxed);
    }

    fn executed(&mut self) -> u64 {
        self.count().wrapping_sub(self.began)
    }
}
