//! The stack that handlers of a thread have of their own, if it says so (`sigaltstack`).

use linux_raw_sys::errno::{EINVAL, ENOMEM, EPERM};
use linux_raw_sys::general::{MINSIGSTKSZ, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK};

use crate::linux::arch::SP;
use crate::linux::{Answer, Errno, Machine, Process};

/// Such a stack: where it begins, what was said of it, and its bytes; none if that is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stack {
    at: u64,
    flags: u32,
    bytes: u64,
}

impl Stack {
    pub(super) const NONE: Self = Self {
        at: 0,
        flags: SS_DISABLE,
        bytes: 0,
    };

    /// Is this within it?
    pub(super) const fn spans(&self, sp: u64) -> bool {
        sp > self.at && sp - self.at <= self.bytes
    }

    /// Is a thread with this stack pointer on it? One that is given up when it is entered is not.
    pub(super) const fn has(&self, sp: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.spans(sp)
    }

    /// What is said of it to such a thread: that there is none, that it is on it, or nothing.
    pub(super) const fn state(&self, sp: u64) -> u32 {
        if self.bytes == 0 {
            SS_DISABLE
        } else if self.has(sp) {
            SS_ONSTACK
        } else {
            0
        }
    }

    pub(super) const fn end(&self) -> u64 {
        self.at.wrapping_add(self.bytes)
    }

    /// A handler begins, on it or not.
    pub(super) fn entered(&mut self) {
        if self.flags & SS_AUTODISARM != 0 {
            *self = Self::NONE;
        }
    }

    /// As a frame keeps it.
    pub(super) fn kept(&self) -> [u64; 3] {
        [self.at, self.flags.into(), self.bytes]
    }

    /// As a program says, whose stack pointer is this.
    ///
    /// # Errors
    /// If it is on it, or that is none.
    pub(super) fn set(&mut self, [at, flags, bytes]: [u64; 3], sp: u64) -> Result<(), Errno> {
        if self.has(sp) {
            return Err(Errno(EPERM));
        }
        let flags = u32::try_from(flags).map_err(|_| Errno(EINVAL))?;
        let new = match flags & !SS_AUTODISARM {
            SS_DISABLE => Self {
                flags,
                ..Self::NONE
            },
            0 | SS_ONSTACK if bytes < u64::from(MINSIGSTKSZ) => return Err(Errno(ENOMEM)),
            0 | SS_ONSTACK => Self { at, flags, bytes },
            _ => return Err(Errno(EINVAL)),
        };
        *self = new;
        Ok(())
    }
}

impl<M: Machine> Process<'_, M> {
    /// `sigaltstack`.
    pub(super) fn set_stack(&mut self, new: u64, old: u64) -> Answer {
        let sp = self.threads.registers()[SP];
        let mut stack = self.threads.current().signals.stack;
        let flags = stack.state(sp) | stack.flags & SS_AUTODISARM;
        let told = [stack.at, flags.into(), stack.bytes];
        if new != 0 {
            let mut words = [0; 3];
            for (index, word) in words.iter_mut().enumerate() {
                *word = self.word(new.wrapping_add(8 * index as u64))?;
            }
            words[1] &= 0xffff_ffff;
            stack.set(words, sp)?;
            self.threads.current().signals.stack = stack;
        }
        if old != 0 {
            self.write_words(old, &told)?;
        }
        Ok(0)
    }
}
