//! Taking signals: where a thread goes on, or waits in a call.

use super::{ENDED_BY, Effect, OWN_FAULTS, Set, Whom, bit};
use crate::linux::{Machine, Process};

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
        let signal = first(self.signals.pending & these)?;
        Some((Whom::Process, signal))
    }

    /// The next one that the current thread has to take.
    fn next_due(&mut self) -> Option<(Whom, u32)> {
        let own = self.threads.current().signals;
        let mut these = !own.mask;
        if (own.pending | self.signals.pending) & these == 0 {
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
            self.take_signal(whom, signal);
            match self.signals.effect(signal) {
                Effect::Ignore => {}
                Effect::End => return Some(ENDED_BY + u64::from(signal)),
                Effect::Stop => return Some(self.cannot_stop(signal)),
                Effect::Handle => self.tell_undelivered(signal),
            }
        }
        self.ended
    }

    /// Nobody could have the program go on.
    fn cannot_stop(&mut self, signal: u32) -> u64 {
        let text = format_args!(
            "the system sphere does not stop programs: the program ends by signal {signal}"
        );
        self.machine.note(text);
        ENDED_BY + u64::from(signal)
    }

    fn tell_undelivered(&mut self, signal: u32) {
        let text = format_args!(
            "the system sphere does not deliver signals: the program does not get signal \
             {signal}, which it handles"
        );
        self.tell_once(linux_raw_sys::general::__NR_rt_sigaction.into(), text);
    }
}
