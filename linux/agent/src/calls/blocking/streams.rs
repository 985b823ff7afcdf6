//! Reading and writing without waiting: streams, sockets, and what moves between descriptors.

use linux_raw_sys::errno::{EAGAIN, EALREADY, EINPROGRESS};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{F_GETFL, F_SETFL, O_NONBLOCK, POLLIN, POLLOUT};

use super::{PARTIAL, Try};
use crate::calls::PARKED;
use crate::calls::descriptors::{
    S_IFIFO, S_IFSOCK, Vector, fcntl, file_type, is_ready, never_waits, socket_error,
};
use crate::sys;

/// Bytes that a pipe takes at once whenever it is writable.
const PIPE_BUF: u64 = 4096;
/// Bytes that a socket or pipe takes at once when it is writable, mostly.
const MOST_SENT: u64 = 32 * 1024;
const MSG_DONTWAIT: u64 = 0x40;

impl Try<'_> {
    pub(super) fn read(&self) -> Option<i64> {
        if is_ready(self.fd(), POLLIN) || never_waits(self.fd()) {
            return None;
        }
        Some(self.later(sys::error(EAGAIN)))
    }

    pub(super) fn receive(&self, flags: usize) -> Option<i64> {
        const MSG_WAITALL: u64 = 0x100;
        let wanted = self.args[flags];
        if wanted & MSG_DONTWAIT != 0 {
            return None;
        }
        if wanted & MSG_WAITALL != 0 {
            return self.read();
        }
        let mut args = *self.args;
        args[flags] |= MSG_DONTWAIT;
        let result = self.make(args);
        if result == sys::error(EAGAIN) && never_waits(self.fd()) {
            return Some(result);
        }
        Some(self.unless_again(result))
    }

    pub(super) fn send(&self, flags: usize) -> Option<i64> {
        if self.args[flags] & MSG_DONTWAIT != 0 || never_waits(self.fd()) {
            return None;
        }
        let total = self.total()?;
        if self.progress == 0 {
            let mut args = *self.args;
            args[flags] |= MSG_DONTWAIT;
            return Some(self.sent(self.make(args), total));
        }
        Some(self.send_rest(self.args[flags], total))
    }

    /// An error counts only if nothing was sent before.
    pub(in crate::calls) const fn failed(&self, error: i64) -> i64 {
        if self.progress > 0 {
            self.progress.cast_signed()
        } else {
            error
        }
    }

    /// Judges what a part has sent of `left` bytes.
    pub(in crate::calls) fn sent(&self, result: i64, left: u64) -> i64 {
        if result == sys::error(EAGAIN) {
            return self.later(result);
        }
        match u64::try_from(result) {
            Ok(sent) if sent < left => PARTIAL - result,
            Ok(sent) => (self.progress + sent).cast_signed(),
            Err(_) => self.failed(result),
        }
    }

    /// All bytes that the call sends, or `None` if that is not to be known.
    pub(in crate::calls) fn total(&self) -> Option<u64> {
        let Ok(vector) = Vector::of(self.call, 0, u64::MAX) else {
            return None;
        };
        Some(vector.bytes)
    }

    fn send_rest(&self, flags: u64, total: u64) -> i64 {
        let Ok(vector) = Vector::of(self.call, self.progress, u64::MAX) else {
            return self.progress.cast_signed();
        };
        self.sent(vector.send(self.fd(), flags), total - self.progress)
    }

    pub(super) fn write(&self) -> Option<i64> {
        if self.progress == 0 && never_waits(self.fd()) {
            return None;
        }
        if !is_ready(self.fd(), POLLOUT) {
            return Some(self.later(sys::error(EAGAIN)));
        }
        let vector = Vector::of(self.call, self.progress, u64::MAX).ok()?;
        if self.progress == 0 && vector.bytes <= PIPE_BUF {
            return None;
        }
        let left = vector.bytes;
        match file_type(self.fd()) {
            S_IFSOCK => Some(self.sent(vector.send(self.fd(), 0), left)),
            S_IFIFO => {
                let part = Vector::of(self.call, self.progress, PIPE_BUF).ok()?;
                Some(self.sent(part.write(self.fd()), left))
            }
            _ => None,
        }
    }

    pub(super) fn transfer(&self, from: usize, to: usize) -> Option<i64> {
        let (from, to) = (self.args[from], self.args[to]);
        if never_waits(from) || never_waits(to) {
            return None;
        }
        if !is_ready(from, POLLIN) || !is_ready(to, POLLOUT) {
            return Some(self.later(sys::error(EAGAIN)));
        }
        // `sendfile` may always send less, but goes on until all is sent if it is let.
        let mut args = *self.args;
        let all = self.call.nr != u64::from(nr::__NR_sendfile) || args[3] <= MOST_SENT;
        args[3] = args[3].min(MOST_SENT);
        (!all).then(|| self.make(args))
    }

    pub(super) fn connect(&self) -> Option<i64> {
        if self.asked {
            let error = if is_ready(self.fd(), POLLOUT) {
                socket_error(self.fd())
            } else {
                return Some(self.later(sys::error(EINPROGRESS)));
            };
            return Some(error);
        }
        if never_waits(self.fd()) {
            return None;
        }
        let flags = fcntl(self.fd(), F_GETFL, 0);
        fcntl(self.fd(), F_SETFL, flags | u64::from(O_NONBLOCK));
        let result = self.make(*self.args);
        fcntl(self.fd(), F_SETFL, flags);
        let waits = [EINPROGRESS, EALREADY].map(sys::error).contains(&result);
        if waits {
            return Some(PARKED);
        }
        // A listener of the same machine that is busy cannot be polled for.
        (result != sys::error(EAGAIN)).then_some(result)
    }
}
