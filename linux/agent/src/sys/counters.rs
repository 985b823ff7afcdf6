//! A counter of the processor for what this thread executes outside of the kernel.
//!
//! Contract: it counts all the time from [`Counter::start`] on, or says that it has not.
//!
//! Not covered: hosts that offer none, as most virtual machines and containers.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::perf::{Attributes, complete};
use rcoe_linux_sys::syscall3;

use crate::sys::perf::{close_own, enable, open};
use crate::sys::{Errno, check};

/// One that counts, by its descriptor, which is never 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(pub(crate) u64);

impl Counter {
    /// Counts events of this type and number from here on; of breakpoints the number is an address.
    ///
    /// # Errors
    /// The host or the processor has none.
    pub(crate) fn start(kind: u32, event: u64) -> Result<Self, Errno> {
        let mut attributes = Attributes::counter(kind, event);
        attributes.flags |= Attributes::REMOVE_ON_EXEC;
        let fd = open(&attributes)?;
        enable(fd, true);
        Ok(Self(fd))
    }

    /// Does it count how often one instruction is executed?
    pub(crate) const fn is_of_instruction(kind: u32) -> bool {
        kind == Attributes::BREAKPOINT
    }

    /// What it has counted; `None` if it has missed something.
    pub(crate) fn read(self) -> Option<u64> {
        let mut words = [0_u64; 3];
        let bytes = size_of_val(&words) as u64;
        let at = words.as_mut_ptr() as u64;
        // SAFETY: there is room for the words.
        let read = unsafe { syscall3(u64::from(nr::__NR_read), self.0, at, bytes) };
        (check(read) == Ok(bytes))
            .then(|| complete(words))
            .flatten()
    }

    /// Gives it back.
    pub(crate) fn stop(self) {
        enable(self.0, false);
        close_own(self.0);
    }
}
