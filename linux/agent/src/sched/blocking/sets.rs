//! Calls that wait for many descriptors, asked once without waiting.

use crate::calls::PARKED;
use crate::convert::size;
use crate::memory::guest;
use crate::sched::blocking::Try;
use crate::sched::blocking::deadlines::duration;
use crate::sys::events::events_now;
use crate::sys::polling::{poll_now, select_now};

/// Bytes of the largest set of descriptors that `select` is tried with.
const SET_BYTES: usize = 8192;

impl Try<'_> {
    /// A call that waits for many has come back with nothing.
    fn nothing_yet(&self, result: i64) -> i64 {
        let at_once = duration(self.call) == Ok(Some(0));
        if result != 0 || at_once || self.expired {
            result
        } else {
            PARKED
        }
    }

    pub(super) fn poll(&self) -> Option<i64> {
        duration(self.call).ok()?;
        let [fds, count, ..] = *self.args;
        // SAFETY: the program's own array; the kernel checks its address.
        let result = unsafe { poll_now(fds, count) };
        Some(self.nothing_yet(result))
    }

    pub(super) fn epoll(&self) -> Option<i64> {
        duration(self.call).ok()?;
        let [set, array, most, ..] = *self.args;
        // SAFETY: the program's own array; the kernel checks its address.
        let result = unsafe { events_now(set, array, most) };
        Some(self.nothing_yet(result))
    }

    /// Sets that the kernel clears when nothing is ready, so it gets copies.
    pub(super) fn select(&self) -> Option<i64> {
        duration(self.call).ok()?;
        let count = self.args[0];
        let bytes = size(rcoe_linux_syscalls::Arg::fd_set_bytes(count));
        if bytes > SET_BYTES {
            return None;
        }
        let mut sets = [[0_u64; SET_BYTES / 8]; 3];
        let mut places = [0; 3];
        for (i, set) in sets.iter_mut().enumerate() {
            if self.args[1 + i] != 0 {
                guest::copy_in(&mut as_bytes(set)[..bytes], self.args[1 + i]).ok()?;
                places[i] = set.as_mut_ptr() as u64;
            }
        }
        // SAFETY: the sets are valid.
        let result = unsafe { select_now(count, places) };
        let judged = self.nothing_yet(result);
        if judged >= 0 {
            for (i, set) in sets.iter_mut().enumerate() {
                if self.args[1 + i] != 0 {
                    guest::copy_out(self.args[1 + i], &as_bytes(set)[..bytes]).ok()?;
                }
            }
        }
        Some(judged)
    }
}

/// The bytes of these words.
fn as_bytes(words: &mut [u64; SET_BYTES / 8]) -> &mut [u8; SET_BYTES] {
    // SAFETY: the same memory; bytes have no alignment and no invalid values.
    unsafe { &mut *words.as_mut_ptr().cast::<[u8; SET_BYTES]>() }
}
