//! Slots and untyped memory of the root task: handed out, never taken back.
//!
//! What is smaller than a large frame is made of pieces of that size, so that not each change
//! between small and large loses what lies before the next boundary.

use rcoe_abi::object::LARGE_BITS;
use rcoe_abi::{Error, ObjectType, boot};
use rcoe_user::object;

/// What is left.
pub(crate) struct Memory {
    untyped: u64,
    /// The piece that small objects are made of.
    piece: Option<u64>,
    next_slot: u64,
}

impl Memory {
    pub(crate) const fn new(untyped: u64) -> Self {
        Self {
            untyped,
            piece: None,
            next_slot: boot::SLOT_FREE,
        }
    }

    /// An empty slot of the root task's table.
    pub(crate) fn slot(&mut self) -> u64 {
        let slot = self.next_slot;
        self.next_slot += 1;
        slot
    }

    /// A new object; its capability's slot.
    pub(crate) fn make(&mut self, kind: ObjectType, bits: u32) -> Result<u64, Error> {
        let size = kind.bits(bits).ok_or(Error::RangeError)?;
        if size < LARGE_BITS {
            self.make_small(kind, bits)
        } else {
            self.make_of_any(kind, bits)
        }
    }

    fn make_small(&mut self, kind: ObjectType, bits: u32) -> Result<u64, Error> {
        if let Some(piece) = self.piece
            && let Ok(slot) = self.make_of(piece, kind, bits)
        {
            return Ok(slot);
        }
        let Ok(piece) = self.make_of_any(ObjectType::Untyped, LARGE_BITS) else {
            // What is left is in smaller pieces.
            return self.make_of_any(kind, bits);
        };
        self.piece = Some(piece);
        self.make_of(piece, kind, bits)
    }

    fn make_of_any(&mut self, kind: ObjectType, bits: u32) -> Result<u64, Error> {
        (0..self.untyped)
            .find_map(|index| self.make_of(boot::SLOT_UNTYPED + index, kind, bits).ok())
            .ok_or(Error::NotEnoughMemory)
    }

    fn make_of(&mut self, untyped: u64, kind: ObjectType, bits: u32) -> Result<u64, Error> {
        if self.next_slot >= 1 << boot::ROOT_CNODE_BITS {
            return Err(Error::NotEnoughMemory);
        }
        let slot = self.next_slot;
        object::retype(untyped, kind, bits, boot::SLOT_CNODE, slot, 1)?;
        self.next_slot += 1;
        Ok(slot)
    }
}
