//! A lost primary's last effect, finished exactly once by its successor.
//!
//! Before and after the effect a primary leaves notes (see [`rcoe_linux_abi::Journal`]): where the
//! file position was, and what the host returned. The successor reads them once the lost primary is
//! gone. A result that was noted is taken as it is. A call that moves a file position has happened
//! if and only if the position has moved: then a read is made again from the old position, and of a
//! write the distance is the result. So DSN'19 (IV-A), which allows no downgrade while a replica
//! accesses a device, is needed only for what neither note covers.
//!
//! Calls of which neither can be said are voted before they are made.
//!
//! Not covered: effects without a position whose result was not noted, such as a message half sent
//! when the primary was lost; the protocol core stops the group then. A position that somebody
//! outside the group moves at the same moment is noticed only if it leaves the range of the call.

use core::ops::Range;
use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EBADF, EFAULT, EINVAL, EISDIR, ENOENT};
use rcoe_core::{MAX_REPLICAS, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{EffectId, Journal, Noted};
use rcoe_linux_syscalls::{Arg, Class};

use super::Call;
use crate::kernel::Kernel;
use crate::sys::{self, Whence};

/// Numbers of all replicas there can be.
const NUMBERS: Range<u8> = 0..8;
const _: () = assert!(NUMBERS.end as usize == MAX_REPLICAS);

/// What a call does to the position of its file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    /// Nothing, as far as this module knows.
    No,
    /// Forward by what it reads; reading again from the same place is as good.
    Reading { most: Option<u64> },
    /// Forward by what it writes.
    Writing { most: u64 },
}

/// How a successor goes on.
pub(crate) enum Course {
    /// Makes the call.
    Make,
    /// The call was made; this was its result.
    Made(i64),
}

/// One effect as its primary begins it.
pub(crate) struct Effect {
    id: EffectId,
    moves: Moves,
    /// Whether a successor can know what became of it.
    pub(crate) traceable: bool,
}

impl Effect {
    /// The effect of `call`, whose first record is number `records`.
    pub(crate) fn new(call: &Call, records: u64) -> Self {
        let descriptor = u32::try_from(call.arg(0)).unwrap_or(u32::MAX);
        let label = u32::try_from(call.nr).unwrap_or(0) << 15 | descriptor & 0x7fff;
        Self {
            id: EffectId {
                records,
                call: label,
            },
            moves: moves(call),
            traceable: false,
        }
    }

    /// Primary: notes the position, if the call moves one.
    pub(crate) fn note_position(&mut self, journal: &Journal, call: &Call) {
        if self.moves == Moves::No {
            return;
        }
        if let Some(position) = sys::seek(call.arg(0), 0, Whence::Current) {
            journal.position.write(self.id, position);
            self.traceable = true;
        }
    }

    /// Primary: notes the result. Of a call that fills memory the result alone is not enough.
    ///
    /// An input call that was refused did nothing, and may be made again without any note.
    pub(crate) fn note_result(&mut self, journal: &Journal, call: &Call, result: i64) {
        if call.what.class == Class::Input && is_refusal(result) {
            self.traceable = true;
        } else if !fills_memory(call) {
            journal.result.write(self.id, result.cast_unsigned());
            self.traceable = true;
        }
    }

    /// Successor: what the lost primaries left of this effect, the last of them first. `None` if
    /// that cannot be told. `torn`: part of the result has come.
    pub(crate) fn inherit(&self, kernel: &Kernel, call: &Call, torn: bool) -> Option<Course> {
        let members = kernel.replica.members();
        let started = kernel.control.replicas.load(Ordering::Relaxed);
        let all = ReplicaSet::all(crate::convert::size(u64::from(started)));
        let lost = NUMBERS.rev().map(ReplicaId::new);
        for id in lost.filter(|id| all.contains(*id) && !members.contains(*id)) {
            let journal = &kernel.replica.env().report_of(id).journal;
            match journal.result.read(self.id) {
                Noted::This(result) => return Some(Course::Made(result.cast_signed())),
                Noted::Unclear => return None,
                Noted::Earlier => {}
            }
            match journal.position.read(self.id) {
                Noted::This(position) => return self.resume(call, position),
                Noted::Unclear => return None,
                Noted::Earlier => {}
            }
        }
        (!torn || call.what.repeatable && !changes_its_input(call)).then_some(Course::Make)
    }

    /// The position before the call is known, the one after it shows what was done.
    fn resume(&self, call: &Call, before: u64) -> Option<Course> {
        if !sys::keeps_position(call.arg(0)) {
            return None;
        }
        let now = sys::seek(call.arg(0), 0, Whence::Current)?;
        let moved = now.checked_sub(before);
        match self.moves {
            Moves::No => None,
            Moves::Reading { most } => {
                let possible = most.is_none_or(|most| moved.is_some_and(|moved| moved <= most));
                let back = possible && sys::seek(call.arg(0), before, Whence::Start).is_some();
                back.then_some(Course::Make)
            }
            Moves::Writing { most } => match moved? {
                0 => Some(Course::Make),
                moved if moved <= most => Some(Course::Made(moved.cast_signed())),
                _ => None,
            },
        }
    }
}

/// Is this an input call that a successor could neither make again nor take back? Where a primary
/// may be lost and the others go on, it is voted first, so that one which went astray does not make
/// it.
pub(super) fn is_final(call: &Call) -> bool {
    call.what.class == Class::Input && !call.what.repeatable && moves(call) == Moves::No
}

fn moves(call: &Call) -> Moves {
    match call.what.call.name {
        "read" => Moves::Reading {
            most: Some(call.arg(2)),
        },
        // Directories and vectors: the bound would cost more than it tells.
        "readv" | "getdents" | "getdents64" | "lseek" => Moves::Reading { most: None },
        "write" => Moves::Writing { most: call.arg(2) },
        "writev" => Moves::Writing {
            most: u64::from(u32::MAX),
        },
        _ => Moves::No,
    }
}

/// Did the host refuse a call at once?
fn is_refusal(result: i64) -> bool {
    [EBADF, EFAULT, EINVAL, EISDIR, ENOENT].contains(&u32::try_from(-result).unwrap_or(0))
}

fn fills_memory(call: &Call) -> bool {
    call.what.args.iter().any(|arg| arg.writes_memory())
}

/// Would what has come of a torn result change what the call does when it is made again?
fn changes_its_input(call: &Call) -> bool {
    call.what.class != Class::Input
        || call.what.args.iter().any(|arg| {
            arg.writes_memory() && !matches!(arg, Arg::OutBuf { .. } | Arg::OutStruct { .. })
        })
}
