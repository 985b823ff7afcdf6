//! Replicas as processes of the host: made, named, and ended with their supervisor.

use linux_raw_sys::general as nr;
use linux_raw_sys::prctl::{PR_GET_NAME, PR_SET_NAME, PR_SET_PDEATHSIG};
use rcoe_linux_abi::LastWill;
use rcoe_linux_sys::{syscall0, syscall1, syscall2, syscall5};

use crate::sys::{Errno, check, prctl};

/// The calls by which threads are made and end.
pub(crate) const CLONE: u32 = nr::__NR_clone;
pub(crate) const EXIT: u32 = nr::__NR_exit;

/// This process's id in the host.
pub(crate) fn getpid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { syscall0(u64::from(nr::__NR_getpid)) };
    u32::try_from(pid).expect("process ids are positive")
}

/// The parent's id in the host.
fn getppid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { syscall0(u64::from(nr::__NR_getppid)) };
    u32::try_from(pid).expect("process ids are positive")
}

/// Ends the process.
pub(crate) fn exit_group(status: u8) -> ! {
    loop {
        // SAFETY: ends everything.
        unsafe { syscall1(u64::from(nr::__NR_exit_group), u64::from(status)) };
    }
}

/// Clones this process as a replica: separate memory, the same parent, and shared what the host
/// keeps for the program: descriptors, file system state, what semaphores get back at its end.
/// Returns 0 in the new replica.
///
/// # Errors
/// The host has no room for another process.
pub(crate) fn clone_replica() -> Result<u64, Errno> {
    clone_with(nr::CLONE_SYSVSEM)
}

/// The same of a twin, whose end is none of the program's business.
///
/// # Errors
/// The host has no room for another process.
pub(crate) fn clone_twin() -> Result<u64, Errno> {
    clone_with(0)
}

fn clone_with(more: u32) -> Result<u64, Errno> {
    let flags = nr::CLONE_FILES | nr::CLONE_FS | nr::CLONE_PARENT | more | nr::SIGCHLD;
    let flags = u64::from(flags);
    // SAFETY: as fork: no stack is given, so the child goes on with a copy of this one.
    let ret = unsafe { syscall5(u64::from(CLONE), flags, 0, 0, 0, 0) };
    check(ret)
}

/// Forks this process: separate memory, a copy of the table of descriptors and of the file system
/// state, the same parent. Returns 0 in the child.
///
/// # Errors
/// The host has no room for another process.
pub(crate) fn fork_replica() -> Result<u64, Errno> {
    let flags = u64::from(nr::CLONE_PARENT | nr::SIGCHLD);
    // SAFETY: as fork: no stack is given, so the child goes on with a copy of this one.
    check(unsafe { syscall5(u64::from(CLONE), flags, 0, 0, 0, 0) })
}

/// Makes this process die with its parent, which must be `supervisor`.
pub(crate) fn die_with_supervisor(supervisor: u32) {
    prctl(PR_SET_PDEATHSIG, [nr::SIGKILL.into(), 0, 0, 0]).expect("every kernel can do this");
    leave_if_orphaned(supervisor);
}

/// Ends this process if its parent, which was `supervisor`, is gone.
pub(crate) fn leave_if_orphaned(supervisor: u32) {
    if getppid() != supervisor {
        exit_group(1);
    }
}

/// Has the kernel go through this list when the process begins to end.
pub(crate) fn set_robust_list(will: &LastWill) {
    let head = &raw const will.head;
    // SAFETY: the list lies in this replica's region, which stays mapped and writable for it. On a
    // kernel without such lists its end is heard of later.
    unsafe {
        syscall2(
            u64::from(nr::__NR_set_robust_list),
            head as u64,
            size_of_val(&will.head) as u64,
        )
    };
}

/// Sets the process's short name from a NUL-terminated string.
pub(crate) fn set_name(name: &[u8]) {
    assert_eq!(name.last(), Some(&0), "the kernel needs a terminated name");
    // Only a label: failure does not matter.
    let _ = prctl(PR_SET_NAME, [name.as_ptr() as u64, 0, 0, 0]);
}

/// The process's short name, as it is in all replicas alike.
pub(crate) fn name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: the name has room for what the kernel writes.
    let _ = prctl(PR_GET_NAME, [name.as_mut_ptr() as u64, 0, 0, 0]);
    name
}
