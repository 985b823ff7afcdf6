//! For how long calls wait, and what they are told is left of that.

use rcoe_linux_syscalls::{Special, Time, Waits};

use crate::calls::{Call, PARKED};
use crate::convert::low32;
use crate::kernel::Kernel;
use crate::memory::guest::{self, Fault};
use crate::protocol::transfer;
use crate::sched::blocking::manner;
use crate::sched::threads::{Cause, NEVER};
use crate::sched::timeouts;
use crate::sys;
use crate::sys::sockets::socket_timeout;

/// All replicas: when the call that begins to wait is over, by the time that it or its socket sets.
pub(super) fn deadline(kernel: &mut Kernel, call: &Call) -> u64 {
    match manner(call) {
        Waits::Poll | Waits::Select | Waits::Epoll | Waits::Semaphores => match duration(call) {
            Ok(Some(duration)) => {
                let begun = kernel.begun.take();
                transfer::agree(kernel, || {
                    let begun = begun.unwrap_or_else(sys::monotonic);
                    begun.saturating_add(duration).min(NEVER - 1)
                })
            }
            _ => NEVER,
        },
        Waits::MailOut | Waits::MailIn => match timeouts::timespec(call.arg(4)) {
            _ if call.arg(4) == 0 => NEVER,
            // One that is past is over at the next look.
            Ok(Some(time)) => timeouts::at(kernel, timeouts::Clock::REAL, time).unwrap_or(1),
            _ => NEVER,
        },
        manner => {
            let sends = matches!(manner, Waits::Write | Waits::Send(_) | Waits::Connect);
            let fd = call.arg(0);
            transfer::agree(kernel, || match socket_timeout(fd, sends) {
                0 => NEVER,
                duration => sys::monotonic().saturating_add(duration).min(NEVER - 1),
            })
        }
    }
}

/// Where a call is told what is left of its time.
#[derive(Clone, Copy)]
pub(crate) struct Rest {
    pub(crate) argument: usize,
    pub(crate) address: u64,
    /// Nanoseconds in the smaller part of the structure.
    unit: u64,
}

/// Where the call, if it says so, is told what is left of its time.
pub(crate) fn rest_of_time(call: &Call) -> Option<Rest> {
    let (argument, unit) = match call.what.facts.time {
        Time::TimevalRest(time) => (usize::from(time), 1000),
        Time::TimespecRest(time) => (usize::from(time), 1),
        Time::None | Time::Milliseconds(_) | Time::Timespec(_) => return None,
    };
    let address = call.arg(argument);
    (address != 0).then_some(Rest {
        argument,
        address,
        unit,
    })
}

/// All replicas, at the end of a call that was parked: writes what is left of its time.
pub(crate) fn tell_rest(kernel: &mut Kernel, call: &Call) {
    const SECOND: u64 = 1_000_000_000;
    let wait = kernel.threads.current().wait;
    if wait.parked
        && wait.deadline != NEVER
        && let Some(rest) = rest_of_time(call)
    {
        let now = transfer::agree(kernel, sys::monotonic);
        let left = wait.deadline.saturating_sub(now);
        let time = [left / SECOND, left % SECOND / rest.unit];
        // As in the kernel, a place that cannot be written is no error.
        let _ = guest::write(rest.address, &time);
    }
}

/// Does the call wait for many, and not for ever?
pub(crate) fn is_timed(call: &Call) -> bool {
    let waits = matches!(
        manner(call),
        Waits::Poll | Waits::Select | Waits::Epoll | Waits::Semaphores
    );
    waits && matches!(duration(call), Ok(Some(1..)))
}

/// How long a call that waits for many waits at most; `None` for ever. An error if its own time is
/// malformed: the kernel then says so.
pub(super) fn duration(call: &Call) -> Result<Option<u64>, Fault> {
    let milliseconds = |value: u64| {
        let value = low32(value).cast_signed();
        u64::try_from(value).ok().map(|value| value * 1_000_000)
    };
    let arg = |index: u8| call.arg(usize::from(index));
    let time = match call.what.facts.time {
        Time::None => return Ok(None),
        Time::Milliseconds(time) => return Ok(milliseconds(arg(time))),
        Time::Timespec(time) | Time::TimespecRest(time) => (arg(time), false),
        Time::TimevalRest(time) => (arg(time), true),
    };
    let read = match time {
        (0, _) => return Ok(None),
        (address, true) => timeouts::timeval(address)?,
        (address, false) => timeouts::timespec(address)?,
    };
    read.map(Some).ok_or(Fault)
}

/// `nanosleep` and `clock_nanosleep`; `None` to make the call as it is.
pub(crate) fn sleep(kernel: &mut Kernel, call: &Call) -> Option<i64> {
    use timeouts::Clock;
    const TIMER_ABSTIME: u64 = 1;
    let (clock, absolute, time) = match call.what.special {
        Special::Nanosleep => (0, false, call.arg(0)),
        Special::ClockNanosleep => {
            let clock = low32(call.arg(0)).cast_signed();
            (clock, call.arg(1) & TIMER_ABSTIME != 0, call.arg(2))
        }
        _ => return None,
    };
    // Not the clocks that count CPU time.
    if ![0, 1, 7, 8, 9, 11].contains(&clock) {
        return None;
    }
    let time = timeouts::timespec(time).ok()??;
    let deadline = if absolute {
        timeouts::at(kernel, Clock(clock), time)
    } else {
        Some(timeouts::after(kernel, time))
    };
    let Some(deadline) = deadline else {
        return Some(0);
    };
    kernel.threads.park(Cause::Time, deadline);
    Some(PARKED)
}
