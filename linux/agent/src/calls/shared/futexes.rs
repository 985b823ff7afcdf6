//! Futexes in memory that processes share.
//!
//! A futex is its place in the slice, so it is the same at every address and in every process. Who
//! waits there stands in the slice's books. Waking marks a waiter; its own process takes it off the
//! list, at once if the waker is of the same process, else when it has its next turn.

use rcoe_linux_abi::arena::{Books, Waiter, WaiterKind};

use crate::convert;
use crate::kernel::Kernel;
use crate::memory::regions;
use crate::sched::threads::{Cause, Next};
use crate::sched::turns;

fn own_group() -> u32 {
    convert::low32(regions::own_group() as u64)
}

/// The running thread begins to wait; false if there is no room for it. It is on the list only
/// while it waits: a program that does not run in turns gives the turn back at once, and then those
/// are taken off who wait no more.
pub(crate) fn park(
    kernel: &mut Kernel,
    kind: WaiterKind,
    key: u64,
    bits: u32,
    deadline: u64,
) -> bool {
    let slot = convert::low32(kernel.threads.current_slot() as u64);
    let tid = kernel.threads.current().tid;
    turns::with_books(kernel, |kernel, books| {
        review(kernel, books);
        let waiter = Waiter::new(kind, key, bits, tid, (own_group(), slot));
        let added = books.waiters.add(waiter);
        kernel.shared.waiting |= added;
        if added {
            kernel.threads.park_at(Cause::Shared, key, bits, deadline);
        }
        added
    })
}

/// Wakes up to `most` waiters; returns how many.
pub(crate) fn wake(kernel: &mut Kernel, key: u64, most: u64, bits: u32) -> u64 {
    turns::with_books(kernel, |kernel, books| {
        review(kernel, books);
        let tell = |waiter: &Waiter| tell(kernel, waiter);
        let woken = books.waiters.wake(key, most, bits, tell);
        review(kernel, books);
        woken
    })
}

/// Moves up to `most` waiters to another futex; returns how many.
pub(crate) fn requeue(kernel: &mut Kernel, from: u64, to: u64, most: u64) -> u64 {
    turns::with_books(kernel, |kernel, books| {
        review(kernel, books);
        books.waiters.requeue(from, to, most)
    })
}

/// Takes the next waiter of a lock off its wait; returns its thread id, and whether more wait.
pub(crate) fn next_owner(kernel: &mut Kernel, key: u64) -> Option<(u32, bool)> {
    turns::with_books(kernel, |kernel, books| {
        review(kernel, books);
        let next = books.waiters.next_owner(key, |waiter| tell(kernel, waiter));
        review(kernel, books);
        next
    })
}

fn tell(kernel: &Kernel, waiter: &Waiter) {
    if waiter.group != own_group() {
        turns::rouse(kernel, waiter.group);
    }
}

/// In a turn: lets own threads go on that were woken, and takes those off the list that wait no
/// more, because a signal or a deadline has ended their wait.
pub(crate) fn review(kernel: &mut Kernel, books: &mut Books) {
    if !kernel.shared.waiting {
        return;
    }
    let mut left = false;
    let threads = &mut kernel.threads;
    books.waiters.review(own_group(), |waiter| {
        let slot = waiter.slot as usize;
        let thread = threads.at(slot);
        let waits =
            thread.tid == waiter.tid && thread.is_waiting() && thread.wait.cause == Cause::Shared;
        let keep = waits && !waiter.is_woken();
        if waits && !keep {
            threads.wake(slot, Next::Return(0));
        }
        left |= keep;
        keep
    });
    kernel.shared.waiting = left;
}
