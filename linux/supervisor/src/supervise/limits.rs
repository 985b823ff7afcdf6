//! Ends that are the program's own though the host or the supervisor brings them about.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rcoe_linux_abi::Ending;

use super::Run;
use crate::cpu_limit::Due;
use crate::error::RunError;
use crate::judge::{Decision, Process};
use crate::numbers::{SIGKILL, SIGXCPU};

/// Between the first and the last of the replicas that somebody kills at once.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

impl Run<'_> {
    /// Tells processes whose CPU time is over.
    pub(super) fn watch_limits(&mut self) {
        for group in self.family.groups() {
            let number = match self.team(group).look_at_cpu_limit() {
                None => continue,
                Some(Due::Warning) => SIGXCPU,
                Some(Due::End) => SIGKILL,
            };
            self.family.signal_from_kernel(group, number);
        }
    }

    /// A process all of whose replicas somebody kills (a host that has no memory left, whoever ends
    /// a control group) ends as it would without replicas, and nobody is at fault.
    pub(super) fn spare_the_killed(
        &mut self,
        group: usize,
        decision: Decision,
    ) -> Result<Decision, RunError> {
        let stops = matches!(decision, Decision::FailStop(..));
        Ok(if stops && self.are_all_killed(group)? {
            Decision::Finish(Ending::Signal((SIGKILL & 0x7f) as u8))
        } else {
            decision
        })
    }

    fn are_all_killed(&mut self, group: usize) -> Result<bool, RunError> {
        let killed = Process::Killed(SIGKILL.cast_signed());
        let deadline = Instant::now() + AT_ONCE;
        loop {
            self.reaper.reap(&mut self.family.teams)?;
            let team = self.team(group);
            team.group.hear_of_ends(&team.memory);
            let fates = team.members().map(|index| team.group.fate(index));
            let fates = fates.collect::<Vec<_>>();
            let all = fates.iter().all(|fate| *fate == killed);
            if all || !fates.contains(&killed) || Instant::now() > deadline {
                return Ok(all);
            }
            sleep(LOOK);
        }
    }
}
