//! Are replicas in one state wherever they have agreed that they are? An observer looks.
//!
//! Many programs run with points between calls (`rcoe run --slice`), and each point that their
//! replicas agree on is verified from outside, with nothing of rcoe's: all stand still, and their
//! registers and all of their private memory are compared.
//!
//! Contract: the program that runs is rcoe as it is; nothing in it helps the observer. What a
//! replica holds for itself, the agent's range, is not compared.

pub mod compare;
pub mod observer;
pub mod programs;
pub mod report;
pub mod symbols;
pub mod verify;
