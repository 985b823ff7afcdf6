//! Common calls of a program with several threads: made at once if they need no wait.
//!
//! Intuition: a call that waits would hold up all threads, so [`crate::sched::blocking`] asks the
//! host before it makes one. Most calls need no wait, and the host can be told to make just these:
//! by a flag of sockets, or of `preadv2` and its kin. That is one call of the host's instead of
//! three.
//!
//! What would wait, and what the host cannot say so of, is left to the long way before anything was
//! done.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::errno::{EAGAIN, EINVAL, ENOSYS, ENOTSOCK, EOPNOTSUPP};
use rcoe_linux_syscalls::{Arg, Time, Waits};

use crate::calls::Call;
use crate::calls::descriptors::Vector;
use crate::sched::blocking::{self, NEVER_WAITS};
use crate::sys;
use crate::sys::numbers::{MSG_DONTWAIT, MSG_WAITALL};

/// Longer than the host reads or writes at a time: it would cut a single buffer, and refuse a
/// vector.
const TOO_LONG: u64 = i32::MAX as u64 & !0xfff;

/// Makes the call if it needs no wait; less than [`blocking::PARTIAL`] if the rest of it does. None
/// if nothing was done.
#[inline(never)]
pub(super) fn make(call: &Call) -> Option<i64> {
    match blocking::manner(call) {
        Waits::Plain => Some(with(call, call.raw)),
        Waits::Read => match from_socket(call) {
            Some(result) => unless_waiting(call, result),
            None => {
                let result = vector(call, |fd, parts, count| {
                    // SAFETY: the program's own buffers, which are not the agent's.
                    unsafe { sys::read_now(fd, parts, count) }
                });
                result.map(|result| received(call, result))
            }
        },
        Waits::Write => {
            let result = vector(call, |fd, parts, count| {
                // SAFETY: as above.
                unsafe { sys::write_now(fd, parts, count) }
            });
            result.map(|result| sent(call, result))
        }
        Waits::Receive(flags) => {
            let flags = usize::from(flags);
            let waits_for_all = call.raw[flags] & MSG_WAITALL != 0;
            if waits_for_all && call.raw[flags] & NEVER_WAITS == 0 {
                return None;
            }
            on_socket(call, flags)
        }
        Waits::Send(flags) => {
            let flags = usize::from(flags);
            let result = on_socket(call, flags)?;
            let waits = call.raw[flags] & MSG_DONTWAIT == 0;
            Some(if waits { sent(call, result) } else { result })
        }
        Waits::Poll | Waits::Epoll => match call.what.facts.time {
            Time::Milliseconds(time) if call.arg(usize::from(time)) == 0 => {
                Some(with(call, call.raw))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The call with these arguments.
fn with(call: &Call, args: [u64; 6]) -> i64 {
    // SAFETY: the program's own call; it is none that changes mappings, signal handling or the
    // agent's own state, and its pointers are not the agent's.
    unsafe { rcoe_linux_sys::syscall6(call.nr, args) }
}

/// On a socket, which takes flags.
fn on_socket(call: &Call, flags: usize) -> Option<i64> {
    let mut args = call.raw;
    args[flags] |= MSG_DONTWAIT;
    let asked = call.raw[flags] & NEVER_WAITS != 0;
    let result = with(call, args);
    let waits = result == sys::error(EAGAIN) && !asked && !sys::never_waits(call.raw[0]);
    (!waits).then_some(result)
}

/// What a socket gives for a call that reads into one buffer: the same as for one that receives,
/// which it can be told not to wait with. `None` if nothing was done.
fn from_socket(call: &Call) -> Option<i64> {
    let [fd, buffer, len, ..] = call.raw;
    let single = matches!(call.what.args[1], Arg::OutBuf { .. });
    // Reading nothing takes no message out, as receiving nothing does.
    if !single || len == 0 || OTHERS.names(fd) {
        return None;
    }
    // SAFETY: the program's own buffer, which is not the agent's.
    let result = unsafe { sys::sockets::receive_now(fd, buffer, len) };
    if result == sys::error(ENOTSOCK) {
        OTHERS.note(fd);
        return None;
    }
    Some(result)
}

/// The result of a call that was told not to wait; none if it is to wait.
fn unless_waiting(call: &Call, result: i64) -> Option<i64> {
    let waits = result == sys::error(EAGAIN) && !sys::never_waits(call.raw[0]);
    (!waits).then_some(result)
}

/// By a call that takes a vector: of the program's buffer, or vector.
fn vector(call: &Call, make: impl FnOnce(u64, u64, u64) -> i64) -> Option<i64> {
    let [fd, address, len, ..] = call.raw;
    if REFUSALS.names(fd) {
        return None;
    }
    let result = match call.what.args[1] {
        Arg::IovIn { .. } | Arg::IovOut { .. } => make(fd, address, len),
        _ if len > TOO_LONG => return None,
        _ => {
            let parts = [address, len];
            make(fd, (&raw const parts) as u64, 1)
        }
    };
    if result >= 0 {
        return Some(result);
    }
    if [EOPNOTSUPP, EINVAL, ENOSYS]
        .map(sys::error)
        .contains(&result)
    {
        REFUSALS.note(fd);
        return None;
    }
    let waits = result == sys::error(EAGAIN) && may_wait(fd);
    (!waits).then_some(result)
}

/// Does a call on this descriptor wait if it must? Those on disks do whatever the descriptor says.
fn may_wait(fd: u64) -> bool {
    !sys::never_waits(fd) || is_on_disk(fd)
}

fn is_on_disk(fd: u64) -> bool {
    const REGULAR: u32 = 0o100_000;
    const BLOCK: u32 = 0o060_000;
    [REGULAR, BLOCK].contains(&sys::type_bits(fd))
}

/// What a call that reads comes to with this result: of a file the host gives what it has in
/// memory, and the rest of what is asked for must be waited for.
fn received(call: &Call, result: i64) -> i64 {
    let single = matches!(call.what.args[1], Arg::OutBuf { .. });
    let whole = single && result.cast_unsigned() == call.arg(2);
    if result <= 0 || whole || !is_on_disk(call.raw[0]) {
        return result;
    }
    let Ok(rest) = Vector::of(call, result.cast_unsigned(), u64::MAX) else {
        return result;
    };
    if rest.bytes == 0 {
        return result;
    }
    // SAFETY: what is left of the program's own buffers.
    let more = unsafe { sys::read_parts(call.raw[0], rest.address(), rest.count().into()) };
    result + more.max(0)
}

/// What a call that sends comes to with this result: a part does only where the program has said
/// that it does not want to wait.
fn sent(call: &Call, result: i64) -> i64 {
    let Ok(sent) = u64::try_from(result) else {
        return result;
    };
    let single = matches!(call.what.args[1], Arg::InBuf { .. });
    if single && sent == call.arg(2) {
        return result;
    }
    rest(call, result, sent)
}

#[cold]
fn rest(call: &Call, result: i64, sent: u64) -> i64 {
    let total = Vector::of(call, 0, u64::MAX).map(|vector| vector.bytes);
    if total == Ok(sent) || !may_wait(call.raw[0]) {
        result
    } else {
        blocking::PARTIAL - result
    }
}

/// Descriptors that the host could not be asked something of: it is not worth while to ask again
/// soon. Only a hint, as descriptors come and go.
struct Refusals {
    /// Descriptors, one bit each; those from 64 on share one.
    fds: AtomicU64,
    /// How often it was gone by.
    hits: AtomicU64,
}

/// Those of which it cannot say whether they wait.
#[unsafe(link_section = ".bss.own.1")]
static REFUSALS: Refusals = Refusals::new();

/// Those that are no sockets.
#[unsafe(link_section = ".bss.own.1")]
static OTHERS: Refusals = Refusals::new();

impl Refusals {
    /// None so far.
    const fn new() -> Self {
        Self {
            fds: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }
    /// Times that it is gone by before the host is asked again.
    const TRUSTED: u64 = 256;

    const fn bit(fd: u64) -> u64 {
        1 << if fd < 63 { fd } else { 63 }
    }

    fn note(&self, fd: u64) {
        let fds = self.fds.load(Ordering::Relaxed);
        self.fds.store(fds | Self::bit(fd), Ordering::Relaxed);
    }

    fn names(&self, fd: u64) -> bool {
        if self.fds.load(Ordering::Relaxed) & Self::bit(fd) == 0 {
            return false;
        }
        let hits = self.hits.load(Ordering::Relaxed);
        let over = hits >= Self::TRUSTED;
        self.hits
            .store(if over { 0 } else { hits + 1 }, Ordering::Relaxed);
        if over {
            self.fds.store(0, Ordering::Relaxed);
        }
        !over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_kept_for_a_while() {
        let refusals = Refusals::new();
        assert!(!refusals.names(3));
        refusals.note(3);
        refusals.note(200);
        assert!(refusals.names(3) && refusals.names(100) && !refusals.names(4));
        let asked_again = (0..1000).any(|_| !refusals.names(3));
        assert!(asked_again && !refusals.names(3), "descriptors come and go");
    }
}
