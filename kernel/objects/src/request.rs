//! A request to an object: the message that asks, and the words that answer it.
//!
//! Each object that is invoked has an `Operation`, beside the two halves of what it does: decoding
//! makes one of a request, checks everything and changes nothing; invoking cannot fail. Which
//! object has which is in [`crate::dispatch`].

use rcoe_abi::Error;

use crate::Ref;
use crate::kernel::Kernel;
use crate::sphere::Sphere;

/// A message under inspection.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    /// Who asks.
    pub(crate) tcb: Ref,
    /// Where the capability is that it asks.
    pub(crate) slot: Ref,
    pub(crate) len: usize,
}

/// Words that an invocation answers with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    words: [u64; 2],
    len: usize,
    /// How many are the same in all replicas.
    told: usize,
    /// The thread whose words that stay in the processor are the answer instead, if any; the first
    /// of them, and how many.
    kept: (Ref, usize, usize),
}

impl Answer {
    pub(crate) const NOTHING: Self = Self {
        words: [0; 2],
        len: 0,
        told: 0,
        kept: (Ref::NONE, 0, 0),
    };

    pub(crate) const fn one(word: u64) -> Self {
        Self {
            words: [word, 0],
            len: 1,
            told: 1,
            ..Self::NOTHING
        }
    }

    /// Two words, of which the first `told` are the same in all replicas.
    pub(crate) const fn two(words: [u64; 2], told: usize) -> Self {
        Self {
            words,
            len: 2,
            told,
            ..Self::NOTHING
        }
    }

    /// Words that stay in the processor while a thread runs.
    pub(crate) const fn kept(of: Ref, first: usize, len: usize) -> Self {
        Self {
            kept: (of, first, len),
            ..Self::NOTHING
        }
    }
}

impl<S: Sphere> Kernel<'_, S> {
    /// The first `N` words of a message that must have as many.
    pub(crate) fn arguments<const N: usize>(&self, message: Arguments) -> Result<[u64; N], Error> {
        if message.len < N {
            return Err(Error::IllegalOperation);
        }
        Ok(core::array::from_fn(|index| self.word(message.tcb, index)))
    }

    /// Does word `index`, which need not be there, say that twice is as good as once?
    pub(crate) fn is_repeatable(&self, message: Arguments, index: usize) -> bool {
        message.len > index && self.word(message.tcb, index) == 1
    }

    /// The slot that `pointer` leads to, which is to take a new capability.
    pub(crate) fn vacant_slot(&self, message: Arguments, pointer: u64) -> Result<Ref, Error> {
        let slot = self.lookup(message.tcb, pointer)?;
        if self.is_empty(slot) {
            Ok(slot)
        } else {
            Err(Error::DeleteFirst)
        }
    }

    /// Tells a thread what its invocation came to.
    pub(crate) fn deliver_answer(&mut self, tcb: Ref, answer: &Answer) {
        let (of, first, len) = answer.kept;
        match of.some() {
            Some(of) => self.deliver_kept(tcb, of, first, len),
            None => self.deliver_own(tcb, 0, 0, &answer.words[..answer.len], answer.told),
        }
    }
}
