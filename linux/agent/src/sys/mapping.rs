//! Mappings: made, moved, protected and taken away.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall2, syscall3, syscall5, syscall6};

use crate::sys::{Errno, check};

/// Maps memory.
///
/// # Safety
/// With `MAP_FIXED` whatever was there is gone; the caller must own that range.
pub(crate) unsafe fn mmap(
    addr: u64,
    len: u64,
    prot: u32,
    flags: u32,
    fd: i32,
    offset: u64,
) -> Result<u64, Errno> {
    let args = [
        addr,
        len,
        u64::from(prot),
        u64::from(flags),
        i64::from(fd).cast_unsigned(),
        offset,
    ];
    // SAFETY: forwarded from the caller.
    check(unsafe { syscall6(u64::from(nr::__NR_mmap), args) })
}

/// Unmaps memory.
///
/// # Safety
/// Nothing may use the range any more.
pub(crate) unsafe fn munmap(addr: u64, len: u64) -> Result<(), Errno> {
    // SAFETY: forwarded from the caller.
    check(unsafe { syscall2(u64::from(nr::__NR_munmap), addr, len) }).map(drop)
}

/// Changes the protection of memory.
///
/// # Safety
/// Whoever uses the range must be content with the new protection.
pub(crate) unsafe fn mprotect(addr: u64, len: u64, prot: u32) -> Result<(), Errno> {
    // SAFETY: forwarded from the caller.
    check(unsafe { syscall3(u64::from(nr::__NR_mprotect), addr, len, u64::from(prot)) }).map(drop)
}

/// Drops the private copies of a private file mapping, so that it shows the file again.
pub(crate) fn forget_changes(start: u64, len: u64) {
    let advice = u64::from(nr::MADV_DONTNEED);
    // SAFETY: the caller has made the file hold what the pages hold. Locked pages stay, which does
    // no harm: they hold the same.
    let _ = unsafe { syscall3(u64::from(nr::__NR_madvise), start, len, advice) };
}

/// Advises the host on what clones get of a range of the program's memory. What is not mapped any
/// more needs no advice.
pub(crate) fn advise_clones(start: u64, len: u64, advice: u32) {
    // SAFETY: the content stays as it is.
    let _ = unsafe { syscall3(u64::from(nr::__NR_madvise), start, len, u64::from(advice)) };
}

/// Moves a mapping to another address, over whatever is there; returns where it is then.
///
/// # Safety
/// The caller must own both ranges, and nobody may use what moves by its old address.
pub(crate) unsafe fn move_mapping(from: u64, len: u64, to: u64) -> Result<u64, Errno> {
    let flags = u64::from(nr::MREMAP_MAYMOVE | nr::MREMAP_FIXED);
    // SAFETY: forwarded from the caller.
    check(unsafe { syscall5(u64::from(nr::__NR_mremap), from, len, len, flags, to) })
}

/// Locks a range of the program's memory. What cannot be brought in is no error.
pub(crate) fn lock(start: u64, len: u64, mode: u32) {
    // SAFETY: the content stays as it is.
    let _ = unsafe { syscall3(u64::from(nr::__NR_mlock2), start, len, mode.into()) };
}
