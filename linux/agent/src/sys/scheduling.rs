//! Where and how this process runs on the host.

use core::mem::MaybeUninit;

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall0, syscall3, syscall4};

use crate::sys::getpid;

/// The kernel's `struct sched_attr` of 48 bytes, which every kernel since 3.14 takes.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Pins this process to these CPUs.
pub(crate) fn pin(cpus: impl Iterator<Item = u32>) {
    let mut mask = [0_u64; 16];
    for cpu in cpus {
        if let Some(word) = mask.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    if mask.iter().any(|word| *word != 0) {
        let bytes = size_of_val(&mask) as u64;
        // SAFETY: the mask is valid for `bytes`. Pinning is advice: it may be refused.
        let _ = unsafe {
            syscall3(
                u64::from(nr::__NR_sched_setaffinity),
                0,
                bytes,
                mask.as_ptr() as u64,
            )
        };
    }
}

/// Asks the host for short turns on the CPU, and so for early ones: a replica that was woken need
/// not wait until whoever computes has used up a long turn. Its share of the CPU stays the same.
/// Kernels before 6.12 take no notice, and those who may not ask are left as they are.
pub(crate) fn prefer_short_turns(turn_ns: u64) {
    let mut room = MaybeUninit::<Attributes>::uninit();
    let at = room.as_mut_ptr() as u64;
    let size = size_of::<Attributes>() as u64;
    // SAFETY: there is room for `size` bytes.
    let got = unsafe { syscall4(u64::from(nr::__NR_sched_getattr), 0, at, size, 0) };
    if got == 0 {
        // SAFETY: the kernel has filled all of the structure, in which every value is valid.
        let attributes = unsafe { room.assume_init_mut() };
        attributes.runtime = turn_ns;
        let at = core::ptr::from_mut(attributes) as u64;
        // SAFETY: the structure says its size itself.
        let _ = unsafe { syscall3(u64::from(nr::__NR_sched_setattr), 0, at, 0) };
    }
}

/// Has this process such a thread, by the host's number?
pub(crate) fn has_thread(thread: u64) -> bool {
    let nothing = 0;
    // SAFETY: no signal is sent.
    let found = unsafe {
        syscall3(
            u64::from(nr::__NR_tgkill),
            u64::from(getpid()),
            thread,
            nothing,
        )
    };
    found == 0
}

/// Gives up the CPU.
pub(crate) fn sched_yield() {
    // SAFETY: no arguments.
    unsafe { syscall0(u64::from(nr::__NR_sched_yield)) };
}

/// Registers a structure of `bytes` bytes for restartable sequences; false if the kernel refuses.
pub(crate) fn register_rseq(area: u64, bytes: usize, signature: u32) -> bool {
    let (bytes, signature) = (bytes as u64, u64::from(signature));
    // SAFETY: the kernel writes to the structure only, which the caller keeps for good.
    let done = unsafe { syscall4(u64::from(nr::__NR_rseq), area, bytes, 0, signature) };
    done == 0
}
