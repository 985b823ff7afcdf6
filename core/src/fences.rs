//! Who sees to it that a ring is not missed by one that falls asleep.
//!
//! Who rings stores its bell and then looks who sleeps; who sleeps stores that it does and then
//! looks at the bell. A processor may do a store after a look that follows it, and if both did,
//! nobody would wake the sleeper (Dekker's problem). A fence on each side forbids that. But one
//! rings with each record and seldom sleeps, and a fence waits until the store has the other core's
//! line. Where the host has a barrier that reaches all cores on which others run (Linux's
//! `membarrier`), the sleeper issues that, and who rings needs no fence.
//!
//! That is for the stream alone, whose followers seldom sleep. Who arrives at a rendezvous waits
//! next, and fences in any case: if it looked for the others before its own arrival is seen, it
//! would fetch lines that they are about to write; and those who sleep at a vote need no barrier.
//!
//! Contract: with [`Fences::Sleepers`] each who sleeps for
//! [what is on the stream](crate::WaitFor::is_on_stream) passes such a barrier to
//! [`Outbox::begin_sleep`](crate::Outbox::begin_sleep), and sleeps for a bounded time in any case.

use core::hint::cold_path;

use crate::primitive::{Ordering, compiler_fence, fence};

/// Who issues the fence between a store and the look that follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fences {
    /// Who rings and who sleeps, each its own.
    #[default]
    Each,
    /// Who sleeps, for both.
    Sleepers,
}

impl Fences {
    /// Between a ring and the look who sleeps.
    #[inline(always)]
    pub(crate) fn after_ring(self) {
        if self == Self::Each {
            // Told apart at the call: where sleepers fence, that is not on the way.
            cold_path();
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }
}
