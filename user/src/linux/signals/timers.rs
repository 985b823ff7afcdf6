//! Timers that a program makes (`timer_create`): each ends in a signal of its own, or in none.
//!
//! A signal that has come and was not taken is not sent again: how often it would have been is told
//! with it.
//!
//! Not covered: timers of the time that a program computes.

use linux_raw_sys::errno::{EAGAIN, EINVAL};
use linux_raw_sys::general::{
    CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, SIGALRM, SIGEV_NONE, SIGEV_SIGNAL,
    SIGEV_THREAD, SIGEV_THREAD_ID, TIMER_ABSTIME,
};

use super::{Info, Whom, number};
use crate::linux::arch::nr;
use crate::linux::stat::SECOND;
use crate::linux::{Answer, Errno, Machine, Process};

/// Most of them.
const TIMERS: usize = 16;
/// Most times that are told to have been missed.
const MOST: u64 = 0x7fff_ffff;

/// What comes of a timer.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    Signal {
        signal: u32,
        value: u64,
    },
    ThreadSignal {
        signal: u32,
        value: u64,
        thread: u64,
    },
}

/// A timer: when it rings, by the machine's clock, and how often from then on; never if that is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    real: bool,
    event: Event,
    next: Option<u64>,
    interval: u64,
    /// How often it rang while its signal waited, and how often that was of the last one taken.
    missed: u64,
    told: u64,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers([Option<Made>; TIMERS]);

impl Timers {
    /// When the first one rings.
    pub(super) fn next(&self) -> Option<u64> {
        self.0.iter().flatten().filter_map(|it| it.next).min()
    }

    fn place(&mut self, number: u64) -> Result<&mut Option<Made>, Errno> {
        let place = usize::try_from(number & 0xffff_ffff).unwrap_or(TIMERS);
        self.0.get_mut(place).ok_or(Errno(EINVAL))
    }

    fn at(&mut self, number: u64) -> Result<&mut Made, Errno> {
        self.place(number)?.as_mut().ok_or(Errno(EINVAL))
    }

    fn end(&mut self, number: u64) -> Result<u32, Errno> {
        let ended = self.place(number)?.take();
        ended.ok_or(Errno(EINVAL))?;
        u32::try_from(number & 0xffff_ffff).map_err(|_| Errno(EINVAL))
    }

    /// A signal of a timer is taken: how often the timer rang meanwhile.
    pub(super) fn taken(&mut self, timer: u32) -> u64 {
        match self.at(timer.into()) {
            Ok(made) => {
                made.told = core::mem::take(&mut made.missed).min(MOST);
                made.told
            }
            Err(_) => 0,
        }
    }
}

impl Made {
    /// How often it rang by now.
    fn rang(&mut self, now: u64) -> u64 {
        let Some((next, late)) = self
            .next
            .and_then(|next| Some((next, now.checked_sub(next)?)))
        else {
            return 0;
        };
        let Some(more) = late.checked_div(self.interval) else {
            self.next = None;
            return 1;
        };
        let times = more + 1;
        self.next = Some(next.saturating_add(times.saturating_mul(self.interval)));
        times
    }

    /// Words of the time between one ring and the next, and of what is left to that.
    fn times(&self, now: u64) -> [u64; 4] {
        let left = self.next.map_or(0, |next| next.saturating_sub(now).max(1));
        let [interval, left] = [self.interval, left].map(|time| [time / SECOND, time % SECOND]);
        [interval[0], interval[1], left[0], left[1]]
    }
}

impl<M: Machine> Process<'_, M> {
    pub(super) fn made_timer_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        Some(match call {
            nr::__NR_timer_create => {
                let real = match u32::try_from(first & 0xffff_ffff) {
                    Ok(CLOCK_REALTIME) => true,
                    Ok(CLOCK_MONOTONIC | CLOCK_BOOTTIME) => false,
                    _ => return None,
                };
                self.make_timer(real, second, third)
            }
            nr::__NR_timer_settime => self.set_made_timer([first, second, third, fourth]),
            nr::__NR_timer_gettime => {
                let now = self.machine.now();
                let times = self.task.signals.timers.at(first).map(|it| it.times(now));
                times.and_then(|times| self.write_words(second, &times).map(|()| 0))
            }
            nr::__NR_timer_getoverrun => self.task.signals.timers.at(first).map(|it| it.told),
            nr::__NR_timer_delete => {
                let ended = self.task.signals.timers.end(first);
                ended.map(|timer| {
                    self.queue.forget_timer(timer);
                    0
                })
            }
            _ => return None,
        })
    }

    /// What a program wants to come of a timer.
    fn event_at(&self, place: u64, timer: u64) -> Result<Event, Errno> {
        if place == 0 {
            let signal = SIGALRM;
            return Ok(Event::Signal {
                signal,
                value: timer,
            });
        }
        let (value, what) = (self.word(place)?, self.word(place.wrapping_add(8))?);
        let signal = number(what);
        match u32::try_from(what >> 32).unwrap_or(u32::MAX) {
            SIGEV_NONE => Ok(Event::Nothing),
            SIGEV_SIGNAL | SIGEV_THREAD => signal.map(|signal| Event::Signal { signal, value }),
            SIGEV_THREAD_ID => {
                let thread = self.word(place.wrapping_add(16))? & 0xffff_ffff;
                let is_there = self.threads.place_of(thread).is_some();
                let signal = signal?;
                let event = Event::ThreadSignal {
                    signal,
                    value,
                    thread,
                };
                is_there.then_some(event).ok_or(Errno(EINVAL))
            }
            _ => Err(Errno(EINVAL)),
        }
    }

    fn make_timer(&mut self, real: bool, event: u64, to: u64) -> Answer {
        let place = self.task.signals.timers.0.iter().position(Option::is_none);
        let place = place.ok_or(Errno(EAGAIN))?;
        let event = self.event_at(event, place as u64)?;
        self.write(to, &place.to_le_bytes()[..4])?;
        self.task.signals.timers.0[place] = Some(Made {
            real,
            event,
            next: None,
            interval: 0,
            missed: 0,
            told: 0,
        });
        Ok(0)
    }

    fn set_made_timer(&mut self, [timer, flags, new, old]: [u64; 4]) -> Answer {
        if new == 0 {
            return Err(Errno(EINVAL));
        }
        let (interval, first) = (self.time_at(new)?, self.time_at(new.wrapping_add(16))?);
        let (now, began) = (self.machine.now(), self.began());
        let made = self.task.signals.timers.at(timer)?;
        let before = made.times(now);
        let next = match (flags & u64::from(TIMER_ABSTIME) != 0, made.real) {
            (false, _) => now.saturating_add(first),
            (true, true) => first.saturating_sub(began),
            (true, false) => first,
        };
        made.next = (first != 0).then_some(next);
        (made.interval, made.missed, made.told) = (interval, 0, 0);
        if old != 0 {
            self.write_words(old, &before)?;
        }
        Ok(0)
    }

    /// Sends the signals of those whose time has come.
    pub(super) fn ring_made(&mut self, now: u64) {
        for place in 0..TIMERS {
            let Some(made) = &mut self.task.signals.timers.0[place] else {
                continue;
            };
            let times = made.rang(now);
            if times > 0 {
                let event = made.event;
                self.rang(place, event, times);
            }
        }
    }

    fn rang(&mut self, place: usize, event: Event, times: u64) {
        let (whom, signal, value) = match event {
            Event::Nothing => return,
            Event::Signal { signal, value } => (Some(Whom::Process), signal, value),
            Event::ThreadSignal {
                signal,
                value,
                thread,
            } => (
                self.threads.place_of(thread).map(Whom::Thread),
                signal,
                value,
            ),
        };
        let timer = u32::try_from(place).unwrap_or(0);
        let waits = self.queue.has_timer(timer);
        if let Some(made) = &mut self.task.signals.timers.0[place] {
            made.missed = made.missed.saturating_add(times - u64::from(!waits));
        }
        // One for which there is no room is lost, as is one for a thread that is no more.
        if let Some(whom) = whom.filter(|_| !waits) {
            let _ = self.post(whom, Info::of_timer(signal, timer, value));
        }
    }
}
