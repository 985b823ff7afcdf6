//! What the agent itself asks of sockets, and sends on them.

use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall2, syscall3, syscall6};

use crate::convert::low32;
use crate::sys::numbers::{
    MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, SO_ACCEPTCONN, SO_RCVTIMEO, SO_SNDTIMEO,
    SOL_SOCKET,
};
use crate::sys::{check, error};

/// Sends bytes without waiting; how many the host has taken, or a negative errno.
pub(crate) fn send(fd: u32, bytes: &[u8]) -> i64 {
    let args = [
        fd.into(),
        bytes.as_ptr() as u64,
        bytes.len() as u64,
        MSG_DONTWAIT | MSG_NOSIGNAL,
        0,
        0,
    ];
    loop {
        // SAFETY: the bytes are valid for their length.
        let sent = unsafe { syscall6(u64::from(nr::__NR_sendto), args) };
        if sent != error(EINTR) {
            return sent;
        }
    }
}

/// Bytes that a stream has taken and its peer has not acknowledged.
pub(crate) fn unacknowledged(fd: u32) -> Option<u32> {
    const SIOCOUTQ: u64 = 0x5411;
    ask(fd, SIOCOUTQ)
}

/// Bytes that have come and that nobody has read.
pub(crate) fn unread(fd: u32) -> Option<u32> {
    const SIOCINQ: u64 = 0x541b;
    ask(fd, SIOCINQ)
}

/// Takes bytes out of a stream without reading or waiting; how many, or a negative errno.
pub(crate) fn discard(fd: u32, bytes: u32) -> i64 {
    let args = [fd.into(), 0, bytes.into(), MSG_DONTWAIT | MSG_TRUNC, 0, 0];
    // SAFETY: streams write nothing with this flag.
    unsafe { syscall6(u64::from(nr::__NR_recvfrom), args) }
}

/// Receives into the program's memory without waiting; how many bytes, or a negative errno.
///
/// # Safety
/// The memory is the program's own.
pub(crate) unsafe fn receive_now(fd: u64, address: u64, len: u64) -> i64 {
    let args = [fd, address, len, MSG_DONTWAIT, 0, 0];
    // SAFETY: forwarded from the caller.
    unsafe { syscall6(u64::from(nr::__NR_recvfrom), args) }
}

/// Reads from a stream into the program's memory without waiting, and leaves there what it has
/// read; how many bytes, or a negative errno.
///
/// # Safety
/// The memory is the program's own.
pub(crate) unsafe fn peek(fd: u64, address: u64, len: u64) -> i64 {
    let args = [fd, address, len, MSG_DONTWAIT | MSG_PEEK, 0, 0];
    // SAFETY: by the caller.
    unsafe { syscall6(u64::from(nr::__NR_recvfrom), args) }
}

/// A request whose answer is a number.
fn ask(fd: u32, request: u64) -> Option<u32> {
    let mut bytes = 0_u32;
    let args = [fd.into(), request, (&raw mut bytes) as u64, 0, 0, 0];
    // SAFETY: there is room for the number.
    let done = unsafe { syscall6(u64::from(nr::__NR_ioctl), args) };
    check(done).ok().map(|_| bytes)
}

/// Sends a message of `count` parts without waiting; how many bytes, or a negative errno.
///
/// # Safety
/// The parts that `vector` points to must be the program's, or valid for reading.
pub(crate) unsafe fn send_parts(fd: u64, vector: u64, count: u64, flags: u64) -> i64 {
    let message = [0, 0, vector, count, 0, 0, 0];
    let args = [fd, message.as_ptr() as u64, flags | MSG_DONTWAIT, 0, 0, 0];
    // SAFETY: a valid message; the rest is forwarded from the caller.
    unsafe { syscall6(u64::from(nr::__NR_sendmsg), args) }
}

/// Ends a connection in both directions.
pub(crate) fn end_connection(fd: u32) {
    const BOTH: u64 = 2;
    // SAFETY: numbers only. One that has ended already is what is wanted.
    let _ = unsafe { syscall2(u64::from(nr::__NR_shutdown), fd.into(), BOTH) };
}

/// Fills `words` with the address of a socket, its own or its peer's; how many bytes it has, `None`
/// if there is none.
pub(crate) fn address(fd: u64, of_peer: bool, words: &mut [u64; 16]) -> Option<u32> {
    let call = if of_peer {
        nr::__NR_getpeername
    } else {
        nr::__NR_getsockname
    };
    let mut len = low32(size_of_val(words) as u64);
    let at = words.as_mut_ptr() as u64;
    // SAFETY: the buffer has room for `len` bytes.
    let done = unsafe { syscall3(u64::from(call), fd, at, (&raw mut len) as u64) };
    (done == 0).then_some(len)
}

/// Does this socket take connections?
pub(crate) fn listens(fd: u64) -> bool {
    socket_option(fd, SO_ACCEPTCONN).is_some_and(|[listens, _]| low32(listens) != 0)
}

/// How long calls on this descriptor wait at most, in nanoseconds; 0 for ever.
pub(crate) fn socket_timeout(fd: u64, sending: bool) -> u64 {
    let option = if sending { SO_SNDTIMEO } else { SO_RCVTIMEO };
    socket_option(fd, option).map_or(0, |[seconds, microseconds]| {
        let rest = microseconds.saturating_mul(1000);
        seconds.saturating_mul(1_000_000_000).saturating_add(rest)
    })
}

fn socket_option(fd: u64, option: u64) -> Option<[u64; 2]> {
    let (mut value, mut len) = ([0_u64; 2], 16_u32);
    let args = [
        fd,
        SOL_SOCKET,
        option,
        value.as_mut_ptr() as u64,
        (&raw mut len) as u64,
        0,
    ];
    // SAFETY: the value has room for `len` bytes.
    let done = unsafe { syscall6(u64::from(nr::__NR_getsockopt), args) };
    (done == 0).then_some(value)
}

/// Fills `words` with an option of a socket; how many bytes it has, `None` if it has no such one.
pub(crate) fn option(fd: u32, level: u32, name: u32, words: &mut [u32]) -> Option<u32> {
    let mut len = low32(size_of_val(words) as u64);
    let args = [
        fd.into(),
        level.into(),
        name.into(),
        words.as_mut_ptr() as u64,
        (&raw mut len) as u64,
        0,
    ];
    // SAFETY: the words have room for `len` bytes.
    let done = unsafe { syscall6(u64::from(nr::__NR_getsockopt), args) };
    check(done).ok().map(|_| len)
}
