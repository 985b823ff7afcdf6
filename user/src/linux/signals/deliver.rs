//! Taking signals: where a thread goes on, or waits in a call.

use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general::{SA_RESETHAND, SA_RESTART, SIGSEGV, TIMER_ABSTIME};

use super::{Action, ENDED_BY, Effect, Info, OWN_FAULTS, Set, Whom, bit};
use crate::linux::arch::nr;
use crate::linux::arch::{CALL_WORDS, call_again};
use crate::linux::errno::word;
use crate::linux::stat::{MICRO, SECOND};
use crate::linux::threads::{ANSWER, State, Wait};
use crate::linux::{Errno, Machine, Next, Process};

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).unwrap_or(0)
}

/// Is such a call made again behind a handler that wants calls made again? What waits for a time,
/// for signals or for any of many is not.
fn is_made_again(call: u64, words: &[u64; 6]) -> bool {
    match low(call) {
        nr::__NR_read | nr::__NR_readv | nr::__NR_recvfrom | nr::__NR_recvmsg => true,
        nr::__NR_write | nr::__NR_writev | nr::__NR_sendto | nr::__NR_sendmsg => true,
        nr::__NR_accept | nr::__NR_accept4 | nr::__NR_open | nr::__NR_openat => true,
        nr::__NR_wait4 | nr::__NR_waitid => true,
        nr::__NR_futex => words[3] == 0,
        _ => false,
    }
}

/// The first of these signals, those of what a thread does itself before others.
fn first(signals: Set) -> Option<u32> {
    let faults = signals & OWN_FAULTS;
    let signals = if faults == 0 { signals } else { faults };
    (signals != 0).then(|| signals.trailing_zeros() + 1)
}

impl<M: Machine> Process<'_, M> {
    /// The next one of these that the current thread can take: its own before the process's.
    pub(super) fn next_of(&mut self, these: Set) -> Option<(Whom, u32)> {
        let own = self.threads.current().signals.pending & these;
        if let Some(signal) = first(own) {
            return Some((Whom::Thread(self.threads.index()), signal));
        }
        let signal = first(self.task.signals.pending & these)?;
        Some((Whom::Process, signal))
    }

    /// The next one that the current thread has to take.
    fn next_due(&mut self) -> Option<(Whom, u32)> {
        if self.threads.current().wait.child.is_some() {
            // Its stack is another one's for a while.
            return None;
        }
        let own = self.threads.current().signals;
        let mut these = !own.mask;
        if (own.pending | self.task.signals.pending) & these == 0 {
            return None;
        }
        loop {
            let (whom, signal) = self.next_of(these)?;
            if whom != Whom::Process || self.taker(signal) == Some(self.threads.index()) {
                return Some((whom, signal));
            }
            these &= !bit(signal);
        }
    }

    /// The current thread, which would go on or waits, takes what has come; the status of a program
    /// that ends by it.
    pub(in crate::linux) fn take_signals(&mut self) -> Option<u64> {
        while let Some((whom, signal)) = self.next_due() {
            let info = self.take_signal(whom, signal);
            let status = match self.task.signals.effect(signal) {
                Effect::Ignore => None,
                Effect::End => Some(ENDED_BY + u64::from(signal)),
                Effect::Stop => Some(self.cannot_stop(signal)),
                Effect::Handle => self.handle(&info).err(),
            };
            if status.is_some() {
                return status;
            }
        }
        self.task.ended
    }

    /// Has the current thread begin a handler, out of a call if it waits in one.
    ///
    /// # Errors
    /// The status of a program that ends by it.
    pub(super) fn handle(&mut self, info: &Info) -> Result<(), u64> {
        let kept = self.task.signals.action(info.signal);
        let action = *kept;
        if action.has(SA_RESETHAND) {
            kept.handler = 0;
        }
        let mut registers = *self.threads.registers();
        match self.threads.current().state {
            State::Ready(answer) => registers[ANSWER] = answer,
            _ => self.break_off(&action, &mut registers),
        }
        if self.begin_handler(info, action, &registers).is_ok() {
            return Ok(());
        }
        self.threads.set_registers(registers);
        let forced = match info.signal {
            SIGSEGV => Err(0),
            _ => self.force(Info::of_system(SIGSEGV)),
        };
        if forced == Err(0) {
            let text = format_args!(
                "the program has no stack, or no way back, for the handler of signal {}",
                info.signal
            );
            self.machine.note(text);
            return Err(ENDED_BY + u64::from(SIGSEGV));
        }
        forced
    }

    /// A call that waits is over without having come to anything, or is made again behind the
    /// handler.
    fn break_off(&mut self, action: &Action, registers: &mut [u64; CALL_WORDS]) {
        let thread = *self.threads.current();
        // One that waits for a time, as a socket may have it, is not.
        let again = action.has(SA_RESTART)
            && thread.wait.until.is_none()
            && is_made_again(thread.call, &thread.words);
        if thread.wait.done > 0 {
            registers[ANSWER] = thread.wait.done;
        } else if again {
            call_again(registers, thread.call);
        } else {
            registers[ANSWER] = word(Err(self.interrupted()));
        }
        let thread = self.threads.current();
        thread.wait = Wait::default();
        thread.signals.awaited = 0;
    }

    /// Why such a call has not come to anything; one that waits for a time tells what is left.
    fn interrupted(&mut self) -> Errno {
        let sleeps = [nr::__NR_nanosleep, nr::__NR_clock_nanosleep];
        let sleeps = sleeps.contains(&low(self.threads.now().call));
        match self.tell_left() {
            Err(error) if sleeps => error,
            _ => Errno(EINTR),
        }
    }

    /// Tells what is left of the time for which the current call waits, or has waited, if it is
    /// one that tells.
    pub(in crate::linux) fn tell_left(&mut self) -> Result<(), Errno> {
        let thread = *self.threads.current();
        let (to, unit) = match low(thread.call) {
            nr::__NR_nanosleep => (thread.words[1], 1),
            nr::__NR_clock_nanosleep if thread.words[1] & u64::from(TIMER_ABSTIME) == 0 => {
                (thread.words[3], 1)
            }
            nr::__NR_select => (thread.words[4], MICRO),
            nr::__NR_pselect6 => (thread.words[4], 1),
            nr::__NR_ppoll => (thread.words[2], 1),
            _ => (0, 1),
        };
        if to != 0
            && let Some(until) = thread.wait.until
        {
            let left = until.saturating_sub(self.machine.now());
            return self.write_words(to, &[left / SECOND, left % SECOND / unit]);
        }
        Ok(())
    }

    /// Ends a handler (`rt_sigreturn`).
    pub(in crate::linux) fn leave_handler(&mut self) -> Next {
        self.threads.current().state = State::Ready(0);
        if self.end_handler().is_ok() {
            return Next::Resume;
        }
        match self.force(Info::of_system(SIGSEGV)) {
            Ok(()) => Next::Resume,
            Err(0) => {
                let text = format_args!("the program returns from a signal with a wrong frame");
                self.machine.note(text);
                Next::Exit(ENDED_BY + u64::from(SIGSEGV))
            }
            Err(status) => Next::Exit(status),
        }
    }

    /// Nobody could have the program go on.
    fn cannot_stop(&mut self, signal: u32) -> u64 {
        let text = format_args!(
            "the system sphere does not stop programs: the program ends by signal {signal}"
        );
        self.machine.note(text);
        ENDED_BY + u64::from(signal)
    }
}
