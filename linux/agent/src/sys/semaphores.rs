//! System V semaphores.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::syscall4;

/// Operates on semaphores without waiting; 0 or a negative errno.
///
/// # Safety
/// The array must be the program's, or hold so many operations.
pub(crate) unsafe fn operate_now(id: u64, operations: u64, count: u64) -> i64 {
    let now = [0_u64; 2];
    let now = now.as_ptr() as u64;
    // SAFETY: forwarded from the caller.
    unsafe { syscall4(u64::from(nr::__NR_semtimedop), id, operations, count, now) }
}

/// Most operations of one call; 0 if the host does not tell.
pub(crate) fn most_operations() -> u64 {
    const IPC_INFO: u64 = 3;
    const OPERATIONS: usize = 6;
    let mut limits = [0_u32; 10];
    let at = limits.as_mut_ptr() as u64;
    // SAFETY: room for the structure.
    let result = unsafe { syscall4(u64::from(nr::__NR_semctl), 0, 0, IPC_INFO, at) };
    if result < 0 {
        0
    } else {
        limits[OPERATIONS].into()
    }
}

/// Semaphores in the set; 0 if the host does not tell.
pub(crate) fn count_of(id: u64) -> u64 {
    const IPC_STAT: u64 = 2;
    const COUNT: usize = 10;
    let mut set = [0_u64; 13];
    let at = set.as_mut_ptr() as u64;
    // SAFETY: room for the structure.
    let result = unsafe { syscall4(u64::from(nr::__NR_semctl), id, 0, IPC_STAT, at) };
    if result < 0 { 0 } else { set[COUNT] }
}
