//! `wait4` and `waitid`: answered from what the supervisor says of the children's ends, stops and
//! continuations.
//!
//! The primary picks the oldest child of which there is news and writes its status; the siblings
//! get both with the call's result. Only then does every replica forget a child that has ended, and
//! the supervisor gives its group away again.
//!
//! If the program ignores SIGCHLD, or says that it does not await its children (`SA_NOCLDWAIT`),
//! every replica forgets a child when it takes that signal: at the same point of the trace. Until
//! then the child counts as living.
//!
//! What a child has used is the supervisor's word, which stands before the end does. Every replica
//! adds it up for itself.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EAGAIN, EBADF, ECHILD, EINTR, EINVAL, ESRCH};
use linux_raw_sys::general as nr;
use rcoe_linux_abi::{Ending, JobState, MAX_REPLICAS, Usage};
use rcoe_linux_syscalls::Special;

use crate::arch::entry::interruptible_call;
use crate::calls::processes::pidfd::{self, Process};
use crate::calls::processes::{Child, LOOK_NS, Processes, usage};
use crate::calls::{Call, NEWS, PARKED, io, signals};
use crate::convert;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::memory::regions;
use crate::recover::reintegration;
use crate::sys;

const WNOHANG: u64 = nr::WNOHANG as u64;
const WNOWAIT: u64 = nr::WNOWAIT as u64;
const WEXITED: u64 = nr::WEXITED as u64;
/// Also WUNTRACED of `wait4`.
const WSTOPPED: u64 = nr::WSTOPPED as u64;
const WCONTINUED: u64 = nr::WCONTINUED as u64;
/// Also children that end by another signal than SIGCHLD.
const WALL: u64 = nr::__WALL as u64;
/// These only.
const WCLONE: u64 = nr::__WCLONE as u64;
/// What both calls may ask for.
const COMMON: u64 = WNOHANG | WSTOPPED | WCONTINUED | WALL | WCLONE | nr::__WNOTHREAD as u64;

/// Which children are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Any,
    Pid(u32),
    Group(u32),
    /// Whose descriptor this is.
    Descriptor(u64),
}

/// All replicas: awaits a child.
pub(super) fn perform(kernel: &mut Kernel, call: &Call) -> i64 {
    if let Err(errno) = which(kernel, call) {
        return sys::error(errno);
    }
    let result = io::exchange(kernel, call, true);
    let Ok(found) = u64::try_from(result) else {
        return result;
    };
    // Above the process id: which stop or continuation it was, or 0 for its end.
    let (pid, change) = (convert::low32(found), convert::low32(found >> 32));
    if pid != 0 && change == 0 {
        tell_end(kernel, call, pid);
    }
    if pid != 0
        && options(call) & WNOWAIT == 0
        && let Some(group) = kernel.processes.child(pid)
    {
        if change == 0 {
            let used = Usage::load(&regions::control(group).usage);
            usage::add(kernel, &used);
            forget(kernel, group);
        } else {
            let child = kernel.processes.child_in(group);
            kernel.processes.children[group] = Child {
                told: change,
                ..child.expect("it was just found")
            };
        }
    }
    if call.what.special == Special::Waitid {
        0
    } else {
        i64::from(pid)
    }
}

/// How a child ended each replica reads for itself where the primary has, and writes it over what
/// that one has published.
fn tell_end(kernel: &Kernel, call: &Call, pid: u32) {
    let Some(group) = kernel.processes.child(pid) else {
        return;
    };
    if let Some(found) = kernel
        .processes
        .child_in(group)
        .and_then(|child| found(group, &child, WEXITED))
    {
        // The primary could write there.
        let _ = tell(call, &found);
    }
}

/// Nobody asks for the child in this group any more.
fn forget(kernel: &mut Kernel, group: usize) {
    let child = kernel.processes.child_in(group);
    let forgotten = child.map_or(0, |child| child.serial);
    kernel.processes.children[group] = Child {
        forgotten,
        ..Child::NONE
    };
    kernel.report.reaped[group].store(forgotten, Ordering::Release);
    kernel.notify();
}

/// All replicas, when they take the signal that tells of the end of a child.
pub(crate) fn ended(kernel: &mut Kernel, pid: u32) {
    if !kernel.signals.awaits_no_children() {
        return;
    }
    let Some(group) = kernel.processes.child(pid) else {
        return;
    };
    // Of one that it lent its memory to, the parent still wants something.
    if kernel.processes.awaited == Some(group) {
        kernel.processes.unwanted = true;
    } else {
        forget(kernel, group);
    }
}

/// All replicas: the child that memory was lent to has given it back.
pub(super) fn released(kernel: &mut Kernel, group: usize) {
    kernel.processes.awaited = None;
    if core::mem::take(&mut kernel.processes.unwanted) {
        forget(kernel, group);
    }
}

fn options(call: &Call) -> u64 {
    let word = match call.what.special {
        Special::Waitid => call.arg(3),
        _ => call.arg(2),
    };
    u64::from(convert::low32(word))
}

/// Which children the call means.
///
/// # Errors
/// What is wrong with it.
fn which(kernel: &Kernel, call: &Call) -> Result<Which, u32> {
    let own_group = || kernel.control.pgid.load(Ordering::Relaxed);
    if call.what.special == Special::Wait4 {
        let pid = convert::low32(call.arg(0)).cast_signed();
        let id = pid.unsigned_abs();
        return match pid {
            _ if options(call) & !COMMON != 0 => Err(EINVAL),
            i32::MIN => Err(ESRCH),
            -1 => Ok(Which::Any),
            0 => Ok(Which::Group(own_group())),
            1.. => Ok(Which::Pid(id)),
            _ => Ok(Which::Group(id)),
        };
    }
    let id = convert::low32(call.arg(1));
    let kinds = WEXITED | WSTOPPED | WCONTINUED;
    if options(call) & kinds == 0 || options(call) & !(COMMON | WEXITED | WNOWAIT) != 0 {
        return Err(EINVAL);
    }
    match (call.arg(0), id.cast_signed()) {
        (0, _) => Ok(Which::Any),
        (1, 1..) => Ok(Which::Pid(id)),
        (2, 0) => Ok(Which::Group(own_group())),
        (2, 1..) => Ok(Which::Group(id)),
        (3, 0..) => Ok(Which::Descriptor(u64::from(id))),
        _ => Err(EINVAL),
    }
}

/// Primary: the process id of a child of which there is news, its status written, and above it
/// which news; 0 if there is none and the call does not wait.
pub(super) fn execute(kernel: &mut Kernel, call: &Call) -> i64 {
    loop {
        let bell = kernel.control.bell.load(Ordering::Acquire);
        if let Some(result) = attempt(kernel, call) {
            return result;
        }
        if kernel.threads.must_not_block() {
            let interrupted = kernel.threads.current().wait.expired;
            return if interrupted {
                sys::error(EINTR)
            } else {
                PARKED
            };
        }
        if signals::must_interrupt(kernel) {
            return sys::error(EINTR);
        }
        if reintegration::is_due(kernel) {
            return NEWS;
        }
        doze(kernel, bell);
    }
}

/// What the call comes to at once; `None` if it waits. Nothing of it is kept while it waits, where
/// a register that is hit would be taken for what the program has asked.
#[inline(never)]
fn attempt(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let mut which = match which(kernel, call) {
        Ok(which) => which,
        Err(errno) => return Some(sys::error(errno)),
    };
    let mut not_now = None;
    if let Which::Descriptor(fd) = which {
        which = match pidfd::process(kernel, fd) {
            Process::Own(pid) => Which::Pid(pid),
            Process::Foreign | Process::Gone => return Some(sys::error(ECHILD)),
            Process::None => return Some(sys::error(EBADF)),
        };
        not_now = sys::never_waits(fd).then_some(sys::error(EAGAIN));
    }
    let wanted = match call.what.special {
        Special::Wait4 => options(call) | WEXITED,
        _ => options(call),
    };
    let Some(found) = look(&kernel.processes, which, wanted) else {
        return Some(sys::error(ECHILD));
    };
    if let Some(found) = found {
        if !found.is_forgotten_by_signal || !kernel.signals.awaits_no_children() {
            return Some(match tell(call, &found) {
                Ok(()) => found.word(),
                Err(Fault) => Fault::RESULT,
            });
        }
        if signals::has_arrived(kernel) {
            return Some(NEWS);
        }
    }
    if options(call) & WNOHANG != 0 {
        return Some(none_yet(call));
    }
    not_now
}

/// A child of which there is something to tell.
struct Found {
    pid: u32,
    order: u32,
    news: News,
    used: Usage,
    /// It has ended, and a program that does not await its children forgets it at the signal.
    is_forgotten_by_signal: bool,
}

impl Found {
    /// The process id, and above it which stop or continuation it is; 0 for the end.
    fn word(&self) -> i64 {
        let change = match self.news {
            News::End(_) => 0,
            News::Job(state) => u64::from(state.count),
        };
        (change << 32 | u64::from(self.pid)).cast_signed()
    }
}

/// What there is to tell of a child.
#[derive(Clone, Copy)]
enum News {
    End(Ending),
    Job(JobState),
}

impl News {
    /// `si_code` and `si_status`.
    fn code(self) -> (u32, u32) {
        match self {
            Self::End(Ending::Exit(status)) => (nr::CLD_EXITED, status.into()),
            Self::End(Ending::Signal(signal)) => (nr::CLD_KILLED, signal.into()),
            Self::Job(state) => match state.stopped_by {
                Some(signal) => (nr::CLD_STOPPED, signal.into()),
                None => (nr::CLD_CONTINUED, nr::SIGCONT),
            },
        }
    }

    /// The status that `wait4` tells.
    fn status(self) -> u32 {
        match self {
            Self::End(Ending::Exit(status)) => u32::from(status) << 8,
            Self::End(Ending::Signal(signal)) => signal.into(),
            Self::Job(state) => match state.stopped_by {
                Some(signal) => u32::from(signal) << 8 | 0x7f,
                None => 0xffff,
            },
        }
    }
}

/// The oldest of these children of which there is wanted news; `None` if there are no such
/// children.
fn look(processes: &Processes, which: Which, wanted: u64) -> Option<Option<Found>> {
    let children = regions::groups().filter_map(|at| Some((at, processes.child_in(at)?)));
    let meant = children.filter(|(at, child)| {
        let is_it = match which {
            Which::Any => true,
            Which::Pid(pid) => child.pid == pid,
            // It is a process id by then.
            Which::Descriptor(_) => false,
            Which::Group(id) => regions::control(*at).pgid.load(Ordering::Relaxed) == id,
        };
        is_it && (wanted & WALL != 0 || is_plain(*at) == (wanted & WCLONE == 0))
    });
    let mut any = false;
    let mut best: Option<Found> = None;
    for (at, child) in meant {
        any = true;
        if best.as_ref().is_none_or(|best| child.order < best.order)
            && let Some(found) = found(at, &child, wanted)
        {
            best = Some(found);
        }
    }
    any.then_some(best)
}

/// What there is to tell of the child in this group, if anything that is wanted.
fn found(group: usize, child: &Child, wanted: u64) -> Option<Found> {
    let news = news_of(group, child, wanted)?;
    Some(Found {
        pid: child.pid,
        order: child.order,
        news,
        used: Usage::load(&regions::control(group).usage),
        is_forgotten_by_signal: matches!(news, News::End(_)) && is_told_plainly(group),
    })
}

/// Whether the end of the child in this group is told by SIGCHLD. A program that it executes makes
/// that so.
fn is_plain(group: usize) -> bool {
    let replaced = |index| {
        let report = regions::report(group, index);
        report.replaced.load(Ordering::Acquire) != 0
    };
    let control = regions::control(group);
    let replicas = control.replicas.load(Ordering::Relaxed) as usize;
    let signal = control.exit_signal.load(Ordering::Relaxed);
    signal == nr::SIGCHLD || (0..replicas.min(MAX_REPLICAS)).any(replaced)
}

/// Whether the end of a child that has ended was told by SIGCHLD.
fn is_told_plainly(group: usize) -> bool {
    regions::control(group).told_by.load(Ordering::Relaxed) == nr::SIGCHLD
}

fn news_of(group: usize, child: &Child, wanted: u64) -> Option<News> {
    let control = regions::control(group);
    if let Some(ending) = Ending::unpack(control.ending.load(Ordering::Acquire)) {
        return (wanted & WEXITED != 0).then_some(News::End(ending));
    }
    let state = JobState::unpack(control.job.state.load(Ordering::Acquire))?;
    let kind = match state.stopped_by {
        Some(_) => WSTOPPED,
        None => WCONTINUED,
    };
    (state.count != child.told && wanted & kind != 0).then_some(News::Job(state))
}

/// Sleeps until something may have changed, or a signal comes.
fn doze(kernel: &Kernel, bell: u32) {
    let word = kernel.control.bell.as_ptr() as u64;
    let timeout = [LOOK_NS / 1_000_000_000, LOOK_NS % 1_000_000_000];
    let args = [word, 0, u64::from(bell), timeout.as_ptr() as u64, 0, 0];
    // SAFETY: a futex wait on a word in memory that is mapped for good.
    let _ = unsafe { interruptible_call(sys::FUTEX, &args) };
}

/// Writes what `wait4` and `waitid` tell of a child.
fn tell(call: &Call, found: &Found) -> Result<(), Fault> {
    let (pid, news) = (found.pid, found.news);
    if call.what.special == Special::Wait4 {
        if call.arg(1) != 0 {
            guest::write(call.arg(1), &news.status())?;
        }
        return tell_usage(call.arg(3), &found.used);
    }
    let (code, status) = news.code();
    if call.arg(2) != 0 {
        // signo, errno, code, padding, pid, uid, status.
        let info = [nr::SIGCHLD, 0, code, 0, pid, sys::getuid(), status, 0];
        guest::write(call.arg(2), &[0_u64; 16])?;
        guest::write(call.arg(2), &info)?;
    }
    tell_usage(call.arg(4), &found.used)
}

/// `waitid` says so by a cleared structure.
fn none_yet(call: &Call) -> i64 {
    let info = call.arg(2);
    if call.what.special == Special::Waitid
        && info != 0
        && guest::write(info, &[0_u64; 16]).is_err()
    {
        return Fault::RESULT;
    }
    0
}

fn tell_usage(address: u64, used: &Usage) -> Result<(), Fault> {
    if address == 0 {
        return Ok(());
    }
    guest::write(address, &used.0)
}
