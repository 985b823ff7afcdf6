//! Breakpoints of the processor, before whose instruction the host stops the thread that set one.
//!
//! Nothing in memory is changed for it, and nobody can read that there is one. Each visit costs an
//! exception and a signal.
//!
//! Contract: who sets a breakpoint takes the signal SIGTRAP that says so ([`TRAP_PERF`]), and goes
//! on behind it by the resume flag, which the host sets in the registers that it saves.
//!
//! Not covered: hosts that offer none, as containers that refuse `perf_event_open`; processors have
//! four, which others may use up.

use rcoe_linux_sys::perf::Attributes;

use crate::sys::Errno;
use crate::sys::perf::{close_own, enable, open};

/// What the signal of a breakpoint has for a code.
pub(crate) const TRAP_PERF: i32 = 6;

/// A signal comes before the thread goes on.
const SIGNAL: u64 = 1 << 37;

/// One that stands.
#[derive(Debug)]
pub(crate) struct Breakpoint(u64);

impl Breakpoint {
    /// Stops this thread before the instruction there from now on.
    ///
    /// # Errors
    /// The host or the processor has none.
    pub(crate) fn set(at: u64) -> Result<Self, Errno> {
        let attributes = Attributes {
            kind: Attributes::BREAKPOINT,
            size: Attributes::BYTES,
            period: 1,
            flags: Attributes::OF_USER | Attributes::REMOVE_ON_EXEC | SIGNAL,
            breakpoint: Attributes::EXECUTION,
            address: at,
            len: size_of::<usize>() as u64,
            ..Attributes::default()
        };
        open(&attributes).map(Self)
    }

    /// Takes it away, also from those who have inherited the descriptor.
    pub(crate) fn remove(self) {
        let Self(fd) = self;
        enable(fd, false);
        close_own(fd);
    }
}
