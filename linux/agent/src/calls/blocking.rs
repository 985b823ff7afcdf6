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
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    F_OFD_SETLKW, F_SETLKW, LOCK_NB, POLLIN, POLLOUT, RWF_NOWAIT, SPLICE_F_NONBLOCK,
};

mod deadlines;
mod ipc;
mod sets;
mod streams;

use super::descriptors::is_ready;
use super::timeouts;
use super::{Call, PARKED};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::sys;
use crate::threads::{Cause, NEVER, Wait};
use deadlines::deadline;
pub(super) use deadlines::{is_timed, rest_of_time, sleep, tell_rest};

/// Below this a result says how many bytes a part of the call has sent: `PARTIAL - bytes`.
const PARTIAL: i64 = -(1 << 48);
/// How often a lock that cannot be polled is tried again.
const RETRY_NS: u64 = 2_000_000;
const IPC_NOWAIT: u32 = 0o4000;

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

/// Primary: is the call one that waits, and not ready at once? A lock or a connection counts as not
/// ready, as only making the call would tell.
pub(super) fn would_wait(call: &Call) -> bool {
    let ready = |argument, events| is_ready(call.arg(argument), events);
    match manner(call) {
        Manner::Plain => false,
        Manner::Read | Manner::Receive(_) | Manner::Epoll => !ready(0, POLLIN),
        Manner::Write | Manner::Send(_) => !ready(0, POLLOUT),
        Manner::Move { from, to } => !ready(from, POLLIN) || !ready(to, POLLOUT),
        Manner::Poll
        | Manner::Select
        | Manner::Connect
        | Manner::Flock
        | Manner::FileLock
        | Manner::Child
        | Manner::Semaphores
        | Manner::Queue(_) => true,
    }
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
