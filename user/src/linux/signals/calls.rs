//! Calls about signals.

use linux_raw_sys::errno::{EAGAIN, EINVAL, ESRCH};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    SA_EXPOSE_TAGBITS, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND,
    SA_RESTART, SA_RESTORER, SA_SIGINFO, SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK,
};

use super::info::INFO_BYTES;
use super::{Action, Effect, FIXED, Info, Whom, bit, number};
use crate::linux::calls::PROCESS;
use crate::linux::errno::LATER;
use crate::linux::{Answer, Errno, Machine, Process};

/// Bytes of a set of signals.
const SET_BYTES: u64 = 8;
/// What is known of how a signal is handled; a program that asks for more finds it gone.
const KNOWN: u32 = SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND;

impl<M: Machine> Process<'_, M> {
    pub(in crate::linux) fn signal_call(&mut self, call: u32, words: [u64; 6]) -> Option<Answer> {
        let [first, second, third, fourth, ..] = words;
        let number = call.into();
        Some(match call {
            nr::__NR_rt_sigaction => self.set_action(words),
            nr::__NR_rt_sigprocmask => self.set_mask(words),
            nr::__NR_rt_sigpending => self.tell_pending(first, second),
            nr::__NR_rt_sigtimedwait => self.await_signal([first, second, third, fourth]),
            nr::__NR_rt_sigsuspend => self.suspend(first, second),
            nr::__NR_pause => Err(LATER),
            nr::__NR_sigaltstack => self.set_stack(first, second),
            nr::__NR_kill => self.kill(number, first, second),
            nr::__NR_tkill => self.kill_thread(number, PROCESS, first, second),
            nr::__NR_tgkill => self.kill_thread(number, first, second, third),
            nr::__NR_rt_sigqueueinfo => self.queue(number, first, second, third),
            nr::__NR_rt_tgsigqueueinfo => {
                self.queue_to_thread(number, [first, second], third, fourth)
            }
            _ => return self.timer_call(call, words),
        })
    }

    fn set_action(&mut self, [signal, new, old, size, ..]: [u64; 6]) -> Answer {
        let signal = number(signal)?;
        if size != SET_BYTES || new != 0 && FIXED & bit(signal) != 0 {
            return Err(Errno(EINVAL));
        }
        let before = *self.signals.action(signal);
        if new != 0 {
            let mut words = [0; 4];
            for (index, word) in words.iter_mut().enumerate() {
                *word = self.word(new.wrapping_add(8 * index as u64))?;
            }
            let [handler, flags, restorer, mask] = words;
            *self.signals.action(signal) = Action {
                handler,
                flags: flags & u64::from(KNOWN),
                restorer,
                mask: mask & !FIXED,
            };
            if self.signals.effect(signal) == Effect::Ignore {
                self.forget_signals(bit(signal));
            }
        }
        if old != 0 {
            let words = [before.handler, before.flags, before.restorer, before.mask];
            self.write_words(old, &words)?;
        }
        Ok(0)
    }

    fn set_mask(&mut self, [how, new, old, size, ..]: [u64; 6]) -> Answer {
        if size != SET_BYTES {
            return Err(Errno(EINVAL));
        }
        let before = self.threads.current().signals.mask;
        if new != 0 {
            let set = self.word(new)? & !FIXED;
            let how = u32::try_from(how & 0xffff_ffff).unwrap_or(u32::MAX);
            self.threads.current().signals.mask = match how {
                SIG_BLOCK => before | set,
                SIG_UNBLOCK => before & !set,
                SIG_SETMASK => set,
                _ => return Err(Errno(EINVAL)),
            };
        }
        if old != 0 {
            self.write_words(old, &[before])?;
        }
        Ok(0)
    }

    fn tell_pending(&mut self, to: u64, size: u64) -> Answer {
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let own = self.threads.current().signals;
        let set = (own.pending | self.signals.pending) & own.mask;
        let set = set.to_le_bytes();
        let told = set.get(..bytes).ok_or(Errno(EINVAL))?;
        self.write(to, told).map(|()| 0)
    }

    /// Blocks other signals for as long as a call takes, if the program says so.
    pub(in crate::linux) fn block_meanwhile(&mut self, set: u64, size: u64) -> Result<(), Errno> {
        if set == 0 || self.threads.current().wait.again {
            return Ok(());
        }
        if size != SET_BYTES {
            return Err(Errno(EINVAL));
        }
        let mask = self.word(set)? & !FIXED;
        let own = &mut self.threads.current().signals;
        own.saved = Some(own.mask);
        own.mask = mask;
        Ok(())
    }

    fn suspend(&mut self, set: u64, size: u64) -> Answer {
        if size != SET_BYTES {
            return Err(Errno(EINVAL));
        }
        if !self.threads.current().wait.again {
            self.word(set)?;
        }
        self.block_meanwhile(set, size)?;
        Err(LATER)
    }

    fn await_signal(&mut self, [set, to, time, size]: [u64; 4]) -> Answer {
        if size != SET_BYTES {
            return Err(Errno(EINVAL));
        }
        let these = self.word(set)? & !FIXED;
        let limit = self.limit_of(time)?;
        if let Some((whom, signal)) = self.next_of(these) {
            let info = self.take_signal(whom, signal);
            if to != 0 {
                self.write(to, &info.bytes())?;
            }
            return Ok(signal.into());
        }
        self.threads.current().signals.awaited = these;
        self.pause_unless(limit)?;
        Err(Errno(EAGAIN))
    }

    fn kill(&mut self, call: u64, whom: u64, signal: u64) -> Answer {
        self.check_process(whom)?;
        if signal & 0xffff_ffff == 0 {
            return Ok(0);
        }
        let info = Info::sent(number(signal)?, false);
        self.send_signal(call, Whom::Process, info).map(|()| 0)
    }

    /// Is it the process, its group, or that of one of its threads?
    fn check_process(&self, whom: u64) -> Result<(), Errno> {
        let whom = whom & 0xffff_ffff;
        let group = PROCESS.wrapping_neg() & 0xffff_ffff;
        let its = [0, PROCESS, group].contains(&whom) || self.threads.place_of(whom).is_some();
        its.then_some(()).ok_or(Errno(ESRCH))
    }

    /// The place of a thread of a process.
    fn thread_of(&self, process: u64, thread: u64) -> Result<Whom, Errno> {
        let (process, thread) = (process & 0xffff_ffff, thread & 0xffff_ffff);
        let is_none = |number: u64| number == 0 || number >> 31 != 0;
        if is_none(process) || is_none(thread) {
            return Err(Errno(EINVAL));
        }
        let place = self.threads.place_of(thread);
        let place = place.filter(|_| process == PROCESS);
        place.map(Whom::Thread).ok_or(Errno(ESRCH))
    }

    fn kill_thread(&mut self, call: u64, process: u64, thread: u64, signal: u64) -> Answer {
        let whom = self.thread_of(process, thread)?;
        if signal & 0xffff_ffff == 0 {
            return Ok(0);
        }
        let info = Info::sent(number(signal)?, true);
        self.send_signal(call, whom, info).map(|()| 0)
    }

    /// What a program says of a signal that it sends to itself.
    fn said(&self, signal: u64, from: u64) -> Result<Option<Info>, Errno> {
        let mut bytes = [0; INFO_BYTES];
        self.read(from, &mut bytes)?;
        if signal & 0xffff_ffff == 0 {
            return Ok(None);
        }
        Ok(Some(Info::from_bytes(number(signal)?, &bytes)))
    }

    fn queue(&mut self, call: u64, whom: u64, signal: u64, from: u64) -> Answer {
        let info = self.said(signal, from);
        self.check_process(whom)?;
        match info? {
            Some(info) => self.send_signal(call, Whom::Process, info).map(|()| 0),
            None => Ok(0),
        }
    }

    fn queue_to_thread(&mut self, call: u64, whom: [u64; 2], signal: u64, from: u64) -> Answer {
        let info = self.said(signal, from);
        let whom = self.thread_of(whom[0], whom[1])?;
        match info? {
            Some(info) => self.send_signal(call, whom, info).map(|()| 0),
            None => Ok(0),
        }
    }
}
