//! Semaphores, message queues and locks of files: none of them can be polled, so they are tried.

use linux_raw_sys::errno::{EAGAIN, EIDRM, EINVAL, ENOMSG};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{F_OFD_SETLK, F_SETLK, F_SETLKW};

use super::{IPC_NOWAIT, Try};
use crate::calls::descriptors::{NOW, raw};
use crate::convert::low32;
use crate::{guest, sys};

/// Most operations on semaphores at once.
const SEMOPM: u64 = 500;

impl Try<'_> {
    /// Without any time of its own the call does not wait.
    pub(super) fn semaphores(&self) -> i64 {
        let now = NOW;
        let [id, operations, count, ..] = *self.args;
        let args = [id, operations, count, now.as_ptr() as u64, 0, 0];
        // SAFETY: the program's own array; the kernel checks its address.
        let result = self.unless_removed(unsafe { raw(nr::__NR_semtimedop, args) });
        if result == sys::error(EAGAIN) && !self.has_impatient() {
            return self.later(result);
        }
        result
    }

    /// Does an operation itself say that it does not wait?
    fn has_impatient(&self) -> bool {
        // Number, change and flags, two bytes each.
        let flags = |i| guest::read::<[u8; 2]>(self.args[1] + 6 * i + 4).map(u16::from_le_bytes);
        (0..self.args[2].min(SEMOPM))
            .any(|i| flags(i).is_ok_and(|flags| u32::from(flags) & IPC_NOWAIT != 0))
    }

    pub(super) fn queue(&self, flags: usize) -> i64 {
        let mut args = *self.args;
        args[flags] |= u64::from(IPC_NOWAIT);
        let result = self.unless_removed(self.make(args));
        if [EAGAIN, ENOMSG].map(sys::error).contains(&result) {
            return self.later(result);
        }
        result
    }

    /// What was there when the wait began, and is not any more, was removed.
    fn unless_removed(&self, result: i64) -> i64 {
        if self.asked && result == sys::error(EINVAL) {
            sys::error(EIDRM)
        } else {
            result
        }
    }

    pub(super) fn file_lock(&self) -> i64 {
        let now = if low32(self.args[1]) == F_SETLKW {
            F_SETLK
        } else {
            F_OFD_SETLK
        };
        self.with(1, u64::from(now))
    }
}
