//! Signals, as far as a program can set them up: what it says is kept and told, and none comes but
//! those that it sends to itself and does not handle.

use linux_raw_sys::errno::{EINVAL, ESRCH};
use linux_raw_sys::general::{
    SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGURG, SIGWINCH,
};

use super::calls::{Next, PROCESS};
use super::{Answer, Errno, Machine, Process};

/// Signals.
const SIGNALS: usize = 64;
/// Words of what is said of one: handler, flags, restorer, mask.
const WORDS: usize = 4;

/// What a signal does.
enum Action {
    Ignore,
    /// It ends the program with this status.
    End(u64),
    /// The program handles it.
    Handle,
}

/// What a program has said of signals.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    actions: [[u64; WORDS]; SIGNALS],
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            actions: [[0; WORDS]; SIGNALS],
        }
    }
}

fn index(signal: u64) -> Result<usize, Errno> {
    let signal = usize::try_from(signal & 0xffff_ffff).unwrap_or(0);
    let known = (1..=SIGNALS).contains(&signal);
    known.then(|| signal - 1).ok_or(Errno(EINVAL))
}

impl<M: Machine> Process<'_, M> {
    /// `rt_sigaction`.
    pub(super) fn set_action(&mut self, [signal, new, old, size, ..]: [u64; 6]) -> Answer {
        let index = index(signal)?;
        if size != 8 {
            return Err(Errno(EINVAL));
        }
        let before = self.signals.actions[index];
        if new != 0 {
            let fixed = [SIGKILL, SIGSTOP].map(u64::from);
            if fixed.contains(&signal) {
                return Err(Errno(EINVAL));
            }
            let mut words = [0; WORDS];
            for (index, word) in words.iter_mut().enumerate() {
                *word = self.word(new.wrapping_add(8 * index as u64))?;
            }
            self.signals.actions[index] = words;
        }
        if old != 0 {
            self.write_words(old, &before)?;
        }
        Ok(0)
    }

    /// `rt_sigprocmask`.
    pub(super) fn set_mask(&mut self, [how, new, old, size, ..]: [u64; 6]) -> Answer {
        if size != 8 {
            return Err(Errno(EINVAL));
        }
        let before = self.threads.current().mask;
        if new != 0 {
            let set = self.word(new)?;
            self.threads.current().mask = match u32::try_from(how) {
                Ok(SIG_BLOCK) => before | set,
                Ok(SIG_UNBLOCK) => before & !set,
                Ok(SIG_SETMASK) => set,
                _ => return Err(Errno(EINVAL)),
            };
        }
        if old != 0 {
            self.write_words(old, &[before])?;
        }
        Ok(0)
    }

    /// `kill` and its kin: a signal of the program to itself.
    pub(super) fn send_signal(&mut self, number: u64, whom: u64, signal: u64) -> Next {
        let whom = whom & 0xffff_ffff;
        let to_itself = [0, PROCESS].contains(&whom) || self.threads.has(whom);
        if !to_itself {
            return Next::Answer(Err(Errno(ESRCH)));
        }
        if signal & 0xffff_ffff == 0 {
            return Next::Answer(Ok(0));
        }
        let Ok(index) = index(signal) else {
            return Next::Answer(Err(Errno(EINVAL)));
        };
        match self.action(index) {
            Action::Ignore => Next::Answer(Ok(0)),
            Action::End(status) => Next::Exit(status),
            Action::Handle => Next::Answer(Err(self.refuse(number))),
        }
    }

    fn action(&self, index: usize) -> Action {
        let signal = index as u64 + 1;
        let ignored = [SIGCHLD, SIGCONT, SIGURG, SIGWINCH].map(u64::from);
        match self.signals.actions[index][0] {
            0 if ignored.contains(&signal) => Action::Ignore,
            0 => Action::End(128 + signal),
            1 => Action::Ignore,
            _ => Action::Handle,
        }
    }

    /// A call brings a signal beside its error. One that the program handles is not delivered, and
    /// the user is told.
    pub(super) fn raise(&mut self, signal: u64) {
        let Ok(index) = index(signal) else {
            return;
        };
        let blocked = self.threads.current().mask >> index & 1 != 0;
        match self.action(index) {
            Action::End(status) if !blocked => self.ended = Some(status),
            Action::Handle if !blocked => {
                let text = format_args!(
                    "the system sphere does not deliver signals: the program does not get \
                     signal {signal}, which it handles"
                );
                self.tell_once(linux_raw_sys::general::__NR_rt_sigaction.into(), text);
            }
            _ => {}
        }
    }
}
