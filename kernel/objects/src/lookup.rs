//! From a pointer to a slot: the walk through capability tables.

use rcoe_abi::Error;

use crate::kernel::Kernel;
use crate::sphere::Sphere;
use crate::{Cap, Ref};

/// Bits of a pointer.
pub(crate) const POINTER_BITS: u32 = 64;

/// The low `bits` bits of `word`.
const fn low(word: u64, bits: u32) -> u64 {
    if bits >= 64 {
        word
    } else {
        word & ((1 << bits) - 1)
    }
}

impl<S: Sphere> Kernel<'_, S> {
    /// The slot that `pointer` leads to in the capability space of `tcb`.
    pub(crate) fn lookup(&self, tcb: Ref, pointer: u64) -> Result<Ref, Error> {
        self.resolve(self.cap(Self::cspace_slot(tcb)), pointer)
    }

    /// Walks from the table `root`, consuming all bits of `pointer`. Every table consumes at least
    /// one, so the walk is bounded.
    pub(crate) fn resolve(&self, root: Cap, pointer: u64) -> Result<Ref, Error> {
        let mut left = POINTER_BITS;
        let mut table = root;
        loop {
            let Cap::CNode {
                obj,
                bits,
                guard_bits,
                guard,
            } = table
            else {
                return Err(Error::FailedLookup);
            };
            if guard_bits + bits > left {
                return Err(Error::FailedLookup);
            }
            let rest = low(pointer, left);
            let found = if guard_bits == 0 {
                0
            } else {
                rest >> (left - guard_bits)
            };
            if found != guard {
                return Err(Error::FailedLookup);
            }
            left -= guard_bits + bits;
            let index = low(if left == 64 { 0 } else { rest >> left }, bits);
            let slot = obj.slot(u32::try_from(index).map_err(|_| Error::FailedLookup)?);
            if left == 0 {
                return Ok(slot);
            }
            table = self.cap(slot);
        }
    }

    /// The capability that `pointer` leads to; an empty slot is an error.
    pub(crate) fn lookup_cap(&self, tcb: Ref, pointer: u64) -> Result<(Ref, Cap), Error> {
        let slot = self.lookup(tcb, pointer)?;
        match self.cap(slot) {
            Cap::Null | Cap::Zombie { .. } => Err(Error::InvalidCapability),
            cap => Ok((slot, cap)),
        }
    }
}
