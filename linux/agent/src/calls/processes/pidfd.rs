//! Descriptors of processes: `pidfd_open`, `CLONE_PIDFD`, and what is done with them.
//!
//! A process of the program is several of the host, any of which may be lost without its having
//! ended. So the supervisor keeps, for a process that is asked for, one of the host that stands in
//! for it: it ends when that one does, and is reaped when that one is. The program's descriptor is
//! the host's own of that process, so that polling, passing, duplicating and closing it need no
//! care; the process id that the host tells with it says which process of the program is meant.
//!
//! Descriptors of processes that are not the program's are the host's own.
//!
//! Not covered: `pidfd_getfd`, descriptors of threads, and `/proc/self/fdinfo`, which shows the id
//! of the stand-in.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{O_EXCL, O_NONBLOCK};
use rcoe_linux_abi::{Ask, NOT_OURS};

use crate::calls::descriptors::descriptor;
use crate::calls::processes::{ask, plan};
use crate::calls::{Call, io};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::regions;
use crate::protocol::transfer;
use crate::sys;
use crate::text::Text;

/// Bytes of what the host tells of a descriptor that are looked at.
const ROOM: usize = 512;
/// One past the highest process id that Linux gives.
const PID_LIMIT: u64 = 1 << 22;

/// Of which process a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// One of the program's.
    Own(u32),
    /// Another one.
    Foreign,
    /// One that is gone, and nobody awaits any more.
    Gone,
    /// It is no descriptor of a process.
    None,
}

/// `pidfd_open`.
pub(crate) fn open(kernel: &mut Kernel, call: &Call) -> i64 {
    plan(kernel, Some(wish(call)));
    kernel.rendezvous();
    io::exchange(kernel, call, false)
}

/// What is asked of the supervisor.
fn wish(call: &Call) -> Ask {
    let pid = low32(call.arg(0));
    Ask::StandIn { pid }
}

/// Primary: the descriptor; `None` if the host is to make it, or to say what is wrong.
pub(super) fn execute(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    let (pid, flags) = (call.arg(0), call.arg(1));
    // Ids of threads are not the host's; older kernels have no descriptors of threads.
    if flags & u64::from(O_EXCL) != 0 {
        return Some(sys::error(EINVAL));
    }
    if flags & !u64::from(O_NONBLOCK) != 0 || !(1..PID_LIMIT).contains(&pid) {
        return None;
    }
    match ask(kernel, wish(call)) {
        NOT_OURS => None,
        error @ ..0 => Some(error),
        stand_in => Some(sys::descriptor_of(stand_in.cast_unsigned(), flags)),
    }
}

/// All replicas: to which process a signal goes that is sent through the descriptor.
pub(crate) fn agreed(kernel: &mut Kernel, fd: u64) -> Process {
    const FOREIGN: u64 = 1 << 32;
    const GONE: u64 = 2 << 32;
    const NONE: u64 = 3 << 32;
    let [word] = transfer::agree_all(kernel, true, |kernel| {
        [match addressee(kernel, fd) {
            Process::Own(pid) => u64::from(pid),
            Process::Foreign => FOREIGN,
            Process::Gone => GONE,
            Process::None => NONE,
        }]
    });
    match word {
        FOREIGN => Process::Foreign,
        GONE => Process::Gone,
        NONE => Process::None,
        pid => Process::Own(low32(pid)),
    }
}

/// Primary: to which process a signal goes that is sent through the descriptor. That of the
/// process's folder in `/proc` will do, too.
fn addressee(kernel: &Kernel, fd: u64) -> Process {
    match process(kernel, fd) {
        Process::None => of_folder(kernel, fd).unwrap_or(Process::None),
        found => found,
    }
}

#[inline(never)]
fn of_folder(kernel: &Kernel, fd: u64) -> Option<Process> {
    let mut path = [0; ROOM];
    let len = sys::descriptor_target(descriptor(fd), &mut path);
    let path = core::str::from_utf8(path.get(..len)?).ok()?;
    let pid = path.strip_prefix("/proc/")?.parse().ok()?;
    // `/proc/self` is the primary's own.
    if pid == sys::getpid() {
        return Some(Process::Own(kernel.processes.pid));
    }
    let has_pid = |group| regions::control(group).pid.load(Ordering::Acquire) == pid;
    let found = regions::groups().any(has_pid);
    Some(if found {
        Process::Own(pid)
    } else {
        Process::Foreign
    })
}

/// Primary: of which process the descriptor is.
pub(super) fn process(kernel: &Kernel, fd: u64) -> Process {
    let Some(told) = host_pid(fd) else {
        return Process::None;
    };
    let Ok(host) = u32::try_from(told) else {
        return Process::Gone;
    };
    let stands_for = |group: &usize| {
        let control = regions::control(*group);
        control.stand_in.load(Ordering::Acquire) == host
    };
    let Some(group) = regions::groups().find(stands_for) else {
        return Process::Foreign;
    };
    let child = kernel.processes.children[group];
    let pid = match child.serial {
        0 => regions::control(group).pid.load(Ordering::Acquire),
        _ => child.pid,
    };
    // One that nobody has told of is not there yet, but then nobody has its descriptor either.
    if pid == 0 {
        Process::Gone
    } else {
        Process::Own(pid)
    }
}

/// The process id that the host tells with a descriptor, -1 if the process is gone; `None` if it is
/// no descriptor of a process.
#[inline(never)]
fn host_pid(fd: u64) -> Option<i64> {
    use core::fmt::Write as _;
    let mut path = Text::<64>::new();
    write!(path, "/proc/self/fdinfo/{}\0", descriptor(fd)).ok()?;
    let file = sys::open_read(path.as_bytes()).ok()?;
    let mut buffer = [0; ROOM];
    let len = sys::pread(file, &mut buffer, 0);
    sys::close(file);
    let text = core::str::from_utf8(buffer.get(..len.ok()?)?).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok()
}
