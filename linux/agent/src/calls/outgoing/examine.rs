//! Primary: may effects on this socket wait, and how much of them?
//!
//! The answer is what all replicas go by, so it travels as a record. Room is counted as the host
//! counts it, with what each message costs beside its bytes, and only half of it is promised: what
//! is released then goes into the socket whole, so nothing is ever left over.

use linux_raw_sys::net::{
    AF_INET, AF_INET6, SO_DOMAIN, SO_MEMINFO, SO_PEEK_OFF, SO_PROTOCOL, SO_SNDTIMEO,
    SO_TIMESTAMPING, SO_TYPE, SOCK_STREAM, SOL_SOCKET, SOL_TCP, TCP_INFO, TCP_ULP,
};

use crate::calls::outgoing::State;
use crate::convert::size;
use crate::sys;
use crate::sys::sockets::{self, option};

/// Room below which nothing is promised.
const LITTLE: u32 = 16 * 1024;

/// Looks until there is one during which nothing comes.
const LOOKS: u32 = 1000;

/// A count of bytes that the host keeps of a stream.
type Count = fn(u32) -> Option<u32>;

/// What is known of a descriptor that has been written to before.
pub(super) fn examine(fd: u32) -> State {
    if !is_tcp(fd) || !is_connected(fd) || has_rarities(fd) {
        return State::Other;
    }
    match room(fd) {
        Some(room) if room >= LITTLE => State::Stream {
            room,
            never_waits: sys::never_waits(fd.into()),
        },
        _ => State::Fresh,
    }
}

/// How many bytes the stream has taken so far, modulo 2³²: those that the peer has acknowledged,
/// and those that it has not. `None` if it acknowledges so many at a time that nobody can tell.
pub(super) fn position(fd: u32) -> Option<u32> {
    let [acknowledged, waiting] = at_rest(fd, acknowledged, sockets::unacknowledged)?;
    Some(acknowledged.wrapping_add(waiting))
}

/// How many bytes were read from the stream so far, modulo 2³²: those that have come, without its
/// end, which counts as one, but for those that still lie there. `None` if nobody can tell.
pub(super) fn read_position(fd: u32) -> Option<u32> {
    let [come, unread] = at_rest(fd, come, sockets::unread)?;
    Some(come.wrapping_sub(unread))
}

/// Two counts of a stream that belong together: between looks at the first one, which only grows,
/// it has not changed.
fn at_rest(fd: u32, grows: Count, other: Count) -> Option<[u32; 2]> {
    let mut before = grows(fd)?;
    for _ in 0..LOOKS {
        let other = other(fd)?;
        let after = grows(fd)?;
        if before == after {
            return Some([after, other]);
        }
        before = after;
    }
    None
}

/// The low half of `tcpi_bytes_acked`.
fn acknowledged(fd: u32) -> Option<u32> {
    info(fd).map(|words| words[30])
}

/// The low half of `tcpi_bytes_received`, without the stream's end.
fn come(fd: u32) -> Option<u32> {
    /// By the state of the connection: its end has come, or it may have.
    const ENDED: [u32; 4] = [6, 8, 9, 11];
    const UNKNOWN: u32 = 7;
    let words = info(fd)?;
    let state = words[0] & 0xff;
    let end = u32::from(ENDED.contains(&state));
    (state != UNKNOWN).then(|| words[32].wrapping_sub(end))
}

/// The beginning of `struct tcp_info`.
fn info(fd: u32) -> Option<[u32; 33]> {
    let mut words = [0; 33];
    let len = option(fd, SOL_TCP, TCP_INFO, &mut words)?;
    (size(len.into()) == size_of_val(&words)).then_some(words)
}

/// The only word of an option, 0 if there is none.
fn word(fd: u32, level: u32, name: u32) -> u32 {
    let mut words = [0];
    option(fd, level, name, &mut words).map_or(0, |_| words[0])
}

fn is_tcp(fd: u32) -> bool {
    let mut kind = [0];
    option(fd, SOL_SOCKET, SO_TYPE, &mut kind).is_some()
        && kind == [SOCK_STREAM]
        && [AF_INET, AF_INET6].contains(&word(fd, SOL_SOCKET, SO_DOMAIN))
        && word(fd, SOL_SOCKET, SO_PROTOCOL) == SOL_TCP
}

/// Does it take bytes, so that only its peer can end that?
fn is_connected(fd: u32) -> bool {
    const ESTABLISHED: u32 = 1;
    const CLOSE_WAIT: u32 = 8;
    let state = word(fd, SOL_TCP, TCP_INFO) & 0xff;
    [ESTABLISHED, CLOSE_WAIT].contains(&state)
}

/// Is there anything by which the program learns when bytes went out, or that changes them, or
/// which bytes are read without taking them?
fn has_rarities(fd: u32) -> bool {
    let mut name = [0; 4];
    let layered = option(fd, SOL_TCP, TCP_ULP, &mut name).is_some_and(|len| len > 0);
    let mut time = [0; 4];
    let limited = option(fd, SOL_SOCKET, SO_SNDTIMEO, &mut time).is_none() || time != [0; 4];
    let mut place = [0];
    let set = |words: [u32; 1]| words[0].cast_signed() >= 0;
    let placed = option(fd, SOL_SOCKET, SO_PEEK_OFF, &mut place).is_some() && set(place);
    layered || limited || placed || word(fd, SOL_SOCKET, SO_TIMESTAMPING) != 0
}

/// How much the host would take now, halved.
fn room(fd: u32) -> Option<u32> {
    const SNDBUF: usize = 3;
    const WMEM_QUEUED: usize = 5;
    let mut words = [0; 9];
    option(fd, SOL_SOCKET, SO_MEMINFO, &mut words)?;
    Some((words[SNDBUF] / 2).saturating_sub(words[WMEM_QUEUED] / 2))
}
