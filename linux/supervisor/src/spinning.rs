//! Finds threads that compute and never give way, while others could run.
//!
//! Threads of a replicated program, and processes that share memory, take turns at system calls
//! only, unless there are points between them. One that loops until another has done something,
//! without a call in the loop, keeps that one from ever doing it. From outside this looks like a
//! long computation, so the user is told, once, and nothing is ended.

use std::time::Duration;

/// CPU time without a system call after which the user is told.
const LONG: Duration = Duration::from_secs(5);

const WARNING: &str = "a thread has computed for long without a system call while others could \
    run; with --slice off threads, and processes that share memory, take turns at system calls \
    only, so if it waits for one of them in a loop, it waits for ever";

/// Remembers when something last went on.
#[derive(Debug, Default)]
pub(crate) struct Spinning {
    /// System calls and trapped instructions of the primary then.
    calls: u64,
    /// CPU time of the primary when it was first seen to hold up others since.
    since: Option<Duration>,
    told: bool,
}

impl Spinning {
    /// Compares the primary's calls with what was seen before; a warning if it is time for one.
    /// `held_up`: other threads could run, or other processes that share memory. Its CPU time is
    /// asked for only then, since the kernel takes its time to tell.
    pub(crate) fn look(
        &mut self,
        calls: u64,
        held_up: bool,
        cpu_time: impl FnOnce() -> Duration,
    ) -> Option<&'static str> {
        if calls != self.calls || !held_up {
            self.calls = calls;
            self.since = None;
        }
        if !held_up {
            return None;
        }
        let cpu_time = cpu_time();
        // Another replica may be the primary since, and have used less.
        let since = self.since.filter(|&since| since <= cpu_time);
        let since = *self.since.insert(since.unwrap_or(cpu_time));
        let due = !self.told && cpu_time.saturating_sub(since) >= LONG;
        self.told |= due;
        due.then_some(WARNING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(
        spinning: &mut Spinning,
        calls: u64,
        held_up: bool,
        seconds: u64,
    ) -> Option<&'static str> {
        spinning.look(calls, held_up, || Duration::from_secs(seconds))
    }

    #[test]
    fn one_warning_after_long_computation_that_holds_up_others() {
        let mut spinning = Spinning::default();
        assert_eq!(look(&mut spinning, 9, true, 1), None);
        assert_eq!(look(&mut spinning, 9, true, 5), None);
        assert_eq!(look(&mut spinning, 9, true, 6), Some(WARNING));
        assert_eq!(look(&mut spinning, 9, true, 60), None);
    }

    #[test]
    fn calls_or_the_lack_of_others_are_no_reason() {
        let mut spinning = Spinning::default();
        for second in 0..20 {
            assert_eq!(look(&mut spinning, second, true, second), None);
            assert_eq!(look(&mut spinning, 99, false, second), None);
        }
    }

    #[test]
    fn time_before_others_could_run_does_not_count() {
        let mut spinning = Spinning::default();
        assert_eq!(look(&mut spinning, 9, false, 10), None);
        assert_eq!(look(&mut spinning, 9, true, 20), None);
        assert_eq!(look(&mut spinning, 9, true, 24), None);
        assert_eq!(look(&mut spinning, 9, true, 25), Some(WARNING));
    }

    #[test]
    fn a_successor_that_has_used_less_begins_anew() {
        let mut spinning = Spinning::default();
        assert_eq!(look(&mut spinning, 9, true, 20), None);
        assert_eq!(look(&mut spinning, 9, true, 3), None);
        assert_eq!(look(&mut spinning, 9, true, 8), Some(WARNING));
    }

    #[test]
    fn cpu_time_is_not_asked_for_without_need() {
        let asked = || unreachable!("nobody is held up");
        assert_eq!(Spinning::default().look(9, false, asked), None);
    }
}
