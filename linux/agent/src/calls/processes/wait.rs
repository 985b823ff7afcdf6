//! `wait4` and `waitid`: answered from what the supervisor says of the children's ends.
//!
//! The primary picks the oldest child that has ended and writes its status; the siblings get both
//! with the call's result. Only then does every replica forget the child, and the supervisor gives
//! its group away again.
//!
//! If the program ignores SIGCHLD, or says that it does not await its children (`SA_NOCLDWAIT`),
//! every replica forgets a child when it takes that signal: at the same point of the trace. Until
//! then the child counts as living.
//!
//! What a child has used is the supervisor's word, which stands before the end does. Every replica
//! adds it up for itself.
//!
//! Not covered: children that stop or continue, which are never reported.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EAGAIN, EBADF, ECHILD, EINTR, EINVAL};
use linux_raw_sys::general as nr;
use rcoe_linux_abi::{Ending, Usage};
use rcoe_linux_syscalls::Special;

use super::super::descriptors::never_waits;
use super::super::{Call, NEWS, PARKED, io, signals};
use super::pidfd::{self, Process};
use super::{LOOK_NS, Processes, usage};
use crate::convert;
use crate::entry::interruptible_call;
use crate::guest::{self, Fault};
use crate::kernel::Kernel;
use crate::{regions, sys};

const WNOHANG: u64 = nr::WNOHANG as u64;
const WNOWAIT: u64 = nr::WNOWAIT as u64;
const WEXITED: u64 = nr::WEXITED as u64;

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
    if which(kernel, call).is_none() {
        return sys::error(EINVAL);
    }
    let result = io::exchange(kernel, call, true);
    let Ok(pid) = u32::try_from(result) else {
        return result;
    };
    if pid != 0
        && options(call) & WNOWAIT == 0
        && let Some(group) = kernel.processes.child(pid)
    {
        let used = Usage::load(&regions::control(group).usage);
        usage::add(kernel, &used);
        forget(kernel, group);
    }
    if call.what.special == Special::Waitid {
        0
    } else {
        result
    }
}

/// Nobody asks for the child in this group any more.
fn forget(kernel: &mut Kernel, group: usize) {
    let child = &mut kernel.processes.children[group];
    kernel.report.reaped[group].store(child.serial, Ordering::Release);
    child.serial = 0;
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
    if call.what.special == Special::Waitid {
        call.arg(3)
    } else {
        call.arg(2)
    }
}

/// Which children the call means; `None` if it is malformed.
fn which(kernel: &Kernel, call: &Call) -> Option<Which> {
    let own_group = || kernel.control.pgid.load(Ordering::Relaxed);
    if call.what.special == Special::Wait4 {
        let pid = call.arg(0).cast_signed();
        let id = convert::low32(pid.unsigned_abs());
        return Some(match pid {
            -1 => Which::Any,
            0 => Which::Group(own_group()),
            1.. => Which::Pid(id),
            _ => Which::Group(id),
        });
    }
    let id = convert::low32(call.arg(1));
    let kinds = WEXITED | u64::from(nr::WSTOPPED | nr::WCONTINUED);
    if options(call) & kinds == 0 {
        return None;
    }
    match call.arg(0) {
        0 => Some(Which::Any),
        1 => Some(Which::Pid(id)),
        2 if id == 0 => Some(Which::Group(own_group())),
        2 => Some(Which::Group(id)),
        3 if id.cast_signed() >= 0 => Some(Which::Descriptor(u64::from(id))),
        _ => None,
    }
}

/// Primary: the process id of a child that has ended, its status written; 0 if none has and the
/// call does not wait.
pub(super) fn execute(kernel: &mut Kernel, call: &Call) -> i64 {
    let Some(mut which) = which(kernel, call) else {
        return sys::error(EINVAL);
    };
    let mut not_now = 0;
    if let Which::Descriptor(fd) = which {
        which = match pidfd::process(kernel, fd) {
            Process::Own(pid) => Which::Pid(pid),
            Process::Foreign | Process::Gone => return sys::error(ECHILD),
            Process::None => return sys::error(EBADF),
        };
        if never_waits(fd) {
            not_now = sys::error(EAGAIN);
        }
    }
    let ends = call.what.special == Special::Wait4 || options(call) & WEXITED != 0;
    loop {
        let bell = kernel.control.bell.load(Ordering::Acquire);
        let Some(found) = look(&kernel.processes, which) else {
            return sys::error(ECHILD);
        };
        if let Some(found) = found.filter(|_| ends) {
            if !kernel.signals.awaits_no_children() {
                return match tell(call, &found) {
                    Ok(()) => i64::from(found.pid),
                    Err(Fault) => Fault::RESULT,
                };
            }
            if signals::has_arrived(kernel) {
                return NEWS;
            }
        }
        if options(call) & WNOHANG != 0 {
            return none_yet(call);
        }
        if not_now != 0 {
            return not_now;
        }
        if kernel.threads.must_not_block() {
            return PARKED;
        }
        if signals::must_interrupt(kernel) {
            return sys::error(EINTR);
        }
        if kernel.orders.is_due(kernel.control) {
            return NEWS;
        }
        doze(kernel, bell);
    }
}

/// A child that has ended.
struct Found {
    pid: u32,
    order: u32,
    ending: Ending,
    used: Usage,
}

/// The oldest of these children that has ended; `None` if there are no such children.
fn look(processes: &Processes, which: Which) -> Option<Option<Found>> {
    let meant = processes.children.iter().enumerate().filter(|(at, child)| {
        child.serial != 0
            && match which {
                Which::Any => true,
                Which::Pid(pid) => child.pid == pid,
                // It is a process id by then.
                Which::Descriptor(_) => false,
                Which::Group(id) => regions::control(*at).pgid.load(Ordering::Relaxed) == id,
            }
    });
    let mut any = false;
    let mut best: Option<Found> = None;
    for (at, child) in meant {
        any = true;
        let control = regions::control(at);
        let ending = Ending::unpack(control.ending.load(Ordering::Acquire));
        if let Some(ending) = ending
            && best.as_ref().is_none_or(|best| child.order < best.order)
        {
            best = Some(Found {
                pid: child.pid,
                order: child.order,
                ending,
                used: Usage::load(&control.usage),
            });
        }
    }
    any.then_some(best)
}

/// Sleeps until something may have changed, or a signal comes.
fn doze(kernel: &Kernel, bell: u32) {
    let word = kernel.control.bell.as_ptr() as u64;
    let timeout = [LOOK_NS / 1_000_000_000, LOOK_NS % 1_000_000_000];
    let args = [word, 0, u64::from(bell), timeout.as_ptr() as u64, 0, 0];
    // SAFETY: a futex wait on a word in memory that is mapped for good.
    let _ = unsafe { interruptible_call(u64::from(nr::__NR_futex), &args) };
}

/// Writes what `wait4` and `waitid` tell of an ended child.
fn tell(call: &Call, found: &Found) -> Result<(), Fault> {
    let (pid, ending) = (found.pid, found.ending);
    if call.what.special == Special::Wait4 {
        let status = match ending {
            Ending::Exit(status) => u32::from(status) << 8,
            Ending::Signal(signal) => u32::from(signal),
        };
        if call.arg(1) != 0 {
            guest::write(call.arg(1), &status)?;
        }
        return tell_usage(call.arg(3), &found.used);
    }
    const CLD_EXITED: u32 = 1;
    const CLD_KILLED: u32 = 2;
    let (code, status) = match ending {
        Ending::Exit(status) => (CLD_EXITED, u32::from(status)),
        Ending::Signal(signal) => (CLD_KILLED, u32::from(signal)),
    };
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
