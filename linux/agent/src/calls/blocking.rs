//! Calls that may wait, in a program with several threads: the primary makes them only if they do
//! not, and otherwise the thread is parked and the call made again when what it waits for has come.
//!
//! Each call belongs to a manner, which says how to try it without waiting and what to poll for.
//! A descriptor that the program itself has made non-blocking is left to the kernel.
//!
//! Not covered: between poll and call somebody outside may take away what was ready; the call then
//! holds up all threads until there is more. So do opening a FIFO, terminal requests that drain
//! output, and MSG_WAITALL.

use linux_raw_sys::errno::{EAGAIN, EALREADY, EIDRM, EINPROGRESS, EINVAL, ENOMSG};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    F_GETFL, F_OFD_SETLK, F_OFD_SETLKW, F_SETFL, F_SETLK, F_SETLKW, LOCK_NB, O_NONBLOCK, POLLIN,
    POLLOUT, RWF_NOWAIT, SPLICE_F_NONBLOCK,
};

use super::descriptors::{
    NOW, S_IFIFO, S_IFSOCK, Vector, fcntl, file_type, is_ready, never_waits, raw, socket_error,
    socket_timeout,
};
use super::timeouts;
use super::{Call, PARKED, transfer};
use crate::convert::{low32, size};
use crate::guest::{self, Fault};
use crate::kernel::Kernel;
use crate::sys;
use crate::threads::{Cause, NEVER, Wait};

/// Below this a result says how many bytes a part of the call has sent: `PARTIAL - bytes`.
const PARTIAL: i64 = -(1 << 48);
/// Bytes that a pipe takes at once whenever it is writable.
const PIPE_BUF: u64 = 4096;
/// How often a lock that cannot be polled is tried again.
const RETRY_NS: u64 = 2_000_000;
/// Bytes that a socket or pipe takes at once when it is writable, mostly.
const MOST_SENT: u64 = 32 * 1024;
const MSG_DONTWAIT: u64 = 0x40;
const IPC_NOWAIT: u32 = 0o4000;
/// Most operations on semaphores at once.
const SEMOPM: u64 = 500;
/// Bytes of the largest set of descriptors that `select` is tried with.
const SET_BYTES: usize = 8192;

/// What a call waits for, and how to try it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Readable; the kernel may be asked.
    Read,
    /// Writable, and perhaps in several parts.
    Write,
    /// From one descriptor, the argument of this number, to another.
    Move {
        from: usize,
        to: usize,
    },
    /// A socket's own flag says not to wait. The flags are in this argument.
    Receive(usize),
    Send(usize),
    Connect,
    /// Calls that wait for many descriptors.
    Poll,
    Select,
    Epoll,
    /// A lock; only trying again helps.
    Flock,
    FileLock,
    /// A child; as a lock.
    Child,
    /// Semaphores; as a lock, but for a time at most.
    Semaphores,
    /// A message queue; as a lock. The flags are in this argument.
    Queue(usize),
    /// Nothing that is known; it is made as it is.
    Plain,
}

pub(super) fn manner(call: &Call) -> Manner {
    if asks_not_to_wait(call) {
        return Manner::Plain;
    }
    match u32::try_from(call.nr).unwrap_or(u32::MAX) {
        nr::__NR_read | nr::__NR_readv | nr::__NR_preadv2 | nr::__NR_accept | nr::__NR_accept4 => {
            Manner::Read
        }
        nr::__NR_write | nr::__NR_writev | nr::__NR_pwritev2 => Manner::Write,
        nr::__NR_sendfile => Manner::Move { from: 1, to: 0 },
        nr::__NR_splice => Manner::Move { from: 0, to: 2 },
        nr::__NR_tee => Manner::Move { from: 0, to: 1 },
        nr::__NR_recvfrom | nr::__NR_recvmmsg => Manner::Receive(3),
        nr::__NR_recvmsg => Manner::Receive(2),
        nr::__NR_sendto | nr::__NR_sendmmsg => Manner::Send(3),
        nr::__NR_sendmsg => Manner::Send(2),
        nr::__NR_connect => Manner::Connect,
        nr::__NR_poll | nr::__NR_ppoll => Manner::Poll,
        nr::__NR_select | nr::__NR_pselect6 => Manner::Select,
        nr::__NR_epoll_wait | nr::__NR_epoll_pwait | nr::__NR_epoll_pwait2 => Manner::Epoll,
        nr::__NR_flock => Manner::Flock,
        nr::__NR_fcntl if matches!(low32(call.arg(1)), F_SETLKW | F_OFD_SETLKW) => Manner::FileLock,
        nr::__NR_wait4 | nr::__NR_waitid => Manner::Child,
        nr::__NR_semop | nr::__NR_semtimedop => Manner::Semaphores,
        nr::__NR_msgsnd => Manner::Queue(3),
        nr::__NR_msgrcv => Manner::Queue(4),
        _ => Manner::Plain,
    }
}

/// Does a flag of the call itself say that it does not wait?
fn asks_not_to_wait(call: &Call) -> bool {
    let (arg, flag) = match u32::try_from(call.nr).unwrap_or(u32::MAX) {
        nr::__NR_flock => (1, LOCK_NB),
        nr::__NR_msgsnd => (3, IPC_NOWAIT),
        nr::__NR_msgrcv => (4, IPC_NOWAIT),
        nr::__NR_splice => (5, SPLICE_F_NONBLOCK),
        nr::__NR_tee => (3, SPLICE_F_NONBLOCK),
        nr::__NR_preadv2 | nr::__NR_pwritev2 => (5, RWF_NOWAIT),
        _ => return false,
    };
    low32(call.arg(arg)) & flag != 0
}

/// Primary: tries the call. `None` to make it as it is; [`PARKED`], or less than [`PARTIAL`], if
/// the thread has to wait.
pub(super) fn attempt(kernel: &Kernel, call: &Call, args: &[u64; 6]) -> Option<i64> {
    let try_now = Try::new(kernel, call, args);
    match manner(call) {
        Manner::Plain | Manner::Child => None,
        Manner::Read => try_now.read(),
        Manner::Write => try_now.write(),
        Manner::Move { from, to } => try_now.transfer(from, to),
        Manner::Receive(flags) => try_now.receive(flags),
        Manner::Send(flags) => try_now.send(flags),
        Manner::Connect => try_now.connect(),
        Manner::Poll => try_now.poll(),
        Manner::Select => try_now.select(),
        Manner::Epoll => try_now.epoll(),
        Manner::Flock => Some(try_now.with(1, args[1] | u64::from(LOCK_NB))),
        Manner::FileLock => Some(try_now.file_lock()),
        Manner::Semaphores => Some(try_now.semaphores()),
        Manner::Queue(flags) => Some(try_now.queue(flags)),
    }
}

/// Primary: has the time of the call passed? One that is tried again and again keeps it beside the
/// time until the next attempt.
fn is_over(wait: &Wait, call: &Call) -> bool {
    let apart = wait.parked && manner(call) == Manner::Semaphores;
    wait.expired || apart && wait.address != NEVER && sys::monotonic() >= wait.address
}

/// One attempt of the primary.
pub(super) struct Try<'a> {
    call: &'a Call,
    args: &'a [u64; 6],
    /// The deadline has passed.
    expired: bool,
    /// Bytes sent by earlier parts.
    pub(super) progress: u64,
    /// The call was parked before.
    asked: bool,
}

impl<'a> Try<'a> {
    /// An attempt of the running thread.
    pub(super) fn new(kernel: &Kernel, call: &'a Call, args: &'a [u64; 6]) -> Self {
        let wait = &kernel.threads.current().wait;
        Self {
            call,
            args,
            expired: is_over(wait, call),
            progress: wait.progress,
            asked: wait.parked,
        }
    }

    fn fd(&self) -> u64 {
        self.args[0]
    }

    /// The call, made with these arguments.
    fn make(&self, args: [u64; 6]) -> i64 {
        // SAFETY: the program's own call with its own buffers, or copies of them in the agent's.
        unsafe { rcoe_linux_sys::syscall6(self.call.nr, args) }
    }

    /// The call with one argument changed; EAGAIN means waiting.
    fn with(&self, index: usize, value: u64) -> i64 {
        let mut args = *self.args;
        args[index] = value;
        self.unless_again(self.make(args))
    }

    fn unless_again(&self, result: i64) -> i64 {
        if result == sys::error(EAGAIN) {
            self.later(result)
        } else {
            result
        }
    }

    /// Waiting is due, unless the time for that is over.
    pub(super) fn later(&self, over: i64) -> i64 {
        match (self.expired, self.progress) {
            (false, _) => PARKED,
            (true, 0) => over,
            (true, progress) => progress.cast_signed(),
        }
    }

    fn read(&self) -> Option<i64> {
        if is_ready(self.fd(), POLLIN) || never_waits(self.fd()) {
            return None;
        }
        Some(self.later(sys::error(EAGAIN)))
    }

    fn receive(&self, flags: usize) -> Option<i64> {
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

    fn send(&self, flags: usize) -> Option<i64> {
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
    pub(super) const fn failed(&self, error: i64) -> i64 {
        if self.progress > 0 {
            self.progress.cast_signed()
        } else {
            error
        }
    }

    /// Judges what a part has sent of `left` bytes.
    pub(super) fn sent(&self, result: i64, left: u64) -> i64 {
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
    pub(super) fn total(&self) -> Option<u64> {
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

    fn write(&self) -> Option<i64> {
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

    fn transfer(&self, from: usize, to: usize) -> Option<i64> {
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

    fn connect(&self) -> Option<i64> {
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

    /// A call that waits for many has come back with nothing.
    fn nothing_yet(&self, result: i64) -> i64 {
        let at_once = duration(self.call) == Ok(Some(0));
        if result != 0 || at_once || self.expired {
            result
        } else {
            PARKED
        }
    }

    fn poll(&self) -> Option<i64> {
        duration(self.call).ok()?;
        let now = NOW;
        let [fds, count, ..] = *self.args;
        // SAFETY: the program's own array; the kernel checks its address.
        let result = unsafe { raw(nr::__NR_ppoll, [fds, count, now.as_ptr() as u64, 0, 0, 0]) };
        Some(self.nothing_yet(result))
    }

    fn epoll(&self) -> Option<i64> {
        duration(self.call).ok()?;
        let mut args = *self.args;
        args[3] = 0;
        // SAFETY: the program's own array; the kernel checks its address.
        let result = unsafe { raw(nr::__NR_epoll_wait, args) };
        Some(self.nothing_yet(result))
    }

    /// Sets that the kernel clears when nothing is ready, so it gets copies.
    fn select(&self) -> Option<i64> {
        duration(self.call).ok()?;
        let count = self.args[0];
        let bytes = size(rcoe_linux_syscalls::Arg::fd_set_bytes(count));
        if bytes > SET_BYTES {
            return None;
        }
        let mut sets = [[0_u64; SET_BYTES / 8]; 3];
        let mut args = [count, 0, 0, 0, 0, 0];
        for (i, set) in sets.iter_mut().enumerate() {
            if self.args[1 + i] != 0 {
                guest::copy_in(&mut as_bytes(set)[..bytes], self.args[1 + i]).ok()?;
                args[1 + i] = set.as_mut_ptr() as u64;
            }
        }
        let now = NOW;
        args[4] = now.as_ptr() as u64;
        // SAFETY: sets and time are valid.
        let result = unsafe { raw(nr::__NR_pselect6, args) };
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

    /// Without any time of its own the call does not wait.
    fn semaphores(&self) -> i64 {
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

    fn queue(&self, flags: usize) -> i64 {
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

    fn file_lock(&self) -> i64 {
        let now = if low32(self.args[1]) == F_SETLKW {
            F_SETLK
        } else {
            F_OFD_SETLK
        };
        self.with(1, u64::from(now))
    }
}

/// The bytes of these words.
fn as_bytes(words: &mut [u64; SET_BYTES / 8]) -> &mut [u8; SET_BYTES] {
    // SAFETY: the same memory; bytes have no alignment and no invalid values.
    unsafe { &mut *words.as_mut_ptr().cast::<[u8; SET_BYTES]>() }
}

/// All replicas: parks the thread if that is what the attempt came to.
pub(super) fn settle(kernel: &mut Kernel, call: &Call, result: i64) -> i64 {
    if result != PARKED && result > PARTIAL {
        tell_rest(kernel, call);
        return result;
    }
    if result <= PARTIAL {
        let sent = (PARTIAL - result).cast_unsigned();
        kernel.threads.current_mut().wait.progress += sent;
    }
    let wait = kernel.threads.current().wait;
    let manner = manner(call);
    let again = matches!(
        manner,
        Manner::Flock | Manner::FileLock | Manner::Child | Manner::Semaphores | Manner::Queue(_)
    );
    if again {
        if manner == Manner::Semaphores && !wait.parked {
            kernel.threads.current_mut().wait.address = deadline(kernel, call);
        }
        let deadline = timeouts::after(kernel, RETRY_NS);
        kernel.threads.park(Cause::Retry, deadline);
    } else {
        let deadline = if wait.parked {
            wait.deadline
        } else {
            deadline(kernel, call)
        };
        kernel.threads.park(Cause::Files, deadline);
    }
    super::targets::rouse(kernel);
    PARKED
}

fn deadline(kernel: &mut Kernel, call: &Call) -> u64 {
    match manner(call) {
        Manner::Poll | Manner::Select | Manner::Epoll | Manner::Semaphores => {
            match duration(call) {
                Ok(Some(duration)) => {
                    let begun = kernel.begun.take();
                    transfer::agree(kernel, || {
                        let begun = begun.unwrap_or_else(sys::monotonic);
                        begun.saturating_add(duration).min(NEVER - 1)
                    })
                }
                _ => NEVER,
            }
        }
        manner => {
            let sends = matches!(manner, Manner::Write | Manner::Send(_) | Manner::Connect);
            let fd = call.arg(0);
            transfer::agree(kernel, || match socket_timeout(fd, sends) {
                0 => NEVER,
                duration => sys::monotonic().saturating_add(duration).min(NEVER - 1),
            })
        }
    }
}

/// Where a call is told what is left of its time.
#[derive(Clone, Copy)]
pub(super) struct Rest {
    pub(super) argument: usize,
    pub(super) address: u64,
    /// Nanoseconds in the smaller part of the structure.
    unit: u64,
}

/// Where the call, if it says so, is told what is left of its time.
pub(super) fn rest_of_time(call: &Call) -> Option<Rest> {
    let (argument, unit) = match u32::try_from(call.nr).unwrap_or(0) {
        nr::__NR_select => (4, 1000),
        nr::__NR_pselect6 => (4, 1),
        nr::__NR_ppoll => (2, 1),
        _ => return None,
    };
    let address = call.arg(argument);
    (address != 0).then_some(Rest {
        argument,
        address,
        unit,
    })
}

/// All replicas, at the end of a call that was parked: writes what is left of its time.
pub(super) fn tell_rest(kernel: &mut Kernel, call: &Call) {
    const SECOND: u64 = 1_000_000_000;
    let wait = kernel.threads.current().wait;
    if wait.parked
        && wait.deadline != NEVER
        && let Some(rest) = rest_of_time(call)
    {
        let now = transfer::agree(kernel, sys::monotonic);
        let left = wait.deadline.saturating_sub(now);
        let time = [left / SECOND, left % SECOND / rest.unit];
        // As in the kernel, a place that cannot be written is no error.
        let _ = guest::write(rest.address, &time);
    }
}

/// Does the call wait for many, and not for ever?
pub(super) fn is_timed(call: &Call) -> bool {
    let waits = matches!(
        manner(call),
        Manner::Poll | Manner::Select | Manner::Epoll | Manner::Semaphores
    );
    waits && matches!(duration(call), Ok(Some(1..)))
}

/// How long a call that waits for many waits at most; `None` for ever. An error if its own time is
/// malformed: the kernel then says so.
fn duration(call: &Call) -> Result<Option<u64>, Fault> {
    let milliseconds = |value: u64| {
        let value = low32(value).cast_signed();
        u64::try_from(value).ok().map(|value| value * 1_000_000)
    };
    let time = match u32::try_from(call.nr).unwrap_or(0) {
        nr::__NR_poll => return Ok(milliseconds(call.arg(2))),
        nr::__NR_epoll_wait | nr::__NR_epoll_pwait => return Ok(milliseconds(call.arg(3))),
        nr::__NR_ppoll => (call.arg(2), false),
        nr::__NR_select => (call.arg(4), true),
        nr::__NR_pselect6 => (call.arg(4), false),
        nr::__NR_epoll_pwait2 | nr::__NR_semtimedop => (call.arg(3), false),
        _ => return Ok(None),
    };
    let read = match time {
        (0, _) => return Ok(None),
        (address, true) => timeouts::timeval(address)?,
        (address, false) => timeouts::timespec(address)?,
    };
    read.map(Some).ok_or(Fault)
}

/// `nanosleep` and `clock_nanosleep`; `None` to make the call as it is.
pub(super) fn sleep(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    use timeouts::Clock;
    const TIMER_ABSTIME: u64 = 1;
    let (clock, absolute, time) = match u32::try_from(call.nr).unwrap_or(0) {
        nr::__NR_nanosleep => (0, false, call.arg(0)),
        nr::__NR_clock_nanosleep => {
            let clock = low32(call.arg(0)).cast_signed();
            (clock, call.arg(1) & TIMER_ABSTIME != 0, call.arg(2))
        }
        _ => return None,
    };
    // Not the clocks that count CPU time.
    if ![0, 1, 7, 8, 9, 11].contains(&clock) {
        return None;
    }
    let time = timeouts::timespec(time).ok()??;
    let deadline = if absolute {
        timeouts::at(kernel, Clock(clock), time)
    } else {
        Some(timeouts::after(kernel, time))
    };
    let Some(deadline) = deadline else {
        return Some(0);
    };
    kernel.threads.park(Cause::Time, deadline);
    Some(PARKED)
}
