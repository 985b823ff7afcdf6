//! `fork` and its kin: every replica gets a child of its own.
//!
//! Intuition: all vote; the primary asks the supervisor for a group and forks once, with a copy of
//! the table of descriptors; its child clones the other replicas of the new group, which share that
//! table. No process can join another's table later, so the new group's replicas must descend from
//! one process. Each then makes its memory equal to that of its own replica of the parent: see
//! [`crate::calls::processes::twin`].
//!
//! A child's replica has the number of the parent's replica that it comes from, so it uses the same
//! core and the same slice of shared memory. Where the parent lacks a replica the child does, too:
//! its place is there and empty, for a copy to come to.
//!
//! The primary waits until all replicas of the child are there, since the host may refuse one of
//! them: then the call fails, as it would without replicas.
//!
//! A lost primary: its child waits until some replica of the parent has learnt of it, so a birth
//! that nobody heard of leaves nothing behind, and the successor makes another. A lost first
//! replica of the child: where losses are masked, the primary waits until all are there, and makes
//! another child if they do not come.
//!
//! The child's process id is told twice by the host, to parent and child, and its group stands in
//! registers of both. Each holds what it was told against what the other one has noted, the parent
//! before it publishes and all of its replicas before they launch the child: else the two could
//! wait for each other under different names.
//!
//! What a call may ask for: [`wish`]. What the child does: [`child`]. `vfork`: [`loan`].

mod child;
mod loan;
mod wish;

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EAGAIN;
use rcoe_linux_abi::{Ask, Note, ReplicaState};

pub(super) use loan::await_release;
pub(super) use wish::Birth;
use wish::{Newborn, PARENT_TID, PIDFD, VFORK};

use crate::arch::context;
use crate::arch::entry::TrapFrame;
use crate::calls::processes::{Child, ask, ask_anew, members, own_group, plan, twin};
use crate::calls::shared::arena;
use crate::calls::{Call, io, limits, not_carried};
use crate::convert;
use crate::kernel::Kernel;
use crate::memory::guest;
use crate::memory::{deferred, regions};
use crate::protocol::requests::Looks;
use crate::sched::turns;
use crate::sys;

/// How often a birth is tried whose first replica gets lost.
const ATTEMPTS: u8 = 3;
/// Longest sleep before looking again whether a child is whole.
const BIRTH_LOOK_NS: u64 = 20_000_000;

/// All replicas: makes a child; returns its process id.
pub(super) fn perform(kernel: &mut Kernel, call: &Call, frame: &TrapFrame) -> i64 {
    let mut birth = match Birth::of(call) {
        Ok(Some(birth)) => birth,
        Ok(None) => return not_carried(kernel, call),
        Err(result) => return result,
    };
    if let Some(refused) = limits::refuse_task(kernel) {
        return refused;
    }
    arena::before_fork(kernel);
    if deferred::is_active() {
        deferred::settle_all();
        twin::release(kernel);
    }
    // Children know it from here.
    kernel.bounding.get();
    birth.frame = Some(*frame);
    birth.bases = context::bases();
    context::keep_for_child();
    kernel.processes.birth = birth;
    let wish = wished(kernel);
    plan(kernel, Some(wish));
    kernel.rendezvous();
    kernel.outgoing.forget_all();
    let made = io::exchange(kernel, call, true);
    kernel.processes.birth.descriptor = -1;
    if made < 0 {
        return made;
    }
    let made = Made::unpack(made.cast_unsigned());
    if !kernel.alone {
        made.assert_known();
    }
    let Made {
        group,
        pid,
        descriptor,
    } = made;
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
            loan::await_child(kernel, call, group, frame.cpu.rsp);
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

    /// Some replica of the child, or the supervisor, knows it by this id; or a replica of it is yet
    /// to tell its own.
    ///
    /// # Panics
    /// If not: this replica, or the primary's record, was hit.
    fn assert_known(&self) {
        let control = regions::control(self.group);
        let places = 0..convert::size(control.replicas.load(Ordering::Relaxed).into());
        let told = |index| {
            regions::report(self.group, index)
                .pid
                .load(Ordering::Acquire)
        };
        let known = places.map(told).any(|told| told == 0 || told == self.pid);
        assert!(
            known || control.pid.load(Ordering::Acquire) == self.pid,
            "a child goes by another process id than it has"
        );
    }
}

/// All replicas have learnt of the child: it may go on.
fn launch(kernel: &mut Kernel, group: usize, pid: u32) {
    let serial = u64::from(regions::control(group).serial.load(Ordering::Relaxed));
    let cell = &kernel.report.launched[group];
    cell.store(twin::note(serial, pid), Ordering::Release);
    sys::futex_wake(cell.as_ptr().cast());
    // No replica of the child is a newcomer's.
    if !kernel.replica.is_primary() && !kernel.replica.is_newcomer() {
        twin::serve(kernel, group, serial);
    }
    let processes = &mut kernel.processes;
    processes.born += 1;
    processes.children[group] = Child {
        serial,
        pid,
        order: processes.born,
        told: 0,
        forgotten: 0,
    };
}

/// What is asked of the supervisor.
fn wished(kernel: &Kernel) -> Ask {
    Ask::Birth {
        members: members(kernel),
        stand_in: kernel.processes.birth.flags & PIDFD != 0,
        exit_signal: kernel.processes.birth.exit_signal,
    }
}

/// Primary: the child as [`Made`], or an errno.
///
/// It waits until all replicas of the child are there. If the host has no room for one of them, the
/// birth fails. If the first one is lost before it has made the others, and a loss can be masked,
/// the birth does not count, and another is made.
pub(super) fn make(kernel: &mut Kernel) -> i64 {
    let wish = wished(kernel);
    let mut group = ask(kernel, wish);
    for attempt in 1..=ATTEMPTS {
        if group == sys::error(EAGAIN) {
            kernel.note(Note::TooManyProcesses, rcoe_linux_abi::GROUPS as u64);
        } else {
            assert!(group >= 0, "the supervisor knows who asks for a child");
        }
        let made = make_in(kernel, group);
        if made < 0 || kernel.alone {
            return made;
        }
        if is_whole(kernel, group) {
            Made::unpack(made.cast_unsigned()).assert_known();
            return made;
        }
        let refused = refused(kernel, group);
        if refused.is_none() && !kernel.masks {
            // The loss of its first replica is the child's own affair.
            return made;
        }
        close_descriptor(kernel);
        if let Some(errno) = refused {
            return errno;
        }
        group = ask_anew(kernel, wish, attempt);
    }
    sys::error(EAGAIN)
}

/// Primary: what the host said when the first replica could not make the others.
fn refused(kernel: &Kernel, group: i64) -> Option<i64> {
    let group = convert::size(group.cast_unsigned());
    let report = regions::report(group, kernel.replica.id().index());
    let errno = report.load_error.load(Ordering::Acquire);
    (errno != 0).then(|| -i64::from(errno))
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
    let serial = regions::control(group).serial.load(Ordering::Relaxed);
    kernel.processes.birth.child = Newborn::of(own_group(), group, serial.into());
    let forked = sys::fork_replica();
    if !matches!(forked, Ok(0)) {
        // What only the primary knows must not last: a copy of it is compared with its siblings.
        kernel.processes.birth.child = Newborn::NONE;
    }
    match forked {
        Ok(0) => child::start(kernel, group),
        Ok(pid) => {
            let pid = convert::low32(pid);
            let note = twin::note(u64::from(serial), pid);
            kernel.report.births[group].store(note, Ordering::Release);
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
    let opened = sys::descriptor_of(u64::from(stand_in), 0);
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
///
/// # Panics
/// If they do not come: somebody's number for the group was hit.
fn is_whole(kernel: &Kernel, group: i64) -> bool {
    let group = convert::size(group.cast_unsigned());
    let control = regions::control(group);
    let first = kernel.replica.id().index();
    let told = |index| &regions::report(group, index).pid;
    let mut looks = Looks::new(BIRTH_LOOK_NS);
    loop {
        let bell = control.bell.load(Ordering::Acquire);
        let mut all = kernel.replica.members().iter().map(|id| told(id.index()));
        let Some(missing) = all.find(|pid| pid.load(Ordering::Acquire) == 0) else {
            return true;
        };
        if control.state[first].load(Ordering::Acquire) == ReplicaState::Dead as u32 {
            return false;
        }
        let words = [
            (missing.as_ptr().cast_const(), 0),
            (control.bell.as_ptr().cast_const(), bell),
        ];
        sys::futex_wait_any(&words, BIRTH_LOOK_NS);
        looks.count("a replica of the child");
        sys::leave_if_orphaned(control.supervisor.load(Ordering::Relaxed));
    }
}
