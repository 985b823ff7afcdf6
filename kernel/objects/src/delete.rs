//! Deleting and revoking capabilities, and what ends with the last capability to an object.
//!
//! Tables can hold tables, so ending one is recursive by nature. Here it takes constant stack: a
//! table whose last capability is gone joins a list that is threaded through the first slots of its
//! members, and the list is worked off slot by slot, in steps ([`crate::long`]).

use crate::kernel::Kernel;
use crate::long::Budget;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

impl<S: Sphere> Kernel<'_, S> {
    /// Deletes the capability in a slot. Tables that end with it join those to be emptied.
    pub(crate) fn delete(&mut self, slot: Ref) {
        let (cap, last) = self.take(slot);
        self.dispose(cap, last);
    }

    /// Deletes what was derived from the capability in a slot, as far as a step goes; tells whether
    /// that is all.
    pub(crate) fn revoke(&mut self, slot: Ref, budget: &mut Budget) -> bool {
        while self.has_children(slot) {
            if budget.is_spent() {
                return false;
            }
            budget.spend(1);
            self.delete(self.next(slot));
            if !self.drain(budget) && self.has_children(slot) {
                return false;
            }
        }
        let cap = self.cap(slot);
        if cap.badge() != 0 {
            self.cancel_badge(cap);
        }
        true
    }

    /// Ends what a capability that was just taken stood for.
    fn dispose(&mut self, cap: Cap, last: bool) {
        match (cap, last) {
            (Cap::CNode { obj, bits, .. }, true) => self.enlist(obj, bits),
            _ => self.finalise(cap, last),
        }
    }

    /// A table joins the list. Its first slot is where that is noted, so what was in it is ended; a
    /// table or a thread, with which more may end, is noted there as well until its turn comes.
    fn enlist(&mut self, table: Ref, bits: u32) {
        let (first, last) = self.take(table);
        let (inner, inner_bits) = match (first, last) {
            (Cap::CNode { obj, bits, .. }, true) => (obj, bits),
            (Cap::Tcb { obj }, true) => (obj, 0),
            _ => (Ref::NONE, 0),
        };
        let zombie = Cap::Zombie {
            next: self.dying,
            bits,
            cursor: 1,
            inner,
            inner_bits,
        };
        self.set_cap(table, zombie);
        self.dying = table;
        if inner.is_none() {
            self.finalise(first, last);
        }
    }

    /// Empties the first table in the list, to the next one that ends with it.
    pub(crate) fn empty_slots(&mut self, table: Ref, budget: &mut Budget) {
        let Cap::Zombie {
            next,
            bits,
            mut cursor,
            inner,
            inner_bits,
        } = self.cap(table)
        else {
            panic!("what is in the list is a zombie");
        };
        let zombie = |cursor| Cap::Zombie {
            next,
            bits,
            cursor,
            inner: Ref::NONE,
            inner_bits: 0,
        };
        if !inner.is_none() {
            budget.spend(1);
            self.set_cap(table, zombie(cursor));
            return match inner_bits {
                0 => self.finalise(Cap::Tcb { obj: inner }, true),
                _ => self.enlist(inner, inner_bits),
            };
        }
        while cursor < 1 << bits && !budget.is_spent() {
            budget.spend(1);
            let slot = table.slot(cursor);
            cursor += 1;
            if !self.is_empty(slot) {
                self.set_cap(table, zombie(cursor));
                self.delete(slot);
                if self.dying != table || !self.dying_pages.is_none() {
                    return;
                }
            }
        }
        if cursor < 1 << bits {
            self.set_cap(table, zombie(cursor));
        } else {
            self.set_cap(table, Cap::Null);
            self.dying = next;
        }
    }

    /// Ends everything but tables.
    fn finalise(&mut self, cap: Cap, last: bool) {
        match cap {
            Cap::Frame {
                obj,
                level,
                mapping,
                ..
            } => self.unmap_frame(obj, level, mapping),
            Cap::Shared { page, mapping, .. } => self.unmap_shared(page, mapping),
            Cap::Endpoint { obj, .. } if last => self.cancel_all(obj),
            Cap::Notification { obj, .. } if last => {
                self.cancel_all(obj);
                self.unbind(obj);
            }
            Cap::Tcb { obj } if last => {
                self.end_thread(obj);
                for slot in Self::slots_of(obj) {
                    let (cap, last) = self.take(slot);
                    // Its slots hold no thread, so this goes no deeper.
                    assert!(!matches!(cap, Cap::Tcb { .. }), "threads hold no threads");
                    self.dispose(cap, last);
                }
            }
            Cap::Table {
                obj,
                level,
                mapping,
            } if last => self.unmap_table(obj, level, mapping),
            Cap::VSpace { obj, asid } if last => self.end_space(obj, asid),
            Cap::Irq { line } if last => self.clear_irq(line),
            _ => {}
        }
    }
}
