//! Which pages of its own memory a process has written: what the kernel offers.
//!
//! * *Write protection without waiting* (Linux 6.7): a `userfaultfd` with which a range is
//!   registered protects pages, and the kernel itself lets the first write to each through.
//!   [`Scan`] tells which pages are not protected any more, and protects them again. Writes of the
//!   kernel on behalf of the process count.
//! * *Soft-dirty bits*: `clear_refs` clears them, `pagemap` tells them.
//!
//! Each function returns the kernel's own word: a value, or `-errno`.

use core::ffi::CStr;

use crate::{syscall1, syscall2, syscall3, syscall4};

const CLOSE: u64 = 3;
const IOCTL: u64 = 16;
const PREAD: u64 = 17;
const PWRITE: u64 = 18;
const OPENAT: u64 = 257;
const USERFAULTFD: u64 = 323;

/// `_IOWR` and `_IOR` numbers of `userfaultfd`.
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
/// `PAGEMAP_SCAN` of the file `pagemap`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;

const FD_HERE: u64 = (-100_i64).cast_unsigned();
const CLOSE_ON_EXEC: u64 = 0o2_000_000;

/// Bits of a scan's answer.
pub mod category {
    /// The page's range is registered for write protection without waiting.
    pub const ALLOWED: u64 = 1;
    /// It has been written since it was protected.
    pub const WRITTEN: u64 = 1 << 1;
    /// It is in memory.
    pub const PRESENT: u64 = 1 << 3;
    /// It is on a disk.
    pub const SWAPPED: u64 = 1 << 4;
}

/// Protect again what is found.
pub const SCAN_AND_PROTECT: u64 = 1;
/// Fail (EPERM) at a range that is not registered.
pub const SCAN_CHECKED: u64 = 2;

/// A run of pages that are alike.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address behind.
    pub end: u64,
    /// What they are: [`category`].
    pub categories: u64,
}

/// The kernel's `struct pm_scan_arg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    size: u64,
    flags: u64,
    /// First address.
    pub start: u64,
    /// Address behind.
    pub end: u64,
    /// How far the scan came.
    pub walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    told: u64,
}

impl Scan {
    /// For pages that are all of this and some of that (or nothing is asked); of which is told what
    /// they are of `told`.
    #[must_use]
    pub fn new(flags: u64, all_of: u64, any_of: u64, told: u64) -> Self {
        Self {
            flags,
            all_of,
            any_of,
            told,
            ..Self::default()
        }
    }
}

/// Makes a `userfaultfd` whose write protection waits for nobody.
pub fn write_protector() -> i64 {
    /// Close on exec, never wait, faults of user mode only: the last needs no privilege, and faults
    /// that nobody handles are nobody's.
    const FLAGS: u64 = CLOSE_ON_EXEC | 0o4_000 | 1;
    const WP_ASYNC: u64 = 1 << 15;
    /// `struct uffdio_api`.
    #[repr(C)]
    struct Api {
        api: u64,
        features: u64,
        ioctls: u64,
    }
    let mut api = Api {
        api: 0xaa,
        features: WP_ASYNC,
        ioctls: 0,
    };
    // SAFETY: no memory involved.
    let fd = unsafe { syscall1(USERFAULTFD, FLAGS) };
    if fd < 0 {
        return fd;
    }
    // SAFETY: the structure is the kernel's, and valid for both ways.
    let agreed = unsafe { syscall3(IOCTL, fd.cast_unsigned(), UFFDIO_API, (&raw mut api) as u64) };
    if agreed < 0 {
        close(fd);
        return agreed;
    }
    fd
}

/// Registers memory with it. What is registered already stays so.
pub fn register(protector: i64, start: u64, len: u64) -> i64 {
    const WRITE_PROTECT: u64 = 2;
    let mut wanted = [start, len, WRITE_PROTECT, 0];
    let at = wanted.as_mut_ptr() as u64;
    // SAFETY: `struct uffdio_register`; what the memory holds stays as it is.
    unsafe { syscall3(IOCTL, protector.cast_unsigned(), UFFDIO_REGISTER, at) }
}

/// Scans pages; `pagemap` is an open `/proc/self/pagemap`. How many regions were filled.
pub fn scan(pagemap: i64, what: &mut Scan, regions: &mut [Region]) -> i64 {
    what.size = size_of::<Scan>() as u64;
    what.regions = if regions.is_empty() {
        0
    } else {
        regions.as_mut_ptr() as u64
    };
    what.regions_len = regions.len() as u64;
    let at = (&raw mut *what) as u64;
    // SAFETY: the structure is the kernel's; it writes there and to the regions.
    unsafe { syscall3(IOCTL, pagemap.cast_unsigned(), PAGEMAP_SCAN, at) }
}

/// Opens a file, close-on-exec.
pub fn open(path: &CStr, write: bool) -> i64 {
    let flags = CLOSE_ON_EXEC | u64::from(write);
    // SAFETY: the path ends with NUL.
    unsafe { syscall4(OPENAT, FD_HERE, path.as_ptr() as u64, flags, 0) }
}

/// Closes a descriptor.
pub fn close(fd: i64) {
    // SAFETY: no memory involved.
    let _ = unsafe { syscall2(CLOSE, fd.cast_unsigned(), 0) };
}

/// Clears the soft-dirty bits of the process, through an open `/proc/self/clear_refs`.
pub fn clear_soft_dirty(clear_refs: i64) -> i64 {
    let what = b"4";
    // SAFETY: the kernel reads one byte.
    unsafe {
        syscall4(
            PWRITE,
            clear_refs.cast_unsigned(),
            what.as_ptr() as u64,
            1,
            0,
        )
    }
}

/// Bits of a word of `pagemap`.
pub mod entry {
    /// The page was written since the bits were cleared, or its mapping made.
    pub const SOFT_DIRTY: u64 = 1 << 55;
    /// It is in memory or on a disk.
    pub const POPULATED: u64 = 3 << 62;
}

/// Reads the words of pages from an address on; how many bytes came.
pub fn read_entries(pagemap: i64, start: u64, words: &mut [u64]) -> i64 {
    let (at, len) = (words.as_mut_ptr() as u64, size_of_val(words) as u64);
    // SAFETY: the buffer is valid for its length, and any bytes are words.
    unsafe { syscall4(PREAD, pagemap.cast_unsigned(), at, len, start / 4096 * 8) }
}
