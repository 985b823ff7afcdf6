//! Capabilities that travel in messages.
//!
//! A message names up to three capabilities of the sender. What arrives is derived from them, as a
//! copy would be, so revoking the original ends what was handed out. Each is decoded, which checks
//! everything and changes nothing, then inserted, which cannot fail; one after the other, because
//! one may be what the next is checked against. The first that cannot be taken ends the transfer:
//! the receiver learns how many came, the words arrive in any case.
//!
//! A sender without the right to grant, or whose pointers lead nowhere, is refused before anything
//! is sent. What it names is looked up again when sender and receiver meet, which may be later.
//! A reply brings capabilities if the caller could have sent some, and drops them otherwise.

use rcoe_abi::{CAPS_WORD, Error, RECEIVE_WORD, Rights};

use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// How capabilities may travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grant {
    /// Through this endpoint.
    Through(Ref),
    /// With a reply.
    Reply,
}

/// What arrived.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Taken {
    pub(crate) caps: usize,
    /// Those of which only the badge did, one bit each.
    pub(crate) unwrapped: u64,
}

/// One capability's way: checked.
enum Passage {
    /// It leads to the endpoint it came through.
    Unwrap { badge: u64 },
    /// `cap`, derived from that in `from`, goes into `to`.
    Derive { from: Ref, to: Ref, cap: Cap },
}

impl<S: Sphere> Kernel<'_, S> {
    /// The pointer of the capability `index` of a message, or its badge; 0 without a buffer.
    pub(crate) fn caps_word(&self, tcb: Ref, index: usize) -> u64 {
        let buffer = self.buffer(tcb);
        buffer.map_or(0, |buffer| self.mem.get(buffer, CAPS_WORD + index))
    }

    /// Can the capabilities that `tcb` names be sent, as far as the sender can know?
    pub(crate) fn check_caps(&self, tcb: Ref, grants: bool) -> Result<(), Error> {
        let caps = self.info(tcb).caps();
        if caps > 0 && !grants {
            return Err(Error::AccessDenied);
        }
        for index in 0..caps {
            let (slot, cap) = self.lookup_cap(tcb, self.caps_word(tcb, index))?;
            self.derive(slot, cap, Rights::ALL.word(), None)?;
        }
        Ok(())
    }

    /// Hands over the capabilities that `from` names to the slots that `to` names.
    pub(crate) fn grant(&mut self, from: Ref, to: Ref, grant: Grant) -> Taken {
        let mut taken = Taken::default();
        let mut filled = 0;
        for index in 0..self.info(from).caps() {
            match self.decode_passage(from, to, grant, (index, filled)) {
                Ok(Passage::Unwrap { badge }) => {
                    if let Some(buffer) = self.buffer(to) {
                        self.mem.set(buffer, CAPS_WORD + index, badge);
                    }
                    taken.unwrapped |= 1 << index;
                }
                Ok(Passage::Derive { from, to, cap }) => {
                    self.insert_derived(to, cap, from);
                    filled += 1;
                }
                Err(_) => break,
            }
            taken.caps += 1;
        }
        taken
    }

    /// The way of capability `index`, if it can be taken; `filled` slots have taken others.
    fn decode_passage(
        &self,
        from: Ref,
        to: Ref,
        grant: Grant,
        (index, filled): (usize, u64),
    ) -> Result<Passage, Error> {
        let (slot, cap) = self.lookup_cap(from, self.caps_word(from, index))?;
        if let Cap::Endpoint { obj, badge, .. } = cap
            && grant == Grant::Through(obj)
        {
            return Ok(Passage::Unwrap { badge });
        }
        Ok(Passage::Derive {
            from: slot,
            to: self.receive_slot(to, filled)?,
            cap: self.derive(slot, cap, Rights::ALL.word(), None)?,
        })
    }

    /// The slot that takes a receiver's capability number `filled`.
    fn receive_slot(&self, tcb: Ref, filled: u64) -> Result<Ref, Error> {
        let buffer = self.buffer(tcb).ok_or(Error::FailedLookup)?;
        let word = |index| self.mem.get(buffer, RECEIVE_WORD + index);
        let (table, first, count) = (word(0), word(1), word(2));
        if filled >= count {
            return Err(Error::RangeError);
        }
        let (_, Cap::CNode { obj, bits, .. }) = self.lookup_cap(tcb, table)? else {
            return Err(Error::InvalidCapability);
        };
        let index = first.checked_add(filled).ok_or(Error::RangeError)?;
        if index >= 1 << bits {
            return Err(Error::RangeError);
        }
        let slot = obj.slot(u32::try_from(index).map_err(|_| Error::RangeError)?);
        if self.is_empty(slot) {
            Ok(slot)
        } else {
            Err(Error::DeleteFirst)
        }
    }
}
