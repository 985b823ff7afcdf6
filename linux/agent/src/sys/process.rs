//! System calls with which processes are made, named and replaced.

use linux_raw_sys::errno::{EAGAIN, EINVAL, ETXTBSY};
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall0, syscall1, syscall2, syscall3, syscall4, syscall6};

use crate::sys::files::file_status;
use crate::sys::{Errno, check, close, open_read, pread};
use crate::text::Text;

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

/// Soft and hard limit of a resource; `u64::MAX` without one.
pub(super) fn limit(resource: u32) -> [u64; 2] {
    let mut limit = [u64::MAX; 2];
    // SAFETY: the buffer is a struct rlimit64.
    let _ = unsafe {
        syscall4(
            u64::from(nr::__NR_prlimit64),
            0,
            u64::from(resource),
            0,
            limit.as_mut_ptr() as u64,
        )
    };
    limit
}

/// The soft limit of the stack's size; `u64::MAX` without one.
pub(crate) fn stack_limit() -> u64 {
    limit(nr::RLIMIT_STACK)[0]
}

/// Sets the host's soft and hard limit of a resource for this process.
pub(crate) fn set_limit(resource: usize, limit: [u64; 2]) -> Result<(), Errno> {
    // SAFETY: a struct rlimit64, which is only read.
    let done = unsafe {
        syscall4(
            u64::from(nr::__NR_prlimit64),
            0,
            resource as u64,
            (&raw const limit) as u64,
            0,
        )
    };
    check(done).map(drop)
}

/// Takes back what a program that is executed does not inherit of the way its process is run;
/// `gains`: one that has more privileges. That addresses are not random stays.
pub(crate) fn clear_personality(gains: bool) {
    const READ_IMPLIES_EXEC: u64 = 0x040_0000;
    const ADDR_COMPAT_LAYOUT: u64 = 0x020_0000;
    const MMAP_PAGE_ZERO: u64 = 0x010_0000;
    const ASK: u64 = 0xffff_ffff;
    // SAFETY: concerns mappings to come only.
    let set = |persona: u64| unsafe { syscall1(u64::from(nr::__NR_personality), persona) };
    let Ok(now) = u64::try_from(set(ASK)) else {
        return;
    };
    let more = if gains {
        ADDR_COMPAT_LAYOUT | MMAP_PAGE_ZERO
    } else {
        0
    };
    let left = now & !(READ_IMPLIES_EXEC | more);
    if left != now {
        set(left);
    }
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

/// Opens a file that is to be executed, close-on-exec; `path` ends with NUL, and may be a symbolic
/// link if those are followed.
pub(crate) fn open_executable(dir: i64, path: &[u8], follows: bool) -> Result<i32, Errno> {
    assert_eq!(path.last(), Some(&0), "the kernel needs a terminated path");
    let follow = if follows { 0 } else { nr::O_NOFOLLOW };
    let flags = u64::from(nr::O_RDONLY | nr::O_CLOEXEC | nr::O_NONBLOCK | nr::O_NOCTTY | follow);
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
pub(crate) fn mode_and_owner(fd: i32) -> Option<(u32, [u32; 2])> {
    let stat = file_status(i64::from(fd).cast_unsigned())?;
    Some((stat.st_mode, [stat.st_uid, stat.st_gid]))
}

/// Which file it is, and what changes with its content.
#[derive(Clone, Copy)]
pub(crate) struct FileVersion {
    /// Device, inode and size.
    file: [u64; 3],
    /// Times of the last change of content and of anything, in nanoseconds.
    times: [u64; 2],
    /// Names that it has.
    names: u64,
    mode: u32,
}

impl FileVersion {
    /// Names that it has.
    pub(crate) const fn names(&self) -> u64 {
        self.names
    }

    /// Neither a device nor anything else.
    pub(crate) const fn is_regular(&self) -> bool {
        self.mode & nr::S_IFMT == nr::S_IFREG
    }

    /// All of it.
    pub(crate) const fn words(&self) -> [u64; 5] {
        let ([device, inode, size], [content, any]) = (self.file, self.times);
        [device, inode, size, content, any]
    }

    /// When it was last changed, in nanoseconds of the real-time clock.
    pub(crate) fn changed_ns(&self) -> u64 {
        self.times[0].max(self.times[1])
    }
}

/// The version of an open file; `None` if there is none.
pub(crate) fn file_version(fd: i32) -> Option<FileVersion> {
    const SECOND: u64 = 1_000_000_000;
    let stat = file_status(i64::from(fd).cast_unsigned())?;
    let time = |s: u64, ns: u64| s.saturating_mul(SECOND).saturating_add(ns);
    Some(FileVersion {
        file: [stat.st_dev, stat.st_ino, stat.st_size.cast_unsigned()],
        times: [
            time(stat.st_mtime, stat.st_mtime_nsec),
            time(stat.st_ctime, stat.st_ctime_nsec),
        ],
        names: stat.st_nlink,
        mode: stat.st_mode,
    })
}

/// Device and inode of an open file.
pub(crate) fn file_of(fd: i32) -> Option<[u64; 2]> {
    let stat = file_status(i64::from(fd).cast_unsigned())?;
    Some([stat.st_dev, stat.st_ino])
}

/// Device and inode of the file of this name; the kernel checks the address.
pub(crate) fn file_at(dir: i32, path: u64, flags: u32) -> Option<[u64; 2]> {
    let mut stat = core::mem::MaybeUninit::<nr::stat>::uninit();
    // SAFETY: the structure is the kernel's, and valid for writing.
    let done = unsafe {
        syscall4(
            u64::from(nr::__NR_newfstatat),
            i64::from(dir).cast_unsigned(),
            path,
            stat.as_mut_ptr() as u64,
            u64::from(flags),
        )
    };
    // SAFETY: the kernel has filled it if it says so.
    let stat = (done == 0).then(|| unsafe { stat.assume_init() })?;
    Some([stat.st_dev, stat.st_ino])
}

/// May this process, with its effective ids, write to the file of this name, and read it if that is
/// asked for? 0, or the error.
pub(crate) fn may_write(dir: i32, path: u64, reads: bool) -> i64 {
    const W_OK: u64 = 2;
    const R_OK: u64 = 4;
    // SAFETY: the kernel checks the address.
    unsafe {
        syscall4(
            u64::from(nr::__NR_faccessat2),
            i64::from(dir).cast_unsigned(),
            path,
            W_OK | if reads { R_OK } else { 0 },
            u64::from(nr::AT_EACCESS),
        )
    }
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

/// Has anybody opened this file for writing, so that no kernel would execute it? Where only
/// execution tells (before Linux 6.14, and another user's file) the answer is no.
pub(crate) fn is_open_for_writing(fd: i32) -> bool {
    const AT_EXECVE_CHECK: u32 = 0x1_0000;
    let fd = i64::from(fd).cast_unsigned();
    let arguments = [c"".as_ptr() as u64, 0];
    let args = [
        fd,
        c"".as_ptr() as u64,
        arguments.as_ptr() as u64,
        0,
        u64::from(nr::AT_EMPTY_PATH | AT_EXECVE_CHECK),
        0,
    ];
    // SAFETY: path and arguments are terminated; with this flag nothing is executed.
    let checked = unsafe { syscall6(u64::from(nr::__NR_execveat), args) };
    if checked != crate::sys::error(EINVAL) {
        return checked == crate::sys::error(ETXTBSY);
    }
    let lease = |kind: u32| {
        let set = u64::from(nr::F_SETLEASE);
        // SAFETY: no memory involved.
        unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, set, u64::from(kind)) }
    };
    let taken = lease(nr::F_RDLCK);
    if taken == 0 {
        lease(nr::F_UNLCK);
    }
    taken == crate::sys::error(EAGAIN)
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
    each_descriptor(close_if_marked);
}

/// Visits all open descriptors, and some that are not. Needs a free number.
#[inline(never)]
pub(crate) fn each_descriptor(mut visit: impl FnMut(i32)) {
    let Ok(list) = open_executable(0, b"/proc/self/fd\0", true) else {
        // No descriptor is left, or `/proc` cannot be seen (chroot): one after the other, then.
        (0..most_descriptors()).for_each(visit);
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
        names(&buffer[..read])
            .filter(|fd| *fd != list)
            .for_each(&mut visit);
    }
    close(list);
}

fn close_if_marked(fd: i32) {
    const FD_CLOEXEC: i64 = 1;
    let number = i64::from(fd).cast_unsigned();
    // SAFETY: no memory involved.
    let flags = unsafe { syscall3(u64::from(nr::__NR_fcntl), number, u64::from(nr::F_GETFD), 0) };
    if flags >= 0 && flags & FD_CLOEXEC != 0 {
        close(fd);
    }
}

/// First number that no descriptor has: what a limit could be at most when they were made.
fn most_descriptors() -> i32 {
    /// The host's own limit, if nobody has changed it.
    const USUAL: u64 = 1 << 20;
    let [_, hard] = limit(nr::RLIMIT_NOFILE);
    i32::try_from(hard.clamp(USUAL, 1 << 30)).expect("clamped")
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

/// What this process and its awaited children have used, in clock ticks: time in the program and in
/// the kernel, and the same of the children. Returns the host's ticks since some time in the past.
pub(crate) fn times(times: &mut [u64; 4]) -> i64 {
    // SAFETY: room for the structure.
    unsafe { syscall1(u64::from(nr::__NR_times), times.as_mut_ptr() as u64) }
}

/// A descriptor of the host's process with this id, or a negative errno.
pub(crate) fn descriptor_of(pid: u64, flags: u64) -> i64 {
    // SAFETY: numbers only.
    unsafe { syscall2(u64::from(nr::__NR_pidfd_open), pid, flags) }
}
