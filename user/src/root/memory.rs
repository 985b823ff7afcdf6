//! Untyped memory of the root task, and objects made of it: handed out, never taken back.
//!
//! What is small is made of pieces of the size of a large frame, so that not each change between
//! small and large loses what lies before the next boundary.

use rcoe_abi::object::LARGE_BITS;
use rcoe_abi::{Error, ObjectType, boot};
use rcoe_user::object::{self, Outcome};

use crate::tables::{FIRST, Place, Slots, place};

/// Logarithm of the bytes of what is small, at most.
const SMALL_BITS: u32 = 14;

/// What is left of memory and slots.
pub(crate) struct Memory {
    untyped: Untyped,
    slots: Slots,
    /// The slot of what was made for somebody else, who has a capability of his own by now.
    handed: Option<u64>,
}

impl Memory {
    pub(crate) const fn new(untyped: u64) -> Self {
        Self {
            untyped: Untyped {
                count: untyped,
                pieces: [FIRST, FIRST + 1],
            },
            slots: Slots::new(FIRST + 2),
            handed: None,
        }
    }

    /// An empty slot of the root task.
    pub(crate) fn slot(&mut self) -> Result<u64, Error> {
        let untyped = &mut self.untyped;
        self.slots
            .take(|kind, bits, to| untyped.make(kind, bits, to))
    }

    /// A new object; its capability's slot.
    pub(crate) fn make(&mut self, kind: ObjectType, bits: u32) -> Result<u64, Error> {
        let slot = self.slot()?;
        let made = self.untyped.make(kind, bits, place(slot));
        if made.is_err() {
            self.slots.give_back(slot);
        }
        made.map(|()| slot)
    }

    /// A new object of which somebody else is to have the capability: its slot until the next one
    /// is made.
    pub(crate) fn make_to_hand_out(&mut self, kind: ObjectType, bits: u32) -> Result<u64, Error> {
        let slot = match self.handed {
            Some(slot) => slot,
            None => self.slot()?,
        };
        self.handed = Some(slot);
        let (table, index) = place(slot);
        object::delete(table, index)?;
        self.untyped.make(kind, bits, (table, index)).map(|()| slot)
    }
}

/// What is left of memory.
struct Untyped {
    /// How many there are.
    count: u64,
    /// Slots: the piece that small objects are made of, if there is one, and where the next goes.
    pieces: [u64; 2],
}

impl Untyped {
    fn make(&mut self, kind: ObjectType, bits: u32, to: Place) -> Outcome {
        let small = kind.bits(bits).is_some_and(|size| size <= SMALL_BITS);
        if !small {
            return self.make_of_any(kind, bits, to);
        }
        let made = make_of(self.pieces[0], kind, bits, to);
        if made.is_ok() {
            return made;
        }
        match self.next_piece() {
            Ok(()) => make_of(self.pieces[0], kind, bits, to),
            // What is left is in smaller pieces.
            Err(_) => self.make_of_any(kind, bits, to),
        }
    }

    fn next_piece(&mut self) -> Outcome {
        let [present, next] = self.pieces;
        self.make_of_any(ObjectType::Untyped, LARGE_BITS, (boot::SLOT_CNODE, next))?;
        self.pieces = [next, present];
        // What was made of that one stays.
        object::delete(boot::SLOT_CNODE, present)
    }

    fn make_of_any(&self, kind: ObjectType, bits: u32, to: Place) -> Outcome {
        (0..self.count)
            .find_map(|index| make_of(boot::SLOT_UNTYPED + index, kind, bits, to).ok())
            .ok_or(Error::NotEnoughMemory)
    }
}

fn make_of(untyped: u64, kind: ObjectType, bits: u32, (table, slot): Place) -> Outcome {
    object::retype(untyped, kind, bits, table, slot, 1)
}
