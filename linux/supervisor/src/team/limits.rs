//! A process and its limit on CPU time.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rcoe_linux_abi::Phase;
use rcoe_linux_abi::limits::{CPU, NOFILE, UNLIMITED};
use rustix::process::{Resource, getrlimit};

use super::{State, Team};
use crate::cpu_limit::{Due, is_hosts_end};
use crate::group::phase;

impl Team {
    /// The soft and the hard limit, if there is a soft one.
    fn cpu_limits(&self) -> Option<[u64; 2]> {
        let primary = self.primary().filter(|_| self.state == State::Living)?;
        let started = phase(&self.memory, primary) == Some(Phase::Running);
        let limits = &self.memory.report(primary).limits;
        let told = limits[NOFILE][1].load(Relaxed) != 0;
        let limit = limits[CPU].each_ref().map(|cell| cell.load(Relaxed));
        (started && told && limit[0] != UNLIMITED).then_some(limit)
    }

    /// When the time can be over at the earliest.
    pub(crate) fn cpu_limit_alarm(&self) -> Option<Duration> {
        let [soft, _] = self.cpu_limits()?;
        let waits = !self.is_stopped() && !self.cpu_limit.is_due(soft);
        waits.then(|| self.cpu_limit.alarm())?
    }

    /// Looks whether the time is over.
    pub(crate) fn look_at_cpu_limit(&mut self) -> Option<Due> {
        let Some(limits) = self.cpu_limits() else {
            self.cpu_limit.forget();
            return None;
        };
        if !self.cpu_limit.is_due(limits[0]) {
            return None;
        }
        let time = |index: usize| {
            let pid = self.group.pid(index).filter(|_| !self.removed[index])?;
            Some((pid, self.group.cpu_time(index)?))
        };
        let times = (0..self.removed.len()).map(time).collect::<Vec<_>>();
        self.cpu_limit.look(&times, limits)
    }

    /// Whether the host has ended a replica because its CPU time was over: all are to end so.
    pub(crate) fn met_its_hard_limit(&self) -> bool {
        let Some([_, own]) = self.cpu_limits() else {
            return false;
        };
        let hosts = getrlimit(Resource::Cpu).maximum;
        self.members().any(|index| {
            let time = || self.group.limited_time(index);
            is_hosts_end(self.group.fate(index), own, hosts, time)
        })
    }
}
