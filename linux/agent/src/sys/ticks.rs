//! A timer of the host that signals this thread at intervals.

use linux_raw_sys::general as nr;
use linux_raw_sys::general::SIGEV_THREAD_ID;
use rcoe_linux_sys::{syscall0, syscall3, syscall4};

use crate::convert::low32;
use crate::sys::check;
use crate::sys::numbers::CLOCK_THREAD_CPUTIME_ID;

/// The kernel's `struct sigevent`.
#[repr(C)]
struct Event {
    value: u64,
    signal: u32,
    notify: u32,
    thread: u32,
    rest: [u32; 11],
}

const _: () = assert!(size_of::<Event>() == 64);

/// A timer that this process has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticker(u32);

impl Ticker {
    /// Makes one that does not run; `None` if the host refuses it.
    pub(crate) fn new(signal: u32) -> Option<Self> {
        const MONOTONIC: u64 = 1;
        Self::on(MONOTONIC, signal)
    }

    /// The same for CPU time of this thread.
    pub(crate) fn of_cpu_time(signal: u32) -> Option<Self> {
        Self::on(CLOCK_THREAD_CPUTIME_ID, signal)
    }

    fn on(clock: u64, signal: u32) -> Option<Self> {
        // SAFETY: no arguments.
        let thread = unsafe { syscall0(u64::from(nr::__NR_gettid)) };
        let event = Event {
            value: 0,
            signal,
            notify: SIGEV_THREAD_ID,
            thread: low32(thread.cast_unsigned()),
            rest: [0; 11],
        };
        let mut id = 0_u32;
        let (event, at) = ((&raw const event) as u64, (&raw mut id) as u64);
        // SAFETY: the event is whole, and there is room for the number.
        let made = unsafe { syscall3(u64::from(nr::__NR_timer_create), clock, event, at) };
        check(made).ok().map(|_| Self(id))
    }

    /// Lets it signal each time so many nanoseconds are over; 0 stops it.
    pub(crate) fn every(self, nanoseconds: u64) {
        const SECOND: u64 = 1_000_000_000;
        let [seconds, rest] = [nanoseconds / SECOND, nanoseconds % SECOND];
        let setting = [seconds, rest, seconds, rest];
        let at = setting.as_ptr() as u64;
        // SAFETY: the setting is a whole itimerspec.
        let done = unsafe {
            let settime = u64::from(nr::__NR_timer_settime);
            syscall4(settime, self.0.into(), 0, at, 0)
        };
        check(done).expect("the timer is this process's own");
    }
}
