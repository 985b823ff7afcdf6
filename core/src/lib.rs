//! The replication protocol of rcoe: trace, rendezvous, results stream, vote, membership.
//!
//! 1. *Sans-I/O.* Shared memory is handed in as [`Port`]s; time, waiting and waking are the trait
//!    [`Env`]. Nothing here knows Linux, QEMU or a page table.
//! 2. *Single writer.* A replica writes its own [`Outbox`] and ring only. No shared
//!    read-modify-write, no lock.
//! 3. *Distrust.* Whatever comes from a peer is checked before it is used; garbage is a divergence,
//!    never a panic, an endless loop or an index out of bounds in a healthy replica.
//! 4. *Explicit machines.* Every blocking call is a [`Call`] that [`Node::step`] advances, so that
//!    agent, simulator and model checker run the same code.
//! 5. *Bounded.* Every step, buffer and number of attempts has an upper bound.
//!
//! The papers are "RCoE" (DSN'19) and the replicated microkernel before it (EDCC'15). What this
//! crate is not: it copies no memory, kills no process and measures no time.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "shuttle"))]
extern crate std;

mod action;
mod admission;
mod ballot;
pub mod baton;
mod behind;
mod compare;
pub mod counted;
pub mod coupling;
pub mod diagnose;
mod evidence;
mod fences;
mod guards;
mod halt;
mod ids;
mod laggards;
mod majority;
mod node;
mod outbox;
mod outcome;
mod pair;
pub mod portions;
mod posts;
pub mod primitive;
mod prompt;
mod recorder;
mod rendezvous;
mod replica;
mod ring;
mod stream;
mod trace;
mod vote;
mod word;

pub use compare::Compare;
pub use fences::Fences;
pub use guards::{Bug, Guards};
pub use halt::{Cause, Halt, HaltState};
pub use ids::{MAX_REPLICAS, ReplicaId, ReplicaSet};
pub use node::{Await, Call, Done, Node, Ports, Step, WaitFor};
pub use outbox::{FINGERPRINT, Outbox, SNAPSHOT_WORDS, Snapshot, snapshot};
pub use outcome::SPURIOUS_LIMIT;
pub use posts::POSTS;
pub use prompt::Meeting;
pub use recorder::{RECORDED, WIDE};
pub use replica::{ActionSet, Consumed, Env, Placed, Replica, Wait, Waited};
pub use ring::{Checksum, HEADER, MAX_RECORD, Place, Port, SUM_LANES};
pub use trace::{Kind, Signature, Trace, digest, mix, words};
