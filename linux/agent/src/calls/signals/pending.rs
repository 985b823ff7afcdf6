//! Signals that wait to be taken, each with what its receiver is told of its sender.
//!
//! Intuition: the kernel's two queues, one of the process and one of each thread, as one list in
//! the order of arrival. A signal of the old kind waits at most once, one of the real-time kind as
//! often as it was sent.
//!
//! Contract: a function of the trace alone. The masks beside the list say what is in it; they also
//! hold signals for which it had no room, which come without their sender then, as in the kernel.

use crate::arch::faults::bit;
use crate::arch::frames::SigInfo;
use crate::convert::low32;

/// Signals with information that can wait at a time.
const PLACES: usize = 512;
/// Lowest signal that waits as often as it was sent.
pub(crate) const FIRST_QUEUED: u32 = 32;

pub(crate) use linux_raw_sys::general::SI_TIMER;
/// `si_code`s.
pub(super) use linux_raw_sys::general::SI_TKILL;
pub(super) const SI_USER: i32 = linux_raw_sys::general::SI_USER.cast_signed();

/// Whom a signal was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Whichever thread takes it.
    Program,
    /// The thread in this slot.
    Thread(u16),
}

/// What a receiver is told: the words of `siginfo_t` that mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) signal: u32,
    pub(crate) errno: i32,
    pub(crate) code: i32,
    /// What follows the first sixteen bytes; its meaning is the code's.
    pub(crate) words: [u64; 3],
}

impl Info {
    /// From a process or thread with this id and user, with a value.
    pub(crate) fn sent(signal: u32, code: i32, pid: u32, uid: u32, value: u64) -> Self {
        Self {
            signal,
            errno: 0,
            code,
            words: [u64::from(uid) << 32 | u64::from(pid), value, 0],
        }
    }

    /// As the program's own structure says.
    pub(super) fn of(signal: u32, raw: &SigInfo) -> Self {
        let rest = raw.rest();
        Self {
            signal,
            errno: raw.errno,
            code: raw.code,
            words: [raw.first, rest[0], rest[1]],
        }
    }

    pub(super) fn raw(&self) -> SigInfo {
        SigInfo::with(self.signal, self.errno, self.code, self.words)
    }
}

/// A signal and its target, in words without gaps: replicas are compared byte by byte, and a gap
/// holds whatever lay there before.
#[derive(Clone, Copy)]
struct Entry([u64; 5]);

impl Entry {
    const NONE: Self = Self([0; 5]);

    fn new(info: Info, to: Target) -> Self {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let to = match to {
            Target::Program => 0,
            Target::Thread(slot) => u32::from(slot) + 1,
        };
        let [first, second, third] = info.words;
        let numbers = pair(info.errno.cast_unsigned(), info.code.cast_unsigned());
        Self([pair(info.signal, to), numbers, first, second, third])
    }

    fn info(&self) -> Info {
        let [head, numbers, words @ ..] = self.0;
        Info {
            signal: low32(head),
            errno: low32(numbers).cast_signed(),
            code: low32(numbers >> 32).cast_signed(),
            words,
        }
    }

    fn to(&self) -> Target {
        match u16::try_from(self.0[0] >> 32).unwrap_or(0) {
            0 => Target::Program,
            after => Target::Thread(after - 1),
        }
    }
}

/// The list.
pub(crate) struct Pending {
    entries: [Entry; PLACES],
    used: usize,
}

impl Pending {
    #[cfg(test)]
    const fn new() -> Self {
        Self {
            entries: [Entry::NONE; PLACES],
            used: 0,
        }
    }

    /// How many wait.
    pub(super) const fn count(&self) -> usize {
        self.used
    }

    /// There is no place for another one.
    pub(super) const fn is_full(&self) -> bool {
        self.used == PLACES
    }

    pub(super) fn clear(&mut self) {
        self.shrink(0);
    }

    /// Only the first so many are left. Nothing stays of the others, because replicas may have
    /// taken them at different times: a child's primary is copied before the call that made it has
    /// its result, with which signals come.
    fn shrink(&mut self, used: usize) {
        self.entries[used..self.used].fill(Entry::NONE);
        self.used = used;
    }

    /// Adds a signal. `waits` tells whether it waits already for the same target. Returns false if
    /// there was no room for what comes with it.
    pub(super) fn push(&mut self, info: Info, to: Target, waits: bool) -> bool {
        if waits && info.signal < FIRST_QUEUED {
            return true;
        }
        if self.used == PLACES {
            return false;
        }
        self.entries[self.used] = Entry::new(info, to);
        self.used += 1;
        true
    }

    /// Takes the first such signal; tells what came with it, and whether the same waits again.
    pub(super) fn pop(&mut self, signal: u32, to: Target) -> (Info, bool) {
        let is_it = |entry: &Entry| entry.info().signal == signal && entry.to() == to;
        let Some(at) = self.entries[..self.used].iter().position(is_it) else {
            return (Info::sent(signal, SI_USER, 0, 0, 0), false);
        };
        let info = self.entries[at].info();
        self.entries.copy_within(at + 1..self.used, at);
        self.shrink(self.used - 1);
        let again = self.entries[at..self.used].iter().any(is_it);
        (info, again)
    }

    /// The timer's signal that waits, if one does.
    pub(crate) fn has_timer(&self, id: u64) -> bool {
        self.entries[..self.used]
            .iter()
            .map(Entry::info)
            .any(|info| info.code == SI_TIMER && info.words[0] & 0xffff_ffff == id)
    }

    /// Drops what is not wanted.
    fn retain(&mut self, wanted: impl Fn(&Entry) -> bool) {
        let mut kept = 0;
        for at in 0..self.used {
            if wanted(&self.entries[at]) {
                self.entries[kept] = self.entries[at];
                kept += 1;
            }
        }
        self.shrink(kept);
    }

    /// These signals wait no more.
    pub(super) fn discard(&mut self, set: u64) {
        self.retain(|entry| set & bit(entry.info().signal) == 0);
    }

    /// The thread in this slot has ended.
    pub(super) fn forget_thread(&mut self, slot: u16) {
        self.retain(|entry| entry.to() != Target::Thread(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(signal: u32, value: u64) -> Info {
        Info::sent(signal, -1, 7, 8, value)
    }

    #[test]
    fn real_time_signals_wait_each_in_turn() {
        let mut all = Pending::new();
        for value in 1..=3 {
            assert!(all.push(sent(40, value), Target::Program, value > 1));
        }
        assert!(all.push(sent(40, 9), Target::Thread(2), false));
        let (first, again) = all.pop(40, Target::Program);
        assert_eq!((first.words[1], again), (1, true));
        assert_eq!(all.pop(40, Target::Thread(2)), (sent(40, 9), false));
        assert_eq!(all.pop(40, Target::Program), (sent(40, 2), true));
        assert_eq!(all.pop(40, Target::Program), (sent(40, 3), false));
    }

    #[test]
    fn all_that_comes_with_a_signal_is_kept() {
        let info = Info {
            signal: 64,
            errno: -5,
            code: SI_TKILL,
            words: [u64::MAX, 1, 1 << 63],
        };
        for to in [Target::Program, Target::Thread(0), Target::Thread(511)] {
            let entry = Entry::new(info, to);
            assert_eq!((entry.info(), entry.to()), (info, to));
        }
    }

    #[test]
    fn old_signals_wait_once() {
        let mut all = Pending::new();
        assert!(all.push(sent(10, 1), Target::Program, false));
        assert!(all.push(sent(10, 2), Target::Program, true));
        assert_eq!(all.pop(10, Target::Program), (sent(10, 1), false));
        let (unknown, again) = all.pop(10, Target::Program);
        assert_eq!((unknown.code, again), (SI_USER, false));
    }

    #[test]
    fn what_nobody_wants_is_dropped() {
        let mut all = Pending::new();
        all.push(sent(40, 1), Target::Thread(1), false);
        all.push(sent(41, 2), Target::Program, false);
        all.push(sent(42, 3), Target::Program, false);
        all.discard(bit(41));
        all.forget_thread(1);
        assert_eq!(all.used, 1);
        assert_eq!(all.pop(42, Target::Program).0, sent(42, 3));
    }

    #[test]
    fn nothing_stays_of_what_was_taken() {
        let mut all = Pending::new();
        for value in 1..5 {
            all.push(sent(40, value), Target::Program, false);
        }
        all.pop(40, Target::Program);
        let is_none = |entry: &Entry| entry.0 == Entry::NONE.0;
        assert!(is_none(&all.entries[3]) && !is_none(&all.entries[2]));
        all.discard(bit(41));
        all.clear();
        assert!(all.entries.iter().all(is_none));
    }

    #[test]
    fn there_is_an_end_to_waiting_signals() {
        let mut all = Pending::new();
        assert!((0..PLACES).all(|_| all.push(sent(40, 0), Target::Program, true)));
        assert!(!all.push(sent(40, 0), Target::Program, true));
    }
}
