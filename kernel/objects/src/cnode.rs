//! Tables of capabilities: copying, minting, moving, deleting and revoking what is in their slots.

use rcoe_abi::{Error, Label};

use crate::kernel::Kernel;
use crate::long::Budget;
use crate::lookup::POINTER_BITS;
use crate::request::{Answer, Arguments};
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// What is to be done: checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Put `cap`, derived from that in `from`, into `to`.
    Derive {
        from: Ref,
        to: Ref,
        cap: Cap,
    },
    Move {
        from: Ref,
        to: Ref,
    },
    Delete {
        slot: Ref,
    },
    Revoke {
        slot: Ref,
    },
}

impl<S: Sphere> Kernel<'_, S> {
    /// What a message asks of a table with so many slots.
    pub(crate) fn decode_cnode(
        &self,
        message: Arguments,
        label: Label,
        obj: Ref,
        bits: u32,
    ) -> Result<Operation, Error> {
        let [index] = self.arguments(message)?;
        if index >= 1 << bits {
            return Err(Error::RangeError);
        }
        let to = obj.slot(u32::try_from(index).map_err(|_| Error::RangeError)?);
        match label {
            Label::CNodeDelete => return Ok(Operation::Delete { slot: to }),
            Label::CNodeRevoke => return Ok(Operation::Revoke { slot: to }),
            Label::CNodeCopy | Label::CNodeMint | Label::CNodeMove => {}
            _ => return Err(Error::IllegalOperation),
        }
        let [_, pointer] = self.arguments(message)?;
        let (from, cap) = self.lookup_cap(message.tcb, pointer)?;
        if !self.is_empty(to) {
            return Err(Error::DeleteFirst);
        }
        let cap = match label {
            Label::CNodeMove => return Ok(Operation::Move { from, to }),
            Label::CNodeCopy => {
                let [_, _, rights] = self.arguments(message)?;
                self.derive(from, cap, rights, None)?
            }
            _ => {
                let [_, _, rights, badge] = self.arguments(message)?;
                self.derive(from, cap, rights, Some(badge))?
            }
        };
        Ok(Operation::Derive { from, to, cap })
    }

    /// Does it, as far as a step goes. Tables that it ends are emptied later.
    pub(crate) fn invoke_cnode(
        &mut self,
        operation: Operation,
        budget: &mut Budget,
    ) -> Option<Answer> {
        match operation {
            Operation::Derive { from, to, cap } => self.insert_derived(to, cap, from),
            Operation::Move { from, to } => self.move_cap(from, to),
            Operation::Delete { slot } => self.delete(slot),
            Operation::Revoke { slot } => {
                return self.revoke(slot, budget).then_some(Answer::NOTHING);
            }
        }
        Some(Answer::NOTHING)
    }
}

/// A table with a guard: number of bits in the low six bits of the badge, value above.
pub(crate) fn guarded(obj: Ref, bits: u32, badge: Option<u64>) -> Result<Cap, Error> {
    let badge = badge.unwrap_or_default();
    let (guard_bits, guard) = ((badge & 63) as u32, badge >> 6);
    if guard_bits + bits > POINTER_BITS || guard >> guard_bits != 0 {
        return Err(Error::InvalidArgument);
    }
    Ok(Cap::CNode {
        obj,
        bits,
        guard_bits,
        guard,
    })
}
