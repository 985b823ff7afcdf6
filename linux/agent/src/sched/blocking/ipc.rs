//! Semaphores, message queues and locks of files: none of them can be polled, so they are tried.

use linux_raw_sys::errno::{EAGAIN, EIDRM, EINTR, EINVAL, ENOMSG, ETIMEDOUT};
use rcoe_linux_syscalls::Arg;

use crate::convert::low32;
use crate::memory::guest;
use crate::sched::blocking::{IPC_NOWAIT, Try};
use crate::sched::timeouts;
use crate::sys::{self, never_waits, semaphores};

/// To receive a copy of a message, which is for those only who do not wait.
const MSG_COPY: u32 = 0o40000;
/// Most operations on semaphores at once.
const SEMOPM: u64 = 500;

impl Try<'_> {
    /// Without any time of its own the call does not wait.
    pub(super) fn semaphores(&self) -> i64 {
        let [id, operations, count, ..] = *self.args;
        // SAFETY: the program's own array; the kernel checks its address.
        let result = unsafe { semaphores::operate_now(id, operations, count) };
        let result = self.unless_removed(result);
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
        let receives = matches!(self.call.what.args[1], Arg::OutMsg { .. });
        if receives && low32(args[flags]) & MSG_COPY != 0 {
            // An error without the flag that is added below.
            return self.make(args);
        }
        args[flags] |= u64::from(IPC_NOWAIT);
        let result = self.unless_removed(self.make(args));
        if [EAGAIN, ENOMSG].map(sys::error).contains(&result) {
            return self.later(result);
        }
        result
    }

    /// A time that is over makes the call one that does not wait. `None` to make it as it is, if
    /// its own time is malformed or its queue never waits.
    pub(super) fn mail(&self) -> Option<i64> {
        const TIME: usize = 4;
        let malformed = self.args[TIME] != 0
            && !timeouts::timespec(self.args[TIME]).is_ok_and(|time| time.is_some());
        if malformed || never_waits(self.args[0]) {
            return None;
        }
        let over = [0_u64; 2];
        let mut args = *self.args;
        args[TIME] = over.as_ptr() as u64;
        let result = self.make(args);
        let waits = [ETIMEDOUT, EINTR].map(sys::error).contains(&result);
        Some(if waits {
            self.later(sys::error(ETIMEDOUT))
        } else {
            result
        })
    }

    /// What was there when the wait began, and is not any more, was removed.
    fn unless_removed(&self, result: i64) -> i64 {
        if self.asked && result == sys::error(EINVAL) {
            sys::error(EIDRM)
        } else {
            result
        }
    }

    /// `now`: the command that does not wait.
    pub(super) fn file_lock(&self, now: u8) -> i64 {
        self.with(1, u64::from(now))
    }
}
