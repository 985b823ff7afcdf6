//! Reading and writing without waiting, whatever the descriptor says.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall3, syscall6};

/// Flag of `preadv2` and `pwritev2`: fails with EAGAIN instead of waiting, and with EOPNOTSUPP
/// where the file does not know how to tell.
const RWF_NOWAIT: u64 = 8;
/// Offset that stands for the file's own position.
const AT_POSITION: u64 = u64::MAX;

/// The calls that write at an offset, one buffer or several.
pub(crate) const PWRITE: u64 = nr::__NR_pwrite64 as u64;
pub(crate) const PWRITEV: u64 = nr::__NR_pwritev as u64;

/// Reads into `count` parts from the position of `fd` on, if that needs no wait.
///
/// # Safety
/// The parts that `vector` points to must be the program's, or valid for writing.
pub(crate) unsafe fn read_now(fd: u64, vector: u64, count: u64) -> i64 {
    // SAFETY: forwarded from the caller.
    unsafe { now(nr::__NR_preadv2, fd, vector, count) }
}

/// Reads into `count` parts from the position of `fd` on, waiting if it must.
///
/// # Safety
/// As for [`read_now`].
pub(crate) unsafe fn read_parts(fd: u64, vector: u64, count: u64) -> i64 {
    let args = [fd, vector, count, AT_POSITION, 0, 0];
    // SAFETY: forwarded from the caller.
    unsafe { syscall6(u64::from(nr::__NR_preadv2), args) }
}

/// Reads into `count` parts at an offset, the position at -1, with flags; never waits.
///
/// # Safety
/// As for [`read_now`].
pub(crate) unsafe fn read_at_now(
    fd: u64,
    [vector, count]: [u64; 2],
    [low, high]: [u64; 2],
    flags: u64,
) -> i64 {
    let args = [fd, vector, count, low, high, flags | RWF_NOWAIT];
    // SAFETY: forwarded from the caller.
    unsafe { syscall6(u64::from(nr::__NR_preadv2), args) }
}

/// Reads nothing; an error if that is one already, as with a descriptor that is none.
pub(crate) fn read_nothing(fd: u64) -> i64 {
    // SAFETY: a vector of no parts.
    unsafe { syscall3(u64::from(nr::__NR_readv), fd, 0, 0) }
}

/// The same of writing.
pub(crate) fn write_nothing(fd: u64) -> i64 {
    // SAFETY: a vector of no parts.
    unsafe { syscall3(u64::from(nr::__NR_writev), fd, 0, 0) }
}

/// Reads what the host has in memory of a file from `offset` on, and says how much that was. Never
/// waits; nothing of a file that does not know how to tell.
pub(crate) fn read_cached(fd: i32, buffer: &mut [u8], offset: u64) -> usize {
    if offset > i64::MAX.cast_unsigned() {
        return 0;
    }
    let vector = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
    let fd = i64::from(fd).cast_unsigned();
    let args = [fd, vector.as_ptr() as u64, 1, offset, 0, RWF_NOWAIT];
    // SAFETY: the one part is the buffer.
    let read = unsafe { syscall6(u64::from(nr::__NR_preadv2), args) };
    usize::try_from(read).unwrap_or(0)
}

/// Writes `count` parts from the position of `fd` on, if that needs no wait: all of it, or less
/// where there is no more room.
///
/// # Safety
/// The parts that `vector` points to must be the program's, or valid for reading.
pub(crate) unsafe fn write_now(fd: u64, vector: u64, count: u64) -> i64 {
    // SAFETY: forwarded from the caller.
    unsafe { now(nr::__NR_pwritev2, fd, vector, count) }
}

/// # Safety
/// As for the call.
#[inline]
unsafe fn now(call: u32, fd: u64, vector: u64, count: u64) -> i64 {
    let args = [fd, vector, count, AT_POSITION, 0, RWF_NOWAIT];
    // SAFETY: forwarded from the caller.
    unsafe { syscall6(u64::from(call), args) }
}

/// Writes `count` parts from the position of `fd` on, waiting if it must.
///
/// # Safety
/// As for [`write_now`].
pub(crate) unsafe fn write_parts(fd: u64, vector: u64, count: u64) -> i64 {
    // SAFETY: forwarded from the caller.
    unsafe { syscall3(u64::from(nr::__NR_writev), fd, vector, count) }
}
