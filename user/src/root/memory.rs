//! Slots and untyped memory of the root task: handed out, never taken back.

use rcoe_abi::{Error, ObjectType, boot};
use rcoe_user::object;

/// What is left.
pub(crate) struct Memory {
    untyped: u64,
    next_slot: u64,
}

impl Memory {
    pub(crate) const fn new(untyped: u64) -> Self {
        Self {
            untyped,
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
        if self.next_slot >= 1 << boot::ROOT_CNODE_BITS {
            return Err(Error::NotEnoughMemory);
        }
        let slot = self.next_slot;
        for index in 0..self.untyped {
            let untyped = boot::SLOT_UNTYPED + index;
            let made = object::retype(untyped, kind, bits, boot::SLOT_CNODE, slot, 1);
            if made.is_ok() {
                self.next_slot += 1;
                return Ok(slot);
            }
        }
        Err(Error::NotEnoughMemory)
    }
}
