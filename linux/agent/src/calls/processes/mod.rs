//! The program's processes: birth, replacement, end, and what they do to each other.
//!
//! Every process of the program is a group of replicas with a trace of its own. What concerns one
//! group only is done in it, at a point of its trace; what concerns several (room for a child,
//! `kill`, process groups, sessions) the group's primary asks of the supervisor, which alone writes
//! what others rely on, and the answer reaches the siblings as the call's result.
//!
//! A process id is the host's id of the group's first replica, so it is like no other's; the first
//! process has the supervisor's.
//!
//! Not covered: `ptrace`.

mod adopt;
mod birth;
mod exec;
mod identity;
pub(super) mod jobs;
pub(super) mod pidfd;
mod strings;
pub(super) mod terminals;
mod twin;
pub(super) mod usage;
mod wait;

use core::sync::atomic::Ordering;

use rcoe_linux_abi::{
    Ask, GROUPS, LENT_WORDS, MAX_REPLICAS, ReplicaState, Request, SIG_NOTIFY, Usage,
};
use rcoe_linux_syscalls::Special;

pub(crate) use exec::{exe_path, save_start};
pub(crate) use identity::{get_group, parent, set_group};
pub(crate) use twin::release as release_twin;
pub(super) use wait::ended;

use super::{Call, ipc, refuse, scheduling, signals};
use crate::entry::TrapFrame;
use crate::guest;
use crate::kernel::{Kernel, kind};
use crate::reintegration::newcomer;
use crate::{regions, sys};

/// Longest sleep before looking again whether an answer has come.
const LOOK_NS: u64 = 100_000_000;

/// A process that this one has made and not yet awaited.
#[derive(Clone, Copy, Debug)]
struct Child {
    /// Number of its birth; 0 for an empty place.
    serial: u64,
    pid: u32,
    /// Its place among all children, oldest first.
    order: u32,
    /// The stop or continuation of it that was told last.
    told: u32,
}

/// What a group knows of itself and its children. The same in all replicas.
pub(crate) struct Processes {
    pub(crate) pid: u32,
    /// By group number.
    children: [Child; GROUPS],
    born: u32,
    /// What awaited children have used.
    used: Usage,
    /// Requests made of the supervisor.
    asked: u64,
    /// To which process of the program a signal goes that is sent through a descriptor, or 0.
    addressee: u32,
    /// Where the stack lies that the parent has lent (`vfork`), or 0.
    lent: u64,
    /// What a child being born starts with.
    birth: birth::Birth,
    /// It leads a session.
    leads: bool,
    /// A child made by `vfork` that is awaited.
    awaited: Option<usize>,
    /// Its end was told meanwhile, and nobody is to await it.
    unwanted: bool,
    /// The frame was replaced as a whole.
    replaced: bool,
    plan: exec::Plan,
}

impl Processes {
    pub(crate) const fn new(pid: u32) -> Self {
        const NONE: Child = Child {
            serial: 0,
            pid: 0,
            order: 0,
            told: 0,
        };
        Self {
            pid,
            children: [NONE; GROUPS],
            born: 0,
            used: Usage::NONE,
            asked: 0,
            addressee: 0,
            lent: 0,
            birth: birth::Birth::NONE,
            leads: false,
            awaited: None,
            unwanted: false,
            replaced: false,
            plan: exec::Plan::NONE,
        }
    }

    /// The first process, in this session.
    pub(crate) const fn first(pid: u32, session: u32) -> Self {
        let mut first = Self::new(pid);
        first.leads = pid == session;
        first
    }

    /// Were all registers replaced since this was last asked?
    pub(crate) fn take_replaced(&mut self) -> bool {
        core::mem::take(&mut self.replaced)
    }

    /// The next request gets a number of its own.
    pub(crate) fn number_request(&mut self) {
        self.asked += 1;
    }

    /// A signal is sent through a descriptor of this process, which may be gone when a successor
    /// comes to ask whether it was sent.
    pub(crate) fn address(&mut self, process: pidfd::Process) {
        self.addressee = match process {
            pidfd::Process::Own(pid) => pid,
            _ => 0,
        };
    }

    fn child(&self, pid: u32) -> Option<usize> {
        self.children
            .iter()
            .position(|child| child.serial != 0 && child.pid == pid)
    }
}

/// Calls of the class process.
pub(super) fn perform(kernel: &mut Kernel, call: &Call, frame: &mut TrapFrame) -> i64 {
    match call.what.special {
        Special::Fork | Special::Vfork | Special::Clone | Special::Clone3 => {
            birth::perform(kernel, call, frame)
        }
        Special::Execve | Special::Execveat => {
            newcomer::give_up(kernel);
            exec::perform(kernel, call, frame)
        }
        Special::Wait4 | Special::Waitid => wait::perform(kernel, call),
        _ => refuse(kernel, call),
    }
}

/// Primary: the part of a call that the host does for other calls; `None` if it shall.
pub(super) fn execute(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    match call.what.special {
        Special::Fork | Special::Vfork | Special::Clone | Special::Clone3 => {
            Some(match kernel.processes.awaited {
                Some(group) => birth::await_release(kernel, group),
                None => birth::make(kernel),
            })
        }
        Special::Tiocgpgrp => jobs::foreground(kernel, call),
        Special::Tiocspgrp => Some(jobs::bring_to_foreground(kernel, call)),
        Special::Tiocsctty | Special::Tiocnotty => Some(terminals::execute(kernel, call)),
        Special::Tiocgsid => jobs::session(kernel, call),
        Special::Signalfd | Special::Signalfd4 => Some(signals::signalfd::make(call)),
        Special::Execve | Special::Execveat => Some(exec::open_next(kernel, call)),
        Special::Wait4 | Special::Waitid => Some(wait::execute(kernel, call)),
        Special::Kill
        | Special::Tkill
        | Special::Tgkill
        | Special::RtSigqueueinfo
        | Special::RtTgsigqueueinfo
        | Special::PidfdSendSignal => identity::kill(kernel, call),
        Special::PidfdOpen => pidfd::execute(kernel, call),
        Special::Prlimit64 => Some(scheduling::limits_of_other(call)),
        Special::Semctl | Special::Msgctl => Some(ipc::execute(call)),
        Special::Times => Some(usage::times(kernel, call)),
        Special::Setpgid
        | Special::Setsid
        | Special::Getpgid
        | Special::Getpgrp
        | Special::Getsid => Some(identity::execute(kernel, call)),
        _ => None,
    }
}

/// Primary: the supervisor's answer.
fn ask(kernel: &Kernel, ask: Ask) -> i64 {
    answer(kernel, ask, None)
}

/// Primary: the supervisor's answer to the same request once more, which is another one.
fn ask_anew(kernel: &Kernel, ask: Ask, old: i64) -> i64 {
    answer(kernel, ask, Some(old))
}

fn answer(kernel: &Kernel, ask: Ask, old: Option<i64>) -> i64 {
    let control = kernel.control;
    let number = kernel.processes.asked;
    let request = Request {
        number: (number & 0xff) as u8,
        ask,
    };
    kernel.report.asked.store(number, Ordering::Release);
    let supervisor = control.supervisor.load(Ordering::Relaxed);
    sys::queue_signal(supervisor, SIG_NOTIFY, request.pack());
    let own = sys::getpid();
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        // An answer to a lost primary is none: what it was given may be gone.
        let answer = control.answer.load(Ordering::Acquire).cast_signed();
        if control.answered_to.load(Ordering::Acquire) == own
            && control.answered.load(Ordering::Acquire) == number
            && old != Some(answer)
        {
            return control.answer.load(Ordering::Relaxed).cast_signed();
        }
        let bells = [(control.bell.as_ptr().cast_const(), bell)];
        sys::futex_wait_any(&bells, LOOK_NS);
    }
}

/// At the end of the program: gives a lent stack back as it is now.
pub(crate) fn return_lent(kernel: &mut Kernel) {
    let address = kernel.processes.lent;
    if address == 0 {
        return;
    }
    for len in [LENT_WORDS * 8, LENT_WORDS, 64] {
        if guest::copy_to_cells(&kernel.report.lent, address, len).is_ok() {
            let digest = guest::digest(address, len as u64).unwrap_or(0);
            kernel.event(kind::of(0, kind::LAYOUT), digest);
            return;
        }
    }
}

/// The members of this group, one bit each.
fn members(kernel: &Kernel) -> u8 {
    kernel.replica.members().bits()
}

/// Primary: the process of the host that a process of the program is to others, one of its living
/// replicas; `None` if it is none of the program's.
pub(crate) fn replica_of(pid: u32) -> Option<u32> {
    let is_it = |group: &usize| regions::control(*group).pid.load(Ordering::Acquire) == pid;
    let group = (0..GROUPS).find(|group| pid != 0 && is_it(group))?;
    let control = regions::control(group);
    let replicas = control.replicas.load(Ordering::Relaxed) as usize;
    let lives =
        |index: &usize| control.state[*index].load(Ordering::Acquire) != ReplicaState::Dead as u32;
    let mut living = (0..replicas.min(MAX_REPLICAS)).filter(lives);
    living.find_map(|index| {
        let host = regions::report(group, index).pid.load(Ordering::Acquire);
        (host != 0).then_some(host)
    })
}

/// The number of this group.
fn own_group() -> usize {
    regions::own_group()
}
