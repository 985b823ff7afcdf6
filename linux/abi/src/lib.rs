//! The memory layout that the supervisor and the agents of one replicated program share.
//!
//! Intuition: every party owns exactly one memory object that it alone writes and all others map
//! read-only. The supervisor's is [`Control`]; replica *i*'s is its *replica region*, which holds a
//! [`Report`], the protocol core's outbox, and the results ring. Every process of the program is a
//! group of replicas with controls and regions of its own, at fixed places in the same objects.
//! Nobody ever takes a lock that another party holds, and a wild store of one replica cannot change
//! what another relies on (`DESIGN.md`, section 3).
//!
//! Contract: all-zero memory is a valid initial state of each object. [`LAYOUT_VERSION`] is
//! written by the supervisor and checked by the agent, so that a stale agent image refuses to run.
//!
//! Not covered here: what the words of the outbox mean (see `rcoe-core`).
#![no_std]
#![forbid(unsafe_code)]

pub mod arena;
mod control;
pub mod event;
mod jobs;
mod journal;
mod layout;
pub mod limits;
mod notebook;
mod order;
mod report;
mod request;
pub mod scene;
mod starvation;
mod usage;
mod will;

pub use control::{
    Adoption, CLOCK_CALLS, CLOCK_VDSO, Control, GATE_CLOSED, GATE_OPEN, Queued, ReplicaState,
    SIGNAL_SLOTS,
};
pub use jobs::{Job, JobState, Terminal, Terminals};
pub use journal::{EffectId, EffectNote, Journal, Noted, RingNote};
pub use layout::{
    AGENT_BASE, AGENT_BOOTSTRAP, AGENT_END, AGENT_TEXT, BOARD_OFFSET, BOARD_SHAPE, CONTROL_ADDR,
    CONTROL_BYTES, GROUPS, INTAKE_BYTES, INTAKE_OFFSET, LAYOUT_VERSION, MAX_REPLICAS,
    NOTEBOOK_BYTES, NOTEBOOK_OFFSET, OBJECT_BYTES, OUTBOX_OFFSET, PAGE, PAGE_BYTES, QUEUES_BYTES,
    QUEUES_OFFSET, QUEUES_SLOTS, REGION_BYTES, REGION_STRIDE, RING_OFFSET, RING_WORDS,
    RSEQ_SIGNATURE, SIG_KICK, control_addr, object_addr, region_addr,
};
pub use notebook::{Notebook, Page};
pub use order::{BLOCKS, Blocks, Order, SCRUB_PAGES, SerialOrder, blocks};
pub use report::{
    ADOPTED, Ending, LENT_WORDS, NOT_COPYABLE, NOTE_SLOTS, Note, OF_OTHER, Phase, REMAP, Report,
    STAT_CLASSES, StatClass, TWIN, TWIN_WANTED,
};
pub use request::{Ask, Doorbell, Letter, NOT_AGREED, NOT_OURS, Record, Request};
pub use starvation::{Look, Starvation};
pub use usage::{USAGE_WORDS, Usage};
pub use will::LastWill;
