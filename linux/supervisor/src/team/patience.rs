//! How long a late replica is waited for.

use std::time::{Duration, Instant};

use rcoe_linux_abi::{Look, Starvation};

use crate::group::Group;

/// A wait for a late replica, and what each replica did meanwhile.
#[derive(Debug)]
pub(crate) struct Patience {
    since: Instant,
    /// CPU time of each when the wait began, in ns.
    used: Vec<u64>,
    starving: Vec<Starvation>,
}

impl Patience {
    /// Waiting begins.
    pub(crate) fn new(group: &Group, replicas: usize) -> Self {
        let looks = (0..replicas).map(|index| group.look(index).unwrap_or_default());
        let looks = looks.collect::<Vec<_>>();
        Self {
            since: Instant::now(),
            used: looks.iter().map(|look| look.used).collect(),
            starving: looks.iter().map(|&look| Starvation::new(look, 0)).collect(),
        }
    }

    /// Whether a late replica has had its time: its own CPU time, or much more on the wall, without
    /// what a replica had to wait for a CPU. One that is stopped uses no CPU and is not excused by
    /// that.
    pub(crate) fn is_over(
        &mut self,
        group: &Group,
        is_stopped: impl Fn(usize) -> bool,
        timeout: Duration,
        wall_cap: Duration,
    ) -> bool {
        let waited = self.since.elapsed();
        let replicas = 0..self.used.len();
        let looks = replicas.map(|index| (index, group.look(index)));
        let used_up = looks.fold(false, |over, (index, look)| {
            let used = self.look(index, look, waited);
            over || used >= timeout || (is_stopped(index) && waited >= timeout)
        });
        let starved = self.starving.iter().map(Starvation::total).max();
        let starved = Duration::from_nanos(starved.unwrap_or(0));
        used_up || waited.saturating_sub(starved) >= wall_cap
    }

    /// Notes a look at a replica; returns the CPU time that it has used since the wait began.
    fn look(&mut self, index: usize, look: Option<Look>, waited: Duration) -> Duration {
        let Some(look) = look else {
            return Duration::ZERO;
        };
        let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.starving[index].look(look, waited);
        Duration::from_nanos(look.used.saturating_sub(self.used[index]))
    }
}
