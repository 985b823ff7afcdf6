//! Threads that wait at futexes in shared memory.
//!
//! One list for all processes, in each slice. It changes only in turns, so it is alike in all
//! slices. A woken waiter stays on the list, marked, until its own process takes it off.

/// Most waiters at a time.
const MOST: usize = 8192;

/// What a waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WaiterKind {
    /// To be woken.
    Futex = 0,
    /// To be given a lock (priority inheritance).
    Lock = 1,
}

/// A thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Waiter {
    /// The futex: its place in the slice.
    pub key: u64,
    /// Which wakers are meant.
    pub bits: u32,
    /// The waiting thread's id.
    pub tid: u32,
    /// Its group.
    pub group: u32,
    /// Its number within the group.
    pub slot: u32,
    /// [`WaiterKind`].
    kind: u32,
    /// 1 once it was woken.
    woken: u32,
}

impl Waiter {
    const NONE: Self = Self {
        key: 0,
        bits: 0,
        tid: 0,
        group: 0,
        slot: 0,
        kind: 0,
        woken: 0,
    };

    /// A thread that begins to wait.
    #[must_use]
    pub const fn new(kind: WaiterKind, key: u64, bits: u32, tid: u32, who: (u32, u32)) -> Self {
        Self {
            key,
            bits,
            tid,
            group: who.0,
            slot: who.1,
            kind: kind as u32,
            woken: 0,
        }
    }

    /// Was it woken?
    #[must_use]
    pub const fn is_woken(&self) -> bool {
        self.woken != 0
    }

    fn waits_at(&self, kind: WaiterKind, key: u64, bits: u32) -> bool {
        self.woken == 0 && self.kind == kind as u32 && self.key == key && self.bits & bits != 0
    }
}

/// The list, who waited longest first.
#[repr(C)]
#[derive(Debug)]
pub struct Waiters {
    count: u64,
    list: [Waiter; MOST],
}

impl Waiters {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            count: 0,
            list: [Waiter::NONE; MOST],
        }
    }

    fn len(&self) -> usize {
        usize::try_from(self.count).map_or(MOST, |count| count.min(MOST))
    }

    /// Puts a waiter at the end; false if there is no room.
    #[must_use]
    pub fn add(&mut self, waiter: Waiter) -> bool {
        let len = self.len();
        let Some(place) = self.list.get_mut(len) else {
            return false;
        };
        *place = waiter;
        self.count = len as u64 + 1;
        true
    }

    /// Wakes up to `most` waiters of a futex, and tells of each.
    pub fn wake(&mut self, key: u64, most: u64, bits: u32, mut tell: impl FnMut(&Waiter)) -> u64 {
        let mut woken = 0;
        let len = self.len();
        for waiter in &mut self.list[..len] {
            if woken < most && waiter.waits_at(WaiterKind::Futex, key, bits) {
                waiter.woken = 1;
                tell(waiter);
                woken += 1;
            }
        }
        woken
    }

    /// Moves up to `most` waiters of a futex to another, behind those who wait there.
    pub fn requeue(&mut self, from: u64, to: u64, most: u64) -> u64 {
        let mut moved = 0;
        let mut left = self.len();
        let mut at = 0;
        while from != to && moved < most && left > 0 {
            left -= 1;
            if self.list[at].waits_at(WaiterKind::Futex, from, u32::MAX) {
                let waiter = Waiter {
                    key: to,
                    ..self.list[at]
                };
                self.remove(at);
                let _ = self.add(waiter);
                moved += 1;
            } else {
                at += 1;
            }
        }
        moved
    }

    /// Wakes the next waiter of a lock, to own it; returns its thread id and whether more wait.
    pub fn next_owner(&mut self, key: u64, tell: impl FnOnce(&Waiter)) -> Option<(u32, bool)> {
        let len = self.len();
        let mut all = self.list[..len].iter_mut();
        let next = all.find(|it| it.waits_at(WaiterKind::Lock, key, u32::MAX))?;
        next.woken = 1;
        tell(next);
        let tid = next.tid;
        let more = all.any(|it| it.waits_at(WaiterKind::Lock, key, u32::MAX));
        Some((tid, more))
    }

    /// Goes through a group's waiters and takes those off that are not to be kept.
    pub fn review(&mut self, group: u32, mut keep: impl FnMut(&Waiter) -> bool) {
        let mut at = 0;
        while at < self.len() {
            if self.list[at].group == group && !keep(&self.list[at]) {
                self.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn remove(&mut self, at: usize) {
        let len = self.len();
        self.list.copy_within(at + 1..len, at);
        self.count = len as u64 - 1;
    }
}

impl Default for Waiters {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    fn waiting(keys: &[u64]) -> Box<Waiters> {
        let mut waiters = Box::new(Waiters::new());
        for (slot, key) in (0..).zip(keys) {
            let waiter = Waiter::new(
                WaiterKind::Futex,
                *key,
                1 << slot,
                100 + slot,
                (slot % 2, slot),
            );
            assert!(waiters.add(waiter));
        }
        waiters
    }

    fn woken(waiters: &mut Waiters, key: u64, most: u64, bits: u32) -> Vec<u32> {
        let mut slots = Vec::new();
        let count = waiters.wake(key, most, bits, |it| slots.push(it.slot));
        assert_eq!(count, slots.len() as u64);
        slots
    }

    #[test]
    fn who_waited_longest_is_woken_first_and_once() {
        let mut waiters = waiting(&[64, 64, 68, 64]);
        assert_eq!(woken(&mut waiters, 64, 2, u32::MAX), [0, 1]);
        assert_eq!(woken(&mut waiters, 64, 9, u32::MAX), [3]);
        assert_eq!(woken(&mut waiters, 64, 9, u32::MAX), []);
    }

    #[test]
    fn bits_choose_the_waiters() {
        let mut waiters = waiting(&[64, 64, 64]);
        assert_eq!(woken(&mut waiters, 64, 9, 0b110), [1, 2]);
    }

    #[test]
    fn moved_waiters_stand_behind_those_of_the_other_futex() {
        let mut waiters = waiting(&[64, 68, 64, 64]);
        assert_eq!(waiters.requeue(64, 68, 2), 2);
        assert_eq!(woken(&mut waiters, 64, 9, u32::MAX), [3]);
        assert_eq!(woken(&mut waiters, 68, 2, u32::MAX), [1, 0]);
        assert_eq!(waiters.requeue(68, 68, 9), 0);
    }

    #[test]
    fn a_lock_is_handed_to_one() {
        let mut waiters = waiting(&[64]);
        for slot in [1, 2] {
            let waiter = Waiter::new(WaiterKind::Lock, 64, u32::MAX, 100 + slot, (0, slot));
            assert!(waiters.add(waiter));
        }
        assert_eq!(waiters.next_owner(64, |_| {}), Some((101, true)));
        assert_eq!(waiters.next_owner(64, |_| {}), Some((102, false)));
        assert_eq!(waiters.next_owner(64, |_| {}), None);
    }

    #[test]
    fn a_group_takes_its_own_waiters_off() {
        let mut waiters = waiting(&[64, 64, 64, 64]);
        waiters.wake(64, 2, u32::MAX, |_| {});
        let mut seen = Vec::new();
        waiters.review(0, |it| {
            seen.push((it.slot, it.is_woken()));
            !it.is_woken()
        });
        assert_eq!(seen, [(0, true), (2, false)]);
        assert_eq!(woken(&mut waiters, 64, 9, u32::MAX), [2, 3]);
    }

    #[test]
    fn there_is_an_end_to_waiters() {
        let mut waiters = Box::new(Waiters::new());
        let waiter = Waiter::new(WaiterKind::Futex, 64, 1, 1, (0, 0));
        assert_eq!((0..MOST + 1).filter(|_| waiters.add(waiter)).count(), MOST);
    }
}
