//! `fork` and its kin: every replica gets a child of its own.
//!
//! Intuition: all vote; the primary asks the supervisor for a group and forks once, with a copy of
//! the table of descriptors; its child clones the other replicas of the new group, which share that
//! table. No process can join another's table later, so the new group's replicas must descend from
//! one process.
//!
//! A lost primary: its child waits until some replica of the parent has learnt of it, so a birth
//! that nobody heard of leaves nothing behind, and the successor makes another.
//!
//! `vfork` and `CLONE_VM | CLONE_VFORK` copy memory as `fork` does, and the parent waits until its
//! child has been replaced or has ended. If it has ended, what it wrote above the parent's stack
//! pointer (4 KiB) reaches the parent: there glibc's `posix_spawn` keeps its error word.
//!
//! Not covered: sharing memory, descriptors or signal handlers with a child (`CLONE_VM` without
//! `CLONE_VFORK`, `CLONE_FILES`, `CLONE_SIGHAND`), namespaces, process descriptors. They are
//! refused.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EAGAIN, EINVAL};
use linux_raw_sys::general as nr;
use rcoe_core::{Replica, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{Ask, LENT_WORDS, Note, Phase};
use rcoe_linux_syscalls::Special;

use super::super::{Call, io, refuse, targets};
use super::{Child, Processes, ask, members, own_group};
use crate::convert;
use crate::entry::{TrapFrame, enter_program};
use crate::env::LinuxEnv;
use crate::guest::{self, Fault};
use crate::kernel::{Kernel, kind};
use crate::{boot, faults, regions, sys};

const VM: u64 = nr::CLONE_VM as u64;
const VFORK: u64 = nr::CLONE_VFORK as u64;
const SET_TLS: u64 = nr::CLONE_SETTLS as u64;
const PARENT_TID: u64 = nr::CLONE_PARENT_SETTID as u64;
const CHILD_TID: u64 = nr::CLONE_CHILD_SETTID as u64;
const CLEAR_TID: u64 = nr::CLONE_CHILD_CLEARTID as u64;
/// What a child may differ in, or what means nothing for a child with memory of its own.
const KNOWN: u64 = VM
    | VFORK
    | SET_TLS
    | PARENT_TID
    | CHILD_TID
    | CLEAR_TID
    | nr::CLONE_CLEAR_SIGHAND
    | nr::CLONE_SYSVSEM as u64
    | nr::CLONE_DETACHED as u64;

/// How a child begins.
#[derive(Clone, Copy)]
pub(super) struct Birth {
    flags: u64,
    /// Its stack pointer, or 0 to go on with the parent's.
    stack: u64,
    tls: u64,
    child_tid: u64,
    parent_tid: u64,
    frame: Option<TrapFrame>,
}

impl Birth {
    pub(super) const NONE: Self = Self {
        flags: 0,
        stack: 0,
        tls: 0,
        child_tid: 0,
        parent_tid: 0,
        frame: None,
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
                child_tid: call.arg(3),
                tls: call.arg(4),
                frame: None,
            },
            Special::Clone3 => Self::of_clone3(call)?,
            _ => Self::NONE,
        };
        let shares = birth.flags & (VM | VFORK) == VM;
        if birth.flags & !KNOWN != 0 || shares {
            return Err(refuse(kernel, call));
        }
        Ok(birth)
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
            frame: None,
        })
    }
}

/// All replicas: makes a child; returns its process id.
pub(super) fn perform(kernel: &mut Kernel, call: &Call, frame: &TrapFrame) -> i64 {
    let mut birth = match Birth::of(kernel, call) {
        Ok(birth) => birth,
        Err(result) => return result,
    };
    super::super::shared::before_fork(kernel);
    birth.frame = Some(*frame);
    kernel.processes.birth = birth;
    kernel.processes.number_request();
    kernel.rendezvous();
    let made = io::exchange(kernel, call, true);
    if made < 0 {
        if made == sys::error(EAGAIN) {
            let limit = rcoe_linux_abi::GROUPS as u64;
            kernel.note(Note::TooManyProcesses, limit);
        }
        return made;
    }
    let made = made.cast_unsigned();
    let (group, pid) = (convert::size(made >> 32), convert::low32(made));
    launch(kernel, group, pid);
    if birth.flags & PARENT_TID != 0 {
        // As in the kernel, a bad pointer is the program's own affair.
        let _ = guest::write(birth.parent_tid, &pid);
    }
    if birth.flags & VFORK != 0 {
        await_child(kernel, call, group, frame.cpu.rsp);
    }
    i64::from(pid)
}

/// All replicas have learnt of the child: it may go on.
fn launch(kernel: &mut Kernel, group: usize, pid: u32) {
    let serial = u64::from(regions::control(group).serial.load(Ordering::Relaxed));
    let processes = &mut kernel.processes;
    processes.born += 1;
    processes.children[group] = Child {
        serial,
        pid,
        order: processes.born,
    };
    kernel.report.launched[group].store(serial << 32 | u64::from(pid), Ordering::Release);
}

/// Primary: the child's group in the upper half and its process id in the lower, or an errno.
pub(super) fn make(kernel: &mut Kernel) -> i64 {
    let parents = kernel.replica.members();
    let group = ask(
        kernel,
        Ask::Birth {
            members: members(kernel),
        },
    );
    let Ok(place) = u32::try_from(group) else {
        return group;
    };
    let group = place as usize;
    let parent = own_group();
    match sys::fork_replica() {
        Ok(0) => start(kernel, group, parent, parents),
        Ok(pid) => (u64::from(place) << 32 | pid).cast_signed(),
        Err(errno) => -i64::from(errno.0),
    }
}

/// The first replica of a new group: waits until it counts, and makes the others.
fn start(kernel: &mut Kernel, group: usize, parent: usize, parents: ReplicaSet) -> ! {
    let control = regions::control(group);
    regions::set_own(group, 0);
    regions::protect(group, 0);
    let own = regions::report(group, 0);
    let pid = sys::getpid();
    own.phase.store(Phase::Loading as u32, Ordering::Relaxed);
    own.pid.store(pid, Ordering::Release);
    sys::die_with_supervisor(control.supervisor.load(Ordering::Relaxed));
    let serial = u64::from(control.serial.load(Ordering::Relaxed));
    let known = serial << 32 | u64::from(pid);
    while !parents.iter().any(|id| {
        let parent = regions::report(parent, id.index());
        parent.launched[group].load(Ordering::Acquire) == known
    }) {
        if control.abandoned.load(Ordering::Acquire) != 0 {
            sys::exit_group(0);
        }
        sys::sched_yield();
    }
    let count = parents.len();
    let index = boot::clone_replicas(count);
    enter(kernel, group, index, count, pid)
}

/// Every replica of a new group: becomes a replica of it, and returns 0 from the call.
fn enter(kernel: &mut Kernel, group: usize, index: usize, count: usize, pid: u32) -> ! {
    boot::become_replica(group, index);
    let birth = kernel.processes.birth;
    let clear_tid = match birth.flags & CLEAR_TID {
        0 => 0,
        _ => birth.child_tid,
    };
    let lent = birth.frame.as_ref().map_or(0, |frame| frame.cpu.rsp);
    renew(kernel, group, index, count);
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
    super::super::shared::in_child(kernel);
    kernel.threads.become_only(pid, clear_tid);
    targets::publish(kernel);
    if birth.flags & CHILD_TID != 0 {
        let _ = guest::write(birth.child_tid, &pid);
    }
    if birth.flags & SET_TLS != 0 {
        sys::set_thread_pointer(birth.tls);
    }
    kernel.event(kind::of(0, kind::LAYOUT), u64::from(pid));
    kernel.rendezvous();
    let mut frame = birth.frame.expect("the parent was in a call");
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
    kernel.signals.forget_pending();
    kernel.buffer = super::super::transfer::Buffer::new();
}

/// Parent of a child made by `vfork`: waits, and takes what an ended child has left on the stack.
fn await_child(kernel: &mut Kernel, call: &Call, group: usize, stack: u64) {
    kernel.processes.awaited = Some(group);
    let ended = io::exchange(kernel, call, true);
    kernel.processes.awaited = None;
    if ended != 1 {
        return;
    }
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
