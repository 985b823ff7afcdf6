//! Reading and writing without waiting: streams, sockets, and what moves between descriptors.

use linux_raw_sys::errno::{EAGAIN, EALREADY, EINPROGRESS, EINTR};
use linux_raw_sys::general::{F_GETFL, F_SETFL, O_NONBLOCK, POLLIN, POLLOUT, SPLICE_F_NONBLOCK};

use crate::calls::PARKED;
use crate::calls::descriptors::Vector;
use crate::sched::blocking::vain::is_malformed;
use crate::sched::blocking::{PARTIAL, Try};
use crate::sys::numbers::{MSG_DONTWAIT, MSG_WAITALL};
use crate::sys::polling::is_ready;
use crate::sys::terminals::is_terminal;
use crate::sys::{self, S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK, fcntl, never_waits, type_bits};

/// Bytes that a pipe takes at once whenever it is writable.
const PIPE_BUF: u64 = 4096;
/// Bytes that a socket or pipe takes at once when it is writable, mostly.
const MOST_SENT: u64 = 32 * 1024;
/// Flags with which nothing is waited for: urgent data and errors are there or not.
pub(crate) const NEVER_WAITS: u64 = 0x1 | MSG_DONTWAIT | 0x2000;

/// Do these flags of `splice` say that it does not wait for what is to be read?
pub(super) const fn says_at_once(flags: u64) -> bool {
    flags & SPLICE_F_NONBLOCK as u64 != 0
}

/// What a call comes to while a descriptor does not wait. So it is for all who have its file open:
/// only where a call cannot be told by itself.
fn without_waiting(fd: u64, call: impl FnOnce() -> i64) -> i64 {
    let flags = fcntl(fd, F_GETFL, 0);
    fcntl(fd, F_SETFL, flags | u64::from(O_NONBLOCK));
    let result = call();
    fcntl(fd, F_SETFL, flags);
    result
}

impl Try<'_> {
    pub(super) fn read(&self) -> Option<i64> {
        if is_ready(self.fd(), POLLIN) || never_waits(self.fd()) {
            return None;
        }
        if !self.asked
            && let Some(result) = self.read_in_vain()
        {
            return result;
        }
        Some(self.later(sys::error(EAGAIN)))
    }

    pub(super) fn receive(&self, flags: usize) -> Option<i64> {
        let wanted = self.args[flags];
        if wanted & NEVER_WAITS != 0 {
            return None;
        }
        if wanted & MSG_WAITALL != 0 {
            return self.receive_all();
        }
        let mut args = *self.args;
        args[flags] |= MSG_DONTWAIT;
        let result = self.make(args);
        if result == sys::error(EAGAIN) && never_waits(self.fd()) {
            return Some(result);
        }
        Some(self.unless_again(result))
    }

    /// Nothing is received before all can be, as far as a poll tells.
    fn receive_all(&self) -> Option<i64> {
        let waits = !is_ready(self.fd(), POLLIN)
            && !never_waits(self.fd())
            && type_bits(self.fd()) == S_IFSOCK;
        waits.then(|| self.later(sys::error(EAGAIN)))
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
    pub(crate) const fn failed(&self, error: i64) -> i64 {
        if self.progress > 0 {
            self.progress.cast_signed()
        } else {
            error
        }
    }

    /// Judges what a part has sent of `left` bytes. A terminal takes nothing from whoever is called
    /// away, even if it does not wait: a signal of the program's ends the wait for the next part.
    pub(crate) fn sent(&self, result: i64, left: u64) -> i64 {
        if [EAGAIN, EINTR].map(sys::error).contains(&result) {
            return self.later(sys::error(EAGAIN));
        }
        match u64::try_from(result) {
            Ok(sent) if sent < left => PARTIAL - result,
            Ok(sent) => (self.progress + sent).cast_signed(),
            Err(_) => self.failed(result),
        }
    }

    /// All bytes that the call sends, or `None` if that is not to be known.
    pub(crate) fn total(&self) -> Option<u64> {
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
            let vain = !self.asked && self.is_written_in_vain();
            return (!vain).then(|| self.later(sys::error(EAGAIN)));
        }
        if is_malformed(self.call) {
            return None;
        }
        let vector = Vector::of(self.call, self.progress, u64::MAX).ok()?;
        let left = vector.bytes;
        let kind = type_bits(self.fd());
        match kind {
            S_IFCHR if is_terminal(self.fd()) => {
                let result = without_waiting(self.fd(), || vector.write(self.fd()));
                Some(self.sent(result, left))
            }
            _ if self.progress == 0 && left <= PIPE_BUF => None,
            S_IFSOCK => Some(self.sent(vector.send(self.fd(), 0), left)),
            S_IFIFO => {
                let part = Vector::of(self.call, self.progress, PIPE_BUF).ok()?;
                Some(self.sent(part.write(self.fd()), left))
            }
            _ => None,
        }
    }

    /// From one of these descriptors to the other.
    pub(super) fn send_file(&self, from: usize, to: usize) -> Option<i64> {
        let (from, to) = (self.args[from], self.args[to]);
        if never_waits(from) || never_waits(to) {
            return None;
        }
        if !is_ready(from, POLLIN) || !is_ready(to, POLLOUT) {
            return self.move_in_vain(from, to, None);
        }
        // It may always send less, but goes on until all is sent if it is let. To a file it may be.
        let mut args = *self.args;
        let less = args[3] > MOST_SENT && type_bits(to) != S_IFREG;
        args[3] = args[3].min(MOST_SENT);
        less.then(|| self.make(args))
    }

    /// The same where one of both is a pipe, with flags in that argument: they speak of pipes, and
    /// of what is read, not of what waits for room elsewhere.
    pub(super) fn splice(&self, from: usize, to: usize, flags: usize) -> Option<i64> {
        let (from, to) = (self.args[from], self.args[to]);
        let at_once = says_at_once(self.args[flags]);
        let takes = type_bits(to);
        let is_plain = at_once && takes == S_IFIFO || never_waits(from) || never_waits(to);
        if is_plain || at_once && !is_ready(from, POLLIN) {
            return None;
        }
        if !is_ready(from, POLLIN) || !is_ready(to, POLLOUT) {
            return self.move_in_vain(from, to, Some(flags));
        }
        let waits = takes == S_IFSOCK || takes == S_IFCHR && is_terminal(to);
        waits.then(|| self.unless_again(without_waiting(to, || self.make(*self.args))))
    }

    /// Bytes cannot be moved yet: a call on pipes says so by itself, or what is wrong with it.
    fn move_in_vain(&self, from: u64, to: u64, flags: Option<usize>) -> Option<i64> {
        let unready = if is_ready(from, POLLIN) { to } else { from };
        if let Some(flags) = flags
            && type_bits(unready) == S_IFIFO
        {
            return Some(self.with(flags, self.args[flags] | u64::from(SPLICE_F_NONBLOCK)));
        }
        // One of two that are spliced is a pipe, and only files that are always ready are sent.
        let vain = if flags.is_some() {
            ![from, to].map(type_bits).contains(&S_IFIFO)
        } else {
            unready == from
        };
        (!vain && type_bits(unready) != 0).then(|| self.later(sys::error(EAGAIN)))
    }

    pub(super) fn connect(&self) -> Option<i64> {
        if self.asked && !is_ready(self.fd(), POLLOUT) {
            return Some(self.later(sys::error(EINPROGRESS)));
        }
        if !self.asked && never_waits(self.fd()) {
            return None;
        }
        // Made again once it is known what came of it: only then does the socket count as
        // connected, or as one that may connect elsewhere.
        let result = without_waiting(self.fd(), || self.make(*self.args));
        let waits = [EINPROGRESS, EALREADY].map(sys::error).contains(&result);
        if waits {
            return Some(PARKED);
        }
        // A listener of the same machine that is busy cannot be polled for.
        (result != sys::error(EAGAIN)).then_some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Call;

    const WRITE: u64 = 1;

    /// What a write comes to of which so much was sent, and whose next part gives this.
    fn after(progress: u64, result: i64) -> i64 {
        let args = [7, 4096, 100, 0, 0, 0];
        let call = Call::new(WRITE, args).expect("known");
        let now = Try {
            call: &call,
            args: &args,
            expired: false,
            progress,
            asked: progress > 0,
        };
        now.sent(result, 100 - progress)
    }

    #[test]
    fn whoever_is_called_away_from_a_terminal_goes_on_later() {
        assert_eq!(after(0, sys::error(EINTR)), PARKED);
        assert_eq!(after(40, sys::error(EINTR)), PARKED);
        assert_eq!(after(40, sys::error(EAGAIN)), PARKED);
        assert_eq!(after(40, 10), PARTIAL - 10);
        assert_eq!(after(40, 60), 100);
        assert_eq!(after(40, sys::error(linux_raw_sys::errno::EIO)), 40);
    }
}
