//! What threads wait for, and who is woken by what.
//!
//! Pure bookkeeping on the table of [`crate::sched::threads::Threads`]: the calls decide, this
//! carries out. Who has waited longest is woken first, as on Linux among threads of equal priority.

use linux_raw_sys::errno::ETIMEDOUT;

use crate::sched::threads::{SET_WORDS, State, Threads};
use crate::sys;

/// A deadline that does not come.
pub(crate) const NEVER: u64 = u64::MAX;

/// Why a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cause {
    /// Only a signal ends it.
    Signal,
    /// One of the signals in [`Wait::address`]; the call is then made again, as at the deadline.
    SignalSet,
    /// Nothing but the deadline; the call then succeeds.
    Time,
    /// Nothing but the deadline; the call is then made again.
    Retry,
    /// Descriptors of its call; the call is then made again, and also at the deadline.
    Files,
    /// Another thread wakes it at a futex.
    Futex,
    /// As [`Self::Futex`], for a lock that is handed over (priority inheritance).
    Lock,
    /// A thread of any process wakes it, at a futex or a lock in memory that processes share.
    Shared,
}

/// A wait, present or past.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) cause: Cause,
    /// The call has been parked before.
    pub(crate) parked: bool,
    /// The deadline has passed; the call must not be parked any more.
    pub(crate) expired: bool,
    /// The futex, or a set of signals.
    pub(crate) address: u64,
    /// Which wakers are meant.
    pub(crate) bits: u32,
    /// When it ends by itself: monotonic nanoseconds of the primary's host, or [`NEVER`].
    pub(crate) deadline: u64,
    /// Bytes that earlier parts of this call have sent.
    pub(crate) progress: u64,
    order: u64,
}

impl Wait {
    pub(crate) const NOTHING: Self = Self {
        cause: Cause::Signal,
        parked: false,
        expired: false,
        address: 0,
        bits: 0,
        deadline: 0,
        progress: 0,
        order: 0,
    };

    /// Does only the outside tell when it ends, or may?
    fn is_for_outside(&self) -> bool {
        self.cause == Cause::Files || self.deadline != NEVER
    }
}

/// How a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Its call returns this.
    Return(i64),
    /// Its call is made again.
    Again,
    /// Its call was interrupted by a signal.
    Interrupted,
    /// It was interrupted between calls, and all its registers are its own.
    Resume,
}

impl Threads {
    /// The running thread waits from now on. What is known of earlier waits of the same call
    /// stays.
    pub(crate) fn park(&mut self, cause: Cause, deadline: u64) {
        self.waits += 1;
        let order = self.waits;
        let thread = self.current_mut();
        thread.state = State::Waiting;
        thread.wait.cause = cause;
        thread.wait.parked = true;
        thread.wait.deadline = deadline;
        thread.wait.order = order;
        let outside = thread.wait.is_for_outside();
        self.timed += u64::from(deadline != NEVER);
        self.outside += u64::from(outside);
    }

    /// The running thread waits at a futex.
    pub(crate) fn park_at(&mut self, cause: Cause, address: u64, bits: u32, deadline: u64) {
        self.park(cause, deadline);
        let wait = &mut self.current_mut().wait;
        wait.address = address;
        wait.bits = bits;
    }

    /// A waiting thread goes on like this, when its turn comes.
    pub(crate) fn wake(&mut self, slot: usize, next: Next) {
        let thread = &mut self.slots[slot];
        assert!(thread.is_waiting(), "only who waits is woken");
        thread.next = next;
        thread.state = State::Ready;
        self.timed -= u64::from(thread.wait.deadline != NEVER);
        self.outside -= u64::from(thread.wait.is_for_outside());
        self.queue.push(slot);
    }

    /// The longest waiting thread that `wanted` accepts.
    fn longest(&self, wanted: impl Fn(&Wait) -> bool) -> Option<usize> {
        let waiting = self.slots[..self.used].iter().enumerate();
        waiting
            .filter(|(_, thread)| thread.is_waiting() && wanted(&thread.wait))
            .min_by_key(|(_, thread)| thread.wait.order)
            .map(|(slot, _)| slot)
    }

    fn longest_at(&self, cause: Cause, address: u64, bits: u32) -> Option<usize> {
        self.longest(|wait| wait.cause == cause && wait.address == address && wait.bits & bits != 0)
    }

    /// Wakes up to `most` waiters of a futex; returns how many.
    pub(crate) fn wake_futex(&mut self, address: u64, most: u64, bits: u32) -> u64 {
        let mut woken = 0;
        while woken < most
            && let Some(slot) = self.longest_at(Cause::Futex, address, bits)
        {
            self.wake(slot, Next::Return(0));
            woken += 1;
        }
        woken
    }

    /// Moves up to `most` waiters of a futex to another; returns how many.
    pub(crate) fn move_waiters(&mut self, from: u64, to: u64, most: u64) -> u64 {
        let mut moved = 0;
        while from != to
            && moved < most
            && let Some(slot) = self.longest_at(Cause::Futex, from, u32::MAX)
        {
            self.waits += 1;
            self.slots[slot].wait.address = to;
            self.slots[slot].wait.order = self.waits;
            moved += 1;
        }
        moved
    }

    /// Takes the next waiter of a lock off its wait; returns its slot, and whether more wait.
    pub(crate) fn next_owner(&mut self, address: u64) -> Option<(usize, bool)> {
        let slot = self.longest_at(Cause::Lock, address, u32::MAX)?;
        self.wake(slot, Next::Return(0));
        let more = self.longest_at(Cause::Lock, address, u32::MAX).is_some();
        Some((slot, more))
    }

    /// Slots of the threads that wait for descriptors.
    pub(crate) fn waiting_for_files(&self) -> impl Iterator<Item = usize> {
        let all = self.slots[..self.used].iter().enumerate();
        all.filter(|(_, it)| it.is_waiting() && it.wait.cause == Cause::Files)
            .map(|(slot, _)| slot)
    }

    /// Threads that do not run though they could, or soon can: someone had better give way to them.
    pub(crate) fn held_up(&self) -> u64 {
        self.queue.len as u64 + self.timed
    }

    /// Does anyone wait for something that only the outside tells?
    pub(crate) fn someone_waits_outside(&self) -> bool {
        self.outside > 0
    }

    /// The earliest deadline, or [`NEVER`].
    pub(crate) fn earliest(&self) -> u64 {
        let waiting = self.slots[..self.used].iter().filter(|it| it.is_waiting());
        waiting.map(|it| it.wait.deadline).min().unwrap_or(NEVER)
    }

    /// The descriptors of these threads are ready.
    pub(crate) fn wake_set(&mut self, set: &[u64; SET_WORDS]) {
        for slot in 0..self.used {
            let chosen = set[slot / 64] >> (slot % 64) & 1 != 0;
            let thread = &self.slots[slot];
            if chosen && thread.is_waiting() && thread.wait.cause == Cause::Files {
                self.wake(slot, Next::Again);
            }
        }
    }

    /// Wakes all whose deadline has come, the earliest first.
    pub(crate) fn expire(&mut self, now: u64) {
        loop {
            let due = self.slots[..self.used].iter().enumerate();
            let due = due
                .filter(|(_, it)| it.is_waiting() && it.wait.deadline <= now)
                .min_by_key(|(_, it)| (it.wait.deadline, it.wait.order))
                .map(|(slot, _)| slot);
            let Some(slot) = due else { return };
            let wait = &mut self.slots[slot].wait;
            wait.expired = wait.cause != Cause::Retry;
            let next = match wait.cause {
                Cause::Futex | Cause::Lock | Cause::Shared => Next::Return(sys::error(ETIMEDOUT)),
                Cause::Time => Next::Return(0),
                Cause::Files | Cause::Retry | Cause::Signal | Cause::SignalSet => Next::Again,
            };
            self.wake(slot, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::threads::tests::threads;

    /// Threads 1 to `count` wait at the futex, in this order; the leader runs.
    fn waiters(count: usize, address: u64) -> Threads {
        let mut all = threads(1);
        for _ in 0..count {
            all.spawn().expect("room");
        }
        all.step_back(Next::Return(0));
        for _ in 0..count {
            all.dispatch();
            all.park_at(Cause::Futex, address, u32::MAX, NEVER);
        }
        assert_eq!(all.dispatch(), crate::sched::threads::LEADER);
        all
    }

    #[test]
    fn who_waited_longest_is_woken_first() {
        let mut all = waiters(3, 64);
        assert_eq!(all.wake_futex(68, 9, u32::MAX), 0);
        assert_eq!(all.wake_futex(64, 2, u32::MAX), 2);
        assert_eq!([all.dispatch(), all.dispatch()], [1, 2]);
        assert!(!all.someone_ready());
        assert_eq!(all.wake_futex(64, u64::MAX, u32::MAX), 1);
    }

    #[test]
    fn moved_waiters_are_woken_at_their_new_place() {
        let mut all = waiters(3, 64);
        assert_eq!(all.move_waiters(64, 128, 2), 2);
        assert_eq!(all.wake_futex(64, 9, u32::MAX), 1);
        assert_eq!(all.wake_futex(128, 9, u32::MAX), 2);
        assert_eq!([all.dispatch(), all.dispatch(), all.dispatch()], [3, 1, 2]);
    }

    #[test]
    fn waiters_can_be_told_apart_by_bits() {
        let mut all = waiters(1, 64);
        all.spawn().expect("room");
        all.step_back(Next::Return(0));
        all.dispatch();
        all.park_at(Cause::Futex, 64, 2, NEVER);
        all.dispatch();
        all.get(1).wait.bits = 1;
        assert_eq!(all.wake_futex(64, 9, 2), 1);
        assert_eq!(all.dispatch(), 2);
    }

    #[test]
    fn deadlines_expire_in_their_order() {
        let mut all = waiters(3, 64);
        for (slot, deadline) in [(1, 300), (2, 100), (3, 200)] {
            all.wake(slot, Next::Again);
            all.step_back(Next::Return(0));
            assert_eq!(all.dispatch(), slot);
            all.park_at(Cause::Futex, 64, u32::MAX, deadline);
            assert_eq!(all.dispatch(), crate::sched::threads::LEADER);
        }
        assert_eq!(all.held_up(), 3);
        assert_eq!(all.earliest(), 100);
        assert!(all.someone_waits_outside());
        all.expire(99);
        assert!(!all.someone_ready());
        all.expire(250);
        assert_eq!([all.dispatch(), all.dispatch()], [2, 3]);
        assert_eq!(all.current().next, Next::Return(sys::error(ETIMEDOUT)));
        assert_eq!(all.earliest(), 300);
    }

    #[test]
    fn a_lock_is_handed_to_one() {
        let mut all = waiters(2, 64);
        for slot in [1, 2] {
            all.get(slot).wait.cause = Cause::Lock;
        }
        assert_eq!(all.next_owner(64), Some((1, true)));
        assert_eq!(all.next_owner(64), Some((2, false)));
        assert_eq!(all.next_owner(64), None);
    }
}
