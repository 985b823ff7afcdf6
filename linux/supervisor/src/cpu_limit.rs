//! The limit on a process's CPU time (`RLIMIT_CPU`).
//!
//! What the kernel does for a process the supervisor does for a group: SIGXCPU at the soft limit
//! and at each second from there on, SIGKILL at the hard one. The signals go the way of all others,
//! so a default action also ends a program that makes no call, in all replicas alike. The host's
//! own limit stays at the hard one that rcoe was started with, and the host ends any replica that
//! meets it. That is the program's end where its own hard limit is the same one.
//!
//! The group's time is that of the replica that has used most, between two looks each.

use std::time::{Duration, Instant};

use rcoe_linux_abi::limits::UNLIMITED;

use crate::judge::Process;
use crate::numbers::SIGKILL;

/// How the end of the time shows in advance: one that computes needs at least as long.
const SOONEST: Duration = Duration::from_millis(1);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// SIGXCPU.
    Warning,
    /// SIGKILL.
    End,
}

/// What a group has used, and of what it was told.
#[derive(Debug, Default)]
pub(crate) struct CpuLimit {
    used: Duration,
    /// What was last seen of each replica: its process and that one's time.
    seen: Vec<(u32, Duration)>,
    /// The soft limit in whole seconds when it was last looked at, and the next one to tell of.
    next: Option<[u64; 2]>,
    /// When the time can be over at the earliest.
    alarm: Option<Instant>,
}

impl CpuLimit {
    /// How long it takes at least until there is something to do.
    pub(crate) fn alarm(&self) -> Option<Duration> {
        let alarm = self.alarm?;
        Some(alarm.saturating_duration_since(Instant::now()))
    }

    /// Is it time to look, if this is the soft limit?
    pub(crate) fn is_due(&self, soft: u64) -> bool {
        let changed = self
            .next
            .is_none_or(|[known, next]| soft != known && soft != next);
        soft != UNLIMITED && (changed || self.alarm().is_none_or(|left| left.is_zero()))
    }

    /// There is no limit.
    pub(crate) fn forget(&mut self) {
        self.next = None;
        self.alarm = None;
    }

    /// Looks at what the living replicas, by their places, have used.
    pub(crate) fn look(
        &mut self,
        times: &[Option<(u32, Duration)>],
        [soft, hard]: [u64; 2],
    ) -> Option<Due> {
        self.count(times);
        let next = match self.next {
            Some([known, next]) if soft == known || soft == next => next,
            _ => soft,
        };
        self.next = Some([soft, next]);
        let is_over = |limit: u64| limit != UNLIMITED && self.used >= Duration::from_secs(limit);
        // Both at once: the soft limit is told of only where it is the lower one.
        let due = if is_over(hard) && (next >= hard || next > soft) {
            Some(Due::End)
        } else if is_over(next) {
            self.next = Some([soft, next + 1]);
            Some(Due::Warning)
        } else {
            None
        };
        let least = self.next.map_or(soft, |[_, next]| next).min(hard);
        let left = Duration::from_secs(least.min(u64::from(u32::MAX))).saturating_sub(self.used);
        self.alarm = Instant::now().checked_add(left.max(SOONEST));
        due
    }

    /// Adds what the one that has used most since the last look has used.
    fn count(&mut self, times: &[Option<(u32, Duration)>]) {
        self.seen.resize(times.len(), (0, Duration::ZERO));
        let mut most = Duration::ZERO;
        for (seen, now) in self.seen.iter_mut().zip(times) {
            let Some((pid, time)) = *now else { continue };
            let first = self.used.is_zero();
            let before = match *seen {
                (known, before) if known == pid => before,
                // A copy has not used what the group has.
                _ if first => Duration::ZERO,
                _ => time,
            };
            most = most.max(time.saturating_sub(before));
            *seen = (pid, time);
        }
        self.used += most;
    }
}

/// Whether a replica that ended like this met the program's hard limit (seconds), by the hand of
/// the host, whose limit for it this is. `time` is what counts for the host's limit; the kernel
/// ends nobody before.
pub(crate) fn is_hosts_end(
    fate: Process,
    own: u64,
    hosts: Option<u64>,
    time: impl FnOnce() -> Duration,
) -> bool {
    let same = hosts == Some(own);
    same && fate == Process::Killed(SIGKILL.cast_signed()) && time() >= Duration::from_secs(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_the_host_ends_at_the_programs_hard_limit_has_met_it() {
        let time = |millis| move || Duration::from_millis(millis);
        let killed = Process::Killed(SIGKILL.cast_signed());
        assert!(is_hosts_end(killed, 1, Some(1), time(1000)));
        assert!(is_hosts_end(killed, 1, Some(1), time(1004)));
        // Somebody else killed it before.
        assert!(!is_hosts_end(killed, 1, Some(1), time(999)));
        // The host's limit is not the program's, which the supervisor holds it against itself.
        assert!(!is_hosts_end(killed, 1, Some(2), time(2000)));
        assert!(!is_hosts_end(killed, 1, None, time(2000)));
        assert!(!is_hosts_end(killed, UNLIMITED, None, time(2000)));
        for other in [Process::Killed(24), Process::Exited(9), Process::Alive] {
            assert!(!is_hosts_end(other, 1, Some(1), time(1000)), "{other:?}");
        }
    }

    fn at(limit: &mut CpuLimit, millis: u64, limits: [u64; 2]) -> Option<Due> {
        limit.look(&[Some((7, Duration::from_millis(millis)))], limits)
    }

    #[test]
    fn it_warns_each_second_and_then_ends() {
        let mut limit = CpuLimit::default();
        let limits = [1, 3];
        assert_eq!(at(&mut limit, 900, limits), None);
        assert_eq!(at(&mut limit, 1000, limits), Some(Due::Warning));
        assert_eq!(at(&mut limit, 1900, limits), None);
        // The program has heard of it: its limit is a second further.
        assert_eq!(at(&mut limit, 2000, [2, 3]), Some(Due::Warning));
        assert_eq!(at(&mut limit, 2900, [3, 3]), None);
        assert_eq!(at(&mut limit, 3000, [3, 3]), Some(Due::End));
    }

    #[test]
    fn one_that_is_looked_at_late_is_warned_first_unless_both_limits_are_one() {
        let mut limit = CpuLimit::default();
        assert_eq!(at(&mut limit, 5000, [1, 3]), Some(Due::Warning));
        assert_eq!(at(&mut limit, 5000, [1, 3]), Some(Due::End));
        let mut limit = CpuLimit::default();
        assert_eq!(at(&mut limit, 5000, [3, 3]), Some(Due::End));
    }

    #[test]
    fn a_limit_that_is_set_anew_counts() {
        let mut limit = CpuLimit::default();
        assert_eq!(at(&mut limit, 1500, [1, UNLIMITED]), Some(Due::Warning));
        assert_eq!(at(&mut limit, 1600, [9, UNLIMITED]), None);
        assert!(limit.is_due(4));
        assert_eq!(at(&mut limit, 4600, [4, UNLIMITED]), Some(Due::Warning));
        assert_eq!(at(&mut limit, 4700, [4, UNLIMITED]), None);
    }

    #[test]
    fn copies_do_not_turn_the_time_back() {
        let seconds = Duration::from_secs;
        let mut limit = CpuLimit::default();
        let limits = [5, UNLIMITED];
        let both = |a, b| [Some((1, seconds(a))), Some((b, seconds(3)))];
        assert_eq!(limit.look(&both(3, 2), limits), None);
        // Another process has the second place; the first one is lost later.
        assert_eq!(limit.look(&both(4, 9), limits), None);
        assert_eq!(
            limit.look(&[None, Some((9, seconds(4)))], limits),
            Some(Due::Warning)
        );
    }
}
