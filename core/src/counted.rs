//! Programs whose instructions or branches are counted: how one is stopped at a place that another
//! replica is at (DSN'19, III-C).
//!
//! A place is a count and an instruction pointer. [`Run`] is one way to a place, as decisions: at
//! how many the counter is to interrupt, and whether a breakpoint is next. [`pmu`] is the counter
//! of branches that x86-64's processors have, without the instructions that reach it. [`Clocked`]
//! is for a count that interrupts nobody: when it is looked at.
//!
//! What is not here: who is to go where ([`crate::coupling`]), and what a breakpoint is.

mod clocked;
pub mod pmu;
mod run;

pub use clocked::Clocked;
pub use run::{Aim, Approach, Nature, Run, Way};
