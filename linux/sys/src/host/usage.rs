//! What reaped children have cost.

use std::time::Duration;

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
}
