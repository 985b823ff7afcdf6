//! Limits of resources, as the program sees and meets them: `getrlimit`, `setrlimit`, `prlimit64`.
//!
//! The host counts what a replica uses, the agent included, and several replicas where the program
//! is one process. So the agent keeps some limits for the program ([`is_kept`]), by the kernel's
//! rules, and leaves the host's at their hard value: memory is counted in [`crate::memory::space`],
//! CPU time by the supervisor, which sends what the kernel would, processes and waiting signals
//! where they are made. What is counted by what the primary does (files, descriptors) or alike in
//! all replicas (the stack, locked memory) is left to the host, under the program's own limit.
//!
//! Contract: the same in all replicas.
//!
//! Not covered: changing the limits of another process; a limit on processes counts those of the
//! program only; RTTIME is kept and has no effect.

use linux_raw_sys::errno::{EAGAIN, EINVAL, ENOMEM, EPERM};
use linux_raw_sys::general::{SI_KERNEL, SIGSEGV, SIGXCPU};
use rcoe_linux_abi::limits::{
    AS, CPU, DATA, LOCKS, LimitCells, NOFILE, NPROC, RESOURCES, SIGPENDING, STACK, UNLIMITED,
    is_kept,
};
use rcoe_linux_abi::{Control, PAGE};
use rcoe_linux_syscalls::Special;

use core::sync::atomic::Ordering;

use crate::calls::signals::Info;
use crate::calls::signals::pending::{FIRST_QUEUED, SI_TIMER};
use crate::calls::{Call, io, processes, refuse, scheduling};
use crate::convert::{low32, size};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::memory::space::{Kind, space};
use crate::protocol::transfer;
use crate::sys::{self, Errno};

/// So many descriptors the host grants in any case: replicas that look at each other open some.
const OWN_DESCRIPTORS: u64 = 64;

/// The program's limits, soft and hard. The same in all replicas.
pub(crate) struct Limits {
    list: [[u64; 2]; RESOURCES],
    /// The host's, as far as the agent keeps them.
    host: [u64; RESOURCES],
}

/// Reads limits that somebody has published.
fn load(cells: &LimitCells) -> [[u64; 2]; RESOURCES] {
    let pair = |pair: &[_; 2]| {
        pair.each_ref()
            .map(|cell: &core::sync::atomic::AtomicU64| cell.load(Ordering::Relaxed))
    };
    cells.each_ref().map(pair)
}

impl Limits {
    /// Those that rcoe was started with.
    pub(crate) fn given(control: &Control) -> Self {
        let list = load(&control.limits);
        Self {
            list,
            host: list.map(|[_, hard]| hard),
        }
    }

    /// Has the host keep those that it counts as the program means them.
    pub(crate) fn hand_to_host(&self) {
        for (resource, limit) in self.list.iter().enumerate() {
            if !is_kept(resource) {
                // Was raised for the start, or is the same: neither is refused.
                let _ = sys::set_limit(resource, *limit);
            }
        }
    }

    pub(crate) const fn soft(&self, resource: usize) -> u64 {
        self.list[resource][0]
    }

    /// The limit in this line of `/proc/self/limits`, which begins with a heading.
    pub(super) fn told(&self, line: usize) -> Option<[u64; 2]> {
        self.list.get(line.checked_sub(1)?).copied()
    }

    /// Lets the stack, of the host's process too, grow to at most so many bytes.
    pub(super) fn lower_stack(&mut self, most: u64) {
        let limit = &mut self.list[STACK];
        limit[0] = limit[0].min(most);
        // Less than before is always allowed.
        let _ = sys::set_limit(STACK, *limit);
    }

    fn fits(&self, resource: usize, pages: u64) -> bool {
        pages <= self.soft(resource) / PAGE
    }

    /// May the program map so many pages more?
    pub(crate) fn allow(&self, kind: Kind, more: u64) -> bool {
        let (space, used) = (space(), space().pages());
        let mapped = self.fits(AS, used.all.saturating_add(more));
        space.has_room() && mapped && (kind != Kind::Data || self.allow_data(more))
    }

    fn allow_data(&self, more: u64) -> bool {
        let data = space().pages().data.saturating_add(more);
        // The kernel takes a soft limit of 0 for the hard one.
        let [soft, hard] = self.list[DATA];
        self.fits(DATA, data) || soft == 0 && data <= hard / PAGE
    }

    /// May so many pages, which are mapped, become data? The kernel does not ask where the address
    /// space is full anyway.
    pub(crate) fn allow_writing(&self, pages: u64) -> bool {
        let all = space().pages().all.saturating_add(pages);
        pages == 0 || self.allow_data(pages) || !self.fits(AS, all)
    }

    /// A signal has come: if it tells that the time is over, the limit is a second further.
    pub(super) fn hear(kernel: &mut Kernel, info: &Info) {
        let soft = &mut kernel.limits.list[CPU][0];
        if info.signal == SIGXCPU && info.code == SI_KERNEL.cast_signed() && *soft != UNLIMITED {
            *soft += 1;
            publish(kernel);
        }
    }
}

/// Tells the supervisor and other processes.
pub(crate) fn publish(kernel: &Kernel) {
    for (cells, limit) in kernel.report.limits.iter().zip(&kernel.limits.list) {
        for (cell, value) in cells.iter().zip(limit) {
            cell.store(*value, Ordering::Relaxed);
        }
    }
    scheduling::publish(kernel);
    publish_tasks(kernel);
}

/// Tells how many threads the process has, and whose they are.
pub(super) fn publish_tasks(kernel: &Kernel) {
    let threads = low32(kernel.threads.live_slots().count() as u64);
    kernel.report.threads.store(threads, Ordering::Relaxed);
    kernel.report.user.store(sys::getuid(), Ordering::Relaxed);
}

/// A program was loaded: it ends at once if its limits do not allow so much memory.
pub(crate) fn check_new_program(kernel: &mut Kernel) {
    publish(kernel);
    if !kernel.limits.allow(Kind::Data, 0) {
        kernel.end_by(SIGSEGV);
    }
}

/// May another signal, sent with this code, wait? Those that a timer sends have their place.
pub(super) fn allow_signal(kernel: &Kernel, signal: u32, code: i32) -> bool {
    let urgent = signal < FIRST_QUEUED && code >= 0 || code == SI_TIMER;
    urgent || waiting_places(kernel) < kernel.limits.soft(SIGPENDING)
}

/// May another timer be made, whose signal may have to wait?
pub(super) fn allow_timer(kernel: &Kernel) -> bool {
    waiting_places(kernel) < kernel.limits.soft(SIGPENDING)
}

fn waiting_places(kernel: &Kernel) -> u64 {
    (kernel.signals.count_waiting() + kernel.timers.count_made()) as u64
}

/// The result of a mapping that a limit forbids.
pub(super) const TOO_MUCH: i64 = -(ENOMEM as i64);

/// The calls.
pub(super) fn perform(kernel: &mut Kernel, call: &Call) -> i64 {
    let done = match call.what.special {
        Special::Getrlimit => get(kernel, call.arg(0), call.arg(1)),
        Special::Setrlimit => {
            let wish = guest::read::<[u64; 2]>(call.arg(1)).map_err(|Fault| Fault::RESULT);
            wish.and_then(|wish| set(kernel, call.arg(0), wish))
        }
        _ => return exchange(kernel, call),
    };
    done.map_or_else(|error| error, |()| 0)
}

fn number(resource: u64) -> Result<usize, i64> {
    let known = (resource < RESOURCES as u64).then(|| size(resource));
    known.ok_or(sys::error(EINVAL))
}

fn get(kernel: &Kernel, resource: u64, to: u64) -> Result<(), i64> {
    let limit = kernel.limits.list[number(resource)?];
    guest::write(to, &limit).map_err(|Fault| Fault::RESULT)
}

fn set(kernel: &mut Kernel, resource: u64, wish: [u64; 2]) -> Result<(), i64> {
    let resource = number(resource)?;
    if wish[0] > wish[1] {
        return Err(sys::error(EINVAL));
    }
    let [soft, hard] = wish;
    if hard > kernel.limits.list[resource][1] && !may_raise(kernel.limits.host[LOCKS]) {
        return Err(sys::error(EPERM));
    }
    // The agent may need more than the program.
    let spare = match resource {
        _ if is_kept(resource) => u64::MAX,
        NOFILE => OWN_DESCRIPTORS,
        _ => 0,
    };
    let most = hard.max(spare.min(kernel.limits.host[resource]));
    if resource != LOCKS {
        let soft = if is_kept(resource) { most } else { soft };
        let done = sys::set_limit(resource, [soft, most]);
        done.map_err(|Errno(errno)| -i64::from(errno))?;
        kernel.limits.host[resource] = most;
    }
    kernel.limits.list[resource] = wish;
    publish(kernel);
    Ok(())
}

/// May this process raise hard limits? The kernel says so of one without effect, which stays
/// lowered if it may not.
fn may_raise(locks: u64) -> bool {
    let _ = sys::set_limit(LOCKS, [0, 0]);
    sys::set_limit(LOCKS, [locks.max(1); 2]).is_ok()
}

/// `prlimit64`: the limits of another process can be read. To change them in all its replicas at
/// one point of its trace is beyond this process.
fn exchange(kernel: &mut Kernel, call: &Call) -> i64 {
    let (resource, new, old) = (call.arg(1), call.arg(2), call.arg(3));
    let pid = low32(call.arg(0));
    if pid != 0 && kernel.threads.find(pid).is_none() {
        return match new {
            0 => io::input(kernel, call),
            _ => refuse(kernel, call),
        };
    }
    let wish = match new {
        0 => None,
        _ => match guest::read::<[u64; 2]>(new) {
            Ok(wish) => Some(wish),
            Err(Fault) => return Fault::RESULT,
        },
    };
    let before = match number(resource) {
        Ok(resource) => kernel.limits.list[resource],
        Err(error) => return error,
    };
    if let Some(wish) = wish
        && let Err(error) = set(kernel, resource, wish)
    {
        return error;
    }
    match old {
        0 => 0,
        _ => guest::write(old, &before).map_or(Fault::RESULT, |()| 0),
    }
}

/// Primary: the limits of another process. The host says whether they may be read; of one of the
/// program it does not know all.
pub(super) fn of_other(call: &Call) -> i64 {
    let mut args = call.raw;
    let pid = low32(call.arg(0));
    args[0] = u64::from(processes::replica_of(pid).unwrap_or(pid));
    // SAFETY: the program's own call; the kernel checks where it writes.
    let result = unsafe { rcoe_linux_sys::syscall6(call.nr, args) };
    let (resource, old) = (call.arg(1), call.arg(3));
    let Some(own) = processes::report_of(pid).filter(|_| result == 0 && old != 0) else {
        return result;
    };
    let limit = load(&own.limits)[size(resource)];
    guest::write(old, &limit).map_or(Fault::RESULT, |()| 0)
}

/// All replicas: would another process or thread be one too many? Root may have any number, and so
/// may who has one of two capabilities.
pub(super) fn refuse_task(kernel: &mut Kernel) -> Option<i64> {
    let most = kernel.limits.soft(NPROC);
    if most == UNLIMITED || sys::getuid() == 0 {
        return None;
    }
    if sys::credentials::capabilities().effective & (SYS_ADMIN | SYS_RESOURCE) != 0 {
        return None;
    }
    publish_tasks(kernel);
    let tasks = transfer::agree(kernel, || processes::tasks(sys::getuid()));
    (tasks >= most).then_some(sys::error(EAGAIN))
}

const SYS_ADMIN: u64 = 1 << 21;
const SYS_RESOURCE: u64 = 1 << 24;
