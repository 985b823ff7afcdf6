//! Turns a fault of a replica into an entry of the ledger of cores, from what can be seen of it.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::events::DivergenceKind;
use crate::ledger::{
    Blame, Charge, Circumstances, Entry, host_name, judge_core, seconds_of, shortened,
};
use crate::settings::Settings;
use crate::team::Team;

/// The entry for a fault. To be asked before the replica is killed: what it did is read off its
/// process.
pub(crate) fn accuse(
    settings: &Settings,
    team: &Team,
    kind: DivergenceKind,
    replica: Option<usize>,
    detail: &str,
) -> Entry {
    let (cores, blame, reason) = match replica {
        Some(index) => {
            let (blame, reason) = judge_core(circumstances(settings, team, kind, index));
            (vec![team.cores[index]], blame, reason)
        }
        None if kind == DivergenceKind::Mismatch => {
            let mut cores = team
                .members()
                .map(|index| team.cores[index])
                .collect::<Vec<_>>();
            cores.sort_unstable();
            cores.dedup();
            (
                cores,
                Blame::Shared,
                "nobody can tell which replica is wrong",
            )
        }
        None => (Vec::new(), Blame::Nobody, "no replica is known to be wrong"),
    };
    Entry::Fault(Charge {
        time: seconds_of(SystemTime::now()),
        host: host_name(),
        kind,
        program: settings.program.exe.display().to_string(),
        pid: std::process::id(),
        replica,
        cores,
        blame,
        reason: reason.to_owned(),
        detail: shortened(detail),
    })
}

fn circumstances(
    settings: &Settings,
    team: &Team,
    kind: DivergenceKind,
    index: usize,
) -> Circumstances {
    let pid = team.group.pid(index);
    Circumstances {
        kind,
        process: team.group.fate(index),
        stopped: team.memory.is_stopped(index),
        ran_on: kind == DivergenceKind::Timeout && ran_on(team, index, settings.timeout),
        bound: pid.is_none_or(|pid| is_bound(pid, team.cores[index])),
    }
}

/// Whether a sibling says that the replica has used up its CPU time, or it has used more than each
/// sibling by what makes it late. Siblings that wait for it use none.
fn ran_on(team: &Team, index: usize, timeout: Duration) -> bool {
    let pid = team.group.pid(index);
    let says = |other| pid == Some(team.memory.report(other).outrun.load(Ordering::Relaxed));
    if team.members().any(says) {
        return true;
    }
    let Some(own) = team.group.cpu_time(index) else {
        return false;
    };
    let siblings = team.members().filter(|&other| other != index);
    let most = siblings
        .filter_map(|other| team.group.cpu_time(other))
        .max();
    most.is_some_and(|most| own >= most + timeout / 2)
}

/// Whether the process may run on this core only. One that is gone is taken to have been bound, as
/// all are at their birth.
fn is_bound(pid: u32, core: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let Ok(set) = sched_getaffinity(Some(pid)) else {
        return true;
    };
    (0..CpuSet::MAX_CPU).all(|cpu| set.is_set(cpu) == (u32::try_from(cpu) == Ok(core)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_may_move_is_not_bound() {
        let set = sched_getaffinity(None).expect("affinity");
        let own = std::process::id();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| set.is_set(cpu));
        let first = u32::try_from(first.expect("a core")).expect("a small number");
        assert_eq!(is_bound(own, first), set.count() == 1);
        assert!(!is_bound(own, 1023), "bound to no such core");
    }
}
