//! A lost primary's last effect, finished exactly once by its successor.
//!
//! Before and after the effect a primary leaves notes (see [`rcoe_linux_abi::Journal`]): where the
//! file position was, and what the host returned. The successor reads them once the lost primary is
//! gone. A result that was noted is taken as it is. A call that moves a file position has happened
//! if and only if the position has moved: then a read is made again from the old position, and of a
//! write the distance is the result. Of streams the kernel keeps the result ([`streams`]); other
//! effects show in what they change ([`witness`]). So DSN'19 (IV-A), which allows no downgrade
//! while a replica accesses a device, is needed only for what no note covers.
//!
//! Calls that consume something are voted before they are made, unless they move a position.
//!
//! Not covered: effects of which no note can tell; the protocol core stops the group then. A
//! position that somebody outside the group moves at the same moment is noticed only if it leaves
//! the range of the call.

mod events;
pub(crate) mod kinds;
mod streams;
mod witness;

use core::ops::Range;
use core::sync::atomic::Ordering;

use linux_raw_sys::errno::{EALREADY, EBADF, EFAULT, EINPROGRESS, EINVAL, EISDIR, ENOENT};
use linux_raw_sys::general::{F_GETFL, F_SETFL, O_APPEND};
use rcoe_core::{MAX_REPLICAS, ReplicaId, ReplicaSet};
use rcoe_linux_abi::{EffectId, Journal, Noted};
use rcoe_linux_syscalls::{Arg, Class, Position, Takeover, Waits};

use crate::calls::descriptors::Vector;
use crate::calls::{Call, agreed, status};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::memory::regions;
use crate::protocol::uring;
use crate::sys::{self, Whence, fcntl};
use streams::Way;

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

/// How a successor finds out what became of an effect.
#[derive(Clone, Copy)]
enum Trace {
    /// Not at all.
    None,
    /// It may be made again.
    Again,
    /// So may a request to the supervisor; what the host does for it may not.
    Asked,
    /// By what was noted before it.
    Before,
    /// The kernel keeps the result of moving bytes.
    Stream(Way),
    /// The kernel keeps the result.
    Ring,
}

/// One effect as its primary begins it.
pub(crate) struct Effect {
    id: EffectId,
    moves: Moves,
    trace: Trace,
    /// Whether a successor can know what became of it.
    pub(crate) traceable: bool,
    /// A lost primary may have begun it, without harm.
    again: bool,
}

/// Marks names of requests, so that none is 0.
const NAMED: u64 = 1 << 63;

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
            trace: Trace::None,
            traceable: false,
            again: false,
        }
    }

    /// Primary, before the effect: sees to it that a successor can find out about it.
    pub(crate) fn prepare(&mut self, kernel: &mut Kernel, call: &Call) {
        self.trace = self.find_trace(kernel, call);
        self.traceable = !matches!(self.trace, Trace::None);
    }

    fn find_trace(&self, kernel: &mut Kernel, call: &Call) -> Trace {
        let (own, journal) = (kernel.replica.id(), &kernel.report.journal);
        let mut offers = |operation| kernel.ring.offers(own, &journal.ring, operation);
        if let Some(way) = Way::of(call) {
            return if offers(way.operation()) {
                Trace::Stream(way)
            } else {
                Trace::None
            };
        }
        if let Some(request) = witness::request_of(call) {
            return if offers(request.operation.into()) {
                Trace::Ring
            } else {
                Trace::None
            };
        }
        if self.moves != Moves::No && kinds::kind_of(call.arg(0)) == kinds::Kind::Free {
            return Trace::Again;
        }
        match self.state_before(call) {
            State::Unknown => Trace::None,
            State::Irrelevant => Trace::Again,
            State::Asked => Trace::Asked,
            State::Known(state) => {
                journal.position.write(self.id, state);
                Trace::Before
            }
        }
    }

    /// What the effect is going to change.
    fn state_before(&self, call: &Call) -> State {
        let fd = call.arg(0);
        if self.moves != Moves::No {
            let position = sys::seek(fd, 0, Whence::Current);
            return position.map_or(State::Unknown, State::Known);
        }
        match witness::kind_of(call) {
            witness::Kind::None => State::Unknown,
            witness::Kind::Again | witness::Kind::Events => State::Irrelevant,
            witness::Kind::Asked => State::Asked,
            witness::Kind::Closed => State::Known(witness::is_open(fd).into()),
            witness::Kind::Directory => State::Known(witness::directory()),
            witness::Kind::Bound => State::Known(witness::address(fd, false)),
            witness::Kind::Connected => {
                let connected = u64::from(witness::address(fd, true) != 0);
                State::Known(connected | fcntl(fd, F_GETFL, 0) << 1)
            }
            witness::Kind::Descriptors { count, least } => {
                State::Known(witness::free_descriptors(least, count))
            }
        }
    }

    /// Primary: the supervisor has left the call to the host.
    pub(crate) fn leave_to_host(&mut self, kernel: &mut Kernel) {
        if matches!(self.trace, Trace::Asked) {
            self.traceable = false;
            kernel.replica.begin_effect(false);
        }
    }

    /// Primary: makes the call through the ring, if that is how its result is kept.
    pub(crate) fn record(&mut self, kernel: &mut Kernel, call: &Call) -> Option<i64> {
        let made = match self.trace {
            Trace::Stream(way) => streams::make(kernel, call, way, self.id, self.name()),
            Trace::Ring => agreed::through_ring(kernel, call, self.name(), |_| {
                witness::request_of(call).ok_or(Fault)
            }),
            _ => return None,
        };
        if made.is_none() {
            // The program has closed the ring. It is made directly this time.
            self.traceable = false;
            kernel.replica.begin_effect(false);
        }
        made
    }

    /// Primary, before a direct call: what comes with its result goes where a successor finds it.
    pub(crate) fn redirect(
        &self,
        kernel: &Kernel,
        call: &Call,
        args: &mut [u64; 6],
    ) -> Result<(), Fault> {
        if self.traceable && accepts(call) {
            let intake = intake_of(kernel.replica.id());
            if let Some([address, len]) = streams::take_address(call, intake)? {
                (args[1], args[2]) = (address, len);
            }
        }
        Ok(())
    }

    /// Primary, after it: the program gets that, too.
    pub(crate) fn complete(&self, kernel: &Kernel, call: &Call, result: i64) -> i64 {
        let intake = intake_of(kernel.replica.id());
        if self.traceable
            && accepts(call)
            && result >= 0
            && streams::give_address(call, intake).is_err()
        {
            return Fault::RESULT;
        }
        if self.again && result == sys::error(EALREADY) {
            // To the program this is the first time that it asks.
            return sys::error(EINPROGRESS);
        }
        result
    }

    const fn name(&self) -> u64 {
        self.id.word() | NAMED
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
    pub(crate) fn inherit(&mut self, kernel: &Kernel, call: &Call, torn: bool) -> Option<Course> {
        self.again = true;
        if let Some(course) = self.search(kernel, call)? {
            return Some(course);
        }
        if witness::kind_of(call) == witness::Kind::Events && !events::arm_again(call.arg(0)) {
            return None;
        }
        (!torn || call.what.repeatable && !changes_its_input(call)).then_some(Course::Make)
    }

    /// `None` if it cannot be told what became of the effect, `Some(None)` if there is no note.
    fn search(&self, kernel: &Kernel, call: &Call) -> Option<Option<Course>> {
        for id in lost(kernel) {
            let journal = &kernel.replica.env().report_of(id).journal;
            match journal.result.read(self.id) {
                Noted::This(result) => return Some(Some(Course::Made(result.cast_signed()))),
                Noted::Unclear => return None,
                Noted::Earlier => {}
            }
            let way = Way::of(call);
            match journal.position.read(self.id) {
                Noted::This(flags) if way.is_some() => streams::restore(call, flags),
                Noted::This(before) => return self.resume(kernel, call, before, id).map(Some),
                Noted::Unclear => return None,
                Noted::Earlier => {}
            }
            if let Some(noted) = uring::look_up(&journal.ring, id, self.name()).ok()? {
                let made = match way {
                    Some(way) => streams::inherit(kernel, call, way, noted, intake_of(id)),
                    None => Some(noted),
                };
                return Some(Some(made.map_or(Course::Make, Course::Made)));
            }
        }
        Some(None)
    }

    /// What the effect changes is known as it was before, and shows what was done.
    fn resume(&self, kernel: &Kernel, call: &Call, before: u64, lost: ReplicaId) -> Option<Course> {
        let fd = call.arg(0);
        let made_if = |made: bool| if made { Course::Made(0) } else { Course::Make };
        match witness::kind_of(call) {
            _ if self.moves != Moves::No => self.resume_at_position(call, before),
            witness::Kind::None | witness::Kind::Again => None,
            witness::Kind::Events | witness::Kind::Asked => None,
            witness::Kind::Closed => Some(made_if(before != 0 && !witness::is_open(fd))),
            witness::Kind::Directory => Some(made_if(witness::directory() != before)),
            witness::Kind::Bound => Some(made_if(witness::address(fd, false) != before)),
            witness::Kind::Connected => {
                // It may have been changed for the time of the call.
                fcntl(fd, F_SETFL, before >> 1);
                let connected = witness::address(fd, true) != 0;
                Some(made_if(connected && before & 1 == 0))
            }
            witness::Kind::Descriptors { count, .. } => {
                let free = witness::noted_descriptors(before);
                adopt_descriptors(kernel, call, free, count, lost)
            }
        }
    }

    /// The position before the call is known, the one after it shows what was done.
    fn resume_at_position(&self, call: &Call, before: u64) -> Option<Course> {
        let fd = call.arg(0);
        if !sys::keeps_position(fd) {
            return None;
        }
        let now = sys::seek(fd, 0, Whence::Current)?;
        let moved = now.checked_sub(before);
        match self.moves {
            Moves::No => None,
            Moves::Reading { most } => {
                let possible = most.is_none_or(|most| moved.is_some_and(|moved| moved <= most));
                let back = possible && sys::seek(fd, before, Whence::Start).is_some();
                back.then_some(Course::Make)
            }
            Moves::Writing { most } => match moved? {
                0 => Some(Course::Make),
                moved if moved <= most => Some(Course::Made(moved.cast_signed())),
                // From wherever it was to the end, and on by all that was appended.
                _ if appends(fd) => Some(Course::Made(all_of(call)?.cast_signed())),
                _ => None,
            },
        }
    }
}

/// All that are no members, the last of them first.
fn lost(kernel: &Kernel) -> impl Iterator<Item = ReplicaId> + use<> {
    let members = kernel.replica.members();
    let started = kernel.control.replicas.load(Ordering::Relaxed);
    let all = ReplicaSet::all(crate::convert::size(u64::from(started)));
    let lost = NUMBERS.rev().map(ReplicaId::new);
    lost.filter(move |id| all.contains(*id) && !members.contains(*id))
}

/// What an effect changes, before it.
enum State {
    Unknown,
    /// It may be made again, whatever it was.
    Irrelevant,
    /// The supervisor knows it.
    Asked,
    Known(u64),
}

/// Descriptors that were free are open if the call was made.
fn adopt_descriptors(
    kernel: &Kernel,
    call: &Call,
    free: [u64; 2],
    count: u32,
    lost: ReplicaId,
) -> Option<Course> {
    let [first, second] = free.map(|fd| witness::is_open(fd).then_some(fd));
    if count == 2 {
        return match (first, second) {
            (Some(first), Some(second)) => {
                let pair = [first, second].map(crate::convert::low32);
                let Takeover::Pair(place) = call.what.facts.takeover else {
                    return None;
                };
                guest::write(call.arg(usize::from(place)), &pair).ok()?;
                Some(Course::Made(0))
            }
            (None, None) => Some(Course::Make),
            _ => None,
        };
    }
    let Some(fd) = first else {
        return Some(Course::Make);
    };
    if status::is_opened_by(kernel, call) {
        // It may not have been written to the end.
        sys::close(crate::convert::low32(fd).cast_signed());
        return Some(Course::Make);
    }
    if accepts(call) && streams::give_address(call, intake_of(lost)).is_err() {
        return Some(Course::Made(Fault::RESULT));
    }
    Some(Course::Made(fd.cast_signed()))
}

/// Where what a replica receives is put.
fn intake_of(id: ReplicaId) -> u64 {
    regions::intake(regions::own_group(), id.index())
}

fn accepts(call: &Call) -> bool {
    call.what.facts.waits == Waits::Accept
}

fn appends(fd: u64) -> bool {
    fcntl(fd, F_GETFL, 0) & u64::from(O_APPEND) != 0
}

/// All bytes that a call writes.
fn all_of(call: &Call) -> Option<u64> {
    let vector = Vector::of(call, 0, u64::MAX).ok()?;
    Some(vector.bytes)
}

/// Is this an input call that a successor could neither make again nor take back? Where a primary
/// may be lost and the others go on, it is voted first, so that one which went astray does not make
/// it.
pub(crate) fn is_final(call: &Call) -> bool {
    call.what.class == Class::Input
        && !call.what.repeatable
        && call.what.facts.position == Position::Stays
}

fn moves(call: &Call) -> Moves {
    let most = |index: u8| call.arg(usize::from(index));
    match call.what.facts.position {
        Position::Stays => Moves::No,
        Position::Reads(count) => Moves::Reading {
            most: Some(most(count)),
        },
        Position::ReadsSome => Moves::Reading { most: None },
        Position::Writes(count) => Moves::Writing { most: most(count) },
        Position::WritesSome => Moves::Writing {
            most: u64::from(u32::MAX),
        },
    }
}

/// Did the host refuse a call at once?
fn is_refusal(result: i64) -> bool {
    [EBADF, EFAULT, EINVAL, EISDIR, ENOENT].contains(&u32::try_from(-result).unwrap_or(0))
}

fn fills_memory(call: &Call) -> bool {
    call.what.writes != 0
}

/// Would what has come of a torn result change what the call does when it is made again?
fn changes_its_input(call: &Call) -> bool {
    call.what.class != Class::Input
        || call.what.args.iter().any(|arg| {
            arg.writes_memory() && !matches!(arg, Arg::OutBuf { .. } | Arg::OutStruct { .. })
        })
}
