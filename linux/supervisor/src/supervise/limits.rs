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
/// Until one that was killed has come to its end, on a machine that is busy.
const DYING: Duration = Duration::from_secs(10);
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
        let began = Instant::now();
        loop {
            self.reaper.reap(&mut self.family.teams)?;
            let team = self.team(group);
            team.group.hear_of_ends(&team.memory);
            let fates = team.members().map(|index| team.group.fate(index));
            let fates = fates.collect::<Vec<_>>();
            let all = fates.iter().all(|fate| *fate == killed);
            let patience = match self.are_others_dying(group, killed) {
                true => DYING,
                false => AT_ONCE,
            };
            if all || !fates.contains(&killed) || began.elapsed() > patience {
                return Ok(all);
            }
            sleep(LOOK);
        }
    }

    /// Has somebody killed all those, too, that have not come to their end?
    fn are_others_dying(&mut self, group: usize, killed: Process) -> bool {
        let team = self.team(group);
        let others = team
            .members()
            .filter(|&index| team.group.fate(index) != killed);
        let pids: Vec<_> = others.map(|index| team.group.pid(index)).collect();
        pids.into_iter().all(|pid| pid.is_some_and(is_dying))
    }
}

/// Was this process killed, or does it end, and is not at its end? What ends it is known soon.
fn is_dying(pid: u32) -> bool {
    let page = |name| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    awaits_kill(&page("status")) || is_exiting(&page("stat"))
}

/// Is a process on its way out, by the kernel's flags in its `stat`?
fn is_exiting(stat: &str) -> bool {
    const EXITING: u64 = 4;
    // Behind the name, which may hold anything.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    let flags = rest.split_whitespace().nth(6).map(str::parse::<u64>);
    matches!(flags, Some(Ok(flags)) if flags & EXITING != 0)
}

/// Does what `/proc` tells of a process name SIGKILL among signals that wait for it?
fn awaits_kill(status: &str) -> bool {
    let of = |name: &str| {
        let mut lines = status.lines();
        let mask = lines.find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let bit = 1 << (SIGKILL - 1);
    ["SigPnd:", "ShdPnd:"]
        .into_iter()
        .filter_map(of)
        .any(|mask| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_killed_and_has_not_ended_is_known_by_its_signals() {
        let status = |own: &str, shared: &str| {
            format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0000000000000100\n")
        };
        let [none, kill] = ["0000000000000000", "0000000000000100"];
        assert!(awaits_kill(&status(kill, none)));
        assert!(awaits_kill(&status(none, kill)));
        assert!(!awaits_kill(&status(none, none)));
        assert!(!awaits_kill(&status("0000000000004000", none)));
        assert!(!awaits_kill(""));
        assert!(!is_dying(std::process::id()));
    }

    #[test]
    fn who_ends_is_known_by_the_kernels_flags() {
        let stat = |flags: u32| format!("7 (a) b) R 1 7 7 0 -1 {flags} 0 0");
        assert!(is_exiting(&stat(0x40_0104)));
        assert!(!is_exiting(&stat(0x40_0100)));
        assert!(!is_exiting(""));
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = child.id();
        // Not reaped, so its flags can still be read.
        let mut looks = (0..10_000).map(|_| sleep(LOOK));
        assert!(looks.any(|()| is_dying(pid)));
        child.wait().expect("its end");
    }
}
