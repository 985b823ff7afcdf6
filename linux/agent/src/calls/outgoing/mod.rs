//! Effects that are released later, and descriptors whose end nobody outside can see.
//!
//! Intuition: a server that answers fifty clients in one round would meet its siblings fifty times,
//! although the result of writing to a stream with room is known in advance: all of it. So the
//! bytes are taken into a queue, every replica posts ([`rcoe_core::POSTS`]) that it has come to
//! this write with this content, and goes on. The primary releases an entry once all have posted
//! the same, and all that is left after the next rendezvous. What VMware FT calls the output rule
//! asks for no more: nothing leaves before all agree on it.
//!
//! When: at each later call that may pass what waits (its column `outgoing` in the table), every
//! millisecond by a timer in the primary, for programs that compute, and before any call that may
//! not pass: one that may wait, has an effect of its own, or could tell that something was not sent
//! yet. So nothing waits while the program does. A server with more to do is not held up: its
//! question what is ready is first asked without waiting ([`looks`]).
//!
//! Which: TCP sockets that this process made itself and shares with no other, without options by
//! which the program learns when bytes went out. All replicas keep the same notes on descriptors
//! ([`State`]); what only the host knows, how much room there is, the primary tells with a record.
//! A refusal by the host is told with the next rendezvous, and is the result of the next write.
//!
//! How they go out: [`releasing`].
//!
//! The same notes say which descriptors are of regular files that can only be read. Nobody outside
//! sees that one is closed, so that needs no vote, or is an effect that waits: see [`closing`].
//!
//! Where the group masks faults each replica keeps the bytes, and notes at which position of the
//! stream they begin. A successor asks the host how far the stream has come, so that each byte
//! leaves once ([`examine::position`]); nothing else has to be known of a lost primary.
//!
//! Such groups also read from these streams before they take the bytes out: see [`taking`].
//!
//! Not covered: processes that share memory; descriptors beyond [`notes::DESCRIPTORS`]; unix
//! sockets and pipes, the other end of which may be the program's own.

mod closing;
mod examine;
pub(crate) mod notes;
pub(crate) mod queue;
mod releasing;
mod taking;

use core::sync::atomic::Ordering;

use linux_raw_sys::errno::EAGAIN;
use linux_raw_sys::general::O_NONBLOCK;
use notes::State;
use rcoe_core::{Compare, POSTS};
use rcoe_linux_syscalls::{
    Arg, Class, Descriptors, Opens, Outgoing as Column, Resolved, Special, Stream, Table, Waits,
};

use crate::calls::descriptors::Vector;
use crate::calls::{Call, agreed};
use crate::convert::{low32, size};
use crate::kernel::{Kernel, count, kind};
use crate::memory::guest;
use crate::protocol::transfer;
use crate::recover::takeover;
use crate::sys;
use crate::sys::numbers::{MSG_DONTWAIT, MSG_NOSIGNAL};
pub(crate) use releasing::{before_wait, release_agreed, settle, tick, went_out};
pub(crate) use taking::{read, takes_later};

/// Longest effect that waits. Longer ones cost little beside their bytes.
const LONGEST: u64 = 16 * 1024;

/// All replicas, at the start: may effects wait in this run? Nothing is known of descriptors: the
/// first process begins with zeroes, and who forks or execs forgets all before.
pub(crate) fn begin(kernel: &mut Kernel) {
    let wanted = kernel.control.defer.load(Ordering::Relaxed) != 0;
    let enabled = wanted && !kernel.alone && kernel.compare != Compare::Every;
    kernel.outgoing.enabled = enabled.into();
}

/// May this call be made while effects wait? It can neither wait itself nor tell that they do.
fn passes(kernel: &Kernel, call: &Call) -> bool {
    if closing::could_tell(&kernel.outgoing, call) {
        return false;
    }
    match call.what.facts.outgoing {
        Column::Passes | Column::Describes(_) => match call.what.facts.stream {
            Stream::Read | Stream::Receive(_) if taking::must_meet(kernel, call.arg(0)) => false,
            Stream::Read => is_never_waiting(kernel, call.arg(0)),
            Stream::Receive(flags) => {
                let at_once = call.arg(usize::from(flags)) & MSG_DONTWAIT != 0;
                at_once || is_never_waiting(kernel, call.arg(0))
            }
            _ => true,
        },
        Column::Opens(flags) => call.arg(usize::from(flags)) & u64::from(O_NONBLOCK) != 0,
        Column::Sends => true,
        Column::Waits | Column::Connects => {
            ends_unseen(kernel, call, call.what) || closes_later(kernel, call)
        }
    }
}

/// Does this call ask what is ready, and may it while effects wait? It is made without waiting
/// then: something may be ready already, and a server that has much to do need not meet its sibling
/// between two rounds. If nothing is, it may depend on what waits, which goes out first: with the
/// look that waits ([`before_wait`]), or before the call is made once more ([`must_repeat`]). Where
/// losses are masked the call is voted anyway.
#[inline(always)]
pub(crate) fn looks(kernel: &Kernel, what: &Resolved) -> bool {
    kernel.outgoing.is_open()
        && !kernel.masks
        && matches!(what.facts.waits, Waits::Epoll | Waits::Poll)
}

fn is_never_waiting(kernel: &Kernel, fd: u64) -> bool {
    let state = kernel.outgoing.state(fd);
    matches!(
        state,
        State::Stream {
            never_waits: true,
            ..
        }
    )
}

/// All replicas, before a call: nothing waits that it could not pass. The primary releases what
/// all have come to.
#[inline(always)]
pub(crate) fn before(kernel: &mut Kernel, call: &Call) {
    if kernel.outgoing.is_open() {
        make_way(kernel, call);
    }
}

#[inline(never)]
fn make_way(kernel: &mut Kernel, call: &Call) {
    if passes(kernel, call) || looks(kernel, call.what) || meets_anyway(kernel, call) {
        release_agreed(kernel);
    } else {
        kernel.rendezvous();
    }
}

/// Will all meet with this call's arguments folded in, and nothing is done for it before that? Then
/// all that waits goes out there.
fn meets_anyway(kernel: &Kernel, call: &Call) -> bool {
    match call.what.class {
        Class::Output => call.what.special == Special::None && !kernel.acting.is_open(),
        Class::Input => {
            kernel.masks && takeover::is_final(call) && call.what.facts.stream == Stream::None
        }
        _ => false,
    }
}

/// Is this call made without a vote, because it closes a descriptor and nobody can see it?
#[inline(always)]
pub(crate) fn ends_unseen(kernel: &Kernel, call: &Call, what: &Resolved) -> bool {
    let closes = matches!(what.facts.descriptors, Descriptors::Closes(_));
    closes && !kernel.masks && is_unseen_end(kernel, call)
}

/// Does it wait instead, where a successor could see it?
fn closes_later(kernel: &Kernel, call: &Call) -> bool {
    let room = size(kernel.outgoing.count.into()) < POSTS;
    kernel.masks && room && is_unseen_end(kernel, call)
}

/// Does this call close a descriptor, and nobody outside can see it?
fn is_unseen_end(kernel: &Kernel, call: &Call) -> bool {
    let outgoing = &kernel.outgoing;
    outgoing.enabled != 0
        && outgoing.locks == 0
        && matches!(call.what.facts.descriptors, Descriptors::Closes(_))
        && outgoing.state(call.arg(0)) == State::Regular
        && !kernel.turns.is_member()
}

/// All replicas, after a call that went the long way: what it changed about descriptors.
pub(crate) fn after(kernel: &mut Kernel, call: &Call, result: i64) {
    after_known(kernel, call, call.what, result);
}

/// The same, where more is known of what the call is.
#[inline(always)]
pub(crate) fn after_known(kernel: &mut Kernel, call: &Call, what: &Resolved, result: i64) {
    if kernel.outgoing.enabled == 0 {
        return;
    }
    match what.facts.outgoing {
        // Descriptors may have gone along.
        Column::Sends if !is_bare(call) => kernel.outgoing.forget_all(),
        Column::Passes | Column::Sends => {}
        Column::Describes(at) => {
            if kernel.outgoing.state(call.raw[0]) == State::Opened {
                described(kernel, call, at, result);
            }
        }
        Column::Opens(_) => created(kernel, what, result),
        Column::Connects => {
            if let Ok(fd) = u64::try_from(result) {
                kernel.outgoing.set(fd, State::Fresh);
            }
        }
        Column::Waits => changed(kernel, call, what),
    }
}

/// A file was opened.
#[inline(always)]
fn created(kernel: &mut Kernel, what: &Resolved, result: i64) {
    if let (Ok(fd), Class::Input, Opens::Plain(..)) =
        (u64::try_from(result), what.class, what.facts.opens)
    {
        kernel.outgoing.set(fd, State::Opened);
    }
}

/// A file that was opened was described: the program has the same description in all replicas.
#[inline(never)]
fn described(kernel: &mut Kernel, call: &Call, at: u8, result: i64) {
    const MODE: u64 = 24;
    const TYPE: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    let fd = call.arg(0);
    if result != 0 || !is_of_descriptor(call) {
        return;
    }
    let mode = guest::start(call.raw[usize::from(at)].wrapping_add(MODE));
    if mode.is_ok_and(|mode| low32(mode) & TYPE == REGULAR) {
        kernel.outgoing.set(fd, State::Regular);
    }
}

/// Was the descriptor itself asked about, by no path or an empty one?
fn is_of_descriptor(call: &Call) -> bool {
    match call.what.args[1] {
        Arg::Path => guest::read::<u8>(call.arg(1)).is_ok_and(|first| first == 0),
        _ => true,
    }
}

/// Whatever else a call may have done to the descriptors that it names.
#[inline(always)]
fn changed(kernel: &mut Kernel, call: &Call, what: &Resolved) {
    let table = what.call.requests.as_ref().map(|it| it.table);
    if table == Some(Table::Fcntl) && matches!(what.args[2], Arg::InStruct { .. }) {
        kernel.outgoing.locks = 1;
    }
    match what.facts.descriptors {
        Descriptors::Stay | Descriptors::Copies | Descriptors::ClosesOwn => {}
        Descriptors::Closes(at) | Descriptors::Replaces(at) => {
            let fd = call.arg(usize::from(at));
            if kernel.outgoing.failures != 0 {
                kernel.outgoing.forget_failures(low32(fd));
            }
            kernel.outgoing.set(fd, State::Other);
        }
        Descriptors::ClosesRange(..) | Descriptors::ClosesMarked => kernel.outgoing.forget_all(),
    }
    for (&fd, arg) in call.raw.iter().zip(what.args) {
        if arg == Arg::Fd {
            let state = kernel.outgoing.state(fd);
            kernel.outgoing.set(fd, state.forgotten());
        }
    }
}

/// All replicas, with an output call whose arguments are folded in: its result, if it can wait or
/// an effect before it has failed; `None` if it is to be made at once.
pub(crate) fn defer(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    if kernel.outgoing.enabled == 0 {
        return None;
    }
    if call.what.facts.outgoing != Column::Sends {
        return close_later(kernel, call);
    }
    let fd = call.arg(0);
    if kernel.outgoing.failures != 0
        && let Some(errno) = kernel.outgoing.take_failure(low32(fd))
    {
        return Some(sys::error(errno));
    }
    let State::Stream { room, never_waits } = kernel.outgoing.state(fd) else {
        return None;
    };
    let outgoing = &kernel.outgoing;
    let full = size(outgoing.count.into()) >= POSTS;
    if full || !is_plain(call) || kernel.turns.is_member() || !kernel.shared.is_empty() {
        return None;
    }
    let vector = Vector::of(call, 0, LONGEST + 1).ok()?;
    let (len, whole) = (low32(vector.bytes), cost(vector.bytes));
    let fits = size((outgoing.bytes + len).into()) <= queue::BYTES;
    if vector.bytes == 0 || vector.bytes > LONGEST || whole > room || !fits {
        return None;
    }
    let primary = kernel.replica.is_primary();
    if primary || kernel.masks {
        keep(kernel, call, &vector);
    }
    kernel.replica.post();
    if primary {
        kernel.queue.remind();
    }
    let outgoing = &mut kernel.outgoing;
    let at = outgoing.position(low32(fd));
    outgoing.set_position(low32(fd), at.wrapping_add(len));
    outgoing.count += 1;
    outgoing.bytes += len;
    let room = room - whole;
    outgoing.set(fd, State::Stream { room, never_waits });
    count(&kernel.report.deferred, 1);
    Some(len.into())
}

/// The same with a call that may close a descriptor.
fn close_later(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    if !closes_later(kernel, call) {
        return None;
    }
    let primary = kernel.replica.is_primary();
    if primary {
        agreed::check(kernel, call);
    }
    let fd = low32(call.arg(0));
    kernel.queue.push_closing(fd, kernel.replica.posted());
    if !primary {
        kernel.queue.follow();
    }
    kernel.outgoing.close_later(fd);
    kernel.replica.post();
    if primary {
        kernel.queue.remind_too();
    }
    count(&kernel.report.deferred, 1);
    Some(0)
}

/// What the host counts for so many bytes, at most: they are kept in pieces with heads of their
/// own.
fn cost(bytes: u64) -> u32 {
    low32(2 * bytes.min(LONGEST + 1) + 2048)
}

/// Does a message go where the stream goes, with nothing but bytes?
fn is_plain(call: &Call) -> bool {
    let Stream::Send(flags) = call.what.facts.stream else {
        return true;
    };
    let flags = call.arg(usize::from(flags));
    let named = match call.what.args[1] {
        Arg::MsghdrIn => guest::read::<u64>(call.arg(1)) != Ok(0),
        _ => call.arg(4) != 0,
    };
    !named && is_bare(call) && flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0
}

/// Is there nothing beside the bytes of a message?
fn is_bare(call: &Call) -> bool {
    match call.what.args[1] {
        Arg::MsghdrIn => guest::read::<[u64; 6]>(call.arg(1))
            .is_ok_and(|[.., control, len]| control == 0 || len == 0),
        _ => true,
    }
}

/// Takes the bytes, which are those that were folded into the trace, before it is posted that they
/// were: whoever becomes the primary has all that can have been released.
fn keep(kernel: &mut Kernel, call: &Call, vector: &Vector) {
    let len = size(vector.bytes);
    let laid_out = kernel.queue.lay_out(vector.parts(), len);
    let same = crate::protocol::arguments::digest(kernel, call) == Ok(kernel.agreed.content);
    let fd = low32(call.arg(0));
    let (at, post) = (kernel.outgoing.position(fd), kernel.replica.posted());
    match laid_out {
        Ok(digest) if same => kernel.queue.push((fd, at), len, digest, post),
        _ => accuse(kernel),
    }
    if !kernel.replica.is_primary() {
        kernel.queue.follow();
    }
}

/// What this replica has kept, or is about to let out, is not what was voted.
#[cold]
fn accuse(kernel: &mut Kernel) {
    if let Err(halt) = kernel.replica.accuse_self(kind::of(0, kind::CONTENT), 0) {
        kernel.park(halt);
    }
}

/// All replicas, after a write that was made at once: is the descriptor one whose effects may wait,
/// and what room has it? Asked at the second write to it.
pub(crate) fn written(kernel: &mut Kernel, call: &Call, result: i64) {
    let sends = call.what.facts.outgoing == Column::Sends;
    if kernel.outgoing.enabled == 0 || !sends || result <= 0 {
        return;
    }
    let fd = call.arg(0);
    let state = kernel.outgoing.state(fd);
    match state {
        // Of so much room nothing is known any more, and it may well go on like that.
        _ if result.cast_unsigned() > LONGEST => kernel.outgoing.set(fd, state.forgotten()),
        State::Fresh => kernel.outgoing.set(fd, State::Written),
        State::Written | State::Stream { .. } => {
            let promised = transfer::agree_all(kernel, true, |kernel| promise(kernel, low32(fd)));
            let [state, written, read] = promised;
            kernel.outgoing.set(fd, State::of(low32(state)));
            let fd = low32(fd);
            kernel.outgoing.set_position(fd, low32(written));
            kernel
                .outgoing
                .set_read_position(fd, u32::try_from(read).ok());
        }
        State::Other | State::Opened | State::Regular | State::Direct => {}
    }
}

/// Primary: what is known of a descriptor that has been written to before, and, if anybody may have
/// to know, how much was written to its stream, and read, or [`u64::MAX`].
fn promise(kernel: &mut Kernel, fd: u32) -> [u64; 3] {
    if !kernel.queue.can_be_reminded() {
        return [State::Other.word().into(), 0, u64::MAX];
    }
    let state = examine::examine(fd);
    if !kernel.masks || !matches!(state, State::Stream { .. }) {
        return [state.word().into(), 0, u64::MAX];
    }
    let read = examine::read_position(fd).map_or(u64::MAX, u64::from);
    match examine::position(fd) {
        Some(written) => [state.word().into(), written.into(), read],
        None => [State::Fresh.word().into(), 0, u64::MAX],
    }
}

/// All replicas: was this call told to come again while effects waited on which that may depend?
/// Then they are released, and the call is to be made once more.
pub(crate) fn must_repeat(kernel: &mut Kernel, call: &Call, result: i64) -> bool {
    let nothing = result == sys::error(EAGAIN) || result == 0 && looks(kernel, call.what);
    let again = nothing && kernel.outgoing.is_open();
    let repeats = again && call.what.class == Class::Input;
    if repeats {
        kernel.rendezvous();
    }
    repeats
}
