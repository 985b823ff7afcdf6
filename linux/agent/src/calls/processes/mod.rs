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
pub(super) mod busy;
mod exec;
mod identity;
pub(super) mod jobs;
pub(super) mod pidfd;
mod privileges;
mod strings;
pub(super) mod terminals;
mod twin;
pub(super) mod usage;
mod wait;

use core::sync::atomic::Ordering;

use rcoe_linux_abi::{
    Adoption, Ask, GROUPS, LENT_WORDS, MAX_REPLICAS, NOT_AGREED, ReplicaState, Report, Request,
    Usage,
};
use rcoe_linux_syscalls::Special;

pub(in crate::calls) use adopt::each_mapping;
pub(crate) use exec::{exe_path, publish_file, save_start};
pub(in crate::calls) use identity::plan_sending;
pub(crate) use identity::{get_group, parent, set_group, subreaper};
pub(crate) use privileges::Bounding;
pub(super) use privileges::{death_signal, with_credentials};
pub(crate) use twin::release as release_twin;
pub(super) use wait::ended;

use crate::arch::entry::TrapFrame;
use crate::calls::{Call, clone, ipc, limits, refuse, scheduling, signals};
use crate::kernel::{Kernel, kind};
use crate::lifetime::{PerProcess, Who};
use crate::memory::guest;
use crate::memory::regions;
use crate::protocol::requests::{self, LOOK_NS};
use crate::recover::reintegration::newcomer;

/// A process that this one has made, or learnt that it has been given, and not yet awaited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Child {
    /// Number of its birth; 0 for an empty place.
    serial: u64,
    pid: u32,
    /// Its place among all children, oldest first.
    order: u32,
    /// The stop or continuation of it that was told last.
    told: u32,
    /// Of an empty place: the birth of the last one that was awaited here.
    forgotten: u64,
}

impl Child {
    const NONE: Self = Self {
        serial: 0,
        pid: 0,
        order: 0,
        told: 0,
        forgotten: 0,
    };
}

/// Adopted children count as younger than those that the process has made.
const FIRST_ADOPTED: u32 = 1 << 31;

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
    /// What the program wants to be sent when its parent ends, or 0.
    death_signal: u32,
    /// Orphans among its descendants become its children.
    subreaper: bool,
    /// How often it has executed a program.
    programs: u32,
}

/// Does this process lead a session?
pub(crate) const fn leads(kernel: &Kernel) -> bool {
    kernel.processes.leads
}

impl Processes {
    /// The first process, in this session. It was zeroes: no children.
    pub(crate) fn begin(&mut self, pid: u32, session: u32) {
        self.pid = pid;
        self.leads = pid == session;
        self.birth = birth::Birth::NONE;
        self.awaited = None;
        self.plan.clear();
    }

    /// Were all registers replaced since this was last asked?
    pub(crate) fn take_replaced(&mut self) -> bool {
        core::mem::take(&mut self.replaced)
    }

    /// A signal is sent through a descriptor of this process, which may be gone when a successor
    /// comes to ask whether it was sent.
    pub(crate) fn address(&mut self, process: pidfd::Process) {
        self.addressee = match process {
            pidfd::Process::Own(pid) => pid,
            _ => 0,
        };
    }

    /// Whether this is a child that is not yet a replica of its own group: what it has of the
    /// protocol is its parent's. So is the primary for a moment before it forks.
    pub(crate) const fn is_being_born(&self) -> bool {
        self.birth.child().is_some()
    }

    fn child(&self, pid: u32) -> Option<usize> {
        let is_it = |group: &usize| self.child_in(*group).is_some_and(|child| child.pid == pid);
        regions::groups().find(is_it)
    }

    /// Whether other processes can profit from what this one finds in files: of those that
    /// descend from it, only such as are born already; or those of other runs.
    pub(crate) fn shares_finds(&self) -> bool {
        let kept = regions::control(own_group()).finds.load(Ordering::Relaxed) != 0;
        kept || self.born != 0 || own_group() != 0
    }

    /// The child in this group: one that it has made, or that was given to it.
    fn child_in(&self, group: usize) -> Option<Child> {
        let known = self.children[group];
        if known.serial != 0 {
            return Some(known);
        }
        let control = regions::control(group);
        let adoption = Adoption::unpack(control.adoption.load(Ordering::Acquire))?;
        let serial = u64::from(control.serial.load(Ordering::Relaxed));
        let is_own = adoption.by as usize == own_group() && serial != known.forgotten;
        is_own.then(|| Child {
            serial,
            pid: control.pid.load(Ordering::Acquire),
            order: FIRST_ADOPTED + adoption.count,
            ..known
        })
    }
}

impl PerProcess for Processes {
    /// Nothing is known of children. What is large and says nothing is left untouched.
    fn in_child(&mut self, who: &Who) {
        let known = |child: &&mut Child| **child != Child::NONE;
        self.children
            .iter_mut()
            .filter(known)
            .for_each(|child| *child = Child::NONE);
        self.plan.clear();
        let Self {
            pid: own,
            children: _,
            born,
            used,
            asked,
            addressee,
            lent,
            birth,
            leads,
            awaited,
            unwanted,
            replaced,
            plan: _,
            death_signal,
            subreaper,
            programs,
        } = self;
        *own = who.pid;
        *birth = birth::Birth::NONE;
        *used = Usage::NONE;
        *awaited = None;
        *asked = 0;
        *lent = 0;
        for number in [born, addressee, death_signal, programs] {
            *number = 0;
        }
        for flag in [leads, unwanted, replaced, subreaper] {
            *flag = false;
        }
    }
}

/// Calls of the class process.
pub(super) fn perform(kernel: &mut Kernel, call: &Call, frame: &mut TrapFrame) -> i64 {
    kernel.replica.env_mut().expect_lasting();
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
        Special::Prlimit64 => Some(limits::of_other(call)),
        Special::Getpriority
        | Special::IoprioGet
        | Special::SchedGetattr
        | Special::SchedGetparam
        | Special::SchedGetscheduler
        | Special::SchedRrGetInterval => scheduling::of_other(kernel, call),
        Special::GetRobustList => clone::robust_list_of_other(call),
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

/// All replicas, before the vote: what the primary will ask next, under a number of its own. The
/// supervisor does it if most replicas have left the same; `None` if nothing is to be asked.
pub(super) fn plan(kernel: &mut Kernel, ask: Option<Ask>) {
    plan_with(kernel, ask.map(|ask| (ask, [0; 3])));
}

/// The same of a request that encloses something.
pub(super) fn plan_with(kernel: &mut Kernel, request: Option<(Ask, [u64; 3])>) {
    kernel.processes.asked += 1;
    if let Some((ask, enclosed)) = request {
        let request = request_of(kernel, ask, enclosed);
        kernel.report.plan.post(request.planned());
    }
}

fn request_of(kernel: &Kernel, ask: Ask, enclosed: [u64; 3]) -> Request {
    Request {
        number: kernel.processes.asked,
        attempt: 0,
        ask,
        enclosed,
    }
}

/// Primary: the supervisor's answer.
fn ask(kernel: &mut Kernel, ask: Ask) -> i64 {
    ask_with(kernel, ask, [0; 3])
}

/// Primary: the same of a request that encloses something.
fn ask_with(kernel: &mut Kernel, ask: Ask, enclosed: [u64; 3]) -> i64 {
    let request = request_of(kernel, ask, enclosed);
    agreed(kernel, request)
}

/// Primary: the supervisor's answer to the same request made anew for the `attempt`-th time.
fn ask_anew(kernel: &mut Kernel, ask: Ask, attempt: u8) -> i64 {
    let request = Request {
        attempt,
        ..request_of(kernel, ask, [0; 3])
    };
    agreed(kernel, request)
}

/// Primary: the answer to what all have agreed on. If the supervisor finds that they have not, they
/// vote: this one says that it differs.
fn agreed(kernel: &mut Kernel, request: Request) -> i64 {
    let number = kernel.report.plan.number();
    assert_eq!(number, request.number, "what is asked was planned");
    let answer = requests::answer(request);
    if answer == NOT_AGREED {
        let call = kernel.report.in_call.load(Ordering::Relaxed);
        let kind = kind::of(call.saturating_sub(1), kind::NUMBER);
        let Err(halt) = kernel.replica.accuse_self(kind, request.number) else {
            panic!("siblings would not have asked for this");
        };
        kernel.park(halt);
    }
    answer
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
    let report = report_of(pid)?;
    Some(report.pid.load(Ordering::Acquire))
}

/// What a process of the program tells of itself: one of its living replicas does.
pub(super) fn report_of(pid: u32) -> Option<&'static Report> {
    let is_it = |group: &usize| regions::control(*group).pid.load(Ordering::Acquire) == pid;
    let group = regions::groups().find(|group| pid != 0 && is_it(group))?;
    living_report(group)
}

fn living_report(group: usize) -> Option<&'static Report> {
    let control = regions::control(group);
    let replicas = control.replicas.load(Ordering::Relaxed) as usize;
    let lives =
        |index: &usize| control.state[*index].load(Ordering::Acquire) != ReplicaState::Dead as u32;
    let mut living = (0..replicas.min(MAX_REPLICAS)).filter(lives);
    living.find_map(|index| {
        let report = regions::report(group, index);
        (report.pid.load(Ordering::Acquire) != 0).then_some(report)
    })
}

/// Primary: processes and threads of the program that are this user's. Those that nobody has
/// awaited count, too.
pub(super) fn tasks(user: u32) -> u64 {
    let exists = |group: &usize| regions::control(*group).pid.load(Ordering::Acquire) != 0;
    let reports = regions::groups().filter(exists).filter_map(living_report);
    let own = reports.filter(|report| report.user.load(Ordering::Relaxed) == user);
    own.map(|report| u64::from(report.threads.load(Ordering::Relaxed).max(1)))
        .sum()
}

/// The number of this group.
fn own_group() -> usize {
    regions::own_group()
}
