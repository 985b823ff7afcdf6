//! What `fork`, `vfork`, `clone` and `clone3` may ask for.
//!
//! Not covered: sharing memory, descriptors or signal handlers with a child (`CLONE_VM` without
//! `CLONE_VFORK`, `CLONE_FILES`, `CLONE_SIGHAND`), and namespaces. They are refused.

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general as nr;
use rcoe_core::MAX_REPLICAS;
use rcoe_linux_syscalls::Special;

use crate::arch::entry::TrapFrame;
use crate::calls::Call;
use crate::convert::{low32, size};
use crate::memory::guest::{self, Fault};
use crate::memory::regions;
use crate::sys;

/// The part of the old call's flags that is a signal.
const CSIGNAL: u64 = nr::CSIGNAL as u64;
const VM: u64 = nr::CLONE_VM as u64;
pub(super) const VFORK: u64 = nr::CLONE_VFORK as u64;
pub(super) const SET_TLS: u64 = nr::CLONE_SETTLS as u64;
pub(super) const PARENT_TID: u64 = nr::CLONE_PARENT_SETTID as u64;
pub(super) const CHILD_TID: u64 = nr::CLONE_CHILD_SETTID as u64;
pub(super) const CLEAR_TID: u64 = nr::CLONE_CHILD_CLEARTID as u64;
pub(super) const PIDFD: u64 = nr::CLONE_PIDFD as u64;
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

/// How a child begins.
#[derive(Clone, Copy)]
pub(in crate::calls::processes) struct Birth {
    pub(super) flags: u64,
    /// Its stack pointer, or 0 to go on with the parent's.
    pub(super) stack: u64,
    pub(super) tls: u64,
    pub(super) child_tid: u64,
    pub(super) parent_tid: u64,
    /// Where the parent wants the number of a descriptor of the child.
    pub(super) pidfd: u64,
    /// Primary, while the child is made: which one that is.
    pub(super) child: Newborn,
    /// Primary, while the child is made: that descriptor, or -1.
    pub(super) descriptor: i32,
    /// The signal by which the parent is told of its end.
    pub(super) exit_signal: u8,
    pub(super) frame: Option<TrapFrame>,
    /// Bases of the segments.
    pub(super) bases: [u64; 2],
}

/// A child that is being made, or none. Without gaps, and zeroes if there is none: replicas are
/// compared byte by byte, and only the primary is ever in the midst of it.
#[derive(Clone, Copy)]
pub(in crate::calls::processes) struct Newborn {
    /// Never the first group, which is nobody's child.
    pub(super) group: usize,
    /// The number of the birth.
    pub(super) serial: u64,
    /// The group that makes it.
    pub(super) parent: usize,
    /// The processes that are that group's replicas.
    pub(super) replicas: [u32; MAX_REPLICAS],
}

impl Newborn {
    pub(super) const NONE: Self = Self {
        group: 0,
        serial: 0,
        parent: 0,
        replicas: [0; MAX_REPLICAS],
    };

    /// A child of the group `parent` as its replicas are now.
    pub(super) fn of(parent: usize, group: usize, serial: u64) -> Self {
        let mut replicas = [0; MAX_REPLICAS];
        let places = regions::control(parent).replicas.load(Ordering::Relaxed);
        for (index, process) in replicas.iter_mut().enumerate().take(size(places.into())) {
            *process = regions::report(parent, index).pid.load(Ordering::Acquire);
        }
        Self {
            group,
            serial,
            parent,
            replicas,
        }
    }

    pub(in crate::calls::processes) const fn is_some(&self) -> bool {
        self.group != 0
    }
}

impl Birth {
    pub(in crate::calls::processes) const NONE: Self = Self {
        flags: 0,
        stack: 0,
        tls: 0,
        child_tid: 0,
        parent_tid: 0,
        pidfd: 0,
        child: Newborn::NONE,
        descriptor: -1,
        exit_signal: (nr::SIGCHLD & 0x7f) as u8,
        frame: None,
        bases: [0; 2],
    };

    /// The child, while it is made.
    pub(in crate::calls::processes) const fn child(&self) -> Newborn {
        self.child
    }

    /// What the call asks for; `None` if that is not supported.
    ///
    /// # Errors
    /// What the call returns instead.
    pub(super) fn of(call: &Call) -> Result<Option<Self>, i64> {
        let vfork = Self {
            flags: VM | VFORK,
            ..Self::NONE
        };
        let birth = match call.what.special {
            Special::Vfork => vfork,
            Special::Clone => Self {
                flags: u64::from(low32(call.arg(0))) & !CSIGNAL,
                exit_signal: (call.arg(0) & CSIGNAL) as u8,
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
        let known = birth.flags & !KNOWN == 0 && !shares;
        Ok(known.then_some(birth))
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
        let signal = u8::try_from(args[4]).ok().filter(|signal| *signal <= 64);
        let has_stack = args[5] != 0;
        let Some(exit_signal) = signal.filter(|_| has_stack == (args[6] != 0)) else {
            return Err(sys::error(EINVAL));
        };
        Ok(Self {
            exit_signal,
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
