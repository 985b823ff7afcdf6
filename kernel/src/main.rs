//! The replicated microkernel of the system sphere.
//!
//! 1. *Every core runs all of it*: its own copy of this kernel, of the root task and of every
//!    program, in its own partition of memory, at the same virtual addresses.
//! 2. *A replica maps its partition and the shared region, nothing else*, and of the shared region
//!    it may write its own slice only.
//! 3. *What a replica does follows from what it did and from agreed inputs.* Reads of devices come
//!    from the primary through the results stream; interrupts are actions that all perform at one
//!    point of the trace; outputs are voted, then made once, by the primary.
//! 4. *Interrupts are off in the kernel*, which runs from entry to exit; waiting for other replicas
//!    is the one thing that takes long in it.
//!
//! The objects are in `rcoe-kernel-objects`, the protocol in `rcoe-core`; here are the processor
//! (`arch`), the loader, and what ties them together. What this crate is not: it drives no device
//! but interrupt controllers and the replicas' diaries.

#![no_std]
#![no_main]

mod arch;
mod bring_back;
mod config;
mod coupling;
mod diary;
mod env;
mod flip;
mod machine;
mod meter;
mod recorders;
mod report;
mod retrace;
mod sphere;
