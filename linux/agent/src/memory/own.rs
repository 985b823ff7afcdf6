//! Where one replica's own state stands.
//!
//! Healthy replicas have the same in memory at the same point of the trace, byte for byte, the
//! agent's statics and the program's registers among it. What is a replica's own, and may differ,
//! stands in one range: the protocol's private state, whose parts that matter are compared in every
//! vote; the record being read; what a primary alone keeps, and can find out again; who this
//! replica is; the stacks, below the program's registers.
//!
//! Contract: whether memory is compared and repaired follows from where it stands. A static of
//! which replicas have different content goes into the section `.bss.own.1` (a few words into
//! `.bss.own.1.small`, beside others that are written), or into `.bss.own.2` if a child and a copy
//! begin with zeroes instead; a field of the agent's state goes behind the
//! mark in [`Kernel`]. All else must be alike, and a test knows its names.

use crate::arch::entry::{TrapFrame, stack_range};
use crate::kernel::Kernel;

/// Start and end of what is one replica's own.
pub(crate) fn range(kernel: &Kernel) -> (u64, u64) {
    let (_, top) = stack_range();
    let registers = size_of::<TrapFrame>() as u64;
    (kernel.own_begins(), top - registers)
}
