//! Capabilities: what they are, how two words hold them, and how they relate.

use rcoe_abi::Rights;
use rcoe_abi::object::{
    ENDPOINT_BITS, LARGE_BITS, MAX_UNTYPED_BITS, MIN_UNTYPED_BITS, PAGE_BITS, SLOT_BITS, TCB_BITS,
};

use crate::Ref;

/// Where a frame or table is mapped: address space by number (0: nowhere) and address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mapping {
    /// Number of the address space.
    pub asid: u16,
    /// Address in it.
    pub address: u64,
}

/// A capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cap {
    /// None.
    Null,
    /// Memory of `1 << bits` bytes, of which the first `used` are taken, and those from there to
    /// `clean` are zero.
    Untyped {
        obj: Ref,
        bits: u32,
        used: u64,
        clean: u64,
    },
    /// A table of `1 << bits` slots. On a way through it `guard_bits` of the pointer must be
    /// `guard`.
    CNode {
        obj: Ref,
        bits: u32,
        guard_bits: u32,
        guard: u64,
    },
    /// A thread.
    Tcb { obj: Ref },
    /// An endpoint.
    Endpoint {
        obj: Ref,
        rights: Rights,
        badge: u64,
    },
    /// A notification.
    Notification {
        obj: Ref,
        rights: Rights,
        badge: u64,
    },
    /// Memory for programs, which an entry of a page table of this level maps: a page (level 0), or
    /// as many as a table has entries (level 1).
    Frame {
        obj: Ref,
        level: u32,
        rights: Rights,
        mapping: Mapping,
    },
    /// A page table, mapped at this level.
    Table {
        obj: Ref,
        level: u32,
        mapping: Mapping,
    },
    /// The root of the address space with this number.
    VSpace { obj: Ref, asid: u16 },
    /// Control over interrupts.
    IrqControl,
    /// The handler of one interrupt line.
    Irq { line: u32 },
    /// I/O ports.
    Ports { first: u16, last: u16 },
    /// Pages of device memory.
    Devices { first: u32, last: u32 },
    /// One page of device memory, to be mapped by drivers.
    Shared {
        page: u32,
        rights: Rights,
        mapping: Mapping,
    },
    /// The right to add to the trace.
    Trace,
    /// Internal: a table that is being emptied. `next` in line, the first slot not yet empty, and
    /// the table (or the thread: no bits) whose last capability was in its first slot, if one was.
    Zombie {
        next: Ref,
        bits: u32,
        cursor: u32,
        inner: Ref,
        inner_bits: u32,
    },
}

const ADDRESS: u64 = (1 << 48) - 1;

/// Bytes of the smallest object: the unit in which untyped memory is used.
const LEAST: u64 = 1 << MIN_UNTYPED_BITS;
const _: () = assert!(
    MAX_UNTYPED_BITS - MIN_UNTYPED_BITS < 32,
    "half a word counts them"
);

/// Logarithm of the bytes of a frame that an entry of a table of this level maps.
pub(crate) const fn frame_bits(level: u32) -> u32 {
    match level {
        0 => PAGE_BITS,
        _ => LARGE_BITS,
    }
}

impl Mapping {
    const fn word(self) -> u64 {
        (self.asid as u64) << 48 | self.address & ADDRESS
    }

    const fn from_word(word: u64) -> Self {
        Self {
            asid: (word >> 48) as u16,
            address: word & ADDRESS,
        }
    }
}

/// First word: type, a byte, another byte, and an object.
const fn pack(tag: u64, byte: u64, other: u64, obj: Ref) -> u64 {
    tag | byte << 8 | other << 16 | (obj.units() as u64) << 32
}

/// The object of a first word.
const fn object_in(head: u64) -> Ref {
    Ref::from_units((head >> 32) as u32)
}

impl Cap {
    /// The words that hold it in a slot.
    #[must_use]
    pub const fn encode(self) -> [u64; 2] {
        match self {
            Self::Null => [0, 0],
            Self::Untyped {
                obj,
                bits,
                used,
                clean,
            } => [
                pack(1, bits as u64, 0, obj),
                (used / LEAST) | ((clean / LEAST) << 32),
            ],
            Self::CNode {
                obj,
                bits,
                guard_bits,
                guard,
            } => [pack(2, bits as u64, guard_bits as u64, obj), guard],
            Self::Tcb { obj } => [pack(3, 0, 0, obj), 0],
            Self::Endpoint { obj, rights, badge } => [pack(4, rights.word(), 0, obj), badge],
            Self::Notification { obj, rights, badge } => [pack(5, rights.word(), 0, obj), badge],
            Self::Frame {
                obj,
                level,
                rights,
                mapping,
            } => [pack(6, rights.word(), level as u64, obj), mapping.word()],
            Self::Table {
                obj,
                level,
                mapping,
            } => [pack(7, level as u64, 0, obj), mapping.word()],
            Self::VSpace { obj, asid } => [pack(8, 0, 0, obj), asid as u64],
            Self::IrqControl => [9, 0],
            Self::Irq { line } => [10, line as u64],
            Self::Ports { first, last } => [11, first as u64 | (last as u64) << 16],
            Self::Devices { first, last } => [13, first as u64 | (last as u64) << 32],
            Self::Shared {
                page,
                rights,
                mapping,
            } => [
                pack(14, rights.word(), 0, Ref::from_units(page)),
                mapping.word(),
            ],
            Self::Trace => [15, 0],
            Self::Zombie {
                next,
                bits,
                cursor,
                inner,
                inner_bits,
            } => [
                pack(12, bits as u64, inner_bits as u64, next),
                cursor as u64 | (inner.units() as u64) << 32,
            ],
        }
    }

    /// The capability that these words hold.
    ///
    /// # Panics
    /// If they hold none: the slot is damaged.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "fields are as wide as they were packed"
    )]
    pub fn decode([head, tail]: [u64; 2]) -> Self {
        let (byte, other) = ((head >> 8 & 0xff) as u32, (head >> 16 & 0xff) as u32);
        let (obj, mapping) = (object_in(head), Mapping::from_word(tail));
        let rights = Rights::from_word(u64::from(byte));
        match head & 0xff {
            0 => Self::Null,
            1 => Self::Untyped {
                obj,
                bits: byte,
                used: (tail & 0xffff_ffff) * LEAST,
                clean: (tail >> 32) * LEAST,
            },
            2 => Self::CNode {
                obj,
                bits: byte,
                guard_bits: other,
                guard: tail,
            },
            3 => Self::Tcb { obj },
            4 => Self::Endpoint {
                obj,
                rights,
                badge: tail,
            },
            5 => Self::Notification {
                obj,
                rights,
                badge: tail,
            },
            6 => Self::Frame {
                obj,
                level: other,
                rights,
                mapping,
            },
            7 => Self::Table {
                obj,
                level: byte,
                mapping,
            },
            8 => Self::VSpace {
                obj,
                asid: tail as u16,
            },
            9 => Self::IrqControl,
            10 => Self::Irq { line: tail as u32 },
            11 => Self::Ports {
                first: tail as u16,
                last: (tail >> 16) as u16,
            },
            12 => Self::Zombie {
                next: obj,
                bits: byte,
                cursor: tail as u32,
                inner: Ref::from_units((tail >> 32) as u32),
                inner_bits: other,
            },
            13 => Self::Devices {
                first: tail as u32,
                last: (tail >> 32) as u32,
            },
            14 => Self::Shared {
                page: obj.units(),
                rights,
                mapping,
            },
            15 => Self::Trace,
            other => panic!("no capability has type {other}"),
        }
    }

    /// The memory of its object: first byte, and the byte behind the last.
    fn region(&self) -> Option<(u64, u64)> {
        let (obj, bits) = match *self {
            Self::Untyped { obj, bits, .. } => (obj, bits),
            Self::CNode { obj, bits, .. } => (obj, bits + SLOT_BITS),
            Self::Tcb { obj } => (obj, TCB_BITS),
            Self::Endpoint { obj, .. } | Self::Notification { obj, .. } => (obj, ENDPOINT_BITS),
            Self::Frame { obj, level, .. } => (obj, frame_bits(level)),
            Self::Table { obj, .. } | Self::VSpace { obj, .. } => (obj, PAGE_BITS),
            _ => return None,
        };
        Some((obj.bytes(), obj.bytes() + (1 << bits)))
    }

    /// Is what `other` refers to the same as what this refers to, or a part of it?
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Untyped { .. }, _) => match (self.region(), other.region()) {
                (Some((from, to)), Some((start, end))) => from <= start && end <= to,
                _ => false,
            },
            (Self::IrqControl, Self::IrqControl | Self::Irq { .. }) => true,
            (Self::Irq { line }, Self::Irq { line: its }) => line == its,
            (Self::Trace, Self::Trace) => true,
            (
                Self::Ports { first, last },
                Self::Ports {
                    first: from,
                    last: to,
                },
            ) => first <= from && to <= last,
            (
                Self::Devices { first, last },
                Self::Devices {
                    first: from,
                    last: to,
                },
            ) => first <= from && to <= last,
            (Self::Devices { first, last }, Self::Shared { page, .. }) => {
                first <= page && page <= last
            }
            (Self::Shared { page, .. }, Self::Shared { page: its, .. }) => page == its,
            _ => {
                self.same_type(other) && self.region().is_some() && self.region() == other.region()
            }
        }
    }

    const fn same_type(&self, other: &Self) -> bool {
        self.encode()[0] & 0xff == other.encode()[0] & 0xff
    }

    /// Does `other` keep the same object alive?
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        match self {
            Self::Untyped { .. } | Self::IrqControl | Self::Null => false,
            _ => self.same_type(other) && self.covers(other) && other.covers(self),
        }
    }

    /// The badge, of those that have one.
    #[must_use]
    pub const fn badge(&self) -> u64 {
        match *self {
            Self::Endpoint { badge, .. } | Self::Notification { badge, .. } => badge,
            _ => 0,
        }
    }

    /// Does a capability made from this one start a family of its own, which revoking it ends?
    #[must_use]
    pub fn starts_family(&self, source: &Self) -> bool {
        match self {
            Self::Endpoint { .. } | Self::Notification { .. } => self.badge() != source.badge(),
            Self::Untyped { .. } => true,
            Self::Irq { .. } => matches!(source, Self::IrqControl),
            Self::Shared { .. } => matches!(source, Self::Devices { .. }),
            Self::Ports { .. } | Self::Devices { .. } => self != source,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_round_trip_through_words() {
        let obj = Ref::from_bytes(0x1234_0000);
        let mapping = Mapping {
            asid: 77,
            address: 0x7fff_1234_5000,
        };
        let rights = Rights::READ_WRITE;
        let badge = u64::MAX;
        let caps = [
            Cap::Null,
            Cap::Untyped {
                obj,
                bits: 36,
                used: 1 << 35,
                clean: 1 << 36,
            },
            Cap::CNode {
                obj,
                bits: 20,
                guard_bits: 44,
                guard: 5,
            },
            Cap::Tcb { obj },
            Cap::Endpoint { obj, rights, badge },
            Cap::Notification { obj, rights, badge },
            Cap::Frame {
                obj,
                level: 1,
                rights,
                mapping,
            },
            Cap::Table {
                obj,
                level: 2,
                mapping,
            },
            Cap::VSpace { obj, asid: 0xffff },
            Cap::IrqControl,
            Cap::Irq { line: 23 },
            Cap::Ports {
                first: 0x3f8,
                last: 0xffff,
            },
            Cap::Devices {
                first: 256,
                last: u32::MAX,
            },
            Cap::Shared {
                page: 263,
                rights,
                mapping,
            },
            Cap::Trace,
            Cap::Zombie {
                next: obj,
                bits: 20,
                cursor: 1 << 20,
                inner: obj.slot(64),
                inner_bits: 19,
            },
        ];
        for cap in caps {
            assert_eq!(Cap::decode(cap.encode()), cap);
        }
    }

    #[test]
    fn untyped_covers_what_lies_in_it() {
        let untyped = Cap::Untyped {
            obj: Ref::from_bytes(0x1000),
            bits: 12,
            used: 0,
            clean: 0,
        };
        assert!(untyped.covers(&Cap::Tcb {
            obj: Ref::from_bytes(0x1800)
        }));
        assert!(!untyped.covers(&Cap::Tcb {
            obj: Ref::from_bytes(0x2000)
        }));
        assert!(!untyped.covers(&Cap::IrqControl));
        assert!(!untyped.same_object(&untyped));
    }

    #[test]
    fn a_large_frame_is_all_of_its_memory() {
        let frame = |start, level| Cap::Frame {
            obj: Ref::from_bytes(start),
            level,
            rights: Rights::ALL,
            mapping: Mapping::default(),
        };
        let untyped = |start, bits| Cap::Untyped {
            obj: Ref::from_bytes(start),
            bits,
            used: 0,
            clean: 0,
        };
        let large = frame(0x20_0000, 1);
        assert!(untyped(0x20_0000, 21).covers(&large));
        assert!(!untyped(0x20_0000, 20).covers(&large));
        // A page of the same place is another object, which only others' memory can hold.
        assert!(!large.covers(&frame(0x20_0000, 0)) && !large.same_object(&frame(0x20_0000, 0)));
        assert!(large.same_object(&frame(0x20_0000, 1)));
    }
}
