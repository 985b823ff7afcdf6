//! How long a process could have run and was given no CPU.
//!
//! The host's scheduler tells in `/proc/PID/schedstat` how long a process ran and how long it
//! waited for a CPU, but adds the latter only when the process gets one: of a process that gets
//! none at all it says nothing for seconds. Such a one is recognised by what cannot change without
//! running: it is runnable at two looks and has used no time in between, so it waited all along.
//!
//! Not covered: what passes between the last look at which a process slept and the next one.

/// What the host tells of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Time on a CPU since it began, in ns.
    pub used: u64,
    /// Time waiting for one, as far as counted yet, in ns.
    pub queued: u64,
    /// Whether it runs or could.
    pub runnable: bool,
}

impl Look {
    /// Reads the two files `/proc/PID/schedstat` and `/proc/PID/stat`.
    #[must_use]
    pub fn parse(schedstat: &[u8], stat: &[u8]) -> Option<Self> {
        let mut numbers = core::str::from_utf8(schedstat)
            .ok()?
            .split_ascii_whitespace();
        let mut next = || numbers.next()?.parse().ok();
        // The name before the state may hold anything, parentheses too.
        let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
        Some(Self {
            used: next()?,
            queued: next()?,
            runnable: stat.get(name_ends + 2) == Some(&b'R'),
        })
    }
}

/// How long a process was without a CPU since looking began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Starvation {
    first: Look,
    last: Look,
    /// When it was first seen as it was last.
    since: u64,
    now: u64,
}

impl Starvation {
    /// Looking begins at a time in ns of a steady clock.
    #[must_use]
    pub const fn new(look: Look, now: u64) -> Self {
        Self {
            first: look,
            last: look,
            since: now,
            now,
        }
    }

    /// Looks once more.
    pub fn look(&mut self, look: Look, now: u64) {
        if look != self.last {
            self.last = look;
            self.since = now;
        }
        self.now = now;
    }

    /// Time without a CPU between the first and the last look, in ns.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let counted = self.last.queued.saturating_sub(self.first.queued);
        if self.last.runnable {
            counted.saturating_add(self.now.saturating_sub(self.since))
        } else {
            counted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(used: u64, queued: u64, runnable: bool) -> Look {
        Look {
            used,
            queued,
            runnable,
        }
    }

    #[test]
    fn both_files_are_read() {
        let stat = b"17 (a) R b)) R 1 17 17 0";
        assert_eq!(Look::parse(b"7 9 2\n", stat), Some(look(7, 9, true)));
        let stat = b"17 (R) S 1 17 17 0";
        assert_eq!(Look::parse(b"7 9 2\n", stat), Some(look(7, 9, false)));
        assert_eq!(Look::parse(b"7", stat), None);
        assert_eq!(Look::parse(b"7 9 2", b""), None);
    }

    #[test]
    fn one_that_never_gets_a_cpu_waits_all_the_time() {
        let mut it = Starvation::new(look(5, 1, true), 100);
        it.look(look(5, 1, true), 250);
        assert_eq!(it.total(), 150);
        // What the host counts when it runs at last is not counted twice.
        it.look(look(6, 201, true), 300);
        assert_eq!(it.total(), 200);
    }

    #[test]
    fn one_that_runs_or_sleeps_does_not_wait() {
        let mut it = Starvation::new(look(5, 1, true), 100);
        it.look(look(90, 1, true), 200);
        it.look(look(190, 1, true), 300);
        assert_eq!(it.total(), 0);
        it.look(look(190, 1, false), 400);
        it.look(look(190, 1, false), 500);
        assert_eq!(it.total(), 0);
    }
}
