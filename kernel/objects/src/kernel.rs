//! The state of one replica's kernel: object memory, and the little that lies outside it.

use rcoe_core::portions::Kept;

use crate::queue::Ready;
use crate::shares::Shares;
use crate::sphere::Sphere;
use crate::{Memory, Ref};

/// Address spaces at a time; number 0 is none.
pub(crate) const SPACES: usize = 1024;

/// One replica's kernel.
#[derive(Debug)]
pub struct Kernel<'m, S: Sphere> {
    pub(crate) mem: Memory<'m>,
    /// The replication part.
    pub sphere: S,
    pub(crate) ready: Ready,
    /// Who runs, or nobody.
    pub(crate) current: Ref,
    /// Whose floating-point state the processor holds.
    pub(crate) fpu: Ref,
    /// Root tables by number of the address space.
    pub(crate) spaces: [Ref; SPACES],
    /// Where the search for a free number begins.
    pub(crate) next_space: u16,
    /// Slots with the notification of each interrupt line.
    pub(crate) irqs: Ref,
    /// The root task's boot page.
    pub(crate) info: Ref,
    /// Tables of capabilities that are being emptied.
    pub(crate) dying: Ref,
    /// Page tables that are being emptied.
    pub(crate) dying_pages: Ref,
    /// Bytes of object memory that were ever given out, or zeroed to be.
    pub(crate) given: u64,
    /// System calls since the last vote.
    pub(crate) unchecked: u32,
    /// Pages of device memory in address spaces.
    pub(crate) shares: Shares,
    /// What a copy of this replica has, while one is made.
    pub(crate) kept: Kept<'m>,
}

impl<'m, S: Sphere> Kernel<'m, S> {
    /// A kernel without threads. `kept` has room for all blocks of its memory.
    #[must_use]
    pub const fn new(mem: Memory<'m>, kept: Kept<'m>, sphere: S) -> Self {
        Self {
            mem,
            sphere,
            ready: Ready::new(),
            current: Ref::NONE,
            fpu: Ref::NONE,
            spaces: [Ref::NONE; SPACES],
            next_space: 1,
            irqs: Ref::NONE,
            info: Ref::NONE,
            dying: Ref::NONE,
            dying_pages: Ref::NONE,
            given: 0,
            unchecked: 0,
            shares: Shares::new(),
            kept,
        }
    }

    /// Object memory, for the replication part.
    pub const fn memory(&mut self) -> &mut Memory<'m> {
        &mut self.mem
    }

    /// What a copy of this replica has, for the replication part.
    pub const fn kept(&mut self) -> &mut Kept<'m> {
        &mut self.kept
    }

    /// Has `exchange` save or load the floating-point state that the processor holds, if it holds
    /// any.
    pub fn save_fpu(&mut self, exchange: impl FnOnce(&mut Memory<'_>, Ref)) {
        if let Some(tcb) = self.fpu.some() {
            exchange(&mut self.mem, tcb);
        }
    }

    /// Bytes of object memory, from its beginning, that were ever given out: all that a copy needs.
    #[must_use]
    pub const fn given(&self) -> u64 {
        self.given
    }

    /// The running thread, if any.
    #[must_use]
    pub const fn current(&self) -> Option<Ref> {
        self.current.some()
    }
}
