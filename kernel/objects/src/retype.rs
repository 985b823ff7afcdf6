//! Making objects out of untyped memory.
//!
//! Untyped memory is used from its beginning to its end. What was made of it is derived from its
//! capability; when all of that is gone, it is used anew. Objects begin with all words zero.
//! Zeroing them is done in steps ([`crate::long`]), before the first of them exists: the capability
//! to the untyped memory says how far it is zero, whoever asks next.

use rcoe_abi::{Error, Label, ObjectType, Rights};

use crate::arch::{self, FPU_START};
use crate::cap::Mapping;
use crate::field;
use crate::kernel::Kernel;
use crate::long::Budget;
use crate::memory::UNIT;
use crate::request::Arguments;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// Most objects of one invocation.
const MOST: u64 = 256;

/// Objects to be made: checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retype {
    untyped: Ref,
    kind: ObjectType,
    size_bits: u32,
    /// Logarithm of one object's bytes.
    bits: u32,
    /// Offset of the first one in the untyped memory.
    start: u64,
    /// Where zeroed memory ends.
    clean: u64,
    /// First slot.
    slots: Ref,
    count: u32,
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a message asks of untyped memory.
    pub(crate) fn decode_untyped(&self, message: Arguments, label: Label) -> Result<Retype, Error> {
        if label != Label::UntypedRetype {
            return Err(Error::IllegalOperation);
        }
        let [kind, size_bits, table, first, count] = self.arguments(message)?;
        let kind = ObjectType::from_number(kind).ok_or(Error::InvalidArgument)?;
        let size_bits = u32::try_from(size_bits).map_err(|_| Error::RangeError)?;
        let bits = kind.bits(size_bits).ok_or(Error::RangeError)?;
        if count == 0 || count > MOST {
            return Err(Error::RangeError);
        }
        let slots = self.vacant_slots(message.tcb, table, first, count)?;
        let space = matches!(kind, ObjectType::VSpace | ObjectType::GuestSpace);
        if space && (count > 1 || self.free_space().is_none()) {
            return Err(Error::RangeError);
        }
        if kind == ObjectType::GuestSpace && arch::GUEST.is_none() {
            return Err(Error::InvalidArgument);
        }
        let (start, clean) = self.room(message.slot, bits, count)?;
        let count = u32::try_from(count).map_err(|_| Error::RangeError)?;
        Ok(Retype {
            untyped: message.slot,
            kind,
            size_bits,
            bits,
            start,
            clean,
            slots,
            count,
        })
    }

    fn vacant_slots(&self, tcb: Ref, table: u64, first: u64, count: u64) -> Result<Ref, Error> {
        let (_, Cap::CNode { obj, bits, .. }) = self.lookup_cap(tcb, table)? else {
            return Err(Error::InvalidCapability);
        };
        let end = first.checked_add(count).ok_or(Error::RangeError)?;
        if end > 1 << bits {
            return Err(Error::RangeError);
        }
        let first = obj.slot(u32::try_from(first).map_err(|_| Error::RangeError)?);
        let count = u32::try_from(count).map_err(|_| Error::RangeError)?;
        if (0..count).all(|index| self.is_empty(first.slot(index))) {
            Ok(first)
        } else {
            Err(Error::DeleteFirst)
        }
    }

    /// Where in the untyped memory `count` objects fit, and where what is zero ends.
    fn room(&self, slot: Ref, bits: u32, count: u64) -> Result<(u64, u64), Error> {
        let Cap::Untyped {
            bits: whole,
            used,
            clean,
            ..
        } = self.cap(slot)
        else {
            return Err(Error::InvalidCapability);
        };
        if bits > whole {
            return Err(Error::NotEnoughMemory);
        }
        // What was used and is not any more is begun anew.
        let anew = used > 0 && !self.has_children(slot);
        let (used, clean) = if anew { (0, 0) } else { (used, clean) };
        let start = used.next_multiple_of(1 << bits);
        let end = start + (count << bits);
        if end > 1 << whole {
            return Err(Error::NotEnoughMemory);
        }
        Ok((start, clean))
    }

    /// Makes the objects, once their memory is zero; tells whether it is. If not, more of it is.
    pub(crate) fn retype(&mut self, retype: Retype, budget: &mut Budget) -> bool {
        let Cap::Untyped { obj, bits, .. } = self.cap(retype.untyped) else {
            panic!("decoding found untyped memory");
        };
        let end = retype.start + (u64::from(retype.count) << retype.bits);
        let mut clean = retype.clean.max(retype.start);
        // Objects made of what is untyped still are zeroed then.
        if retype.kind != ObjectType::Untyped {
            clean += self.clean(obj, clean, end, budget);
        }
        let is_clean = clean >= end || retype.kind == ObjectType::Untyped;
        let used = if is_clean { end } else { retype.start };
        let clean = clean.max(used);
        let cap = Cap::Untyped {
            obj,
            bits,
            used,
            clean,
        };
        self.set_cap(retype.untyped, cap);
        self.given = self.given.max(obj.bytes() + clean);
        if is_clean {
            self.make_objects(retype, obj);
        }
        is_clean
    }

    /// Zeroes untyped memory from one offset to another, as far as a step goes; so many bytes.
    fn clean(&mut self, obj: Ref, from: u64, to: u64, budget: &mut Budget) -> u64 {
        let bytes = to.saturating_sub(from).min(budget.bytes());
        let place = Ref::from_bytes(obj.bytes() + from);
        let words = usize::try_from(bytes / 8).expect("a step is short");
        self.mem.words_mut(place, 0, words).fill(0);
        self.forget_zeroed(place, bytes);
        budget.spend_bytes(bytes);
        bytes
    }

    fn make_objects(&mut self, retype: Retype, obj: Ref) {
        for index in 0..retype.count {
            let offset = retype.start + (u64::from(index) << retype.bits);
            let place = Ref::from_bytes(obj.bytes() + offset);
            if !matches!(
                retype.kind,
                ObjectType::Untyped | ObjectType::Frame | ObjectType::LargeFrame
            ) {
                self.own(place, 1 << retype.bits);
            }
            let cap = self.begin(retype.kind, retype.size_bits, place);
            self.insert_new(retype.slots.slot(index), cap, retype.untyped);
        }
    }

    pub(crate) fn zero(&mut self, place: Ref, bits: u32) {
        let words = usize::try_from((1_u64 << bits) / 8).expect("memory is addressable");
        assert!(1 << bits >= UNIT, "objects fill units");
        self.mem.words_mut(place, 0, words).fill(0);
    }

    /// The first capability to an object in zeroed memory.
    pub(crate) fn begin(&mut self, kind: ObjectType, size_bits: u32, obj: Ref) -> Cap {
        match kind {
            ObjectType::Untyped => Cap::Untyped {
                obj,
                bits: size_bits,
                used: 0,
                clean: 0,
            },
            ObjectType::CNode => Cap::CNode {
                obj,
                bits: size_bits,
                guard_bits: 0,
                guard: 0,
            },
            ObjectType::Tcb => {
                for (word, value) in FPU_START {
                    self.mem.set(obj, field::FPU + word, value);
                }
                Cap::Tcb { obj }
            }
            ObjectType::Endpoint => Cap::Endpoint {
                obj,
                rights: Rights::ALL,
                badge: 0,
            },
            ObjectType::Notification => Cap::Notification {
                obj,
                rights: Rights::ALL,
                badge: 0,
            },
            ObjectType::Frame | ObjectType::LargeFrame => Cap::Frame {
                obj,
                level: u32::from(kind == ObjectType::LargeFrame),
                rights: Rights::ALL,
                mapping: Mapping::default(),
            },
            ObjectType::PageTable => Cap::Table {
                obj,
                level: 0,
                mapping: Mapping::default(),
            },
            ObjectType::VSpace | ObjectType::GuestSpace => {
                let asid = self.free_space().expect("decoding found a number");
                self.begin_space(obj, asid);
                if kind == ObjectType::GuestSpace {
                    self.begin_guest_space(obj);
                }
                Cap::VSpace { obj, asid }
            }
        }
    }
}
