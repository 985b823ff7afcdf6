//! Numbers of descriptors, and how their files were opened.

use linux_raw_sys::errno::EBADF;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall1, syscall3};

use crate::sys::error;

/// Descriptors of the agent's own that stay are not below this number, out of the way of the
/// program's.
pub(crate) const FIRST_OWN: u64 = 768;

/// Closes a descriptor.
pub(crate) fn close(fd: i32) {
    // SAFETY: closing touches no memory. An error leaves nothing to be done.
    let _ = unsafe { syscall1(u64::from(nr::__NR_close), i64::from(fd).cast_unsigned()) };
}

/// Closes a descriptor; false if it was not open.
pub(crate) fn close_open(fd: u32) -> bool {
    // SAFETY: closing touches no memory.
    let done = unsafe { syscall1(u64::from(nr::__NR_close), fd.into()) };
    done != error(EBADF)
}

/// Is there such a descriptor?
pub(crate) fn is_open(fd: i32) -> bool {
    let fd = i64::from(fd).cast_unsigned();
    // SAFETY: no memory involved.
    unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, u64::from(nr::F_GETFD), 0) >= 0 }
}

/// Duplicates a descriptor to a free number from `least` on, to be closed at `execve`.
pub(crate) fn duplicate(fd: u64, least: u64) -> i64 {
    let command = u64::from(nr::F_DUPFD_CLOEXEC);
    // SAFETY: no memory involved.
    unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, command, least) }
}

/// Was the file opened for reading and writing?
pub(crate) fn is_open_for_both(fd: u64) -> bool {
    access_mode(fd) == Some(nr::O_RDWR)
}

/// Was the file opened for reading?
pub(crate) fn is_open_for_reading(fd: u64) -> bool {
    matches!(access_mode(fd), Some(nr::O_RDONLY | nr::O_RDWR))
}

/// Was the file opened for writing?
pub(crate) fn can_be_written(fd: u64) -> bool {
    matches!(access_mode(fd), Some(nr::O_WRONLY | nr::O_RDWR))
}

fn access_mode(fd: u64) -> Option<u32> {
    let get = u64::from(nr::F_GETFL);
    // SAFETY: no memory involved.
    let flags = unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, get, 0) };
    let flags = u64::try_from(flags).ok()?;
    u32::try_from(flags & u64::from(nr::O_ACCMODE)).ok()
}

/// `fcntl` with a number; what it returns, or 0.
pub(crate) fn fcntl(fd: u64, command: u32, value: u64) -> u64 {
    // SAFETY: commands that take a number only.
    let result = unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, command.into(), value) };
    u64::try_from(result).unwrap_or(0)
}

/// Has the program made it non-blocking?
pub(crate) fn never_waits(fd: u64) -> bool {
    fcntl(fd, nr::F_GETFL, 0) & u64::from(nr::O_NONBLOCK) != 0
}

/// Makes `fd` a copy of `source`, whatever it was before.
pub(crate) fn replace(source: u64, fd: u64, flags: u64) {
    // SAFETY: numbers only. The source is open, so nothing is left to go wrong.
    let _ = unsafe { syscall3(u64::from(nr::__NR_dup3), source, fd, flags) };
}
