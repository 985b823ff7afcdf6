//! Where and how this process runs on the host.

use core::mem::MaybeUninit;
use core::ops::RangeInclusive;

use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall0, syscall1, syscall3, syscall4};

use crate::sys::getpid;

/// How long a replica's turns on its CPU are, in nanoseconds, where others want it too: the least
/// that the kernel grants. What its siblings wait for takes less.
pub(crate) const TURN_NS: u64 = 100_000;

/// The kernel's `struct sched_attr` of 48 bytes, which every kernel since 3.14 takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    nice: i32,
    priority: u32,
    /// How long a turn is, if the policy is a fair one and the kernel knows that (6.12).
    pub(crate) runtime: u64,
    deadline: u64,
    period: u64,
}

impl Attributes {
    /// Those of a process of the host, or of this one if the number is 0.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let mut room = MaybeUninit::<Self>::uninit();
        let at = room.as_mut_ptr() as u64;
        let size = size_of::<Self>() as u64;
        let nr = u64::from(nr::__NR_sched_getattr);
        // SAFETY: there is room for `size` bytes.
        let got = unsafe { syscall4(nr, pid.into(), at, size, 0) };
        // SAFETY: the kernel has filled all of the structure, in which every value is valid.
        (got == 0).then(|| unsafe { room.assume_init() })
    }

    /// Gives them to this process, as far as it may have them.
    pub(crate) fn take(&self) {
        let at = core::ptr::from_ref(self) as u64;
        // SAFETY: the structure says its size itself.
        let _ = unsafe { syscall3(u64::from(nr::__NR_sched_setattr), 0, at, 0) };
    }
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
pub(crate) fn prefer_short_turns() {
    if let Some(mut own) = Attributes::of(0) {
        own.runtime = TURN_NS;
        own.take();
    }
}

/// May this process schedule another one, or a thread, otherwise? There is no CPU that it is asked
/// to run on: who may ask for that is told so, and nothing changes.
///
/// # Errors
/// What the host says instead.
pub(crate) fn may_schedule(process: u32) -> Result<(), u32> {
    let nowhere = 0_u64;
    let bytes = size_of_val(&nowhere) as u64;
    let at = (&raw const nowhere) as u64;
    let nr = u64::from(nr::__NR_sched_setaffinity);
    // SAFETY: the mask is valid for `bytes`.
    let said = unsafe { syscall3(nr, process.into(), bytes, at) };
    match u32::try_from(-said) {
        Ok(EINVAL) => Ok(()),
        Ok(errno) => Err(errno),
        Err(_) => unreachable!("no process runs nowhere"),
    }
}

/// Priorities that this policy has; `None` if the host does not know it.
pub(crate) fn priorities(policy: u32) -> Option<RangeInclusive<i64>> {
    let ask = |nr: u32| {
        // SAFETY: a number only.
        unsafe { syscall1(nr.into(), policy.into()) }
    };
    match ask(nr::__NR_sched_get_priority_max) {
        most @ 0.. => Some(ask(nr::__NR_sched_get_priority_min)..=most),
        _ => None,
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
