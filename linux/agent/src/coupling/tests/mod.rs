//! Real programs that are stopped at real states.

mod harness;
mod programs;
mod stops;
mod words;
