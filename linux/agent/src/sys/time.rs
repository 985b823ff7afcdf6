//! Clocks, and the timers that every process has.

use linux_raw_sys::general as nr;
use rcoe_linux_sys::{syscall2, syscall3};

use crate::sys::check;

/// The call that reads a clock.
pub(crate) const CLOCK_GETTIME: u64 = nr::__NR_clock_gettime as u64;

/// Nanoseconds on a clock.
pub(crate) fn clock(id: i32) -> Option<u64> {
    let mut time = [0_i64; 2];
    let id = i64::from(id).cast_unsigned();
    // SAFETY: the result buffer is a timespec.
    let ret = unsafe { syscall2(CLOCK_GETTIME, id, time.as_mut_ptr() as u64) };
    check(ret).ok()?;
    Some(
        time[0]
            .cast_unsigned()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(time[1].cast_unsigned()),
    )
}

/// Time of day in nanoseconds, as files are stamped with it.
pub(crate) fn coarse_real_time() -> Option<u64> {
    clock(5)
}

/// CPU time of a process in nanoseconds; `None` if it is gone.
pub(crate) fn cpu_time(pid: u32) -> Option<u64> {
    // MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel's posix-timers interface.
    clock((!pid.cast_signed() << 3) | 2)
}

/// Monotonic time in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    clock(1).expect("CLOCK_MONOTONIC always works")
}

/// One of the timers that every process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum HostTimer {
    Real = 0,
    Virtual = 1,
    Prof = 2,
}

/// Sets a timer of this process to so many nanoseconds, and then again and again; 0 stops it.
pub(crate) fn set_timer(timer: HostTimer, nanoseconds: u64, again: u64) {
    let part = |time: u64| [time / 1_000_000_000, time % 1_000_000_000 / 1000];
    let again = if nanoseconds == 0 { 0 } else { again };
    let [[a, b], [c, d]] = [part(again), part(nanoseconds)];
    let setting = [a, b, c, d];
    // SAFETY: the setting is a whole itimerval.
    let done = unsafe {
        syscall3(
            u64::from(nr::__NR_setitimer),
            timer as u64,
            setting.as_ptr() as u64,
            0,
        )
    };
    check(done).expect("a valid time");
}
