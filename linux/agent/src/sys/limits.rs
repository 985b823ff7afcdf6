//! How far the program may go: its limits, and its address space.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::syscall0;

use crate::sys::credentials::capabilities;
use crate::sys::process::limit;

/// End of the address space for programs.
pub(crate) const TASK_END: u64 = 0x7fff_ffff_f000;

/// The soft limit of a file's size; `u64::MAX` without one.
pub(crate) fn file_size_limit() -> u64 {
    limit(nr::RLIMIT_FSIZE)[0]
}

/// The soft limit of memory that is locked; `u64::MAX` without one.
pub(crate) fn locked_memory_limit() -> u64 {
    limit(nr::RLIMIT_MEMLOCK)[0]
}

/// May this process lock memory without a limit?
pub(crate) fn may_lock_all() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    capabilities().effective & 1 << CAP_IPC_LOCK != 0
}

/// Nothing is locked any more, nor will be what is mapped next.
pub(crate) fn unlock_all() {
    // SAFETY: no memory involved. It cannot fail.
    let _ = unsafe { syscall0(u64::from(nr::__NR_munlockall)) };
}
