//! Takes a snapshot of a run from the supervisor's own facts and what the replicas publish.
//!
//! Contract: nothing here is waited for, and no file is read: it runs in the supervisor's loop.
//! What replicas publish is shown as it is; a faulty one can show nonsense of itself.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rcoe_core::diagnose::{Report, report};
use rcoe_linux_abi::Phase;

use super::snapshot::{CpuView, FaultCounts, ProcessView, ReplicaView, Snapshot, Totals};
use crate::events::DivergenceKind;
use crate::family::Family;
use crate::group::phase;
use crate::judge::Process;
use crate::settings::Settings;
use crate::team::{State, Team};

/// What has happened in a run so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Happened {
    pub(crate) faults: FaultCounts,
    pub(crate) removals: u64,
    pub(crate) takeovers: u64,
    pub(crate) reintegrations: u64,
    /// Pages repaired.
    pub(crate) repairs: u64,
}

impl Happened {
    /// Counts a fault.
    pub(crate) const fn count(&mut self, kind: DivergenceKind) {
        let counter = match kind {
            DivergenceKind::Mismatch => &mut self.faults.mismatch,
            DivergenceKind::Timeout => &mut self.faults.timeout,
            DivergenceKind::Fault => &mut self.faults.fault,
            DivergenceKind::Death => &mut self.faults.death,
        };
        *counter += 1;
    }
}

/// Counters of processes that are gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    processes: u64,
    calls: u64,
    rendezvous: u64,
    votes: u64,
    bytes_voted: u64,
    cpu: BTreeMap<(usize, u32), Duration>,
}

impl Past {
    /// Adds a process, by its primary's account.
    pub(crate) fn add(&mut self, team: &Team) {
        self.processes += u64::from(team.pid != 0);
        for (index, &core) in team.cores.iter().enumerate() {
            *self.cpu.entry((index, core)).or_default() += team.group.spent(index);
        }
        let Some(primary) = team.primary() else {
            return;
        };
        let published = report(team.memory.outbox(primary));
        self.calls += calls(team, primary);
        self.rendezvous += published.rendezvous;
        self.votes += u64::from(published.votes);
        self.bytes_voted += team.memory.report(primary).bytes_voted.load(Relaxed);
    }
}

fn calls(team: &Team, index: usize) -> u64 {
    let cells = &team.memory.report(index).calls;
    cells
        .iter()
        .fold(0, |sum, cell| cell.load(Relaxed).wrapping_add(sum))
}

/// Looks at a whole run.
pub(super) fn gather(settings: &Settings, family: &Family, happened: &Happened) -> Snapshot {
    let mut sums = family.past.clone();
    let mut processes = Vec::new();
    for team in family.teams.iter().flatten() {
        sums.add(team);
        if matches!(team.state, State::Living | State::Ending(_)) {
            processes.push(view(team));
        }
    }
    let live = processes.iter().map(|process| process.members).min();
    let words = settings.program.argv.iter();
    Snapshot {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        program: settings.program.exe.display().to_string(),
        arguments: words
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        configured: settings.replicas(),
        live: live.unwrap_or(0),
        processes,
        totals: Totals {
            processes: sums.processes,
            calls: sums.calls,
            rendezvous: sums.rendezvous,
            votes: sums.votes,
            bytes_voted: sums.bytes_voted,
            faults: happened.faults,
            removals: happened.removals,
            reintegrations: happened.reintegrations,
            repairs: happened.repairs,
            takeovers: happened.takeovers,
            cpu: sums
                .cpu
                .into_iter()
                .map(|((replica, core), time)| CpuView {
                    replica,
                    core,
                    seconds: time.as_secs_f64(),
                })
                .collect(),
        },
        ..Snapshot::default()
    }
}

fn view(team: &Team) -> ProcessView {
    let all = 0..team.removed.len();
    let published = all
        .clone()
        .map(|index| report(team.memory.outbox(index)))
        .collect::<Vec<_>>();
    let first = |word: fn(&Report) -> u64| {
        let members = team.members().map(|index| word(&published[index]));
        members.max().unwrap_or(0)
    };
    let (rendezvous, cursor) = (first(|it| it.rendezvous), first(|it| it.cursor));
    let replicas = all.map(|index| {
        let own = &published[index];
        let in_call = team.memory.report(index).in_call.load(Relaxed);
        let removed = team.removed[index];
        let behind = |first: u64, own: u64| {
            if removed {
                0
            } else {
                first.saturating_sub(own)
            }
        };
        ReplicaView {
            id: index,
            pid: team.group.pid(index).unwrap_or(0),
            core: team.cores[index],
            state: state(team, index).to_owned(),
            primary: team.primary() == Some(index),
            cpu_seconds: team.group.spent(index).as_secs_f64(),
            calls: calls(team, index),
            rendezvous: own.rendezvous,
            lag_rendezvous: behind(rendezvous, own.rendezvous),
            lag_bytes: behind(cursor, own.cursor).saturating_mul(8),
            stream_bytes: own.cursor.saturating_mul(8),
            in_call: in_call
                .checked_sub(1)
                .map(|number| rcoe_linux_syscalls::name(number).to_string()),
        }
    });
    ProcessView {
        pid: team.pid,
        members: team.members().count(),
        replicas: replicas.collect(),
    }
}

fn state(team: &Team, index: usize) -> &'static str {
    match team.group.process(index) {
        _ if team.removed[index] => "removed",
        Process::Unborn => "starting",
        Process::Absent | Process::Exited(_) | Process::Killed(_) => "ended",
        Process::Alive if team.memory.is_stopped(index) => "stopped",
        Process::Alive if phase(&team.memory, index) == Some(Phase::Loading) => "starting",
        Process::Alive => "running",
    }
}
