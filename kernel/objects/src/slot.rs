//! Slots and the derivation list.
//!
//! A slot is four words: two for the capability, one for its neighbours in the derivation list, one
//! for flags. The list orders all capabilities so that what was derived from one stands right
//! behind it (the mapping database of the L4 kernels): revoking walks forward from there, and an
//! object is alive as long as a neighbour refers to it.

use rcoe_core::mix;

use crate::kernel::Kernel;
use crate::sphere::{Sphere, kind};
use crate::{Cap, Ref};

const LINKS: usize = 2;
const FLAGS: usize = 3;

/// What was derived from it stands behind it.
const PARENT: u64 = 1;
/// The first of a family with a badge of its own.
const FIRST: u64 = 2;

impl<S: Sphere> Kernel<'_, S> {
    /// The capability in a slot.
    #[must_use]
    pub fn cap(&self, slot: Ref) -> Cap {
        Cap::decode([self.mem.get(slot, 0), self.mem.get(slot, 1)])
    }

    /// Writes a slot's capability and folds what is there then into the trace.
    pub(crate) fn set_cap(&mut self, slot: Ref, cap: Cap) {
        let [head, tail] = cap.encode();
        self.mem.set(slot, 0, head);
        self.mem.set(slot, 1, tail);
        let [head, tail] = [0, 1].map(|index| self.mem.read_back(slot, index));
        let digest = mix(mix(u64::from(slot.units()) ^ head.rotate_left(32)) ^ tail);
        self.sphere.event(kind::CAPABILITY, digest);
    }

    pub(crate) fn is_empty(&self, slot: Ref) -> bool {
        self.cap(slot) == Cap::Null
    }

    fn links(&self, slot: Ref) -> (Ref, Ref) {
        let word = self.mem.get(slot, LINKS);
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        (
            Ref::from_units(u32::from_le_bytes([e, f, g, h])),
            Ref::from_units(u32::from_le_bytes([a, b, c, d])),
        )
    }

    fn set_links(&mut self, slot: Ref, previous: Ref, next: Ref) {
        let word = u64::from(previous.units()) << 32 | u64::from(next.units());
        self.mem.set(slot, LINKS, word);
    }

    pub(crate) fn next(&self, slot: Ref) -> Ref {
        self.links(slot).1
    }

    fn set_previous(&mut self, slot: Ref, previous: Ref) {
        if !slot.is_none() {
            let next = self.links(slot).1;
            self.set_links(slot, previous, next);
        }
    }

    fn set_next(&mut self, slot: Ref, next: Ref) {
        if !slot.is_none() {
            let previous = self.links(slot).0;
            self.set_links(slot, previous, next);
        }
    }

    fn has(&self, slot: Ref, flag: u64) -> bool {
        self.mem.get(slot, FLAGS) & flag != 0
    }

    /// Puts a capability into an empty slot, behind `parent` in the list.
    fn link(&mut self, slot: Ref, cap: Cap, parent: Ref, flags: u64) {
        assert!(self.is_empty(slot), "slots are filled once");
        let next = self.next(parent);
        self.set_cap(slot, cap);
        self.set_links(slot, parent, next);
        self.mem.set(slot, FLAGS, flags);
        self.set_next(parent, slot);
        self.set_previous(next, slot);
    }

    /// The capability to a new object made from the untyped memory in `parent`.
    pub(crate) fn insert_new(&mut self, slot: Ref, cap: Cap, parent: Ref) {
        self.link(slot, cap, parent, PARENT | FIRST);
    }

    /// A capability that was there at the start.
    pub(crate) fn insert_first(&mut self, slot: Ref, cap: Cap) {
        assert!(self.is_empty(slot), "slots are filled once");
        self.set_cap(slot, cap);
        self.set_links(slot, Ref::NONE, Ref::NONE);
        self.mem.set(slot, FLAGS, PARENT | FIRST);
    }

    /// A capability derived from that in `source`.
    pub(crate) fn insert_derived(&mut self, slot: Ref, cap: Cap, source: Ref) {
        let original = self.cap(source);
        let flags = if cap.starts_family(&original) {
            PARENT | FIRST
        } else {
            0
        };
        if let Cap::Untyped { obj, bits, .. } = original {
            // Memory that two capabilities speak of is used through the copy only.
            let used = 1 << bits;
            let clean = used;
            self.set_cap(
                source,
                Cap::Untyped {
                    obj,
                    bits,
                    used,
                    clean,
                },
            );
        }
        self.link(slot, cap, source, flags);
    }

    /// Moves a capability to an empty slot: it keeps its place in the list.
    pub(crate) fn move_cap(&mut self, from: Ref, to: Ref) {
        assert!(self.is_empty(to), "slots are filled once");
        let (previous, next) = self.links(from);
        let flags = self.mem.get(from, FLAGS);
        let cap = self.cap(from);
        self.set_cap(to, cap);
        self.set_links(to, previous, next);
        self.mem.set(to, FLAGS, flags);
        self.set_next(previous, to);
        self.set_previous(next, to);
        self.clear(from);
    }

    fn clear(&mut self, slot: Ref) {
        self.set_cap(slot, Cap::Null);
        self.mem.set(slot, LINKS, 0);
        self.mem.set(slot, FLAGS, 0);
    }

    /// Takes a capability out of its slot and out of the list. Was it the last to its object?
    pub(crate) fn take(&mut self, slot: Ref) -> (Cap, bool) {
        let cap = self.cap(slot);
        let last = self.is_last(slot);
        let (previous, next) = self.links(slot);
        if self.has(slot, FIRST) && !next.is_none() {
            // What was of the same family has a first one still.
            self.inherit_first(slot, next);
        }
        self.set_next(previous, next);
        self.set_previous(next, previous);
        self.clear(slot);
        (cap, last)
    }

    fn inherit_first(&mut self, slot: Ref, next: Ref) {
        let (own, its) = (self.cap(slot), self.cap(next));
        if own.badge() != 0 && own.same_object(&its) && own.badge() == its.badge() {
            let flags = self.mem.get(next, FLAGS) | FIRST;
            self.mem.set(next, FLAGS, flags);
        }
    }

    fn is_last(&self, slot: Ref) -> bool {
        let cap = self.cap(slot);
        let (previous, next) = self.links(slot);
        let other = |neighbour: Ref| {
            neighbour
                .some()
                .is_some_and(|neighbour| cap.same_object(&self.cap(neighbour)))
        };
        !other(previous) && !other(next)
    }

    /// Was the capability in `child`, the next in the list, derived from that in `slot`?
    pub(crate) fn is_parent(&self, slot: Ref, child: Ref) -> bool {
        let (own, its) = (self.cap(slot), self.cap(child));
        if !self.has(slot, PARENT) || !own.covers(&its) {
            return false;
        }
        match own {
            Cap::Endpoint { badge, .. } | Cap::Notification { badge, .. } => {
                badge == 0 || badge == its.badge() && !self.has(child, FIRST)
            }
            _ => true,
        }
    }

    /// Has anything been derived from the capability in `slot` that still exists?
    pub(crate) fn has_children(&self, slot: Ref) -> bool {
        let next = self.next(slot);
        !next.is_none() && self.is_parent(slot, next)
    }
}
