//! Removes replicas from groups that go on without them, and tells whose fault it was.
//!
//! Contract: who has to go is decided already, by the judge or because the memory that it shares is
//! lost. A group that a removal would leave without a majority is not touched here.

use std::time::Instant;

use rcoe_linux_abi::Phase;

use super::Run;
use crate::accuse::accuse;
use crate::events::{DivergenceKind, Event, Observer};
use crate::group::phase;
use crate::judge::{Fault, Process};
use crate::ledger::Entry;
use crate::notes::epitaph;
use crate::protocol::Finding;
use crate::slices::turn_of;
use crate::team::State;

impl Run<'_> {
    /// Removes a replica that is at fault, and tells so: what is read off living processes first,
    /// then its end, for which the others wait, and words at last. Core files are of processes that
    /// live, so where they are wanted the words come before the end.
    pub(super) fn remove(&mut self, group: usize, index: usize, fault: Fault, process: Process) {
        let mut found = Some(self.find(group, Some(index), fault, Some(process)));
        if self.settings.dumps.is_some() {
            found
                .take()
                .into_iter()
                .for_each(|it| self.tell_divergence(it));
        }
        if self.team(group).uses_slice(index) {
            self.reunions.lose(index);
        }
        self.note_before_end(group, index);
        let downgrade = self.end(group, index);
        self.note_mappings(group);
        found.into_iter().for_each(|it| self.tell_divergence(it));
        self.tell_downgrade(&downgrade);
    }

    /// Removes a replica from a group that can go on without it.
    fn expel(&mut self, group: usize, index: usize) {
        let downgrade = self.end(group, index);
        self.tell_downgrade(&downgrade);
    }

    /// Ends a replica, and has the others go on.
    fn end(&mut self, group: usize, index: usize) -> Downgrade {
        self.recoveries
            .begin(&self.family, group, index, self.woken);
        let team = self.team(group);
        let led = team.primary() == Some(index);
        team.remove(index);
        let downgrade = Downgrade {
            process: team.pid,
            removed: index,
            led,
            primary: team.primary().unwrap_or(0),
            left: team.members().count(),
        };
        self.recoveries.look(&self.family);
        downgrade
    }

    fn tell_downgrade(&mut self, downgrade: &Downgrade) {
        let &Downgrade {
            process,
            removed,
            led,
            primary,
            left,
        } = downgrade;
        self.happened.removals += 1;
        self.observer.event(&Event::Downgrade {
            process,
            removed,
            primary,
            left,
        });
        if led {
            self.happened.takeovers += 1;
            self.observer.event(&Event::Takeover {
                process,
                from: removed,
                to: primary,
            });
        }
        self.observer
            .warning(&format!("replica {removed} removed; going on with {left}"));
    }

    /// A replica that sleeps in its turn among the processes that share memory: it goes, or the
    /// group does where that is not possible.
    pub(super) fn expel_sleeper(&mut self) -> Result<(), (usize, usize)> {
        let Some((group, index)) = self.find_sleeper() else {
            return Ok(());
        };
        if !self.settings.mask || self.team(group).members().count() < 3 {
            return Err((group, index));
        }
        let process = self.team(group).group.process(index);
        self.remove(group, index, Fault::Asleep, process);
        Ok(())
    }

    fn find_sleeper(&mut self) -> Option<(usize, usize)> {
        let family = &self.family;
        let memory = &family.root().memory;
        let sharers = || {
            let teams = family.teams.iter().flatten();
            teams.filter(|team| team.state == State::Living && team.shares())
        };
        let used = |slice: &usize| sharers().all(|team| !team.removed[*slice]);
        let turn = |slice| (slice, turn_of(memory.gate(slice)));
        let turns: Vec<_> = match sharers().next() {
            Some(_) => (0..memory.slices()).filter(used).map(turn).collect(),
            None => Vec::new(),
        };
        let owner = |turn| {
            let group = memory.claims().owner(turn)?;
            family.teams.get(group)?.as_ref()
        };
        let sleeps = |slice, turn| {
            let look = owner(turn).and_then(|team| team.group.look(slice));
            look.is_some_and(|look| !look.runnable)
        };
        let owes = |slice, turn| {
            let team = owner(turn).filter(|team| team.primary() == Some(slice));
            team.is_some_and(|team| !team.has_come_to(slice, turn))
        };
        let timeout = self.settings.timeout;
        let now = Instant::now();
        let late = self.stuck.look(&turns, now, timeout, sleeps, owes);
        let (slice, turn) = late?;
        let team = owner(turn).filter(|team| team.state == State::Living && !team.is_stopped())?;
        Some((team.memory.group(), slice))
    }

    /// Replicas that share memory with one that was removed: it may have written anything there,
    /// and its turn never ends. They go as well, with the group where that is no longer possible.
    pub(super) fn expel_sharers(&mut self) -> Result<(), (usize, usize)> {
        self.reunions.look(&self.family);
        for group in self.family.groups() {
            let team = self.team(group);
            let living = team.state == State::Living;
            let members = team.members().collect::<Vec<_>>();
            for index in members {
                let shares = self.team(group).uses_slice(index);
                if !living || !shares || !self.reunions.is_lost(group, index) {
                    continue;
                }
                if self.team(group).members().count() < 3 {
                    return Err((group, index));
                }
                self.expel(group, index);
            }
        }
        Ok(())
    }

    /// Tells who is at fault and what differed.
    pub(super) fn blame(
        &mut self,
        group: usize,
        index: Option<usize>,
        fault: Fault,
        process: Option<Process>,
    ) {
        let found = self.find(group, index, fault, process);
        self.tell_divergence(found);
    }

    /// Finds out who is at fault and what differed.
    fn find(
        &mut self,
        group: usize,
        index: Option<usize>,
        fault: Fault,
        process: Option<Process>,
    ) -> Divergence {
        let memory = &self.team(group).memory;
        let (kind, what) = match fault {
            Fault::Death => {
                let end = process.map_or_else(String::new, describe);
                (
                    DivergenceKind::Death,
                    format!("its process ended unexpectedly ({end})"),
                )
            }
            Fault::Agent => {
                let words = index.map(|index| epitaph(memory.report(index)));
                (
                    DivergenceKind::Fault,
                    format!("failed: {}", words.unwrap_or_default()),
                )
            }
            Fault::Verdict => {
                let finding = Finding::gather(memory, index);
                // Its siblings only know that it is gone, or late.
                let failed = |index: &usize| phase(memory, *index) == Some(Phase::Failed);
                if let Some(index) = finding.suspect.filter(failed) {
                    return self.find(group, Some(index), Fault::Agent, process);
                }
                let Finding {
                    kind,
                    suspect,
                    event,
                    detail,
                } = finding;
                return self.note(group, kind, suspect, event, &detail);
            }
            Fault::NoEnd => (
                DivergenceKind::Timeout,
                "its program did not end with the others".to_owned(),
            ),
            Fault::Asleep => (
                DivergenceKind::Timeout,
                "it sleeps in its turn, and processes that share memory wait for it".to_owned(),
            ),
            Fault::Stopped => (DivergenceKind::Timeout, self.name_stopped(group, index)),
        };
        self.note(group, kind, index, None, &what)
    }

    /// Which replicas somebody outside has stopped, in words.
    fn name_stopped(&mut self, group: usize, culprit: Option<usize>) -> String {
        let team = self.team(group);
        let stopped = team.members().filter(|&it| team.memory.is_stopped(it));
        let stopped = stopped.map(|it| it.to_string()).collect::<Vec<_>>();
        let all = team.members().count();
        if culprit.is_some() && 2 * stopped.len() < all {
            return "stopped from outside, and processes that share memory wait for it".into();
        }
        format!(
            "stopped from outside: replicas {} of {all}; those left are no majority",
            stopped.join(", ")
        )
    }

    /// Counts, charges and tells one divergence.
    pub(super) fn diverge(
        &mut self,
        group: usize,
        kind: DivergenceKind,
        replica: Option<usize>,
        event: Option<u64>,
        detail: &str,
    ) {
        let noted = self.note(group, kind, replica, event, detail);
        self.tell_divergence(noted);
    }

    /// Counts one divergence, and notes what can only be seen while its processes live.
    fn note(
        &mut self,
        group: usize,
        kind: DivergenceKind,
        replica: Option<usize>,
        event: Option<u64>,
        detail: &str,
    ) -> Divergence {
        self.happened.count(kind);
        self.note_scene(group, kind, replica, event);
        let entry = accuse(self.settings, self.team(group), kind, replica, detail);
        let team = self.team(group);
        let process = match group {
            0 => String::new(),
            _ => format!("process {}: ", team.pid),
        };
        let core = replica.map(|index| team.cores[index]);
        let who = match (replica, core) {
            (Some(replica), Some(core)) => format!("replica {replica} (core {core}): "),
            _ => String::new(),
        };
        let detail = format!("{process}{detail}");
        Divergence {
            words: format!("{}: {who}{detail}", kind.name()),
            event: Event::Divergence {
                process: team.pid,
                kind,
                replica,
                core,
                event,
                detail,
            },
            entry,
        }
    }

    /// Charges and tells a divergence that was noted.
    fn tell_divergence(&mut self, noted: Divergence) {
        if let Some(text) = self.clerk.write(noted.entry) {
            self.observer.warning(&text);
        }
        self.observer.event(&noted.event);
        self.observer.error(&noted.words);
        self.write_cores();
    }
}

/// A divergence that is to be told of.
struct Divergence {
    entry: Entry,
    event: Event,
    words: String,
}

/// A removal that is to be told of.
struct Downgrade {
    process: u32,
    removed: usize,
    /// Was it the primary?
    led: bool,
    /// Who leads now, and how many members are left.
    primary: usize,
    left: usize,
}

/// How a process ended, in words.
pub(super) fn describe(process: Process) -> String {
    match process {
        Process::Unborn => "never seen".into(),
        Process::Absent => "never there".into(),
        Process::Alive => "alive".into(),
        Process::Exited(status) => format!("exit status {status}"),
        Process::Killed(signal) => format!("signal {signal}"),
    }
}
