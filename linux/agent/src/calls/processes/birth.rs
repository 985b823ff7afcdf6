//! `fork` and its kin: every replica gets a child of its own.
//!
//! Intuition: all vote; the primary asks the supervisor for a group and forks once, with a copy of
//! the table of descriptors; its child clones the other replicas of the new group, which share that
//! table. No process can join another's table later, so the new group's replicas must descend from
//! one process. Each then makes its memory equal to that of its own replica of the parent: see
//! [`super::twin`].
//!
//! A lost primary: its child waits until some replica of the parent has learnt of it, so a birth
//! that nobody heard of leaves nothing behind, and the successor makes another. A lost first
//! replica of the child: where losses are masked, the primary waits until all are there, and makes
//! another child if they do not come.
//!
//! `vfork` and `CLONE_VM | CLONE_VFORK` copy memory as `fork` does, and the parent waits until its
//! child has been replaced or has ended. If it has ended, what it wrote above the parent's stack
//! pointer (4 KiB) reaches the parent: there glibc's `posix_spawn` keeps its error word.
//!
//! Not covered: sharing memory, descriptors or signal handlers with a child (`CLONE_VM` without
//! `CLONE_VFORK`, `CLONE_FILES`, `CLONE_SIGHAND`), and namespaces. They are refused.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EAGAIN, EINVAL};
use linux_raw_sys::general as nr;
use rcoe_core::{Replica, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{Ask, LENT_WORDS, Note, Phase, ReplicaState};
use rcoe_linux_syscalls::Special;

use super::super::shared::arena;
use super::super::takeover::kinds;
use super::super::{Call, io, refuse, refuse_with, signals, targets};
use super::{Child, Processes, adopt, ask, ask_anew, members, own_group, pidfd, twin, wait};
use crate::convert;
use crate::entry::{TrapFrame, enter_program};
use crate::env::LinuxEnv;
use crate::guest::{self, Fault};
use crate::kernel::{Kernel, kind};
use crate::reintegration::Orders;
use crate::threads::context;
use crate::uring::Ring;
use crate::{boot, deferred, faults, regions, sys, turns};

const VM: u64 = nr::CLONE_VM as u64;
const VFORK: u64 = nr::CLONE_VFORK as u64;
const SET_TLS: u64 = nr::CLONE_SETTLS as u64;
const PARENT_TID: u64 = nr::CLONE_PARENT_SETTID as u64;
const CHILD_TID: u64 = nr::CLONE_CHILD_SETTID as u64;
const CLEAR_TID: u64 = nr::CLONE_CHILD_CLEARTID as u64;
const PIDFD: u64 = nr::CLONE_PIDFD as u64;
/// What a child may differ in, or what means nothing for a child with memory of its own.
const KNOWN: u64 = VM
    | VFORK
    | SET_TLS
    | PARENT_TID
    | CHILD_TID
    | CLEAR_TID
    | PIDFD
    | nr::CLONE_CLEAR_SIGHAND
    | nr::CLONE_SYSVSEM as u64
    | nr::CLONE_DETACHED as u64;

/// How often a birth is tried whose first replica gets lost.
const ATTEMPTS: u32 = 3;
/// Rounds of yielding before a new group sleeps until its birth counts.
const LAUNCH_YIELDS: u32 = 200;
/// Longest sleep before looking again whether a child is whole.
const BIRTH_LOOK_NS: u64 = 20_000_000;

/// How a child begins.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    flags: u64,
    /// Its stack pointer, or 0 to go on with the parent's.
    stack: u64,
    tls: u64,
    child_tid: u64,
    parent_tid: u64,
    /// Where the parent wants the number of a descriptor of the child.
    pidfd: u64,
    /// Primary, while the child is made: that descriptor, or -1.
    descriptor: i32,
    frame: Option<TrapFrame>,
    /// Bases of the segments.
    bases: [u64; 2],
}

impl Birth {
    pub(super) const NONE: Self = Self {
        flags: 0,
        stack: 0,
        tls: 0,
        child_tid: 0,
        parent_tid: 0,
        pidfd: 0,
        descriptor: -1,
        frame: None,
        bases: [0; 2],
    };

    /// What the call asks for.
    ///
    /// # Errors
    /// What the call returns instead.
    fn of(kernel: &mut Kernel, call: &Call) -> Result<Self, i64> {
        let vfork = Self {
            flags: VM | VFORK,
            ..Self::NONE
        };
        let birth = match call.what.special {
            Special::Vfork => vfork,
            Special::Clone => Self {
                flags: call.arg(0) & !0xff,
                stack: call.arg(1),
                parent_tid: call.arg(2),
                pidfd: call.arg(2),
                child_tid: call.arg(3),
                tls: call.arg(4),
                ..Self::NONE
            },
            Special::Clone3 => Self::of_clone3(call)?,
            _ => Self::NONE,
        };
        if birth.flags & PIDFD != 0 && !birth.has_room_for_pidfd(call) {
            return Err(sys::error(EINVAL));
        }
        let shares = birth.flags & (VM | VFORK) == VM;
        if birth.flags & !KNOWN != 0 || shares {
            return Err(refuse(kernel, call));
        }
        Ok(birth)
    }

    /// The old call has one place for both.
    fn has_room_for_pidfd(&self, call: &Call) -> bool {
        let apart = call.what.special == Special::Clone3;
        let both = self.flags & PARENT_TID != 0 && (!apart || self.pidfd == self.parent_tid);
        !both && self.flags & u64::from(nr::CLONE_DETACHED) == 0
    }

    /// `struct clone_args`: flags, pidfd, child_tid, parent_tid, exit_signal, stack, size, tls.
    fn of_clone3(call: &Call) -> Result<Self, i64> {
        if call.arg(1) < 64 {
            return Err(sys::error(EINVAL));
        }
        let args = guest::read::<[u64; 8]>(call.arg(0)).map_err(|Fault| Fault::RESULT)?;
        Ok(Self {
            flags: args[0],
            stack: args[5].wrapping_add(args[6]),
            tls: args[7],
            child_tid: args[2],
            parent_tid: args[3],
            pidfd: args[1],
            ..Self::NONE
        })
    }
}

/// All replicas: makes a child; returns its process id.
pub(super) fn perform(kernel: &mut Kernel, call: &Call, frame: &TrapFrame) -> i64 {
    let mut birth = match Birth::of(kernel, call) {
        Ok(birth) => birth,
        Err(result) => return result,
    };
    arena::before_fork(kernel);
    if deferred::is_active() {
        deferred::settle_all();
        twin::release(kernel);
    }
    birth.frame = Some(*frame);
    birth.bases = context::bases();
    context::keep_for_child(frame);
    kernel.processes.birth = birth;
    kernel.processes.number_request();
    kernel.rendezvous();
    let made = io::exchange(kernel, call, true);
    if made < 0 {
        kernel.processes.birth.descriptor = -1;
        if made == sys::error(EAGAIN) {
            let limit = rcoe_linux_abi::GROUPS as u64;
            kernel.note(Note::TooManyProcesses, limit);
        }
        return made;
    }
    kernel.processes.birth.descriptor = -1;
    let Made {
        group,
        pid,
        descriptor,
    } = Made::unpack(made.cast_unsigned());
    launch(kernel, group, pid);
    arena::after_fork(kernel);
    if birth.flags & PARENT_TID != 0 {
        // As in the kernel, a bad pointer is the program's own affair.
        let _ = guest::write(birth.parent_tid, &pid);
    }
    if birth.flags & PIDFD != 0 {
        let _ = guest::write(birth.pidfd, &descriptor);
    }
    if birth.flags & VFORK != 0 {
        turns::outside(kernel, |kernel| {
            await_child(kernel, call, group, frame.cpu.rsp);
        });
    }
    i64::from(pid)
}

/// What the primary has made, as it tells its siblings.
struct Made {
    group: usize,
    pid: u32,
    /// Of the child, if one was asked for.
    descriptor: u32,
}

impl Made {
    const PID_BITS: u32 = 22;
    const DESCRIPTOR_BITS: u32 = 31;

    fn pack(&self) -> i64 {
        let group = (self.group as u64) << (Self::PID_BITS + Self::DESCRIPTOR_BITS);
        let descriptor = u64::from(self.descriptor) << Self::PID_BITS;
        (group | descriptor | u64::from(self.pid)).cast_signed()
    }

    fn unpack(word: u64) -> Self {
        let descriptor = word >> Self::PID_BITS & ((1 << Self::DESCRIPTOR_BITS) - 1);
        Self {
            group: convert::size(word >> (Self::PID_BITS + Self::DESCRIPTOR_BITS)),
            pid: convert::low32(word & ((1 << Self::PID_BITS) - 1)),
            descriptor: convert::low32(descriptor),
        }
    }
}

/// All replicas have learnt of the child: it may go on.
fn launch(kernel: &mut Kernel, group: usize, pid: u32) {
    let serial = u64::from(regions::control(group).serial.load(Ordering::Relaxed));
    // No replica of the child is a newcomer's.
    if !kernel.replica.is_primary() && !kernel.replica.is_newcomer() {
        twin::leave(kernel, group, serial);
    }
    let processes = &mut kernel.processes;
    processes.born += 1;
    processes.children[group] = Child {
        serial,
        pid,
        order: processes.born,
        told: 0,
    };
    let cell = &kernel.report.launched[group];
    cell.store(twin::note(serial, pid), Ordering::Release);
    sys::futex_wake(cell.as_ptr().cast());
}

/// Primary: the child as [`Made`], or an errno.
///
/// Where a loss can be masked it waits until all replicas of the child are there: if the first one
/// is lost before it has made the others, the birth does not count, and another is made.
pub(super) fn make(kernel: &mut Kernel) -> i64 {
    let wish = Ask::Birth {
        members: members(kernel),
        stand_in: kernel.processes.birth.flags & PIDFD != 0,
    };
    let mut group = ask(kernel, wish);
    for _ in 0..ATTEMPTS {
        let made = make_in(kernel, group);
        if made < 0 || !kernel.masks || is_whole(kernel, group) {
            return made;
        }
        close_descriptor(kernel);
        group = ask_anew(kernel, wish, group);
    }
    sys::error(EAGAIN)
}

/// Primary: makes the first replica of the group that the supervisor has allotted.
fn make_in(kernel: &mut Kernel, group: i64) -> i64 {
    let Ok(place) = u32::try_from(group) else {
        return group;
    };
    let group = place as usize;
    if let Err(errno) = open_descriptor(kernel, group) {
        return errno;
    }
    match sys::fork_replica() {
        Ok(0) => start(kernel, group),
        Ok(pid) => {
            let pid = convert::low32(pid);
            let serial = u64::from(regions::control(group).serial.load(Ordering::Relaxed));
            kernel.report.births[group].store(twin::note(serial, pid), Ordering::Release);
            let descriptor = kernel.processes.birth.descriptor;
            let descriptor = u32::try_from(descriptor).unwrap_or(0);
            let made = Made {
                group,
                pid,
                descriptor,
            };
            made.pack()
        }
        Err(errno) => {
            close_descriptor(kernel);
            -i64::from(errno.0)
        }
    }
}

/// Primary: opens a descriptor of the child to be, if one is wanted: there may be no room for it.
fn open_descriptor(kernel: &mut Kernel, group: usize) -> Result<(), i64> {
    let birth = &mut kernel.processes.birth;
    if birth.flags & PIDFD == 0 {
        return Ok(());
    }
    let stand_in = regions::control(group).stand_in.load(Ordering::Acquire);
    let opened = pidfd::of(u64::from(stand_in), 0);
    birth.descriptor = i32::try_from(opened).unwrap_or(-1);
    if opened < 0 { Err(opened) } else { Ok(()) }
}

/// Closes it again; the child does so, too, for its own table.
fn close_descriptor(kernel: &mut Kernel) {
    let birth = &mut kernel.processes.birth;
    if birth.descriptor >= 0 {
        sys::close(birth.descriptor);
        birth.descriptor = -1;
    }
}

/// Primary: waits until all replicas of the child are there; false if the first was lost before.
fn is_whole(kernel: &Kernel, group: i64) -> bool {
    let group = convert::size(group.cast_unsigned());
    let control = regions::control(group);
    let count = kernel.replica.members().len();
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        let told = |index| regions::report(group, index).pid.load(Ordering::Acquire) != 0;
        if (0..count).all(told) {
            return true;
        }
        if control.state[0].load(Ordering::Acquire) == ReplicaState::Dead as u32 {
            return false;
        }
        let last = &regions::report(group, count - 1).pid;
        let words = [
            (last.as_ptr().cast_const(), 0),
            (control.bell.as_ptr().cast_const(), bell),
        ];
        sys::futex_wait_any(&words, BIRTH_LOOK_NS);
    }
}

/// The first replica of a new group: makes the others, and all wait until the birth counts.
fn start(kernel: &mut Kernel, group: usize) -> ! {
    let parents = kernel.replica.members();
    let parent = own_group();
    let pid = sys::getpid();
    regions::set_own(group, 0);
    regions::protect(group, 0);
    let own = regions::report(group, 0);
    own.phase.store(Phase::Loading as u32, Ordering::Relaxed);
    own.pid.store(pid, Ordering::Release);
    signals::signalfd::part(kernel);
    close_descriptor(kernel);
    let count = parents.len();
    let index = boot::clone_replicas(count);
    boot::become_replica(group, index);
    sys::futex_wake(regions::report(group, index).pid.as_ptr());
    await_launch(group, parent, parents, pid);
    if index > 0 {
        take_over(kernel, group, index, parent, parents);
    }
    enter(kernel, group, index, parents, pid)
}

/// Waits until some replica of the parent has learnt of the birth.
fn await_launch(group: usize, parent: usize, parents: ReplicaSet, pid: u32) {
    let control = regions::control(group);
    let serial = u64::from(control.serial.load(Ordering::Relaxed));
    let known = twin::note(serial, pid);
    let cells = || {
        parents
            .iter()
            .map(|id| &regions::report(parent, id.index()).launched[group])
    };
    for round in 0_u32.. {
        let seen = cells()
            .next()
            .map_or(0, |cell| cell.load(Ordering::Acquire));
        if cells().any(|cell| cell.load(Ordering::Acquire) == known) {
            return;
        }
        if control.abandoned.load(Ordering::Acquire) != 0 {
            sys::exit_group(0);
        }
        match cells().next() {
            Some(cell) if round > LAUNCH_YIELDS => twin::wait_for(cell, seen),
            _ => sys::sched_yield(),
        }
    }
}

/// A replica of a new group that is a copy of its parent's primary: becomes one of its own replica
/// of the parent. If that is lost there is nothing to compare with.
#[inline(never)]
fn take_over(_: &mut Kernel, group: usize, index: usize, parent: usize, parents: ReplicaSet) {
    let id = parents
        .iter()
        .nth(index)
        .expect("as many as the parent has");
    let serial = u64::from(regions::control(group).serial.load(Ordering::Relaxed));
    let own = regions::report(group, index);
    let Some(source) = twin::await_twin(parent, id, group, serial) else {
        return;
    };
    own.adopts.store(source, Ordering::Release);
    let done = sys::with_own_memory(|| adopt::adopt(source));
    // Who this is was overwritten with who the parent was.
    regions::set_own(group, index);
    if done.is_err() {
        own.unverified.store(1, Ordering::Release);
    }
}

/// Every replica of a new group: becomes a replica of it, and returns 0 from the call.
fn enter(kernel: &mut Kernel, group: usize, index: usize, parents: ReplicaSet, pid: u32) -> ! {
    let count = parents.len();
    kernel.turns.become_child(parents, index);
    let birth = kernel.processes.birth;
    let clear_tid = match birth.flags & CLEAR_TID {
        0 => 0,
        _ => birth.child_tid,
    };
    let lent = birth.frame.as_ref().map_or(0, |frame| frame.cpu.rsp);
    renew(kernel, group, index, count);
    arena::in_child(kernel);
    if deferred::is_settled() {
        twin::release(kernel);
    }
    kernel.processes = Processes {
        lent: if birth.flags & VFORK != 0 { lent } else { 0 },
        ..Processes::new(pid)
    };
    faults::arm();
    let report = kernel.report;
    report.phase.store(Phase::Running as u32, Ordering::Release);
    if birth.flags & nr::CLONE_CLEAR_SIGHAND != 0 {
        kernel.signals.reset_handlers();
    }
    kernel.threads.become_only(pid, clear_tid);
    kernel.threads.number_by_group(group);
    targets::publish(kernel);
    kernel.event(kind::of(0, kind::LAYOUT), u64::from(pid));
    kernel.rendezvous();
    arena::start_child(kernel);
    if birth.flags & CHILD_TID != 0 {
        let _ = guest::write(birth.child_tid, &pid);
    }
    let mut frame = birth.frame.expect("the parent was in a call");
    context::load_kept(&mut frame, birth.bases);
    if birth.flags & SET_TLS != 0 {
        sys::set_thread_pointer(birth.tls);
    }
    let unverified = |index| {
        regions::report(group, index)
            .unverified
            .load(Ordering::Acquire)
            != 0
    };
    if (0..count).any(unverified) {
        refuse_with(kernel, Note::Unverified, 0);
    }
    frame.cpu.regs.rax = 0;
    if birth.stack != 0 {
        frame.cpu.rsp = birth.stack;
    }
    enter_program(&frame)
}

/// Replaces all that belonged to the parent's group.
fn renew(kernel: &mut Kernel, group: usize, index: usize, count: usize) {
    let (ports, siblings) = boot::neighbours(group, count);
    kernel.control = regions::control(group);
    kernel.report = regions::report(group, index);
    let env = LinuxEnv::new(kernel.control, kernel.report, siblings);
    let id = ReplicaId::new(u8::try_from(index).expect("at most eight"));
    kernel.replica = Replica::new(id, ReplicaSet::all(count), ports, env);
    kernel.alone = count == 1;
    kernel.masks = count > 2 && kernel.control.mask.load(Ordering::Relaxed) != 0;
    kernel.inherited = 0;
    kernel.ring = Ring::NONE;
    kinds::forget_all();
    kernel.orders = Orders::NONE;
    kernel.withheld = kernel.withheld.for_child();
    kernel.signals.forget_pending();
    kernel.timers = super::super::timers::Timers::new();
    kernel.begun = None;
    kernel.buffer = super::super::transfer::Buffer::new();
}

/// Parent of a child made by `vfork`: waits, and takes what an ended child has left on the stack.
fn await_child(kernel: &mut Kernel, call: &Call, group: usize, stack: u64) {
    kernel.processes.awaited = Some(group);
    let ended = io::exchange(kernel, call, true);
    if ended == 1 {
        take_back(kernel, group, stack);
    }
    wait::released(kernel, group);
}

/// Takes what a child made by `vfork` that has ended has left on the stack.
fn take_back(kernel: &Kernel, group: usize, stack: u64) {
    let members = kernel.replica.members();
    let own = members.iter().position(|id| id == kernel.replica.id());
    let whole = |index: usize| {
        let report = regions::report(group, index);
        report.phase.load(Ordering::Acquire) == Phase::Ended as u32
    };
    let source = own
        .filter(|&index| whole(index))
        .or_else(|| (0..members.len()).find(|&index| whole(index)));
    let Some(source) = source else { return };
    let mut bytes = [0_u8; LENT_WORDS * 8];
    for (chunk, cell) in bytes
        .chunks_mut(8)
        .zip(&regions::report(group, source).lent)
    {
        chunk.copy_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
    }
    // A child killed by a signal has left nothing.
    if bytes.iter().any(|byte| *byte != 0) {
        let _ = guest::copy_out(stack, &bytes);
    }
}

/// Primary: 0 once the child has been replaced, 1 once it has ended.
pub(super) fn await_release(kernel: &Kernel, group: usize) -> i64 {
    let control = kernel.control;
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        if regions::control(group).ending.load(Ordering::Acquire) != 0 {
            return 1;
        }
        let first = regions::report(group, 0);
        let replaced = first.replaced.load(Ordering::Acquire) != 0
            || (1..kernel.replica.members().len()).any(|index| {
                let report = regions::report(group, index);
                report.replaced.load(Ordering::Acquire) != 0
            });
        if replaced {
            return 0;
        }
        let bells = [
            (control.bell.as_ptr().cast_const(), bell),
            (first.replaced.as_ptr().cast_const(), 0),
        ];
        sys::futex_wait_any(&bells, super::LOOK_NS);
    }
}
