//! Cost measurements: what a program pays for being run as replicas.
//!
//! Principles:
//!
//! 1. *Ratios taken in one run.* Each repetition goes through all configurations, native first, in
//!    an order that rotates, and every figure is compared with the native one of the *same*
//!    repetition. Machine load and clock changes thus hit both sides.
//! 2. *Spread.* A figure is a median with its 10 % and 90 % quantiles and the number of
//!    repetitions.
//! 3. *Goals beside measurements.* Each goal of the project is printed with what was measured, met
//!    or not; one without its series is not met. What is written as evidence is what pages show.
//!
//! Not covered: latency of fault detection (see `faultlab/`), and comparison of two revisions.
#![forbid(unsafe_code)]

pub mod births;
pub mod calls;
pub mod client;
pub mod configuration;
pub mod cpu;
pub mod evidence;
mod floor;
pub mod instructions;
pub mod memory;
pub mod prove;
pub mod recovery;
pub mod render;
pub mod sample;
pub mod scrub;
mod server;
pub mod servers;
pub mod service;
pub mod signals;
pub mod slices;
pub mod startup;
pub mod system;
pub mod workshop;
pub mod ycsb;
