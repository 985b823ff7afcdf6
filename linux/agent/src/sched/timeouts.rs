//! Times that a program waits for, as deadlines on one clock.
//!
//! The primary alone reads clocks. A deadline is monotonic time of its host; all replicas agree on
//! it when the wait begins.
//!
//! Not covered: a real-time clock that is set while somebody waits for a time on it.

use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sched::threads::NEVER;
use crate::sys;

const SECOND: u64 = 1_000_000_000;

/// A clock by the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clock(pub(crate) i32);

impl Clock {
    pub(crate) const REAL: Self = Self(0);
    pub(crate) const MONOTONIC: Self = Self(1);
}

/// A `timespec` of the program in nanoseconds; `None` if it is malformed.
pub(crate) fn timespec(address: u64) -> Result<Option<u64>, Fault> {
    let [seconds, nanoseconds] = guest::read::<[u64; 2]>(address)?;
    Ok(nanoseconds_of(seconds, nanoseconds, SECOND))
}

/// A `timeval` of the program in nanoseconds; `None` if it is malformed.
pub(crate) fn timeval(address: u64) -> Result<Option<u64>, Fault> {
    let [seconds, microseconds] = guest::read::<[u64; 2]>(address)?;
    // The kernel carries whole seconds over.
    let seconds = seconds.saturating_add(microseconds / 1_000_000);
    let nanoseconds = microseconds % 1_000_000 * 1000;
    Ok(nanoseconds_of(seconds, nanoseconds, SECOND))
}

fn nanoseconds_of(seconds: u64, rest: u64, limit: u64) -> Option<u64> {
    let positive = seconds.cast_signed() >= 0 && rest < limit;
    positive.then(|| {
        seconds
            .saturating_mul(SECOND)
            .saturating_add(rest)
            .min(NEVER - 1)
    })
}

/// The deadline that lies so many nanoseconds ahead.
pub(crate) fn after(kernel: &mut Kernel, duration: u64) -> u64 {
    transfer::agree(kernel, || {
        sys::monotonic().saturating_add(duration).min(NEVER - 1)
    })
}

/// The deadline when this clock shows that time; `None` if that is past.
pub(crate) fn at(kernel: &mut Kernel, clock: Clock, time: u64) -> Option<u64> {
    let deadline = transfer::agree(kernel, || {
        let Some(shown) = sys::clock(clock.0) else {
            return 0;
        };
        match time.checked_sub(shown) {
            None | Some(0) => 0,
            Some(left) => sys::monotonic().saturating_add(left).min(NEVER - 1),
        }
    });
    (deadline != 0).then_some(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_times_are_none() {
        assert_eq!(nanoseconds_of(1, 5, SECOND), Some(SECOND + 5));
        assert_eq!(nanoseconds_of(1, SECOND, SECOND), None);
        assert_eq!(nanoseconds_of(u64::MAX, 0, SECOND), None);
        let far = nanoseconds_of(u64::MAX / 2, 0, SECOND).expect("well-formed");
        assert!(far < NEVER);
    }

    #[test]
    fn a_timeval_carries_over() {
        let value = [1_u64, 2_500_000];
        let read = timeval(value.as_ptr() as u64);
        assert_eq!(read, Ok(Some(3 * SECOND + SECOND / 2)));
    }
}
