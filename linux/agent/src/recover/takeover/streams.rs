//! Reading from and writing to streams, through the ring: see [`crate::protocol::uring`].
//!
//! A request never waits. What would wait is left to the poll for waiting threads, which has no
//! effect and can be repeated. What is received goes to the *intake*, a part of the primary's
//! region that its siblings can read, and from there to the program; so a successor finds both the
//! result and the bytes. What is sent needs no copy, as its length is all that can be lost.
//!
//! Contract: a call takes no more than the intake holds, which is more than pipes and datagrams
//! hold; of a stream that is a short read, as programs must expect them.
//!
//! Not covered: `recv` with MSG_WAITALL, `sendmmsg` and `recvmmsg`, which are made directly; so are
//! calls on terminals and other devices, which look at who asks before they let him wait, and calls
//! with a buffer that cannot be written, as what they leave unread is the host's to say. Of a
//! buffer with a hole only in its midst, what would come behind that is lost.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::errno::{EAGAIN, EOPNOTSUPP};
use linux_raw_sys::general::{F_GETFL, F_SETFL, O_NONBLOCK, POLLIN, POLLOUT, RWF_NOWAIT};
use linux_raw_sys::io_uring::io_uring_op;
use rcoe_linux_abi::{EffectId, INTAKE_BYTES};
use rcoe_linux_syscalls::{Arg, Offset, Stream};

use crate::calls::descriptors::Vector;
use crate::calls::{Call, agreed};
use crate::convert::{low32, size};
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::memory::regions;
use crate::protocol::uring::Request;
use crate::recover::takeover::kinds::{Kind, kind_of};
use crate::sched::blocking::{NEVER_WAITS, Try, is_malformed, is_too_short, refusal};
use crate::sys::numbers::{MSG_DONTWAIT, MSG_WAITALL};
use crate::sys::polling::is_ready;
use crate::sys::{self, fcntl, never_waits};

const READV: u32 = io_uring_op::IORING_OP_READV as u32;
const WRITEV: u32 = io_uring_op::IORING_OP_WRITEV as u32;
const SENDMSG: u32 = io_uring_op::IORING_OP_SENDMSG as u32;
const RECVMSG: u32 = io_uring_op::IORING_OP_RECVMSG as u32;

/// Where things lie in the intake: a message's header, one buffer, the sender's address, control
/// data, and what is received.
const BUFFER: u64 = 64;
const ADDRESS: u64 = 128;
const ADDRESS_BYTES: u64 = 128;
const CONTROL: u64 = 1024;
const CONTROL_BYTES: u64 = DATA - CONTROL;
const DATA: u64 = 16 * 1024;
const DATA_BYTES: u64 = INTAKE_BYTES as u64 - DATA;

/// How a call moves bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Read,
    Write,
    /// Messages; the flags are in this argument.
    Receive(usize),
    Send(usize),
}

impl Way {
    /// How `call` moves bytes; `None` if it does not, or in a way that is not covered.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let streams = [Kind::Stream, Kind::Counter];
        let on_stream = |way| streams.contains(&kind_of(call.arg(0))).then_some(way);
        if call.what.facts.stream == Stream::None || is_malformed(call) {
            return None;
        }
        let way = match call.what.facts.stream {
            Stream::Read if is_at_position(call) => on_stream(Self::Read),
            Stream::Write if is_at_position(call) => on_stream(Self::Write),
            Stream::Receive(flags) if call.arg(usize::from(flags)) & MSG_WAITALL == 0 => {
                Some(Self::Receive(usize::from(flags)))
            }
            Stream::Send(flags) => Some(Self::Send(usize::from(flags))),
            _ => None,
        };
        way.filter(|way| way.sends() || can_receive(call))
    }

    /// The ring's operation.
    pub(super) const fn operation(self) -> u32 {
        match self {
            Self::Read => READV,
            Self::Write => WRITEV,
            Self::Receive(_) => RECVMSG,
            Self::Send(_) => SENDMSG,
        }
    }

    /// What a poll tells when the call would not wait.
    const fn condition(self) -> u32 {
        if self.sends() { POLLOUT } else { POLLIN }
    }

    const fn sends(self) -> bool {
        matches!(self, Self::Write | Self::Send(_))
    }
}

/// Has the call places for what it receives?
fn can_receive(call: &Call) -> bool {
    let places = match call.what.facts.stream {
        Stream::Receive(_) if has_header(call) => message_places(call),
        Stream::Receive(_) => from_places(call),
        _ => Ok([(0, 0); 3]),
    };
    let writable = |&(at, len): &(u64, u64)| at == 0 || guest::ends_are_writable(at, len);
    let buffers = || Vector::of(call, 0, u64::MAX).is_ok_and(|vector| vector.is_writable());
    places.is_ok_and(|places| places.iter().all(writable)) && buffers()
}

/// Where the sender's address goes, and its length.
fn from_places(call: &Call) -> Result<[(u64, u64); 3], Fault> {
    let [name, len] = [call.arg(4), call.arg(5)];
    let [room, _] = room_of(call)?;
    Ok([(name, room), (if name == 0 { 0 } else { len }, 4), (0, 0)])
}

/// Where the sender's address and control data go, and the header.
fn message_places(call: &Call) -> Result<[(u64, u64); 3], Fault> {
    let [name, _, _, _, control, _] = guest::read::<[u64; 6]>(call.arg(1))?;
    let [name_room, control_room] = room_of(call)?;
    Ok([
        (name, name_room),
        (control, control_room),
        (call.arg(1), 56),
    ])
}

/// Does the call go on at the position of its file?
fn is_at_position(call: &Call) -> bool {
    match call.what.facts.offset {
        Offset::Position => true,
        Offset::AtOrOn(offset) => call.arg(usize::from(offset)) == u64::MAX,
        Offset::At(_) | Offset::To(_) => false,
    }
}

/// Is what is sent or received described by a header?
fn has_header(call: &Call) -> bool {
    matches!(call.what.args[1], Arg::MsghdrIn | Arg::MsghdrOut)
}

/// The flags that a vector call brings with it.
fn vector_flags(call: &Call) -> u32 {
    match call.what.facts.offset {
        Offset::AtOrOn(_) => low32(call.arg(5)),
        _ => 0,
    }
}

/// Primary: makes the call under this name. `None` if the ring is gone, and nothing happened.
pub(super) fn make(
    kernel: &mut Kernel,
    call: &Call,
    way: Way,
    id: EffectId,
    name: u64,
) -> Option<i64> {
    let intake = regions::intake(regions::own_group(), kernel.replica.id().index());
    let ask = |kernel: &mut Kernel, now: bool| {
        agreed::through_ring(kernel, call, name, |kernel| {
            let message = Message::of(kernel, call, way, intake)?;
            Ok(message.request(call, way, now))
        })
    };
    let mut result = ask(kernel, true)?;
    if matches!(way, Way::Read | Way::Write) && cannot_tell(call, way, result) {
        let waits = !is_ready(call.arg(0), way.condition()) && !is_too_short(call, way.sends());
        result = if waits {
            refusal(call, way.sends()).unwrap_or(sys::error(EAGAIN))
        } else if kind_of(call.arg(0)) == Kind::Counter {
            never_waiting(kernel, call, id, |kernel| ask(kernel, false))?
        } else {
            ask(kernel, false)?
        };
    }
    Some(judge(kernel, call, way, result, intake))
}

/// Some files cannot be asked not to wait and say so, as a pipe does that was ever spliced; or they
/// say that they would wait, as counters do when they are written.
fn cannot_tell(call: &Call, way: Way, result: i64) -> bool {
    let would_wait = result == sys::error(EAGAIN) && kind_of(call.arg(0)) == Kind::Counter;
    let cannot = result == sys::error(EOPNOTSUPP) && vector_flags(call) & RWF_NOWAIT == 0;
    cannot || would_wait && !asks_not_to_wait(call, way)
}

/// Does `work` while the file is one that never waits: the ring would else wait for it by itself.
fn never_waiting<T>(
    kernel: &mut Kernel,
    call: &Call,
    id: EffectId,
    work: impl FnOnce(&mut Kernel) -> T,
) -> T {
    let flags = fcntl(call.arg(0), F_GETFL, 0);
    kernel.report.journal.position.write(id, flags);
    fcntl(call.arg(0), F_SETFL, flags | u64::from(O_NONBLOCK));
    let result = work(kernel);
    fcntl(call.arg(0), F_SETFL, flags);
    result
}

/// Successor: the file's flags were these before the effect.
pub(super) fn restore(call: &Call, flags: u64) {
    fcntl(call.arg(0), F_SETFL, flags);
}

/// Successor: what the call comes to of which the kernel has noted this; `None` if nothing
/// happened. What was received is in the intake of the lost primary.
pub(super) fn inherit(
    kernel: &Kernel,
    call: &Call,
    way: Way,
    noted: i64,
    intake: u64,
) -> Option<i64> {
    let nothing = [EAGAIN, EOPNOTSUPP].map(sys::error).contains(&noted);
    (!nothing).then(|| judge(kernel, call, way, noted, intake))
}

/// What the program gets, or that its thread has to wait.
fn judge(kernel: &Kernel, call: &Call, way: Way, result: i64, intake: u64) -> i64 {
    let now = Try::new(kernel, call, &call.raw);
    if result == sys::error(EAGAIN) {
        return if asks_not_to_wait(call, way) {
            result
        } else {
            now.later(result)
        };
    }
    let Ok(bytes) = u64::try_from(result) else {
        return now.failed(result);
    };
    if way.sends() {
        return match now.total() {
            Some(total) if total > now.progress + bytes && asks_not_to_wait(call, way) => result,
            Some(total) => now.sent(result, total - now.progress),
            None => result,
        };
    }
    deliver(call, way, intake, bytes).map_or(Fault::RESULT, |()| result)
}

/// Does the call, or its file, say not to wait?
fn asks_not_to_wait(call: &Call, way: Way) -> bool {
    let flagged = match way {
        Way::Read | Way::Write => vector_flags(call) & RWF_NOWAIT != 0,
        Way::Receive(flags) => call.arg(flags) & NEVER_WAITS != 0,
        Way::Send(flags) => call.arg(flags) & MSG_DONTWAIT != 0,
    };
    flagged || never_waits(call.arg(0))
}

/// Addresses of what a request names.
struct Message {
    /// `struct msghdr` for messages, else buffers.
    address: u64,
    /// Buffers.
    count: u32,
}

impl Message {
    /// Lays out what the call needs.
    fn of(kernel: &Kernel, call: &Call, way: Way, intake: u64) -> Result<Self, Fault> {
        let progress = kernel.threads.current().wait.progress;
        let vector = Vector::of(call, progress, u64::MAX)?;
        if way == Way::Write {
            return Ok(Self::buffers(vector.address(), vector.count()));
        }
        if let Way::Send(_) = way {
            let [name, name_len, control, control_len] = sent_along(call, progress)?;
            let buffers = [vector.address(), u64::from(vector.count())];
            let header = [
                name,
                name_len,
                buffers[0],
                buffers[1],
                control,
                control_len,
                0,
            ];
            put(intake, 0, &header);
            return Ok(Self::buffers(intake, 1));
        }
        put(
            intake,
            BUFFER,
            &[intake + DATA, vector.bytes.min(DATA_BYTES)],
        );
        if way == Way::Read {
            return Ok(Self::buffers(intake + BUFFER, 1));
        }
        let [name_len, control_len] = room_of(call)?;
        let place = |len: u64, offset: u64| if len == 0 { 0 } else { intake + offset };
        let header = [
            place(name_len, ADDRESS),
            name_len.min(ADDRESS_BYTES),
            intake + BUFFER,
            1,
            place(control_len, CONTROL),
            control_len.min(CONTROL_BYTES),
            0,
        ];
        put(intake, 0, &header);
        Ok(Self::buffers(intake, 1))
    }

    const fn buffers(address: u64, count: u32) -> Self {
        Self { address, count }
    }

    fn request(&self, call: &Call, way: Way, now: bool) -> Request {
        let flags = match way {
            Way::Read | Way::Write => vector_flags(call) | if now { RWF_NOWAIT } else { 0 },
            Way::Receive(flags) | Way::Send(flags) => low32(call.arg(flags) | MSG_DONTWAIT),
        };
        let mut request = Request::new(way.operation(), call.arg(0));
        if let Way::Read | Way::Write = way {
            request.offset = u64::MAX;
        }
        request.address = self.address;
        request.len = self.count;
        request.op_flags = flags;
        request
    }
}

/// Address and control data that go with the first part of what is sent.
fn sent_along(call: &Call, progress: u64) -> Result<[u64; 4], Fault> {
    if progress > 0 {
        return Ok([0; 4]);
    }
    if !has_header(call) {
        return Ok([call.arg(4), u64::from(low32(call.arg(5))), 0, 0]);
    }
    let [name, name_len, _, _, control, control_len] = guest::read::<[u64; 6]>(call.arg(1))?;
    Ok([name, name_len & 0xffff_ffff, control, control_len])
}

/// Bytes that the program has room for: of the sender's address, and of control data.
fn room_of(call: &Call) -> Result<[u64; 2], Fault> {
    if !has_header(call) {
        return match (call.arg(4), call.arg(5)) {
            (0, _) | (_, 0) => Ok([0; 2]),
            (_, len) => Ok([guest::read::<u32>(len)?.into(), 0]),
        };
    }
    let [name, name_len, _, _, control, control_len] = guest::read::<[u64; 6]>(call.arg(1))?;
    let if_wanted = |place: u64, len: u64| if place == 0 { 0 } else { len };
    Ok([
        if_wanted(name, name_len & 0xffff_ffff),
        if_wanted(control, control_len),
    ])
}

/// Gives the program what has come into an intake.
fn deliver(call: &Call, way: Way, intake: u64, bytes: u64) -> Result<(), Fault> {
    let vector = Vector::of(call, 0, u64::MAX)?;
    vector.scatter(intake + DATA, bytes.min(DATA_BYTES))?;
    if !matches!(way, Way::Receive(_)) {
        return Ok(());
    }
    let [name_room, control_room] = room_of(call)?;
    let [_, name_len, _, _, _, control_len, flags] = taken(intake);
    let name_len = name_len & 0xffff_ffff;
    let copied = name_len.min(name_room).min(ADDRESS_BYTES);
    if !has_header(call) {
        if name_room == 0 && (call.arg(4) == 0 || call.arg(5) == 0) {
            return Ok(());
        }
        give(call.arg(4), intake + ADDRESS, copied)?;
        return guest::write(call.arg(5), &low32(name_len));
    }
    let header = call.arg(1);
    let [name, _, _, _, control] = guest::read::<[u64; 5]>(header)?;
    let control_len = control_len.min(CONTROL_BYTES);
    give(name, intake + ADDRESS, copied)?;
    give(control, intake + CONTROL, control_len.min(control_room))?;
    if name != 0 {
        guest::write(header + 8, &low32(name_len))?;
    }
    guest::write(header + 40, &control_len)?;
    guest::write(header + 48, &low32(flags))
}

/// Primary: lets the kernel put the address of an accepted connection into the intake; `None` if
/// the program wants none.
pub(super) fn take_address(call: &Call, intake: u64) -> Result<Option<[u64; 2]>, Fault> {
    let (address, len) = (call.arg(1), call.arg(2));
    if address == 0 || len == 0 {
        return Ok(None);
    }
    let room = u64::from(guest::read::<u32>(len)?).min(ADDRESS_BYTES);
    put(intake, 0, &[room]);
    Ok(Some([intake + ADDRESS, intake]))
}

/// Gives the program that address.
pub(super) fn give_address(call: &Call, intake: u64) -> Result<(), Fault> {
    let (address, len) = (call.arg(1), call.arg(2));
    if address == 0 || len == 0 {
        return Ok(());
    }
    let room = u64::from(guest::read::<u32>(len)?);
    let [whole, ..] = taken(intake);
    let whole = u64::from(low32(whole));
    give(
        address,
        intake + ADDRESS,
        whole.min(room).min(ADDRESS_BYTES),
    )?;
    guest::write(len, &low32(whole))
}

fn give(to: u64, from: u64, len: u64) -> Result<(), Fault> {
    if len == 0 || to == 0 {
        return Ok(());
    }
    if guest::is_agent(to, len) {
        return Err(Fault);
    }
    guest::copy_across(to, from, len)
}

/// The cells of an intake from `offset` on.
fn cells(intake: u64, offset: u64, count: usize) -> &'static [AtomicU64] {
    assert!(size(offset) + 8 * count <= INTAKE_BYTES);
    // SAFETY: intakes are mapped for good; the range lies in one, and cells are atomic.
    unsafe { core::slice::from_raw_parts((intake + offset) as *const AtomicU64, count) }
}

/// Writes words into the own intake.
fn put(intake: u64, offset: u64, words: &[u64]) {
    let cells = cells(intake, offset, words.len());
    for (cell, word) in cells.iter().zip(words) {
        cell.store(*word, Ordering::Relaxed);
    }
}

/// The header of a message as the kernel left it.
fn taken(intake: u64) -> [u64; 7] {
    let cells = cells(intake, 0, 7);
    core::array::from_fn(|at| cells[at].load(Ordering::Relaxed))
}
