//! The timer of a process that ends in a signal (`alarm`, `setitimer`).
//!
//! Its time is that of the machine's clock, which is looked at where a call is over and where all
//! threads wait: so it has come at the same place in all replicas.
//!
//! Not covered: timers of the time that a program computes.

use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{ITIMER_PROF, ITIMER_REAL, SIGALRM};

use super::{Info, Signals, Whom};
use crate::linux::arch::nr;
use crate::linux::stat::SECOND;
use crate::linux::tasks::PROCESSES;
use crate::linux::{Answer, Errno, Machine, Process};

/// Nanoseconds of a microsecond, and microseconds of a second.
const MICRO: u64 = 1000;
const MICROS: u64 = SECOND / MICRO;

/// When it rings, by the machine's clock, and how often from then on; never if that is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer {
    next: Option<u64>,
    interval: u64,
}

impl Signals {
    /// When its timer rings, or any that was made.
    fn next_ring(&self) -> Option<u64> {
        let own = self.timer.next.into_iter();
        own.chain(self.timers.next()).min()
    }
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn timer_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [which, new, old, ..] = words;
        let kind = u32::try_from(which & 0xffff_ffff).unwrap_or(u32::MAX);
        Some(match call {
            nr::__NR_alarm => {
                let seconds = which & 0xffff_ffff;
                let (left, _) = self.left();
                self.set_timer(seconds.saturating_mul(SECOND), 0);
                // Less than half a second is none, unless it is all that there is.
                let more = left % SECOND >= SECOND / 2 || left / SECOND == 0 && left > 0;
                Ok(left / SECOND + u64::from(more))
            }
            nr::__NR_setitimer | nr::__NR_getitimer if kind > ITIMER_PROF => Err(Errno(EINVAL)),
            nr::__NR_setitimer if kind == ITIMER_REAL => self.set_interval_timer(new, old),
            nr::__NR_getitimer if kind == ITIMER_REAL => self.tell_timer(new),
            // None was ever set: only that can be said again.
            nr::__NR_setitimer if self.is_none(new) => self.tell_none(old),
            nr::__NR_getitimer => self.tell_none(new),
            _ => return self.made_timer_call(call, words),
        })
    }

    /// When the first timer of any process rings that lives.
    pub(in crate::linux) fn next_ring(&self) -> Option<u64> {
        let living = self.task.all().iter().filter(|it| it.lives());
        living.filter_map(|it| it.signals.next_ring()).min()
    }

    /// Looks at the clock, if a timer is set, and sends the signals whose time has come.
    pub(in crate::linux) fn ring(&mut self) {
        if self.next_ring().is_none() {
            return;
        }
        let now = self.machine.now();
        for process in 0..PROCESSES {
            let task = self.task.at(process);
            if task.lives() && task.signals.next_ring().is_some() {
                self.of(process, |it| {
                    it.ring_own(now);
                    it.ring_made(now);
                });
            }
        }
    }

    fn ring_own(&mut self, now: u64) {
        let Timer { next, interval } = self.task.signals.timer;
        let Some((next, late)) = next.and_then(|next| Some((next, now.checked_sub(next)?))) else {
            return;
        };
        let times = late.checked_div(interval).map(|times| times + 1);
        let next = times.map(|times| next.saturating_add(times.saturating_mul(interval)));
        self.task.signals.timer.next = next;
        // A standard signal is never refused.
        let _ = self.post(Whom::Process, Info::of_system(SIGALRM));
    }

    /// Nanoseconds that are left, and between one time and the next.
    fn left(&mut self) -> (u64, u64) {
        let timer = self.task.signals.timer;
        let left = match timer.next {
            Some(next) => next.saturating_sub(self.machine.now()).max(MICRO),
            None => 0,
        };
        (left, timer.interval)
    }

    fn set_timer(&mut self, first: u64, interval: u64) {
        let next = (first != 0).then(|| self.machine.now().saturating_add(first));
        self.task.signals.timer = Timer { next, interval };
    }

    /// A time in microseconds, in nanoseconds.
    fn micros_at(&self, place: u64) -> Answer {
        let (seconds, micros) = (self.word(place)?, self.word(place.wrapping_add(8))?);
        if micros >= MICROS || seconds >> 63 != 0 {
            return Err(Errno(EINVAL));
        }
        Ok(seconds
            .saturating_mul(SECOND)
            .saturating_add(micros * MICRO))
    }

    fn set_interval_timer(&mut self, new: u64, old: u64) -> Answer {
        let (first, interval) = match new {
            0 => (0, 0),
            _ => (self.micros_at(new.wrapping_add(16))?, self.micros_at(new)?),
        };
        let before = self.left();
        self.set_timer(first, interval);
        if old == 0 {
            return Ok(0);
        }
        self.write_times(old, before)
    }

    fn tell_timer(&mut self, to: u64) -> Answer {
        let times = self.left();
        self.write_times(to, times)
    }

    fn write_times(&mut self, to: u64, (left, interval): (u64, u64)) -> Answer {
        let words = [interval, left].map(|time| [time / SECOND, time % SECOND / MICRO]);
        self.write_words(to, words.as_flattened()).map(|()| 0)
    }

    fn is_none(&self, new: u64) -> bool {
        let first = [16, 24].map(|at| self.word(new.wrapping_add(at)));
        first == [Ok(0); 2]
    }

    fn tell_none(&mut self, to: u64) -> Answer {
        match to {
            0 => Ok(0),
            to => self.write_times(to, (0, 0)),
        }
    }
}
