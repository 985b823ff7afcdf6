//! Deleting and revoking capabilities, and what ends with the last capability to an object.
//!
//! Tables can hold tables, so ending one is recursive by nature. Here it takes constant stack: a
//! table whose last capability is gone joins a list that is threaded through the first slots of its
//! members, and the list is worked off slot by slot. One operation is therefore as long as all that
//! it ends; there are no preemption points.

use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

impl<S: Sphere> Kernel<'_, S> {
    /// Deletes the capability in a slot.
    pub(crate) fn delete(&mut self, slot: Ref) {
        let (cap, last) = self.take(slot);
        self.dispose(cap, last);
        self.drain();
    }

    /// Deletes all that was derived from the capability in a slot.
    pub(crate) fn revoke(&mut self, slot: Ref) {
        loop {
            let next = self.next(slot);
            if next.is_none() || !self.is_parent(slot, next) {
                break;
            }
            self.delete(next);
        }
        let cap = self.cap(slot);
        if cap.badge() != 0 {
            self.cancel_badge(cap);
        }
    }

    /// Ends what a capability that was just taken stood for.
    fn dispose(&mut self, cap: Cap, last: bool) {
        let mut cap = cap;
        let mut last = last;
        // Each turn makes one more table join the list, and takes its first capability.
        while let (Cap::CNode { obj, bits, .. }, true) = (cap, last) {
            let (first, was_last) = self.take(obj);
            let zombie = Cap::Zombie {
                next: self.dying,
                bits,
                cursor: 1,
            };
            self.set_cap(obj, zombie);
            self.dying = obj;
            (cap, last) = (first, was_last);
        }
        self.finalise(cap, last);
    }

    /// Empties the tables in the list.
    fn drain(&mut self) {
        while let Some(table) = self.dying.some() {
            let Cap::Zombie { next, bits, cursor } = self.cap(table) else {
                panic!("what is in the list is a zombie");
            };
            if cursor == 1 << bits {
                self.set_cap(table, Cap::Null);
                self.dying = next;
                continue;
            }
            let slot = table.slot(u32::try_from(cursor).expect("tables are small"));
            let cursor = cursor + 1;
            self.set_cap(table, Cap::Zombie { next, bits, cursor });
            if !self.is_empty(slot) {
                let (cap, last) = self.take(slot);
                self.dispose(cap, last);
            }
        }
    }

    /// Ends everything but tables.
    fn finalise(&mut self, cap: Cap, last: bool) {
        match cap {
            Cap::Frame { obj, mapping, .. } => self.unmap_frame(obj, mapping),
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
            Cap::Irq { line } if last => self.end_irq(line),
            _ => {}
        }
    }

    fn end_irq(&mut self, line: u32) {
        self.sphere.irq_enable(line, false);
        let slot = self.irqs.slot(line);
        if !self.is_empty(slot) {
            let (cap, last) = self.take(slot);
            self.dispose(cap, last);
        }
    }
}
