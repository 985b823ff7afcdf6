//! System calls with which a replica looks at memory, its own or another process's, from outside.

use linux_raw_sys::errno::{EBUSY, EPERM};
use linux_raw_sys::general as nr;
use linux_raw_sys::prctl::{PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_PTRACER};
use rcoe_linux_sys::{syscall3, syscall4, syscall6};

use crate::sys::credentials::with_all_permitted;
use crate::sys::prctl;

/// Runs `body` with as many descriptors as the hard limit allows.
pub(crate) fn with_most_descriptors<T>(body: impl FnOnce() -> T) -> T {
    let limit = |new: *const [u64; 2], old: *mut [u64; 2]| {
        // SAFETY: each is null or a struct rlimit64.
        let _ = unsafe {
            syscall4(
                u64::from(nr::__NR_prlimit64),
                0,
                u64::from(nr::RLIMIT_NOFILE),
                new as u64,
                old as u64,
            )
        };
    };
    let mut old = [0; 2];
    limit(core::ptr::null(), &raw mut old);
    limit(&[old[1]; 2], core::ptr::null_mut());
    let result = body();
    limit(&raw const old, core::ptr::null_mut());
    result
}

/// Pages of this mapping of a file need not stay in memory; they are read again when they are
/// used. Memory that is locked stays.
///
/// # Safety
/// Nobody has written to the mapping: what was written is lost.
pub(crate) unsafe fn let_go(start: u64, len: u64) {
    let advice = u64::from(nr::MADV_DONTNEED);
    // SAFETY: the caller's promise.
    let _ = unsafe { syscall3(u64::from(nr::__NR_madvise), start, len, advice) };
}

/// Which pages are resident, from an address on, one a byte; the kernel's result.
pub(crate) fn resident(start: u64, told: &mut [u8]) -> i64 {
    let len = told.len() as u64 * 4096;
    // SAFETY: writes a byte for each page.
    unsafe {
        syscall3(
            u64::from(nr::__NR_mincore),
            start,
            len,
            told.as_mut_ptr() as u64,
        )
    }
}

/// Is a part of this memory locked? Changes nothing.
pub(crate) fn may_not_be_dropped(start: u64, len: u64) -> bool {
    let flags = u64::from(nr::MS_ASYNC | nr::MS_INVALIDATE);
    // SAFETY: the call takes numbers only.
    let result = unsafe { syscall3(u64::from(nr::__NR_msync), start, len, flags) };
    result == -i64::from(EBUSY)
}

/// Copies memory of another process; returns how many bytes could be read. A program that acts for
/// another user has capabilities that are not in effect, and that the host wants for this.
pub(crate) fn read_process(pid: u32, from: u64, buffer: &mut [u8]) -> usize {
    let mut read = read_as_allowed(pid, from, buffer);
    if read == -i64::from(EPERM) {
        read = with_all_permitted(|| read_as_allowed(pid, from, buffer));
    }
    usize::try_from(read).unwrap_or(0)
}

/// The same as this process may; what the host answers.
fn read_as_allowed(pid: u32, from: u64, buffer: &mut [u8]) -> i64 {
    let local = [buffer.as_mut_ptr() as u64, buffer.len() as u64];
    let remote = [from, buffer.len() as u64];
    // SAFETY: both are one struct iovec, and the local one names the buffer.
    unsafe {
        syscall6(
            u64::from(nr::__NR_process_vm_readv),
            [
                u64::from(pid),
                local.as_ptr() as u64,
                1,
                remote.as_ptr() as u64,
                1,
                0,
            ],
        )
    }
}

/// May others of the same user read this process's memory?
pub(crate) fn set_dumpable(dumpable: bool) {
    let _ = prctl(PR_SET_DUMPABLE, [u64::from(dumpable), 0, 0, 0]);
}

/// Lets the supervisor's other processes read this one's memory, where the host restricts that to
/// ancestors, or a change of user has closed it.
pub(crate) fn open_memory(supervisor: u32) {
    // A host without such restrictions does not know the call.
    let _ = prctl(PR_SET_PTRACER, [u64::from(supervisor), 0, 0, 0]);
    let _ = prctl(PR_SET_DUMPABLE, [1, 0, 0, 0]);
}

/// Runs `body` while siblings may read this process's memory.
pub(crate) fn with_open_memory<T>(supervisor: u32, body: impl FnOnce() -> T) -> T {
    let dumpable = prctl(PR_GET_DUMPABLE, [0; 4]).unwrap_or(1);
    open_memory(supervisor);
    let result = body();
    if dumpable != 1 {
        let _ = prctl(PR_SET_DUMPABLE, [0; 4]);
    }
    result
}

/// Runs `body` while this process may look at its own memory through `/proc`.
pub(crate) fn with_own_memory<T>(body: impl FnOnce() -> T) -> T {
    let dumpable = prctl(PR_GET_DUMPABLE, [0; 4]).unwrap_or(1);
    if dumpable == 1 {
        return body();
    }
    let _ = prctl(PR_SET_DUMPABLE, [1, 0, 0, 0]);
    let result = body();
    let _ = prctl(PR_SET_DUMPABLE, [0; 4]);
    result
}
