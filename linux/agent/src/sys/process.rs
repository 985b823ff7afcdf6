//! System calls with which processes are made, named and replaced.

use core::mem::MaybeUninit;

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall0, syscall2, syscall3, syscall4};

use super::{Errno, check, close, open_read, pread};
use crate::text::Text;

/// A signal with a value, queued to a process. If the queue is full it is tried again.
pub(crate) fn queue_signal(pid: u32, signal: u32, value: u64) {
    const SI_QUEUE: u32 = u32::MAX;
    let (own, user) = (super::getpid(), getuid());
    // signo, errno, code, padding, pid, uid, value.
    let mut info = [0_u32; 32];
    info[..6].copy_from_slice(&[signal, 0, SI_QUEUE, 0, own, user]);
    info[6] = crate::convert::low32(value);
    info[7] = crate::convert::low32(value >> 32);
    loop {
        // SAFETY: `info` is a whole siginfo.
        let ret = unsafe {
            syscall3(
                u64::from(nr::__NR_rt_sigqueueinfo),
                u64::from(pid),
                u64::from(signal),
                info.as_ptr() as u64,
            )
        };
        if check(ret) != Err(Errno(linux_raw_sys::errno::EAGAIN.cast_signed())) {
            return;
        }
        super::sched_yield();
    }
}

/// The real user id.
pub(crate) fn getuid() -> u32 {
    // SAFETY: no arguments.
    crate::convert::low32(unsafe { syscall0(u64::from(nr::__NR_getuid)) }.cast_unsigned())
}

/// This process's group in the host.
pub(crate) fn getpgrp() -> u32 {
    // SAFETY: no arguments.
    crate::convert::low32(unsafe { syscall0(u64::from(nr::__NR_getpgrp)) }.cast_unsigned())
}

/// The real group id.
pub(crate) fn getgid() -> u32 {
    // SAFETY: no arguments.
    crate::convert::low32(unsafe { syscall0(u64::from(nr::__NR_getgid)) }.cast_unsigned())
}

/// Forks this process: separate memory, a copy of the table of descriptors and of the file system
/// state, the same parent. Returns 0 in the child.
///
/// # Errors
/// The host has no room for another process.
pub(crate) fn fork_replica() -> Result<u64, Errno> {
    const SIGCHLD: u64 = 17;
    let flags = u64::from(nr::CLONE_PARENT) | SIGCHLD;
    // SAFETY: as fork: no stack is given, so the child goes on with a copy of this one.
    check(unsafe { rcoe_linux_sys::syscall5(u64::from(nr::__NR_clone), flags, 0, 0, 0, 0) })
}

/// Advises the host on what clones get of a range of the program's memory. What is not mapped any
/// more needs no advice.
pub(crate) fn advise_clones(start: u64, len: u64, advice: u32) {
    // SAFETY: the content stays as it is.
    let _ = unsafe { syscall3(u64::from(nr::__NR_madvise), start, len, u64::from(advice)) };
}

/// Sets the base of the `fs` segment.
pub(crate) fn set_thread_pointer(address: u64) {
    const ARCH_SET_FS: u64 = 0x1002;
    // SAFETY: the agent itself does not use the segment. A bad address is refused.
    let _ = unsafe { syscall2(u64::from(nr::__NR_arch_prctl), ARCH_SET_FS, address) };
}

/// The soft limit of the stack's size; `u64::MAX` without one.
pub(crate) fn stack_limit() -> u64 {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the buffer is a struct rlimit64.
    let _ = unsafe {
        syscall4(
            u64::from(nr::__NR_prlimit64),
            0,
            u64::from(nr::RLIMIT_STACK),
            0,
            limit.as_mut_ptr() as u64,
        )
    };
    limit[0]
}

/// Eight random bytes of the kernel.
pub(crate) fn random() -> u64 {
    let mut word = 0_u64;
    // SAFETY: the buffer is eight bytes. Before the pool is ready it stays as it is.
    let _ = unsafe {
        syscall3(
            u64::from(nr::__NR_getrandom),
            (&raw mut word) as u64,
            8,
            u64::from(nr::GRND_NONBLOCK),
        )
    };
    word
}

/// Opens a file that is to be executed, close-on-exec; `path` ends with NUL.
pub(crate) fn open_executable(dir: i64, path: &[u8]) -> Result<i32, Errno> {
    assert_eq!(path.last(), Some(&0), "the kernel needs a terminated path");
    let flags = u64::from(nr::O_RDONLY | nr::O_CLOEXEC | nr::O_NONBLOCK | nr::O_NOCTTY);
    // SAFETY: the path is valid and terminated.
    let fd = unsafe {
        syscall4(
            u64::from(nr::__NR_openat),
            dir.cast_unsigned(),
            path.as_ptr() as u64,
            flags,
            0,
        )
    };
    check(fd).map(|fd| i32::try_from(fd).expect("descriptors are small"))
}

/// Type and permissions of an open file.
pub(crate) fn mode(fd: i32) -> Option<u32> {
    let mut stat = MaybeUninit::<nr::stat>::uninit();
    let fd = i64::from(fd).cast_unsigned();
    // SAFETY: the structure is the kernel's, and valid for writing.
    let done = unsafe { syscall2(u64::from(nr::__NR_fstat), fd, stat.as_mut_ptr() as u64) };
    // SAFETY: the kernel has filled it if it says so.
    (done == 0).then(|| unsafe { stat.assume_init() }.st_mode)
}

/// May this process, with its effective ids, execute the open file?
pub(crate) fn may_execute(fd: i32) -> bool {
    const X_OK: u64 = 1;
    let flags = u64::from(nr::AT_EMPTY_PATH | nr::AT_EACCESS);
    // SAFETY: the path is empty and terminated.
    let ret = unsafe {
        syscall4(
            u64::from(nr::__NR_faccessat2),
            i64::from(fd).cast_unsigned(),
            c"".as_ptr() as u64,
            X_OK,
            flags,
        )
    };
    ret == 0
}

/// Has this process of the host a controlling terminal?
pub(crate) fn has_terminal(pid: u32) -> bool {
    use core::fmt::Write as _;
    let mut name = Text::<32>::new();
    write!(name, "/proc/{pid}/stat\0").expect("short");
    let Ok(file) = open_read(name.as_bytes()) else {
        return false;
    };
    let mut buffer = [0; 512];
    let len = pread(file, &mut buffer, 0).unwrap_or(0);
    close(file);
    // State, parent, group and session come before its number, after the name in parentheses.
    let text = core::str::from_utf8(&buffer[..len]).unwrap_or_default();
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let device = rest.split_ascii_whitespace().nth(4);
    device.is_some_and(|device| device != "0")
}

/// Reads where the descriptor leads to; returns the length, and the buffer ends with NUL there.
pub(crate) fn descriptor_target(fd: i32, buffer: &mut [u8]) -> usize {
    use core::fmt::Write as _;
    let mut name = Text::<32>::new();
    write!(name, "/proc/self/fd/{fd}\0").expect("short");
    // SAFETY: path and buffer are valid.
    let read = unsafe {
        syscall3(
            u64::from(nr::__NR_readlink),
            name.as_bytes().as_ptr() as u64,
            buffer.as_mut_ptr() as u64,
            buffer.len() as u64 - 1,
        )
    };
    let len = usize::try_from(read).unwrap_or(0);
    buffer[len] = 0;
    len
}

/// Closes all descriptors that are close-on-exec.
pub(crate) fn close_on_exec() {
    const FD_CLOEXEC: i64 = 1;
    let Ok(list) = open_executable(0, b"/proc/self/fd\0") else {
        return;
    };
    let mut buffer = [0_u8; 4096];
    loop {
        // SAFETY: the buffer is valid for its length.
        let read = unsafe {
            syscall3(
                u64::from(nr::__NR_getdents64),
                i64::from(list).cast_unsigned(),
                buffer.as_mut_ptr() as u64,
                buffer.len() as u64,
            )
        };
        let Ok(read @ 1..) = usize::try_from(read) else {
            break;
        };
        for fd in names(&buffer[..read]).filter(|fd| *fd != list) {
            let number = i64::from(fd).cast_unsigned();
            // SAFETY: no memory involved.
            let flags =
                unsafe { syscall3(u64::from(nr::__NR_fcntl), number, u64::from(nr::F_GETFD), 0) };
            if flags >= 0 && flags & FD_CLOEXEC != 0 {
                close(fd);
            }
        }
    }
    close(list);
}

/// Numbers among the names of directory entries.
fn names(mut entries: &[u8]) -> impl Iterator<Item = i32> {
    /// Where an entry's length and its name lie.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    core::iter::from_fn(move || {
        let length = entries.get(LENGTH..LENGTH + 2)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        let (entry, rest) = entries.split_at_checked(length.max(NAME))?;
        entries = rest;
        let name = entry[NAME..].split(|byte| *byte == 0).next()?;
        Some(
            core::str::from_utf8(name)
                .ok()
                .and_then(|name| name.parse().ok()),
        )
    })
    .flatten()
}
