//! Calls that may wait, in a program with several threads: the primary makes them only if they do
//! not, and otherwise the thread is parked and the call made again when what it waits for has come.
//!
//! Each call belongs to a manner, which says how to try it without waiting and what to poll for.
//! A descriptor that the program itself has made non-blocking is left to the kernel.
//!
//! Not covered: between poll and call somebody outside may take away what was ready; the call then
//! holds up all threads until there is more. So do opening a FIFO, terminal requests that drain
//! output, and MSG_WAITALL.

use linux_raw_sys::errno::EAGAIN;
use linux_raw_sys::general::{LOCK_NB, POLLIN, POLLOUT};
use rcoe_linux_syscalls::{Moves, Waits};

mod deadlines;
mod ipc;
mod sets;
mod streams;
mod vain;

use crate::calls::descriptors::Vector;
use crate::calls::{Call, PARKED};
use crate::kernel::Kernel;
use crate::sched::threads::{Cause, NEVER, Wait};
use crate::sched::timeouts;
use crate::sys::polling::is_ready;
use crate::sys::{self, S_IFIFO, S_IFSOCK, never_waits, type_bits};
use deadlines::deadline;
pub(crate) use deadlines::{is_timed, rest_of_time, sleep, tell_rest};
pub(crate) use streams::NEVER_WAITS;
use streams::says_at_once;
pub(crate) use vain::{is_malformed, is_too_short, refusal};

/// Below this a result says how many bytes a part of the call has sent: `PARTIAL - bytes`.
pub(crate) const PARTIAL: i64 = -(1 << 48);
/// How often a lock that cannot be polled is tried again.
const RETRY_NS: u64 = 2_000_000;
const IPC_NOWAIT: u32 = 0o4000;

/// Primary: would the call have sent more than this, had it not been called away? One that sends to
/// a stream does, however long it takes.
pub(crate) fn sends_more(call: &Call, sent: u64) -> bool {
    let waits = match manner(call) {
        Waits::Write => true,
        Waits::Send(flags) => call.arg(usize::from(flags)) & NEVER_WAITS == 0,
        _ => false,
    };
    let fd = call.arg(0);
    waits
        && Vector::of(call, 0, u64::MAX).is_ok_and(|all| sent < all.bytes)
        && [S_IFIFO, S_IFSOCK].contains(&type_bits(fd))
        && !never_waits(fd)
}

/// Which argument says how many bytes the call moves between files, if another one with fewer can
/// go on with that; and whether that must not wait. To a pipe a file is sent as far as it has room.
pub(crate) fn moved_by(call: &Call) -> Option<(usize, Option<(usize, u64)>)> {
    match (call.what.facts.moves, manner(call)) {
        (Moves::None, _) => None,
        (Moves::By(_), Waits::Move(_, to)) if type_bits(call.arg(usize::from(to))) == S_IFIFO => {
            None
        }
        (Moves::By(len), _) => Some((usize::from(len), None)),
        (Moves::WhatIsThere(len, flags, bit), _) => {
            Some((usize::from(len), Some((usize::from(flags), bit.into()))))
        }
    }
}

/// What a call waits for, and how to try it.
pub(crate) fn manner(call: &Call) -> Waits {
    let facts = &call.what.facts;
    if facts.unless.applies(&call.raw) {
        return Waits::Plain;
    }
    facts.waits
}

/// Primary: is the call one that waits, and not ready at once? A lock or a connection counts as not
/// ready, as only making the call would tell.
pub(crate) fn would_wait(call: &Call) -> bool {
    let ready = |argument: u8, events| is_ready(call.arg(usize::from(argument)), events);
    match manner(call) {
        Waits::Plain => false,
        Waits::Read | Waits::Accept | Waits::Receive(_) | Waits::Epoll => !ready(0, POLLIN),
        Waits::Write | Waits::Send(_) => !ready(0, POLLOUT),
        Waits::MailOut => !ready(0, POLLOUT),
        Waits::MailIn => !ready(0, POLLIN),
        Waits::Splice(from, to, flags) if says_at_once(call.arg(usize::from(flags))) => {
            ready(from, POLLIN) && !ready(to, POLLOUT)
        }
        Waits::Move(from, to) | Waits::Splice(from, to, _) => {
            !ready(from, POLLIN) || !ready(to, POLLOUT)
        }
        Waits::Poll
        | Waits::Select
        | Waits::Connect
        | Waits::Flock
        | Waits::FileLock(_)
        | Waits::Child
        | Waits::Semaphores
        | Waits::Queue(_) => true,
    }
}

/// Primary: tries the call. `None` to make it as it is; [`PARKED`], or less than [`PARTIAL`], if
/// the thread has to wait.
pub(crate) fn attempt(kernel: &Kernel, call: &Call, args: &[u64; 6]) -> Option<i64> {
    let try_now = Try::new(kernel, call, args);
    let at = usize::from;
    match manner(call) {
        Waits::Plain | Waits::Child => None,
        Waits::Read | Waits::Accept => try_now.read(),
        Waits::Write => try_now.write(),
        Waits::Move(from, to) => try_now.send_file(at(from), at(to)),
        Waits::Splice(from, to, flags) => try_now.splice(at(from), at(to), at(flags)),
        Waits::Receive(flags) => try_now.receive(at(flags)),
        Waits::Send(flags) => try_now.send(at(flags)),
        Waits::Connect => try_now.connect(),
        Waits::Poll => try_now.poll(),
        Waits::Select => try_now.select(),
        Waits::Epoll => try_now.epoll(),
        Waits::Flock => Some(try_now.with(1, args[1] | u64::from(LOCK_NB))),
        Waits::FileLock(now) => Some(try_now.file_lock(now)),
        Waits::Semaphores => Some(try_now.semaphores()),
        Waits::Queue(flags) => Some(try_now.queue(at(flags))),
        Waits::MailOut | Waits::MailIn => try_now.mail(),
    }
}

/// Primary: has the time of the call passed? One that is tried again and again keeps it beside the
/// time until the next attempt.
fn is_over(wait: &Wait, call: &Call) -> bool {
    let apart = wait.parked && manner(call) == Waits::Semaphores;
    wait.expired || apart && wait.address != NEVER && sys::monotonic() >= wait.address
}

/// One attempt of the primary.
pub(crate) struct Try<'a> {
    call: &'a Call,
    args: &'a [u64; 6],
    /// The deadline has passed.
    expired: bool,
    /// Bytes sent by earlier parts.
    pub(crate) progress: u64,
    /// The call was parked before.
    asked: bool,
}

impl<'a> Try<'a> {
    /// An attempt of the running thread.
    pub(crate) fn new(kernel: &Kernel, call: &'a Call, args: &'a [u64; 6]) -> Self {
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
    pub(crate) fn later(&self, over: i64) -> i64 {
        match (self.expired, self.progress) {
            (false, _) => PARKED,
            (true, 0) => over,
            (true, progress) => progress.cast_signed(),
        }
    }
}

/// All replicas: parks the thread if that is what the attempt came to.
pub(crate) fn settle(kernel: &mut Kernel, call: &Call, result: i64) -> i64 {
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
        Waits::Flock | Waits::FileLock(_) | Waits::Child | Waits::Semaphores | Waits::Queue(_)
    );
    if again {
        if manner == Waits::Semaphores && !wait.parked {
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
    crate::calls::targets::rouse(kernel);
    PARKED
}
