//! Real programs that are stopped at real states.

mod harness;
mod loops;
mod programs;
mod stops;
mod words;
