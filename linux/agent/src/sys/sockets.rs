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
    let mut bytes = 0_u32;
    let args = [fd.into(), SIOCOUTQ, (&raw mut bytes) as u64, 0, 0, 0];
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
