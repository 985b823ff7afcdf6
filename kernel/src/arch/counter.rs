//! A counter of what programs execute, as the rest of the kernel has it, whichever it is.
//!
//! Each counts what this core's programs execute, and nothing of the kernel's. Which of them a
//! machine has is found out once, at the start; what follows from how it counts is
//! [`rcoe_core::counted`]'s.

mod compiler;

use rcoe_core::counted::Nature;

use super::Turns;

pub(crate) use compiler::Compiler;

/// A counter of instructions, or of branches.
pub(crate) trait Count: Copy {
    /// What stopping a program by it depends on.
    fn nature(&self) -> Nature;

    /// By what cores take turns: they do if it counts for the machine as a whole.
    fn turns(&self) -> Option<Turns>;

    /// Begins to count on this core.
    fn begin(&mut self);

    /// This is the counter of a copy, which is on another core.
    fn copy(&mut self);

    /// The program is interrupted behind so many counts, or later, as [`Nature::skid`] has it, or
    /// earlier, if so many cannot be counted at once. `None`: it does not have to be.
    fn arm(&mut self, counts: Option<u64>);

    /// Counts of the program since it was armed. Ends the interrupt.
    fn executed(&mut self) -> u64;

    /// The timer's interrupt has come: was it this counter's, and no tick? The next one is not.
    fn took_timer(&mut self) -> bool {
        false
    }
}
