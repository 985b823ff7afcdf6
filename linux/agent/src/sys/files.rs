//! Open files: what they are, and reading and writing at an offset.

use core::ffi::CStr;
use core::mem::MaybeUninit;

use linux_raw_sys::errno::{EINTR, ENOSPC};
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall2, syscall3, syscall4};

use crate::convert::size;
use crate::sys::{Errno, check, error, fcntl};

/// Types of files, as in `st_mode`.
const TYPE: u32 = 0o170_000;
pub(crate) const S_IFSOCK: u32 = 0o140_000;
pub(crate) const S_IFIFO: u32 = 0o010_000;
pub(crate) const S_IFCHR: u32 = 0o020_000;
pub(crate) const S_IFREG: u32 = 0o100_000;

/// Opens a file for reading or for both, close-on-exec; `path` ends with NUL.
pub(crate) fn open_file(path: &[u8], write: bool) -> Result<i32, Errno> {
    assert_eq!(path.last(), Some(&0), "the kernel needs a terminated path");
    let access = if write { nr::O_RDWR } else { nr::O_RDONLY };
    let dir = i64::from(nr::AT_FDCWD).cast_unsigned();
    // SAFETY: the path is valid and terminated.
    let fd = unsafe {
        syscall4(
            u64::from(nr::__NR_openat),
            dir,
            path.as_ptr() as u64,
            u64::from(access | nr::O_CLOEXEC),
            0,
        )
    };
    check(fd).map(|fd| i32::try_from(fd).expect("descriptors are small"))
}

/// Opens a file read-only, close-on-exec; `path` ends with NUL.
pub(crate) fn open_read(path: &[u8]) -> Result<i32, Errno> {
    open_file(path, false)
}

/// Reads on; returns the bytes read, 0 at the end.
pub(crate) fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        // SAFETY: the buffer is valid for its length.
        let read = unsafe {
            syscall3(
                u64::from(nr::__NR_read),
                i64::from(fd).cast_unsigned(),
                buffer.as_mut_ptr() as u64,
                buffer.len() as u64,
            )
        };
        match check(read) {
            Err(Errno(errno)) if errno == EINTR.cast_signed() => {}
            done => return done.map(size),
        }
    }
}

/// Reads at an offset; returns the bytes read.
pub(crate) fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    // SAFETY: the buffer is valid for its length.
    let read = unsafe {
        syscall4(
            u64::from(nr::__NR_pread64),
            i64::from(fd).cast_unsigned(),
            buffer.as_mut_ptr() as u64,
            buffer.len() as u64,
            offset,
        )
    };
    check(read).map(|read| usize::try_from(read).expect("64-bit"))
}

/// Reads whole words at an offset; what the file does not hold reads as 0.
pub(crate) fn read_words(fd: i32, words: &mut [u64], offset: u64) {
    words.fill(0);
    // SAFETY: the buffer is valid for its length, and any bytes are words.
    let _ = unsafe {
        syscall4(
            u64::from(nr::__NR_pread64),
            i64::from(fd).cast_unsigned(),
            words.as_mut_ptr() as u64,
            size_of_val(words) as u64,
            offset,
        )
    };
}

/// Reads at an offset to any address; the caller finds out by comparing what came.
pub(crate) fn pread_raw(fd: i32, to: u64, len: usize, offset: u64) {
    // SAFETY: the kernel checks the address; callers name memory that this call may change.
    let _ = unsafe {
        syscall4(
            u64::from(nr::__NR_pread64),
            i64::from(fd).cast_unsigned(),
            to,
            len as u64,
            offset,
        )
    };
}

/// Reads at an offset to any address; how much, or `None` if that fails.
pub(crate) fn pread_at(fd: u32, to: u64, len: usize, offset: u64) -> Option<usize> {
    let fd = u64::from(fd);
    // SAFETY: the kernel checks the address; callers name memory that this call may change.
    let read = unsafe { syscall4(u64::from(nr::__NR_pread64), fd, to, len as u64, offset) };
    usize::try_from(read).ok()
}

/// Writes the program's memory to a file; 0 or an error.
pub(crate) fn pwrite_raw(fd: i32, from: u64, len: usize, offset: u64) -> i64 {
    let fd = i64::from(fd).cast_unsigned();
    // SAFETY: the kernel checks the address and only reads there.
    let written = unsafe { syscall4(u64::from(nr::__NR_pwrite64), fd, from, len as u64, offset) };
    match u64::try_from(written) {
        Ok(all) if all == len as u64 => 0,
        Ok(_) => error(ENOSPC),
        Err(_) => written,
    }
}

/// What an offset is counted from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Whence {
    Start = 0,
    Current = 1,
}

/// Moves, or only tells, the position of an open file; `None` if it has none.
pub(crate) fn seek(fd: u64, offset: u64, whence: Whence) -> Option<u64> {
    // SAFETY: no memory involved.
    let at = unsafe { syscall3(u64::from(nr::__NR_lseek), fd, offset, whence as u64) };
    u64::try_from(at).ok()
}

/// Does the open file have a position that reading and writing move? That is so for regular files,
/// directories and block devices; others may answer `lseek` all the same.
pub(crate) fn keeps_position(fd: u64) -> bool {
    const KEEPING: [u32; 3] = [0o100_000, 0o040_000, 0o060_000];
    file_status(fd).is_some_and(|stat| KEEPING.contains(&(stat.st_mode & TYPE)))
}

/// Mode and device number of an open file; `None` if there is none.
pub(crate) fn file_type(fd: u64) -> Option<(u32, u64)> {
    file_status(fd).map(|stat| (stat.st_mode, stat.st_rdev))
}

/// The type bits of an open file, or 0.
pub(crate) fn type_bits(fd: u64) -> u32 {
    file_status(fd).map_or(0, |stat| stat.st_mode & TYPE)
}

/// What identifies an open file, and its size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct FileFacts {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
}

/// The facts of an open file; `None` if there is none.
pub(crate) fn file_facts(fd: u64) -> Option<FileFacts> {
    let stat = file_status(fd)?;
    Some(FileFacts {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
    })
}

pub(super) fn file_status(fd: u64) -> Option<nr::stat> {
    let mut stat = MaybeUninit::<nr::stat>::uninit();
    // SAFETY: the structure is the kernel's, and valid for writing.
    let done = unsafe { syscall2(u64::from(nr::__NR_fstat), fd, stat.as_mut_ptr() as u64) };
    // SAFETY: the kernel has filled it if it says so.
    (done == 0).then(|| unsafe { stat.assume_init() })
}

/// Does the open file lie in memory, as those of `/dev/shm` and `memfd_create` do?
pub(crate) fn is_in_memory(fd: u64) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    file_system(fd) == Some(TMPFS_MAGIC)
}

/// The number of the type of the file system in which an open file lies.
pub(crate) fn file_system(fd: u64) -> Option<u64> {
    // `struct statfs` has 15 words, of which the type is the first.
    let mut status = [0_u64; 16];
    // SAFETY: the buffer is longer than the structure.
    let done = unsafe { syscall2(u64::from(nr::__NR_fstatfs), fd, status.as_mut_ptr() as u64) };
    (done == 0).then_some(status[0])
}

/// Is this a regular file on a local disk, opened for reading through the page cache, of which
/// another reading shows nobody anything (the time of access)?
pub(crate) fn is_plain_file_on_disk(fd: u64) -> bool {
    const TYPES: [u64; 1] = [0xef53];
    const REGULAR: u32 = 0o100_000;
    const FLAGS: usize = 10;
    /// `ST_NOATIME`, `ST_RELATIME`, `ST_RDONLY`.
    const UNSEEN: u64 = 0x400 | 0x1000 | 1;
    let mut status = [0_u64; 16];
    // SAFETY: the buffer is longer than the structure.
    let done = unsafe { syscall2(u64::from(nr::__NR_fstatfs), fd, status.as_mut_ptr() as u64) };
    let opened = fcntl(fd, nr::F_GETFL, 0);
    let rare = u64::from(nr::O_ACCMODE | nr::O_DIRECT | nr::O_PATH);
    done == 0
        && TYPES.contains(&status[0])
        && status[FLAGS] & UNSEEN != 0
        && opened & rare == u64::from(nr::O_RDONLY)
        && type_bits(fd) == REGULAR
}

/// Is it certain that nobody has this file open for writing? A lease tells, which is given back at
/// once; not asked for where the program might have one, or an owner for its signals.
pub(crate) fn has_no_writer(fd: u64) -> bool {
    let unused = fcntl(fd, nr::F_GETLEASE, 0) == u64::from(nr::F_UNLCK)
        && fcntl(fd, nr::F_GETOWN, 0) == 0
        && fcntl(fd, nr::F_GETSIG, 0) == 0;
    let lease = |kind: u32| {
        let set = u64::from(nr::F_SETLEASE);
        // SAFETY: no memory involved.
        unsafe { syscall3(u64::from(nr::__NR_fcntl), fd, set, u64::from(kind)) }
    };
    unused && lease(nr::F_RDLCK) == 0 && lease(nr::F_UNLCK) == 0
}

/// Makes a file in memory; its descriptor, or a negative errno.
pub(crate) fn new_file_in_memory(name: &CStr, flags: u32) -> i64 {
    let name = name.as_ptr() as u64;
    // SAFETY: the name ends with NUL.
    unsafe { syscall2(u64::from(nr::__NR_memfd_create), name, flags.into()) }
}
