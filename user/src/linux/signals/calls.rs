//! Calls about signals.

use linux_raw_sys::errno::{EAGAIN, EINVAL, EPERM, ESRCH};
use linux_raw_sys::general::{
    SA_EXPOSE_TAGBITS, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND,
    SA_RESTART, SA_RESTORER, SA_SIGINFO, SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK,
};

use super::info::INFO_BYTES;
use super::{Action, Effect, FIXED, Info, Whom, bit, number};
use crate::linux::arch::nr;
use crate::linux::calls::PROCESS;
use crate::linux::errno::LATER;
use crate::linux::tasks::{Life, PROCESSES};
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
            nr::__NR_tkill => self.kill_any_thread(number, first, second),
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
        let before = *self.task.signals.action(signal);
        if new != 0 {
            let mut words = [0; 4];
            for (index, word) in words.iter_mut().enumerate() {
                *word = self.word(new.wrapping_add(8 * index as u64))?;
            }
            let [handler, flags, restorer, mask] = words;
            *self.task.signals.action(signal) = Action {
                handler,
                flags: flags & u64::from(KNOWN),
                restorer,
                mask: mask & !FIXED,
            };
            if self.task.signals.effect(signal) == Effect::Ignore {
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
        let set = (own.pending | self.task.signals.pending) & own.mask;
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
        let own = self.task.number;
        self.send_to_all(whom, |process| {
            if signal & 0xffff_ffff == 0 {
                return Ok(());
            }
            let info = Info::sent(number(signal)?, false, own);
            process.send_signal(call, Whom::Process, info)
        })
    }

    /// Sends something to all processes that a program means, as far as they can have it: to one by
    /// its number, to its own group, to all others but the first, or to a group.
    fn send_to_all(
        &mut self,
        whom: u64,
        mut send: impl FnMut(&mut Self) -> Result<(), Errno>,
    ) -> Answer {
        let [a, b, c, d, ..] = whom.to_le_bytes();
        let whom = i32::from_le_bytes([a, b, c, d]);
        let number = u64::from(whom.unsigned_abs());
        let (own, group) = (self.task.number, self.task.group);
        let found = self.threads.anywhere(number);
        let of_thread = found.map(|place| self.threads.at(place).process);
        let (mut sent, mut any) = (Err(Errno(ESRCH)), false);
        for place in 0..PROCESSES {
            let task = &self.task.all()[place];
            let meant = match whom {
                0 => task.group == group,
                -1 => ![own, PROCESS].contains(&task.number),
                ..0 => task.group == number,
                _ => task.number == number || of_thread == Some(place),
            };
            if !meant || task.life == Life::Free {
                continue;
            }
            let done = match task.life {
                Life::Lives => self.of(place, &mut send),
                _ => Ok(()),
            };
            if !any || done.is_ok() {
                sent = done;
            }
            any |= done.is_ok();
        }
        sent.map(|()| 0)
    }

    /// The place of a thread of a process.
    fn thread_of(&self, process: u64, thread: u64) -> Result<(usize, Whom), Errno> {
        let (process, thread) = (process & 0xffff_ffff, thread & 0xffff_ffff);
        let is_none = |number: u64| number == 0 || number >> 31 != 0;
        if is_none(process) || is_none(thread) {
            return Err(Errno(EINVAL));
        }
        let found = self.threads.anywhere(thread).ok_or(Errno(ESRCH))?;
        let place = self.threads.process(found);
        if self.task.all()[place].number != process {
            return Err(Errno(ESRCH));
        }
        Ok((place, Whom::Thread(found)))
    }

    /// Any thread, by its number.
    fn kill_any_thread(&mut self, call: u64, thread: u64, signal: u64) -> Answer {
        let found = self.threads.anywhere(thread & 0xffff_ffff);
        let place = found.map(|place| self.threads.process(place));
        let process = place.map_or(PROCESS, |place| self.task.all()[place].number);
        self.kill_thread(call, process, thread, signal)
    }

    fn kill_thread(&mut self, call: u64, process: u64, thread: u64, signal: u64) -> Answer {
        let (place, whom) = self.thread_of(process, thread)?;
        if signal & 0xffff_ffff == 0 {
            return Ok(0);
        }
        let info = Info::sent(number(signal)?, true, self.task.number);
        let sent = self.of(place, |it| it.send_signal(call, whom, info));
        sent.map(|()| 0)
    }

    /// What a program says of a signal that it sends.
    fn said(&self, signal: u64, from: u64) -> Result<Option<Info>, Errno> {
        let mut bytes = [0; INFO_BYTES];
        self.read(from, &mut bytes)?;
        if signal & 0xffff_ffff == 0 {
            return Ok(None);
        }
        Ok(Some(Info::from_bytes(number(signal)?, &bytes)))
    }

    fn queue(&mut self, call: u64, whom: u64, signal: u64, from: u64) -> Answer {
        let info = self.said(signal, from)?;
        let whom = whom & 0xffff_ffff;
        // That of a thread means its process.
        let of_thread = || {
            self.threads
                .anywhere(whom)
                .map(|it| self.threads.process(it))
        };
        let place = self.process_of(whom).or_else(of_thread);
        let place = place.ok_or(Errno(ESRCH))?;
        self.send_said(call, (place, Whom::Process), info)
    }

    fn queue_to_thread(&mut self, call: u64, whom: [u64; 2], signal: u64, from: u64) -> Answer {
        let info = self.said(signal, from);
        let whom = self.thread_of(whom[0], whom[1])?;
        self.send_said(call, whom, info?)
    }

    /// Sends a signal with what a program says of it. To another process it may not say that a
    /// kernel sent it, or `kill`.
    fn send_said(&mut self, call: u64, to: (usize, Whom), info: Option<Info>) -> Answer {
        let (place, whom) = to;
        let Some(info) = info else {
            return Ok(0);
        };
        if place != self.task.index() && info.is_of_kernel() {
            return Err(Errno(EPERM));
        }
        let sent = self.of(place, |it| it.send_signal(call, whom, info));
        sent.map(|()| 0)
    }
}
