//! Sending a signal: who may take it, and whether it waits, is forgotten, or ends the program.

use linux_raw_sys::errno::{EAGAIN, ENOSYS};
use linux_raw_sys::general::{SIGCONT, SIGKILL};

use super::{ENDED_BY, Effect, FIRST_QUEUED, Info, STOPS, Set, WITH_MEMORY, Whom, bit};
use crate::linux::threads::THREADS;
use crate::linux::{Errno, Machine, Process};

impl<M: Machine> Process<'_, M> {
    /// Those that have come for somebody.
    fn pending(&mut self, whom: Whom) -> &mut Set {
        match whom {
            Whom::Process => &mut self.task.signals.pending,
            Whom::Thread(place) => &mut self.threads.at(place).signals.pending,
        }
    }

    /// Who takes a signal for the process: the first thread that does not block it.
    pub(super) fn taker(&mut self, signal: u32) -> Option<usize> {
        (0..THREADS).find(|&place| self.threads.is_there(place) && self.wants(place, signal))
    }

    fn wants(&mut self, place: usize, signal: u32) -> bool {
        let own = self.threads.at(place).signals;
        own.mask & !own.awaited & bit(signal) == 0
    }

    /// Who could take it now.
    fn taker_of(&mut self, whom: Whom, signal: u32) -> Option<usize> {
        match whom {
            Whom::Process => self.taker(signal),
            Whom::Thread(place) => self.wants(place, signal).then_some(place),
        }
    }

    /// Sends a signal that the program wants sent. One that would stop it is refused: nobody could
    /// have it go on.
    pub(super) fn send_signal(&mut self, call: u64, whom: Whom, info: Info) -> Result<(), Errno> {
        let signal = info.signal;
        let stops = self.task.signals.effect(signal) == Effect::Stop;
        if stops && self.taker_of(whom, signal).is_some() {
            let text = format_args!(
                "the system sphere does not stop programs: signal {signal} was not sent, the \
                 program got ENOSYS"
            );
            self.tell_once(call, text);
            return Err(Errno(ENOSYS));
        }
        self.post(whom, info)
    }

    /// Sends a signal.
    pub(in crate::linux) fn post(&mut self, whom: Whom, info: Info) -> Result<(), Errno> {
        let signal = info.signal;
        self.contradict(signal);
        if self.is_discarded(whom, signal) {
            return Ok(());
        }
        let queues = signal >= FIRST_QUEUED;
        let waits = *self.pending(whom) & bit(signal) != 0;
        if waits && !queues && info.timer.is_none() {
            return Ok(());
        }
        if !self.queue.add(whom, info) && queues && !info.is_plain() {
            return Err(Errno(EAGAIN));
        }
        *self.pending(whom) |= bit(signal);
        self.notice(whom, signal);
        Ok(())
    }

    /// Whoever is to take it does so soon. One that only ends the program does so at once.
    fn notice(&mut self, whom: Whom, signal: u32) {
        let Some(taker) = self.taker_of(whom, signal) else {
            return;
        };
        if taker != self.threads.index() {
            self.threads.give_way();
        }
        let awaited = self.threads.at(taker).signals.mask & bit(signal) != 0;
        let ends =
            self.task.signals.effect(signal) == Effect::End && WITH_MEMORY & bit(signal) == 0;
        if signal == SIGKILL || ends && !awaited {
            self.task.ended.get_or_insert(ENDED_BY + u64::from(signal));
        }
    }

    /// What stops a program and what has it go on end each other.
    fn contradict(&mut self, signal: u32) {
        if signal == SIGCONT {
            self.forget_signals(STOPS);
        } else if STOPS & bit(signal) != 0 {
            self.forget_signals(bit(SIGCONT));
        }
    }

    /// What nobody has blocked and the program ignores is forgotten. Of the process the first
    /// thread is asked.
    fn is_discarded(&mut self, whom: Whom, signal: u32) -> bool {
        let first = || (0..THREADS).find(|&place| self.threads.is_there(place));
        let place = match whom {
            Whom::Thread(place) => place,
            Whom::Process => first().unwrap_or(0),
        };
        let blocked = self.threads.at(place).signals.mask & bit(signal) != 0;
        !blocked && self.task.signals.effect(signal) == Effect::Ignore
    }

    /// Whoever has such signals, they have not come.
    pub(super) fn forget_signals(&mut self, which: Set) {
        self.task.signals.pending &= !which;
        for place in 0..THREADS {
            if self.threads.is_there(place) {
                self.threads.at(place).signals.pending &= !which;
            }
        }
        let queue = &mut self.queue;
        queue.forget(|_, signal| bit(signal) & which != 0);
    }

    /// The thread at a place ends, and what came for it with it.
    pub(in crate::linux) fn forget_thread(&mut self, place: usize) {
        self.threads.at(place).signals.pending = 0;
        let queue = &mut self.queue;
        queue.forget(|whom, _| whom == Whom::Thread(place));
    }

    /// Takes a signal that has come.
    pub(super) fn take_signal(&mut self, whom: Whom, signal: u32) -> Info {
        let info = self.queue.take(whom, signal);
        if !self.queue.has(whom, signal) {
            *self.pending(whom) &= !bit(signal);
        }
        let info = info.unwrap_or(Info::lost(signal));
        match info.timer {
            Some(timer) => info.missed(self.task.signals.timers.taken(timer)),
            None => info,
        }
    }
}
