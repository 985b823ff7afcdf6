//! Memory that processes of the program share with each other.
//!
//! Intuition: every replica index has a *slice* of memory of its own. Replica `i` of every process
//! maps shared memory from slice `i`, so it shares with replica `i` of the other processes and with
//! nobody else; the slices stay alike because the processes take turns (see [`Claims`]).
//!
//! A slice begins with whose turn it is ([`Gate`]) and with what is kept about the memory and about
//! who waits in it ([`Books`]). They are written by whoever has the turn in that slice, as the
//! memory itself is. Only the ring of claims and the doorbell, which belong to no slice, are
//! written by replicas of different indices.
//!
//! Contract: all-zero memory is a valid initial state of all of it.

mod claims;
mod pieces;
mod segments;
mod waiters;

use core::sync::atomic::AtomicU32;

pub use claims::Claims;
pub use pieces::{Kind, Piece, Pieces};
pub use segments::{Segment, Segments};
pub use waiters::{Waiter, WaiterKind, Waiters};

use crate::layout::{GROUPS, MAX_REPLICAS};

/// Where every replica sees the ring of claims.
pub const CLAIMS_ADDR: usize = 0x6f21_0000_0000;
/// Bytes of the object before the first slice.
pub const CLAIMS_BYTES: usize = 64 * 1024;
/// Offset of the [`crate::Doorbell`] in the object, in a page of its own.
pub const DOORBELL_OFFSET: usize = 32 * 1024;
/// Where every replica sees slice 0; the others follow at [`SLICE_STRIDE`].
const SLICES_ADDR: usize = 0x6f22_0000_0000;
/// Distance of two slices in the address space, hence the most bytes of one.
pub const SLICE_STRIDE: usize = 7 << 30;
/// Bytes of a slice before its memory for the program.
pub const BOOKS_BYTES: usize = 2 << 20;
/// Offset of [`Books`] in a slice; the [`Gate`] is at 0.
pub const BOOKS_OFFSET: usize = 64 * 1024;
/// A slice with less memory for the program than this is not worth having.
pub const LEAST_SLICE: usize = BOOKS_BYTES + (1 << 20);

const _: () = assert!(size_of::<Claims>() <= DOORBELL_OFFSET);
const _: () = assert!(DOORBELL_OFFSET + 4096 <= CLAIMS_BYTES);
const _: () = assert!(size_of::<Gate>() <= BOOKS_OFFSET);
const _: () = assert!(BOOKS_OFFSET + size_of::<Books>() <= BOOKS_BYTES);
const _: () = assert!(CLAIMS_ADDR + CLAIMS_BYTES <= SLICES_ADDR);
const _: () = assert!(SLICES_ADDR + MAX_REPLICAS * SLICE_STRIDE <= 0x6f30_0000_0000);

/// Address of a slice in every replica.
#[must_use]
pub const fn slice_addr(index: usize) -> usize {
    assert!(index < MAX_REPLICAS);
    SLICES_ADDR + index * SLICE_STRIDE
}

/// Whose turn it is in one slice, and how to reach those who wait for a thread of another process.
#[repr(C)]
#[derive(Debug)]
pub struct Gate {
    /// Low half of the number of the present turn: a futex, waited for with the bit of one's turn.
    pub turn: AtomicU32,
    /// How many sleep on it.
    pub sleepers: AtomicU32,
    /// One for every group.
    pub places: [Place; GROUPS],
}

/// What a group's replica in one slice says of itself.
#[repr(C)]
#[derive(Debug)]
pub struct Place {
    /// How it can be reached while it waits for something outside: [`Place::NOT_IDLE`],
    /// [`Place::POLLS`], [`Place::SLEEPS`] or [`Place::CALLED`].
    pub idle: AtomicU32,
    /// 1 once another process has woken one of its threads: a futex.
    pub woken: AtomicU32,
}

impl Place {
    /// It looks by itself before it waits again.
    pub const NOT_IDLE: u32 = 0;
    /// It waits in a call that a signal ends, which only the supervisor may send.
    pub const POLLS: u32 = 1;
    /// It waits on [`Place::woken`].
    pub const SLEEPS: u32 = 2;
    /// It waits as for [`Place::POLLS`], and the supervisor is to end that.
    pub const CALLED: u32 = 3;
}

/// What is kept about the memory of a slice.
#[repr(C)]
#[derive(Debug)]
pub struct Books {
    /// Which parts of the memory are used, and for what.
    pub pieces: Pieces,
    /// Threads that wait at futexes in it.
    pub waiters: Waiters,
    /// System V segments.
    pub segments: Segments,
}
