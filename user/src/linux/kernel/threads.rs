//! Threads of the program, as the microkernel has them.
//!
//! A thread is made when it is needed first, and stays for another one that needs it later. All
//! tell their calls and faults to the one endpoint, by badges that say which one it is.

use rcoe_abi::service::SLOT_CNODE;
use rcoe_abi::{Error, ObjectType, Rights, ThreadFlags};

use super::{BUFFER, ENDPOINT, Kernel, TABLE, THREAD};
use crate::linux::arch::{CALL_WORDS, FLOAT_WORDS};
use crate::linux::machine::Machine as _;
use crate::linux::threads::THREADS;
use crate::make;
use crate::object::{self, Outcome};

/// Priority of threads: as any program's.
const PRIORITY: u64 = 20;
/// Where the table of threads has the first one's handler, and the badge of that.
const HANDLER: u64 = 1;
const BADGE: u64 = 1;

/// The address spaces of threads that are made.
#[derive(Debug)]
pub(super) struct Made([Option<usize>; THREADS]);

impl Default for Made {
    fn default() -> Self {
        Self([None; THREADS])
    }
}

/// Makes what all threads share.
pub(super) fn prepare() -> Outcome {
    let made = make(ObjectType::Endpoint, ENDPOINT) && make(ObjectType::Frame, BUFFER);
    if made {
        Ok(())
    } else {
        Err(Error::NotEnoughMemory)
    }
}

const fn slot(thread: usize) -> u64 {
    THREAD + thread as u64
}

impl Made {
    /// Makes a thread of an address space, which has a number and a pointer, with the
    /// floating-point state of another thread, unless it is that itself: of the memory that is kept
    /// if there is no other.
    pub(super) fn make(
        &mut self,
        thread: usize,
        like: usize,
        (space, pointer): (usize, u64),
        kept: u64,
    ) -> bool {
        let made = match self.0[thread] {
            None => build(thread, pointer, kept),
            Some(had) if had == space => Ok(()),
            Some(_) => place(thread, pointer),
        };
        if made.is_err() {
            return false;
        }
        self.0[thread] = Some(space);
        thread == like || object::copy_floats(slot(thread), slot(like)).is_ok()
    }
}

/// Has a thread run in an address space, where it goes on the next time.
fn place(thread: usize, space: u64) -> Outcome {
    let handler = HANDLER + thread as u64;
    object::configure(slot(thread), TABLE, space, BUFFER, handler)
}

fn build(thread: usize, space: u64, kept: u64) -> Outcome {
    let (tcb, number) = (slot(thread), thread as u64);
    if !make(ObjectType::Tcb, tcb) {
        object::retype(kept, ObjectType::Tcb, 0, SLOT_CNODE, tcb, 1)?;
    }
    let (handler, badge) = (HANDLER + number, BADGE + number);
    let sender = Rights::WRITE.or(Rights::GRANT);
    object::mint(TABLE, handler, ENDPOINT, sender, badge)?;
    place(thread, space)?;
    object::set_priority(tcb, PRIORITY)?;
    object::set_flags(tcb, ThreadFlags::CALLS_ARE_FAULTS)
}

pub(super) fn go(thread: usize, registers: &[u64; CALL_WORDS]) {
    let goes = object::write_context(slot(thread), registers);
    assert!(goes.is_ok(), "a thread that is made can go on");
}

pub(super) fn set_pointers(thread: usize, pointers: [u64; 2]) -> bool {
    object::write_pointers(slot(thread), pointers).is_ok()
}

pub(super) fn floats(thread: usize) -> [u64; FLOAT_WORDS] {
    let mut floats = [0; FLOAT_WORDS];
    let read = object::read_floats(slot(thread), &mut floats);
    assert!(read.is_ok(), "a thread that is made has that state");
    floats
}

pub(super) fn set_floats(thread: usize, floats: &[u64; FLOAT_WORDS]) -> bool {
    object::write_floats(slot(thread), floats).is_ok()
}

/// The thread that a message is from, by its badge.
#[must_use]
pub fn thread_of(badge: u64) -> usize {
    usize::try_from(badge.wrapping_sub(BADGE)).unwrap_or(0)
}

impl Kernel {
    /// Has the program begin, with its first thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin(&mut self, entry: u64, stack: u64) -> Outcome {
        if !self.make_thread(0, 0) {
            return Err(Error::NotEnoughMemory);
        }
        object::write_registers(slot(0), entry, stack, [0; 2])?;
        object::resume(slot(0))
    }
}
