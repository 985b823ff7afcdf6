//! Simulation and model check of [`rcoe_core::coupling`]: replicas that are interrupted anywhere
//! agree on a point.
//!
//! * [`vm`]: what the replicas run.
//! * [`group`]: a group as a value, and one move of one replica.
//! * [`fault`]: what goes wrong in one of them.
//! * [`check`]: what must hold.
//! * [`random`]: runs that are a function of a seed.
//! * [`model`]: all schedules of one attempt.
//!
//! Calls of the program are events and nothing else here: their results need no stream.

pub mod check;
pub mod fault;
pub mod group;
pub mod model;
pub mod random;
pub mod vm;
