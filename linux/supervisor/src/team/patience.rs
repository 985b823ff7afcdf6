//! How long a late replica is waited for.

use std::time::{Duration, Instant};

use rcoe_linux_abi::{Look, Starvation};

use crate::group::Group;

/// Longest time between two looks that counts: whoever did not look meanwhile was stopped, and
/// perhaps so were those it waits for.
const GAP: Duration = Duration::from_millis(200);

/// A wait for a late replica, and what each replica did meanwhile.
#[derive(Debug)]
pub(crate) struct Patience {
    looked: Instant,
    waited: Duration,
    /// CPU time of each when the wait began, in ns.
    used: Vec<u64>,
    /// Calls and rendezvous of each then.
    done: Vec<u64>,
    starving: Vec<Starvation>,
}

impl Patience {
    /// Waiting begins; `done` is what each replica has done so far.
    pub(crate) fn new(group: &Group, done: Vec<u64>) -> Self {
        let looks = (0..done.len()).map(|index| group.look(index).unwrap_or_default());
        let looks = looks.collect::<Vec<_>>();
        Self {
            looked: Instant::now(),
            waited: Duration::ZERO,
            used: looks.iter().map(|look| look.used).collect(),
            done,
            starving: looks.iter().map(|&look| Starvation::new(look, 0)).collect(),
        }
    }

    /// Whether a late replica has had its time: its own CPU time, or much more on the wall, without
    /// what a replica had to wait for a CPU. One that is stopped uses no CPU and is not excused by
    /// that. Where one has failed the others need no more than that to fail alike, and may sleep
    /// while replicas of other processes wait for the one that never goes on.
    pub(crate) fn is_over(
        &mut self,
        group: &Group,
        is_stopped: impl Fn(usize) -> bool,
        has_failed: impl Fn(usize) -> bool,
        timeout: Duration,
        wall_cap: Duration,
    ) -> bool {
        let now = Instant::now();
        self.waited += now.duration_since(self.looked).min(GAP);
        self.looked = now;
        let waited = self.waited;
        let replicas = 0..self.used.len();
        let looks = replicas.map(|index| (index, group.look(index)));
        let used_up = looks.fold(false, |over, (index, look)| {
            let used = self.look(index, look, waited);
            over || used >= timeout || (is_stopped(index) && waited >= timeout)
        });
        let starved = self.starving.iter().map(Starvation::total).max();
        let starved = Duration::from_nanos(starved.unwrap_or(0));
        let failed = (0..self.used.len()).any(has_failed);
        let cap = if failed { timeout } else { wall_cap };
        used_up || waited.saturating_sub(starved) >= cap
    }

    /// Whether nothing shows that a replica got on since the wait began. Waiting costs a little CPU
    /// time, too.
    pub(crate) fn is_still(
        &self,
        group: &Group,
        index: usize,
        done: u64,
        timeout: Duration,
    ) -> bool {
        let used = group
            .look(index)
            .map_or(0, |look| look.used.saturating_sub(self.used[index]));
        done == self.done[index] && Duration::from_nanos(used) < timeout / 2
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
