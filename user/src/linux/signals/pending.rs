//! Signals that have come and are not taken: what is known of each, in their order.
//!
//! There is room for so many. Of a standard signal that has none nothing is known when it is taken;
//! a real-time one is refused.

use super::{Info, Whom};

/// Most that wait.
pub(crate) const QUEUE: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Entry {
    process: usize,
    whom: Whom,
    info: Info,
}

/// Those that wait, of all processes; looked at are those of the one at hand.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    entries: [Option<Entry>; QUEUE],
    len: usize,
    process: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            entries: [None; QUEUE],
            len: 0,
            process: 0,
        }
    }
}

impl Queue {
    /// The signals of this process are meant from here on.
    pub(crate) const fn enter(&mut self, process: usize) {
        self.process = process;
    }

    /// Adds one. Tells whether there was room.
    pub(super) fn add(&mut self, whom: Whom, info: Info) -> bool {
        let process = self.process;
        let Some(place) = self.entries.get_mut(self.len) else {
            return false;
        };
        *place = Some(Entry {
            process,
            whom,
            info,
        });
        self.len += 1;
        true
    }

    fn first(&self, whom: Whom, signal: u32) -> Option<usize> {
        let mut entries = self.entries[..self.len].iter().flatten();
        entries.position(|it| {
            it.process == self.process && it.whom == whom && it.info.signal == signal
        })
    }

    pub(super) fn has(&self, whom: Whom, signal: u32) -> bool {
        self.first(whom, signal).is_some()
    }

    /// Does the signal of a timer wait?
    pub(super) fn has_timer(&self, timer: u32) -> bool {
        let mut entries = self.entries[..self.len].iter().flatten();
        entries.any(|it| it.process == self.process && it.info.timer == Some(timer))
    }

    /// A timer is no more: its signal, if it waits, is none of the timer that has its number next.
    pub(super) fn forget_timer(&mut self, timer: u32) {
        for entry in self.entries[..self.len].iter_mut().flatten() {
            if entry.process == self.process && entry.info.timer == Some(timer) {
                entry.info.timer = None;
            }
        }
    }

    /// All timers are no more.
    pub(super) fn forget_timers(&mut self) {
        for entry in self.entries[..self.len].iter_mut().flatten() {
            if entry.process == self.process {
                entry.info.timer = None;
            }
        }
    }

    /// Takes the first one.
    pub(super) fn take(&mut self, whom: Whom, signal: u32) -> Option<Info> {
        let place = self.first(whom, signal)?;
        let taken = self.entries[place].take();
        self.entries[place..self.len].rotate_left(1);
        self.len -= 1;
        taken.map(|entry| entry.info)
    }

    /// Forgets some.
    pub(crate) fn forget(&mut self, which: impl Fn(Whom, u32) -> bool) {
        let mut kept = 0;
        for index in 0..self.len {
            let entry = self.entries[index].take();
            if let Some(it) = entry
                && (it.process != self.process || !which(it.whom, it.info.signal))
            {
                self.entries[kept] = entry;
                kept += 1;
            }
        }
        self.len = kept;
    }
}
