//! Real programs that are stopped at real states.

mod harness;
mod loops;
mod made;
mod programs;
mod stops;
mod words;
