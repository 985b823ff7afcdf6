//! Virtual processors: threads whose address space is a guest's ([`rcoe_abi::guest`]).
//!
//! What a guest takes for physical memory is an address space like any other, with entries that the
//! processor reads in its second stage of translation; its root table has a mark. A thread that is
//! configured with such a space runs on the level of an operating system, below this kernel. What
//! it has there stays in the processor until another thread runs, as floating-point state does, so
//! all that is done with that is done with this: it is saved, compared and copied with it.
//!
//! *Contract*: a thread is marked as a virtual processor exactly while its space is a guest's.
//!
//! *Not covered*: what devices a guest finds. That is its monitor's, which handles its faults.

use rcoe_abi::guest::SPACE_BITS;
use rcoe_abi::{Error, layout};

use crate::Ref;
use crate::arch::{self, GUEST_FIRST, GUEST_WORDS};
use crate::field;
use crate::kernel::Kernel;
use crate::request::Arguments;
use crate::sphere::Sphere;
use crate::tcb::Space;
use crate::thread::Operation;

/// Where a word of a virtual processor is.
const fn place(word: usize) -> usize {
    field::FPU + GUEST_FIRST + word
}

impl<S: Sphere> Kernel<'_, S> {
    /// Is a thread a virtual processor?
    pub(crate) fn is_guest(&self, tcb: Ref) -> bool {
        arch::GUEST.is_some_and(|place| self.mem.get(tcb, place) != 0)
    }

    /// Is the running thread a virtual processor?
    #[must_use]
    pub fn runs_guest(&self) -> bool {
        self.current.some().is_some_and(|tcb| self.is_guest(tcb))
    }

    /// How the running thread is left alone, given its root table.
    pub(crate) fn space_to_enter(&self, tcb: Ref, root: Ref) -> Space {
        if self.is_guest(tcb) {
            let lines = self
                .mem
                .get(tcb, place(rcoe_abi::guest::Word::Lines as usize));
            return Space::Guest { root, lines };
        }
        Space::Program(root)
    }

    /// A root table in zeroed memory becomes that of a guest's space.
    pub(crate) fn begin_guest_space(&mut self, root: Ref) {
        self.mem.set(root, arch::GUEST_ENTRY, arch::GUEST_MARK);
    }

    /// Is this the root table of a guest's space?
    pub(crate) fn is_guest_space(&self, root: Ref) -> bool {
        self.mem.get(root, arch::GUEST_ENTRY) == arch::GUEST_MARK
    }

    /// Where addresses in a space end.
    pub(crate) fn end_of_space(&self, root: Ref) -> u64 {
        if self.is_guest_space(root) {
            1 << SPACE_BITS
        } else {
            layout::USER_END
        }
    }

    /// A thread has another space: it becomes a virtual processor, or is none any more.
    pub(crate) fn settle_guest(&mut self, tcb: Ref) {
        let Some(mark) = arch::GUEST else {
            return;
        };
        let space = self.space_of(tcb);
        let is = space.is_some_and(|root| self.is_guest_space(root));
        if is == self.is_guest(tcb) {
            return;
        }
        self.change(tcb, |memory| {
            for word in 0..GUEST_WORDS {
                memory.set(tcb, place(word), 0);
            }
            for (word, value) in arch::GUEST_START.into_iter().filter(|_| is) {
                memory.set(tcb, place(word), value);
            }
            memory.set(tcb, mark, u64::from(is));
        });
    }

    /// Reading the words of a virtual processor.
    pub(crate) fn decode_read_guest(&self, tcb: Ref) -> Result<Operation, Error> {
        let is = self.is_guest(tcb);
        is.then_some(Operation::ReadGuest)
            .ok_or(Error::IllegalOperation)
    }

    /// Setting them.
    pub(crate) fn decode_write_guest(
        &self,
        message: Arguments,
        tcb: Ref,
    ) -> Result<Operation, Error> {
        if !self.is_guest(tcb) || message.len < GUEST_WORDS {
            return Err(Error::IllegalOperation);
        }
        let holds = arch::holds_guest(|index| self.word(message.tcb, index));
        holds
            .then_some(Operation::WriteGuest)
            .ok_or(Error::InvalidArgument)
    }

    /// Gives a virtual processor the words of its monitor's message.
    pub(crate) fn write_guest(&mut self, monitor: Ref, tcb: Ref) {
        let words: [u64; GUEST_WORDS] = core::array::from_fn(|index| self.word(monitor, index));
        self.set_kept(tcb, GUEST_FIRST, &words);
    }
}
