//! Slots of the root task, in tables that grow.
//!
//! Its first table, which the kernel made, is all that it begins with. When that is full a table of
//! tables takes its place, with the first one in it: so the pointers that there were go on to lead
//! where they led, and those behind them lead into further tables.

use rcoe_abi::boot::{self, ROOT_CNODE_BITS as BITS, SLOT_CNODE, SLOT_TCB};
use rcoe_abi::{Error, ObjectType, Rights};
use rcoe_user::object::{self, Outcome};

/// Slot of the table of tables, and of further tables.
const TOP: u64 = boot::SLOT_DEVICES + 1;
const FURTHER: u64 = TOP + 1;
/// Logarithm of the tables that there can be; the slots for them are fewer.
const TOP_BITS: u32 = 5;
const MOST: u64 = boot::SLOT_UNTYPED - FURTHER;
const _: () = assert!(MOST < 1 << TOP_BITS);
/// Bits of a pointer.
const POINTER_BITS: u64 = 64;

/// The first slot that is free at the start.
pub(crate) const FIRST: u64 = boot::SLOT_FREE;

/// A slot as a table and a place in it.
pub(crate) type Place = (u64, u64);

/// Where a slot is.
pub(crate) const fn place(slot: u64) -> Place {
    let index = slot % (1 << BITS);
    match slot >> BITS {
        0 => (SLOT_CNODE, index),
        number => (FURTHER + number - 1, index),
    }
}

/// Slots that are not used yet.
pub(crate) struct Slots {
    next: u64,
    end: u64,
}

impl Slots {
    pub(crate) const fn new(next: u64) -> Self {
        Self {
            next,
            end: 1 << BITS,
        }
    }

    /// An empty slot. Tables are made by `make`: of a kind and so many bits, in a place.
    pub(crate) fn take(
        &mut self,
        make: impl FnMut(ObjectType, u32, Place) -> Outcome,
    ) -> Result<u64, Error> {
        if self.next == self.end {
            self.grow(make)?;
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// The slot that was taken last is empty still.
    pub(crate) const fn give_back(&mut self, slot: u64) {
        assert!(slot + 1 == self.next, "it was the last");
        self.next = slot;
    }

    fn grow(&mut self, mut make: impl FnMut(ObjectType, u32, Place) -> Outcome) -> Outcome {
        let tables = self.end >> BITS;
        if tables > MOST {
            return Err(Error::NotEnoughMemory);
        }
        if tables == 1 {
            make(ObjectType::CNode, TOP_BITS, (SLOT_CNODE, TOP))?;
            let guard = POINTER_BITS - u64::from(TOP_BITS + BITS);
            object::mint(TOP, 0, SLOT_CNODE, Rights::ALL, 0)?;
            object::set_table(SLOT_TCB, TOP, guard)?;
        }
        let table = FURTHER + tables - 1;
        make(ObjectType::CNode, BITS, (SLOT_CNODE, table))?;
        object::mint(TOP, tables, table, Rights::ALL, 0)?;
        self.end += 1 << BITS;
        Ok(())
    }
}
