//! What this process is allowed, or made to do otherwise than others: `prctl`, `arch_prctl`.

use linux_raw_sys::general as nr;
use linux_raw_sys::prctl::PR_SET_SYSCALL_USER_DISPATCH;
use rcoe_linux_sys::{syscall2, syscall5};

use crate::sys::{Errno, check};

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;

/// `prctl` with up to four arguments.
pub(crate) fn prctl(option: u32, args: [u64; 4]) -> Result<u64, Errno> {
    // SAFETY: every use in the agent passes numbers or pointers that are valid for the option.
    check(unsafe {
        syscall5(
            u64::from(nr::__NR_prctl),
            u64::from(option),
            args[0],
            args[1],
            args[2],
            args[3],
        )
    })
}

/// Turns every system call from outside of this range into SIGSYS.
pub(crate) fn dispatch_outside(start: u64, len: u64) {
    const ON: u64 = 1;
    prctl(PR_SET_SYSCALL_USER_DISPATCH, [ON, start, len, 0])
        .expect("Linux 5.11 or later; `rcoe doctor` tells");
}

/// Lets `cpuid` through, or makes it fault, in this process.
///
/// # Errors
/// The machine cannot make it fault.
pub(crate) fn set_cpuid(enabled: bool) -> Result<(), Errno> {
    const ARCH_SET_CPUID: u64 = 0x1012;
    // SAFETY: changes an attribute of this process only.
    check(unsafe {
        syscall2(
            u64::from(nr::__NR_arch_prctl),
            ARCH_SET_CPUID,
            u64::from(enabled),
        )
    })
    .map(drop)
}

/// Sets the base of the `fs` segment.
pub(crate) fn set_thread_pointer(address: u64) {
    // SAFETY: the agent itself does not use the segment. A bad address is refused.
    let _ = unsafe { syscall2(u64::from(nr::__NR_arch_prctl), ARCH_SET_FS, address) };
}

/// The bases of the segments `fs` and `gs`, which are the program's.
pub(crate) fn segment_bases() -> [u64; 2] {
    let [mut fs, mut gs] = [0_u64; 2];
    segment_base(ARCH_GET_FS, (&raw mut fs) as u64);
    segment_base(ARCH_GET_GS, (&raw mut gs) as u64);
    [fs, gs]
}

/// Sets them.
pub(crate) fn set_segment_bases([fs, gs]: [u64; 2]) {
    segment_base(ARCH_SET_FS, fs);
    segment_base(ARCH_SET_GS, gs);
}

fn segment_base(code: u64, address: u64) {
    // SAFETY: reads to a word of the caller's, or sets a base of the program's; the agent itself
    // uses neither segment.
    let done = unsafe { syscall2(u64::from(nr::__NR_arch_prctl), code, address) };
    assert_eq!(done, 0, "a thread's own base can be read and written");
}
