//! What reaped children have cost.

use std::time::Duration;

/// Words of `struct rusage`.
const RUSAGE_WORDS: usize = 18;
const _: () = assert!(size_of::<libc::rusage>() == 8 * RUSAGE_WORDS);

/// CPU time of all children that were reaped so far, their own children included.
#[must_use]
pub fn children_cpu_time() -> Duration {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the place is a writable rusage, which is plain data and valid as zeros.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |it: libc::timeval| {
        let seconds = u64::try_from(it.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(it.tv_usec).unwrap_or(0))
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// CPU time of a process by the account that its `RLIMIT_CPU` is held against, which counts ticks
/// of the clock and can be far from the time that it has run; also of one that has ended, until it
/// is reaped. `None` if there is no such process.
#[must_use]
pub fn limited_cpu_time(pid: u32) -> Option<Duration> {
    // The kernel's number for the clock CPUCLOCK_PROF of a process.
    let clock = libc::clockid_t::try_from(pid).ok()?;
    let clock = !clock << 3;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the place is a writable timespec.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

/// The child that waiting for any would tell of next, and the words of its `struct rusage`; it is
/// not reaped. `None` if there is nothing to tell.
#[must_use]
pub fn next_usage() -> Option<(u32, [u64; RUSAGE_WORDS])> {
    let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = [0_u64; RUSAGE_WORDS];
    let options = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: both places are writable and as large as their structures; zeros are a valid siginfo.
    let info = unsafe {
        let result = libc::syscall(
            libc::SYS_waitid,
            libc::P_ALL,
            0,
            info.as_mut_ptr(),
            options,
            usage.as_mut_ptr(),
        );
        if result != 0 {
            return None;
        }
        info.assume_init()
    };
    // SAFETY: the kernel has filled it in for a child, or it is still zero.
    let pid = unsafe { info.si_pid() };
    u32::try_from(pid)
        .ok()
        .filter(|&pid| pid != 0)
        .map(|pid| (pid, usage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::in_child;

    #[test]
    fn reaping_a_child_that_computed_adds_to_it() {
        let before = children_cpu_time();
        let compute = || {
            let mut word = 1_u64;
            for _ in 0..50_000_000 {
                word = core::hint::black_box(word.wrapping_mul(3));
            }
            0
        };
        assert_eq!(in_child(compute).expect("forked"), Some(0));
        assert!(children_cpu_time() > before);
    }

    #[test]
    fn a_process_that_its_limit_ended_has_used_as_much_by_the_account_of_the_limit() {
        // SAFETY: the child makes nothing but calls that are safe after a fork, and computes.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let limit = libc::rlimit {
                rlim_cur: 1,
                rlim_max: 1,
            };
            // SAFETY: the place is a valid limit.
            unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) };
            loop {
                core::hint::spin_loop();
            }
        }
        let mut status = 0;
        let pid = u32::try_from(child).expect("forked");
        // SAFETY: siginfo is plain data, and valid as zeros.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the place is writable.
        unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, options) };
        let time = limited_cpu_time(pid);
        // SAFETY: the place is writable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        assert!(time >= Some(Duration::from_secs(1)), "{time:?}");
        assert_eq!(limited_cpu_time(pid), None);
    }
}
