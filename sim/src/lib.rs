//! Simulation and model checking of the replication protocol, over the very step machines that
//! replicas run.
//!
//! * [`random`]: one seed gives program, schedule and fault of one run; checkers look after every
//!   step.
//! * [`model`]: all schedules of a short program with one fault at any step, each state visited
//!   once.
//! * [`portions`]: copies in portions, under programs that write and bits that flip.
//! * [`counted`]: a program that is counted is stopped at a place, by a scripted counter.
//! * [`turns`]: all schedules of replicas of which one runs at a time, with one fault.
//! * `tests/schedules.rs`: the same code on shuttle's atomics, for what a step's granularity hides.
//! * `tests/planted.rs`: each guard of the protocol taken away in turn; one of the above must
//!   notice.
//! * `tests/reintegration.rs`: the model check of groups that have lost a replica and get it back,
//!   with one fault more.
//! * `tests/deferred.rs`: the model check of groups that defer effects, with all moments at
//!   which the primary may release them.
//! * `tests/reading.rs`: the model check of groups whose replicas read a file by themselves, which
//!   somebody may change at any moment.
//!
//! Not covered: two faults at once otherwise, memory orders weaker than sequential consistency, and
//! everything a sphere adds.

#![forbid(unsafe_code)]
#![cfg(not(feature = "shuttle"))]

pub mod check;
pub mod counted;
pub mod coupled;
pub mod deferred;
pub mod fault;
pub mod group;
pub mod model;
pub mod portions;
pub mod process;
pub mod program;
pub mod random;
pub mod reading;
pub mod rng;
pub mod supervisor;
pub mod turns;
