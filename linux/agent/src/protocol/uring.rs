//! Calls of which the kernel itself keeps the result.
//!
//! A primary that is killed at the end of a system call takes the result with it: nobody can tell
//! whether the message went out. Through an io_uring the kernel notes the result in the completion
//! queue before it comes back to the caller, or to the caller's death. The queues lie in the
//! replica's region, so a successor reads there what the lost primary could not tell any more.
//!
//! Contract: a replica makes its ring when it first needs one as primary, and alone submits to it,
//! one request at a time, under the name of the effect. A request that is still in the queue at its
//! death was never begun; one that was begun has an entry, because the death of a process waits for
//! its requests; `-ECANCELED` and `-EINTR` say that nothing happened. No request waits for its
//! file, so none is left to happen later. The ring is known to its task alone and has no
//! descriptor, so there is nothing that the program could see or close, or that a lost replica
//! could leave behind. The kernel takes a ring apart some time after its task is gone and writes to
//! the queues once more; so the next ring of a replica of the same number has other pages.
//!
//! Not covered: hosts that refuse io_uring, or that have no such rings in memory of the caller's
//! choice (before Linux 6.5). The calls are then made directly, and a loss in the
//! midst of one stops the group.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::errno::{EAGAIN, EBUSY, ECANCELED, EINTR};
use linux_raw_sys::io_uring::{
    IORING_ENTER_GETEVENTS, IORING_ENTER_REGISTERED_RING, IORING_SETUP_NO_MMAP,
    IORING_SETUP_REGISTERED_FD_ONLY, io_uring_params,
};
use rcoe_core::ReplicaId;
use rcoe_linux_abi::{QUEUES_BYTES, RingNote};

use crate::arch::rseq::{self, ALTERED, DISTURBED, Words};
use crate::convert::low32;
use crate::memory::regions;
use crate::sys::{self, rings};

/// Requests in the submission queue; there is never more than one.
const ENTRIES: u64 = 4;
/// How often a request that was interrupted before it did anything is made again.
const ATTEMPTS: u32 = 1000;

/// How often the queue is looked at for the answer to a request that never waits long.
const MOST_LOOKS: u32 = 1 << 24;

/// A submission entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    pub(crate) operation: u8,
    flags: u8,
    priority: u16,
    pub(crate) fd: i32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) op_flags: u32,
    name: u64,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<Request>() == 64);

impl Request {
    /// An operation by its number in the kernel's interface, on a descriptor.
    pub(crate) fn new(operation: u32, fd: u64) -> Self {
        Self {
            operation: u8::try_from(operation).expect("operations are few"),
            fd: low32(fd).cast_signed(),
            ..Self::default()
        }
    }
}

/// A completion entry.
#[repr(C)]
struct Completion {
    name: AtomicU64,
    result: AtomicU32,
    flags: AtomicU32,
}

/// The ring of this replica, of which only a primary makes one.
pub(crate) struct Ring {
    /// Its number among the task's rings, if there is one.
    number: Option<u32>,
    /// The host has none to give.
    refused: bool,
    /// Operations that the host knows, one bit each.
    known: u64,
    queues: Queues,
}

/// Where the queues lie, and offsets within them.
#[derive(Clone, Copy)]
struct Queues {
    base: u64,
    submission_head: u32,
    submission_tail: u32,
    submission_mask: u32,
    array: u32,
    completion_head: u32,
    completion_tail: u32,
    completions: u32,
    count: u32,
}

/// A word of queues at `base`.
fn word(base: u64, offset: u32) -> &'static AtomicU32 {
    assert!(u64::from(offset) + 4 <= QUEUES_BYTES as u64 && offset.is_multiple_of(4));
    // SAFETY: regions are mapped for good, and a page of each is for the queues.
    unsafe { &*((base + u64::from(offset)) as *const AtomicU32) }
}

impl Ring {
    pub(crate) const NONE: Self = Self {
        number: None,
        refused: false,
        known: 0,
        queues: Queues {
            base: 0,
            submission_head: 0,
            submission_tail: 0,
            submission_mask: 0,
            array: 0,
            completion_head: 0,
            completion_tail: 0,
            completions: 0,
            count: 0,
        },
    };

    /// Can a call of this operation be made through the ring? Makes the ring if there is none yet.
    pub(crate) fn offers(&mut self, own: ReplicaId, note: &RingNote, operation: u32) -> bool {
        if self.number.is_none() && !self.refused {
            self.refused = self.make(own, note).is_none();
        }
        self.number.is_some() && self.known >> operation & 1 != 0
    }

    fn make(&mut self, own: ReplicaId, note: &RingNote) -> Option<()> {
        note.count.store(0, Ordering::Release);
        let made = note.made.load(Ordering::Relaxed).wrapping_add(1);
        note.made.store(made, Ordering::Relaxed);
        let base = regions::queues(regions::own_group(), own.index(), made);
        for offset in (0..low32(QUEUES_BYTES as u64)).step_by(4) {
            word(base, offset).store(0, Ordering::Relaxed);
        }
        // SAFETY: integers only, for which zero is a value.
        let mut params: io_uring_params = unsafe { MaybeUninit::zeroed().assume_init() };
        params.flags = IORING_SETUP_NO_MMAP | IORING_SETUP_REGISTERED_FD_ONLY;
        params.cq_off.user_addr = base;
        params.sq_off.user_addr = base + QUEUES_BYTES as u64;
        // SAFETY: the two pages that the parameters name are for this only.
        let number = unsafe { rings::set_up(ENTRIES, &mut params) }?;
        self.number = Some(number);
        self.known = rings::known_operations(number);
        let (submissions, completions) = (&params.sq_off, &params.cq_off);
        self.queues = Queues {
            base,
            submission_head: submissions.head,
            submission_tail: submissions.tail,
            submission_mask: submissions.ring_mask,
            array: submissions.array,
            completion_head: completions.head,
            completion_tail: completions.tail,
            completions: completions.cqes,
            count: params.cq_entries,
        };
        note.tail.store(completions.tail, Ordering::Relaxed);
        note.entries.store(completions.cqes, Ordering::Relaxed);
        note.count.store(params.cq_entries, Ordering::Release);
        Some(())
    }

    /// Makes a call under this name; its result, or `None` if it was not made: the ring is gone.
    /// One that is watched is not made either, and has [`DISTURBED`] as its result, if this
    /// replica was disturbed before the kernel had it.
    pub(crate) fn perform(&mut self, name: u64, request: Request, watched: bool) -> Option<i64> {
        let nothing = [EINTR, ECANCELED].map(sys::error);
        for _ in 0..ATTEMPTS {
            let result = self.submit(Request { name, ..request }, watched)?;
            if !nothing.contains(&result) {
                return Some(result);
            }
        }
        Some(sys::error(EAGAIN))
    }

    fn submit(&mut self, request: Request, watched: bool) -> Option<i64> {
        let (queues, number) = (self.queues, self.number?);
        let word = |offset| word(queues.base, offset);
        let before = word(queues.completion_tail).load(Ordering::Acquire);
        let tail = word(queues.submission_tail).load(Ordering::Relaxed);
        let index = tail & word(queues.submission_mask).load(Ordering::Relaxed);
        assert!(u64::from(index) < ENTRIES);
        let entries = (queues.base + QUEUES_BYTES as u64) as *mut Request;
        let entry = entries.wrapping_add(index as usize);
        // SAFETY: one of the entries in the page after the queues, none of which the kernel reads
        // before the tail moves.
        unsafe { entry.write_volatile(request) };
        word(queues.array + 4 * index).store(index, Ordering::Relaxed);
        word(queues.submission_tail).store(tail.wrapping_add(1), Ordering::Release);
        for _ in 0..MOST_LOOKS {
            let head = word(queues.submission_head).load(Ordering::Acquire);
            let left = tail.wrapping_add(1).wrapping_sub(head);
            let entered = enter(number, left, watched && left != 0);
            if entered == DISTURBED || entered == ALTERED {
                word(queues.submission_tail).store(tail, Ordering::Relaxed);
                return Some(DISTURBED);
            }
            if let Some(result) = self.completion(request.name, before) {
                return Some(result);
            }
            let again = [EINTR, EAGAIN, EBUSY].map(sys::error);
            if entered < 0 && !again.contains(&entered) {
                word(queues.submission_tail).store(tail, Ordering::Relaxed);
                self.number = None;
                return None;
            }
        }
        panic!("the host gives no answer to request {:?}", request);
    }

    /// Takes the entry of this name that has come since the tail was `before`. An earlier request
    /// of the same name has one, too, and this one may have none yet: the wait for it ends with any
    /// signal.
    fn completion(&self, name: u64, before: u32) -> Option<i64> {
        let queues = &self.queues;
        let tail = word(queues.base, queues.completion_tail).load(Ordering::Acquire);
        let (base, newer) = (queues.base, tail.wrapping_sub(before).min(queues.count));
        let found = entry_of(base, queues.completions, queues.count, (tail, newer), name)?;
        word(queues.base, queues.completion_head).store(tail, Ordering::Release);
        Some(found)
    }
}

/// Submits so many requests and waits for a result; if that is watched, only undisturbed.
fn enter(number: u32, submit: u32, watched: bool) -> i64 {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    let words: Words = [
        rings::ENTER,
        u64::from(number),
        u64::from(submit),
        1,
        u64::from(IORING_ENTER_GETEVENTS | IORING_ENTER_REGISTERED_RING),
        0,
        0,
    ];
    // SAFETY: the requests name memory that may be used as their calls say.
    unsafe {
        if watched {
            let agreed = core::hint::black_box(words);
            rseq::call(6, &words, &agreed, &NEVER).result
        } else {
            let [nr, args @ ..] = words;
            rcoe_linux_sys::syscall6(nr, args)
        }
    }
}

/// The last result under this name, among so many of those that the queue still holds, the newest.
fn entry_of(
    base: u64,
    entries: u32,
    count: u32,
    (tail, newest): (u32, u32),
    name: u64,
) -> Option<i64> {
    assert!(u64::from(entries) + 16 * u64::from(count) <= QUEUES_BYTES as u64);
    assert!(newest <= count);
    (1..=newest).find_map(|back| {
        let index = tail.wrapping_sub(back) & (count - 1);
        let address = base + u64::from(entries) + 16 * u64::from(index);
        // SAFETY: within the page of queues, as asserted, and aligned, as all callers see to.
        let entry = unsafe { &*(address as *const Completion) };
        let result = entry.result.load(Ordering::Relaxed).cast_signed();
        (entry.name.load(Ordering::Relaxed) == name).then_some(i64::from(result))
    })
}

/// The record of a lost primary cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable;

/// What the kernel has noted under this name for a lost primary; `None` if nothing, so that nothing
/// happened.
///
/// # Errors
/// [`Unreadable`].
pub(crate) fn look_up(
    note: &RingNote,
    lost: ReplicaId,
    name: u64,
) -> Result<Option<i64>, Unreadable> {
    let count = note.count.load(Ordering::Acquire);
    if count == 0 {
        return Ok(None);
    }
    let tail = note.tail.load(Ordering::Relaxed);
    let entries = note.entries.load(Ordering::Relaxed);
    let end = u64::from(entries) + 16 * u64::from(count);
    let aligned = tail.is_multiple_of(4) && entries.is_multiple_of(8) && count.is_power_of_two();
    let within = |offset: u64| offset <= QUEUES_BYTES as u64;
    if !aligned || !within(end) || !within(u64::from(tail) + 4) {
        return Err(Unreadable);
    }
    let made = note.made.load(Ordering::Relaxed);
    let base = regions::queues(regions::own_group(), lost.index(), made);
    let last = word(base, tail).load(Ordering::Acquire);
    let found = entry_of(base, entries, count, (last, count), name);
    let nothing = [EINTR, ECANCELED].map(sys::error);
    Ok(found.filter(|result| !nothing.contains(result)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_request_of_the_same_name_is_not_this_one() {
        const COUNT: u32 = 4;
        let entry = |name, result: i32| Completion {
            name: AtomicU64::new(name),
            result: AtomicU32::new(result.cast_unsigned()),
            flags: AtomicU32::new(0),
        };
        let queue = [entry(7, -95), entry(8, 1), entry(7, 5), entry(0, 0)];
        let base = queue.as_ptr() as u64;
        let found = |tail, newest| entry_of(base, 0, COUNT, (tail, newest), 7);
        assert_eq!(found(2, 0), None, "nothing has come since");
        assert_eq!(found(2, 1), None, "what has come is another's");
        assert_eq!(found(3, 1), Some(5));
        assert_eq!(found(2, 2), Some(-95), "a successor asks for all");
    }
}
