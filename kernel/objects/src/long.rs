//! Long operations, in steps.
//!
//! What one kernel entry does is bounded: by [`STEP`] units, of which a slot that is looked at
//! costs one. An operation that is longer stops at a slot that follows from the trace alone, and
//! the thread's instruction pointer is set back to its call: it makes the call again, and the next
//! step begins where this one ended. In between the kernel is left like at any other time, so ticks
//! and interrupts come, others run, and each step is a system call of the trace.
//!
//! Where an operation stands is kept by what it works on, not by the thread:
//!
//! * *making objects* notes in the untyped memory how far that is zero;
//! * *revoking* takes one capability after the other;
//! * *tables* whose last capability is gone stand in two lists, one of tables of capabilities and
//!   one of page tables, with the first slot that is not empty yet.
//!
//! While such a list is not empty no object is invoked: whoever calls for it works the lists off
//! first, by steps of its own call. So nobody finds memory free in which something is left, and
//! decoding sees a world in which all that ends has ended. Every tick takes a step too, for what
//! was left by a thread that has ended itself. A call that has done its part and waits for the
//! lists only is noted in its thread, lest it be done twice.
//!
//! Not cut: threads that wait at an endpoint or a notification are woken at once when it ends.

use rcoe_core::mix;

use crate::Ref;
use crate::arch::{self, CALL_BYTES, ENTRIES, IP, LEVELS};
use crate::field;
use crate::kernel::Kernel;
use crate::sphere::{Sphere, kind};

/// Units of a step: slots that are looked at.
pub(crate) const STEP: u32 = 256;
/// Bytes that are zeroed for a unit.
const BYTES: u64 = 256;
/// Entries of a page table that are emptied for a unit.
const ENTRIES_A_UNIT: usize = 32;

/// What is left of a step.
#[derive(Debug)]
pub(crate) struct Budget(u32);

impl Budget {
    pub(crate) const fn new() -> Self {
        Self(STEP)
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn spend(&mut self, units: u32) {
        self.0 = self.0.saturating_sub(units);
    }

    /// Bytes that can be zeroed.
    pub(crate) const fn bytes(&self) -> u64 {
        self.0 as u64 * BYTES
    }

    pub(crate) fn spend_bytes(&mut self, bytes: u64) {
        let units = u32::try_from(bytes.div_ceil(BYTES));
        self.spend(units.unwrap_or(u32::MAX));
    }
}

/// A page table that is being emptied: its first word, in place of the entry that was there.
struct Ending {
    next: Ref,
    level: usize,
    /// The first entry not yet empty.
    cursor: usize,
}

impl Ending {
    const fn word(&self) -> u64 {
        self.next.units() as u64 | (self.level as u64) << 32 | (self.cursor as u64) << 40
    }

    fn from_word(word: u64) -> Self {
        let [a, b, c, d, level, low, high, _] = word.to_le_bytes();
        Self {
            next: Ref::from_units(u32::from_le_bytes([a, b, c, d])),
            level: usize::from(level),
            cursor: usize::from(u16::from_le_bytes([low, high])),
        }
    }
}

impl<S: Sphere> Kernel<'_, S> {
    /// The call of `tcb` is made again when it runs next.
    pub(crate) fn make_again(&mut self, tcb: Ref) {
        let ip = self.register(tcb, IP).wrapping_sub(CALL_BYTES);
        self.set_register(tcb, IP, ip);
        self.keep_step(tcb);
    }

    /// As [`Self::make_again`], of a call that is done but for what it ended.
    pub(crate) fn leave_rest(&mut self, tcb: Ref) {
        self.mem.set(tcb, field::REST, 1);
        self.make_again(tcb);
    }

    /// Is the call of `tcb` the rest of one?
    pub(crate) fn has_rest(&self, tcb: Ref) -> bool {
        self.mem.get(tcb, field::REST) != 0
    }

    /// The call that was done is over. None of those that end something has more to answer.
    pub(crate) fn end_rest(&mut self, tcb: Ref) {
        self.forget_rest(tcb);
        self.deliver(tcb, 0, 0, &[]);
    }

    /// What `tcb` calls for next is something else.
    pub(crate) fn forget_rest(&mut self, tcb: Ref) {
        self.mem.set(tcb, field::REST, 0);
    }

    /// Works off what is to be ended, as far as a step goes; tells whether nothing is left.
    #[inline(never)]
    pub(crate) fn drain(&mut self, budget: &mut Budget) -> bool {
        loop {
            if self.dying_pages.is_none() && self.dying.is_none() {
                return true;
            }
            if budget.is_spent() {
                return false;
            }
            // Those first: what is still to be taken may be tables among them.
            match self.dying_pages.some() {
                Some(table) => self.empty_pages(table, budget),
                None => self.empty_slots(self.dying, budget),
            }
        }
    }

    /// A step, if something is to be ended: at every tick.
    #[inline]
    pub fn proceed(&mut self) {
        if !self.dying.is_none() || !self.dying_pages.is_none() {
            self.drain(&mut Budget::new());
        }
    }

    /// All of it, however long that takes: before memory is compared and copied.
    #[cold]
    pub fn finish(&mut self) {
        while !self.drain(&mut Budget::new()) {}
    }

    /// A page table is in no space any more, so it is to be empty, and so are those below it: one
    /// that is mapped again must not bring back pages that nobody knows to be there, and where this
    /// partition lies is told by live tables only.
    pub(crate) fn end_table(&mut self, table: Ref, level: usize) {
        let first = self.mem.get(table, 0);
        let next = self.dying_pages;
        let cursor = 1;
        let ending = Ending {
            next,
            level,
            cursor,
        };
        self.mem.set(table, 0, ending.word());
        self.dying_pages = table;
        if level > 0 && arch::is_table(first) {
            // As deep as there are levels.
            self.end_table(self.place(first), level - 1);
        } else {
            self.forget_leaf(first, level);
        }
    }

    /// Empties the first page table in line, to the next one that hangs on it.
    fn empty_pages(&mut self, table: Ref, budget: &mut Budget) {
        let Ending {
            next,
            level,
            cursor,
        } = Ending::from_word(self.mem.get(table, 0));
        for index in cursor..ENTRIES {
            let kernel = level == LEVELS - 1 && index == arch::KERNEL_ENTRY;
            let entry = self.mem.get(table, index);
            self.mem.set(table, index, 0);
            let below = level > 0 && !kernel && arch::is_table(entry);
            if !below && !kernel {
                self.forget_leaf(entry, level);
            }
            if below || index % ENTRIES_A_UNIT == 0 {
                budget.spend(1);
            }
            if below || budget.is_spent() {
                let cursor = index + 1;
                let ending = Ending {
                    next,
                    level,
                    cursor,
                };
                self.mem.set(table, 0, ending.word());
                self.tell_pages(table, cursor);
                if below {
                    self.end_table(self.place(entry), level - 1);
                }
                return;
            }
        }
        self.mem.set(table, 0, 0);
        self.dying_pages = next;
        budget.spend(1);
        self.tell_pages(table, ENTRIES);
    }

    fn tell_pages(&mut self, table: Ref, cursor: usize) {
        let digest = mix(u64::from(table.units()) << 16 | cursor as u64);
        self.sphere.event(kind::PAGE, digest);
    }
}
