//! What a child does from its first instruction until it is back in the program.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as nr;
use rcoe_core::{ReplicaId, ReplicaSet};
use rcoe_linux_abi::{Note, Phase};

use crate::arch::context;
use crate::arch::entry::enter_program;
use crate::arch::faults;
use crate::calls::processes::birth::close_descriptor;
use crate::calls::processes::birth::wish::{CHILD_TID, CLEAR_TID, Newborn, SET_TLS, VFORK};
use crate::calls::processes::{adopt, publish_file, twin};
use crate::calls::shared::arena;
use crate::calls::{limits, points, refuse_with, signals, targets};
use crate::convert::low32;
use crate::kernel::{Kernel, kind};
use crate::memory::guest;
use crate::memory::{deferred, regions};
use crate::sched::turns;
use crate::sys::Errno;
use crate::{boot, sys};

/// Rounds of yielding before a new group sleeps until its birth counts.
const LAUNCH_YIELDS: u32 = 16;

/// The first replica of a new group: makes the others, and all wait until the birth counts.
pub(super) fn start(kernel: &mut Kernel, group: usize) -> ! {
    let parents = kernel.replica.members();
    let first = kernel.replica.id();
    assert_eq!(group, own_birth(kernel).group, "this child's group");
    regions::set_own(group, first.index());
    regions::open(group, first.index());
    let own = regions::report(group, first.index());
    own.phase.store(Phase::Loading as u32, Ordering::Relaxed);
    own.pid.store(sys::getpid(), Ordering::Release);
    signals::signalfd::part(kernel);
    close_descriptor(kernel);
    boot::allow_cores(group, parents);
    let id = match boot::clone_replicas(first, parents) {
        Ok(id) => id,
        Err(Errno(errno)) => {
            // The others see this one end before the birth counts, and go, too.
            own.load_error
                .store(errno.cast_unsigned(), Ordering::Release);
            sys::exit_group(0);
        }
    };
    leave_if_taken(group, id);
    boot::become_replica(group, id.index());
    sys::futex_wake(regions::report(group, id.index()).pid.as_ptr());
    let pid = await_launch(kernel);
    enter_as_told(kernel, pid)
}

/// Goes on as the replica that this process is by its memory: registers have waited for long, and
/// one that was hit meanwhile must not lead to the places of others.
///
/// # Panics
/// If it is none of this birth.
#[inline(never)]
fn enter_as_told(kernel: &mut Kernel, pid: u32) -> ! {
    let group = own_birth(kernel).group;
    assert_eq!(group, regions::own_group(), "a replica of this birth");
    let (first, parents) = (kernel.replica.id(), kernel.replica.members());
    let own = |id: &ReplicaId| regions::own_number() == Some(id.index());
    let id = parents.iter().find(own).expect("a replica like its maker");
    if id != first {
        take_over(kernel, group, id);
    }
    enter(kernel, group, id, parents, pid)
}

/// Which child this is, until it has [entered](enter).
fn own_birth(kernel: &Kernel) -> Newborn {
    let child = kernel.processes.birth.child();
    assert!(child.is_some(), "a child that is being made");
    child
}

/// Ends this process if it is a second one of the same replica, made for a register that was hit.
fn leave_if_taken(group: usize, id: ReplicaId) {
    let taken = regions::report(group, id.index())
        .pid
        .load(Ordering::Acquire);
    if taken != 0 && taken != sys::getpid() {
        sys::exit_group(0);
    }
}

/// Waits until some replica of the parent has learnt of the birth. Returns the child's process id.
///
/// What is waited for is read again in each round: a flip in a register must not outlast it.
fn await_launch(kernel: &Kernel) -> u32 {
    let mut rounds = 0_u32;
    loop {
        let (cell, seen) = match look(kernel) {
            Ok(pid) => return pid,
            Err(word) => word,
        };
        if rounds > LAUNCH_YIELDS {
            twin::wait_for(cell, seen);
        } else {
            sys::sched_yield();
        }
        rounds = rounds.saturating_add(1);
    }
}

/// The child's process id once some replica of the parent has learnt of the birth, else a word of
/// the parent's that changes then, and what it is now. Ends this process if nobody will.
///
/// # Panics
/// If the parent knows this child by another process id than it has told.
#[inline(never)]
fn look(kernel: &Kernel) -> Result<u32, (&'static AtomicU64, u64)> {
    let Newborn {
        group,
        serial,
        parent,
        ..
    } = own_birth(kernel);
    let control = regions::control(group);
    if u64::from(control.serial.load(Ordering::Acquire)) != serial {
        // The group was given to another child.
        sys::exit_group(0);
    }
    let parents = kernel.replica.members().iter();
    let cells = parents.map(|id| &regions::report(parent, id.index()).launched[group]);
    let mut notes = cells.map(|cell| (cell, cell.load(Ordering::Acquire)));
    let first_note = notes.clone().next();
    let first = kernel.replica.id().index();
    if let Some((_, by)) = notes.find(|(_, note)| note >> 32 == serial) {
        // The first may have been replaced since, and then the supervisor knows it.
        let own = &regions::report(group, first).pid;
        let known = [own, &control.pid].map(|pid| pid.load(Ordering::Acquire));
        assert!(
            known.contains(&low32(by)),
            "a child goes by another process id than it has"
        );
        return Ok(low32(by));
    }
    // The loss of the first replica tells nothing: a birth of which all replicas have come counts.
    // One that does not count is refused by the first, or abandoned for another.
    let refused = regions::report(group, first)
        .load_error
        .load(Ordering::Acquire)
        != 0;
    if refused || control.abandoned.load(Ordering::Acquire) != 0 {
        sys::exit_group(0);
    }
    Err(first_note.expect("the primary of the parent is one of its members"))
}

/// A replica of a new group that is a copy of its parent's primary: becomes one of its own replica
/// of the parent. If that is lost there is nothing to compare with.
#[inline(never)]
fn take_over(kernel: &mut Kernel, group: usize, id: ReplicaId) {
    let Newborn {
        parent, replicas, ..
    } = own_birth(kernel);
    let index = id.index();
    let serial = u64::from(regions::control(group).serial.load(Ordering::Relaxed));
    let own = regions::report(group, index);
    let Some(mut source) = twin::Source::find(parent, (id, replicas[index]), group, serial) else {
        return;
    };
    let done = sys::with_own_memory(|| adopt::adopt(&mut source, own));
    // Who this is was overwritten with who the parent was.
    regions::set_own(group, index);
    if done.is_err() {
        own.unverified.store(1, Ordering::Release);
    }
}

/// Every replica of a new group: becomes a replica of it, and returns 0 from the call.
fn enter(kernel: &mut Kernel, group: usize, id: ReplicaId, parents: ReplicaSet, pid: u32) -> ! {
    let birth = kernel.processes.birth;
    let lent = birth.frame.as_ref().map_or(0, |frame| frame.cpu.rsp);
    let who = regions::who(group, id, parents, pid);
    // A child has its parent's credentials, changed or not.
    let changed = kernel.report.changed.load(Ordering::Relaxed);
    who.report.changed.store(changed, Ordering::Release);
    kernel.in_child(&who);
    turns::take_slice(kernel);
    arena::in_child(kernel);
    if deferred::is_settled() {
        twin::release(kernel);
    }
    kernel.processes.lent = if birth.flags & VFORK != 0 { lent } else { 0 };
    faults::arm();
    crate::protocol::meeting::arm(kernel);
    let report = kernel.report;
    report.phase.store(Phase::Running as u32, Ordering::Release);
    if birth.flags & nr::CLONE_CLEAR_SIGHAND != 0 {
        kernel.signals.reset_handlers();
    }
    if birth.flags & CLEAR_TID != 0 {
        kernel.threads.current_mut().clear_tid = birth.child_tid;
    }
    targets::publish(kernel);
    limits::publish(kernel);
    publish_file(kernel.report);
    points::review(kernel);
    kernel.event(kind::of(0, kind::LAYOUT), u64::from(pid));
    kernel.replica.env_mut().expect_lasting();
    kernel.rendezvous();
    turns::begin_child(kernel);
    arena::start_child(kernel);
    if birth.flags & CHILD_TID != 0 {
        let _ = guest::write(birth.child_tid, &pid);
    }
    let mut frame = birth.frame.expect("the parent was in a call");
    context::load_kept(birth.bases);
    if birth.flags & SET_TLS != 0 {
        sys::set_thread_pointer(birth.tls);
    }
    let unverified = |id: ReplicaId| {
        let report = regions::report(group, id.index());
        report.unverified.load(Ordering::Acquire) != 0
    };
    if parents.iter().any(unverified) {
        refuse_with(kernel, Note::Unverified, 0);
    }
    frame.cpu.regs.rax = 0;
    if birth.stack != 0 {
        frame.cpu.rsp = birth.stack;
    }
    enter_program(&frame)
}
