//! Finds threads that compute and never give way, while others could run.
//!
//! Threads of a replicated program, and processes that share memory, take turns at system calls
//! only. One that loops until another has done something, without a call in the loop, keeps that
//! one from ever doing it. From outside this looks like a long computation, so the user is told,
//! once, and nothing is ended.

use std::time::Duration;

/// CPU time without a system call after which the user is told.
const LONG: Duration = Duration::from_secs(5);

const WARNING: &str = "a thread has computed for long without a system call while others could \
    run; threads, and processes that share memory, take turns at system calls only, so if it \
    waits for one of them in a loop, it waits for ever";

/// What the primary looks like from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// System calls and trapped instructions so far.
    pub(crate) calls: u64,
    /// Other threads could run, or other processes that share memory.
    pub(crate) held_up: bool,
    pub(crate) cpu_time: Duration,
}

/// Remembers when something last went on.
#[derive(Debug, Default)]
pub(crate) struct Spinning {
    calls: u64,
    since: Duration,
    told: bool,
}

impl Spinning {
    /// Compares with what was seen before; a warning if it is time for one.
    pub(crate) fn look(&mut self, seen: Seen) -> Option<&'static str> {
        if seen.calls != self.calls || !seen.held_up || seen.cpu_time < self.since {
            self.calls = seen.calls;
            self.since = seen.cpu_time;
            return None;
        }
        let due = !self.told && seen.cpu_time.saturating_sub(self.since) >= LONG;
        self.told |= due;
        due.then_some(WARNING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(calls: u64, held_up: bool, seconds: u64) -> Seen {
        Seen {
            calls,
            held_up,
            cpu_time: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn one_warning_after_long_computation_that_holds_up_others() {
        let mut spinning = Spinning::default();
        assert_eq!(spinning.look(seen(9, true, 1)), None);
        assert_eq!(spinning.look(seen(9, true, 5)), None);
        assert_eq!(spinning.look(seen(9, true, 6)), Some(WARNING));
        assert_eq!(spinning.look(seen(9, true, 60)), None);
    }

    #[test]
    fn calls_or_the_lack_of_others_are_no_reason() {
        let mut spinning = Spinning::default();
        for second in 0..20 {
            assert_eq!(spinning.look(seen(second, true, second)), None);
            assert_eq!(spinning.look(seen(99, false, second)), None);
        }
    }
}
