//! System calls for memory that processes share.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall2, syscall3, syscall6};

use crate::sys::{Errno, check, mmap, munmap};

/// Maps a shared mapping of ours a second time, over whatever is at `target`.
///
/// # Safety
/// The caller must own the range at `target`.
pub(crate) unsafe fn map_again(source: u64, target: u64, len: u64) -> Result<(), Errno> {
    let flags = u64::from(nr::MREMAP_MAYMOVE | nr::MREMAP_FIXED);
    let args = [source, 0, len, flags, target, 0];
    // SAFETY: of a shared mapping, nothing is moved if its old length is said to be 0; the rest is
    // the caller's promise.
    check(unsafe { syscall6(u64::from(nr::__NR_mremap), args) }).map(drop)
}

/// Gives pages of a shared mapping of ours back to the host; they read as zero from then on.
pub(crate) fn give_back(start: u64, len: u64) {
    if len == 0 {
        return;
    }
    let advice = u64::from(nr::MADV_REMOVE);
    // SAFETY: memory that nobody uses any more.
    let done = unsafe { syscall3(u64::from(nr::__NR_madvise), start, len, advice) };
    check(done).expect("holes can be made in memory of ours");
}

/// Is nothing mapped in this range?
pub(crate) fn is_unmapped(start: u64, len: u64) -> bool {
    let flags = nr::MAP_PRIVATE | nr::MAP_ANONYMOUS | nr::MAP_FIXED_NOREPLACE | nr::MAP_NORESERVE;
    // SAFETY: replaces nothing, and is taken away at once.
    let mapped = unsafe { mmap(start, len, nr::PROT_NONE, flags, -1, 0) };
    if mapped == Ok(start) {
        // SAFETY: as above.
        let _ = unsafe { munmap(start, len) };
        return true;
    }
    false
}

/// What must not be done to a file in memory any more; 0 if it is no such file.
pub(crate) fn seals(fd: u64) -> u64 {
    let get = u64::from(nr::F_GET_SEALS);
    // SAFETY: no memory involved.
    let seals = unsafe { syscall2(u64::from(nr::__NR_fcntl), fd, get) };
    u64::try_from(seals).unwrap_or(0)
}
