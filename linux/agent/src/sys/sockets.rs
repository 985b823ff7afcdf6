//! What the agent itself asks of sockets, and sends on them.

use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::syscall6;

use crate::convert::low32;
use crate::sys::{check, error};

/// Does not wait.
const MSG_DONTWAIT: u64 = 0x40;
/// Fails without a signal.
const MSG_NOSIGNAL: u64 = 0x4000;

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
    const MSG_TRUNC: u64 = 0x20;
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
    const MSG_PEEK: u64 = 0x2;
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
