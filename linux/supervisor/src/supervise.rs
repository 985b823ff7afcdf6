//! The supervisor's loop: signals in, facts gathered, decisions carried out.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use rcoe_linux_abi::{Ending, Phase, SIG_KICK, SIG_NOTIFY};
use rcoe_linux_sys::host::{
    Inherited, SignalFd, SignalInfo, block_all_signals, default_child_signal, stop_self,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Doing, EXIT_FAIL_STOP, RunError};
use crate::events::{Counts, DivergenceKind, Event, Observer, ReplicaInfo};
use crate::group::{Group, phase};
use crate::judge::{Decision, Facts, Fault, Process, judge};
use crate::memory::Memory;
use crate::notes::{Notebook, epitaph};
use crate::protocol::{Finding, Published};
use crate::settings::Settings;
use crate::spinning::{Seen, Spinning};
use crate::stats::Stats;

const SIGCHLD: u32 = 17;
const SIGTSTP: u32 = 20;
const SIGTTIN: u32 = 21;
const SIGTTOU: u32 = 22;

/// How often to look without being called, in case a replica died before it could call.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often to look at a replica that is late at the end.
const LINGER_PATIENCE: Duration = Duration::from_millis(20);
/// How often to look until all replicas have told their process ids.
const BIRTH_PATIENCE: Duration = Duration::from_millis(2);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ended so.
    Ended(Ending),
    /// A detected fault could not be masked.
    FailStop,
}

impl Outcome {
    /// The status a shell shows for it.
    #[must_use]
    pub const fn status(self) -> u8 {
        match self {
            Self::Ended(Ending::Exit(status)) => status,
            Self::Ended(Ending::Signal(signal)) => signal.saturating_add(128),
            Self::FailStop => EXIT_FAIL_STOP,
        }
    }
}

/// Runs the program to its end. Every process of the run is reaped when this returns.
///
/// All signals stay blocked in the calling thread.
///
/// # Errors
///
/// [`RunError`] if the run could not start, or rcoe itself failed.
pub fn run(settings: &Settings, observer: &mut dyn Observer) -> Result<(Outcome, Stats), RunError> {
    block_all_signals();
    default_child_signal();
    let inherited = Inherited::get();
    let memory = Memory::create(settings, inherited)?;
    let signals = SignalFd::all().doing("collecting signals")?;
    let group = Group::start(settings, &memory, inherited)?;
    let removed = vec![false; settings.replicas()];
    let mut run = Run {
        settings,
        memory,
        group,
        signals,
        observer,
        removed,
        notebook: Notebook::default(),
        spinning: Spinning::default(),
        announced: false,
        patience: None,
        ended_by: None,
        divergences: 0,
    };
    let outcome = run.watch();
    run.group.end();
    run.tell_notes();
    let stats = run.stats();
    let (status, reason) = match &outcome {
        Ok(Outcome::Ended(Ending::Exit(_))) => (None, "exit".to_owned()),
        Ok(Outcome::Ended(Ending::Signal(signal))) => (None, format!("signal {signal}")),
        Ok(Outcome::FailStop) => (None, "fail-stop".to_owned()),
        Err(error) => (Some(error.exit_status()), error.to_string()),
    };
    let status = status
        .or(outcome.as_ref().ok().map(|outcome| outcome.status()))
        .unwrap_or(0);
    let counts = run.counts(&stats);
    run.observer.event(&Event::Stop {
        status,
        reason,
        counts,
    });
    outcome.map(|outcome| (outcome, stats))
}

/// When waiting for a late replica began, and what each had used by then.
struct Patience {
    since: Instant,
    cpu_times: Vec<Duration>,
}

impl Patience {
    fn new(group: &Group, replicas: usize) -> Self {
        let cpu_times = (0..replicas).map(|index| group.cpu_time(index).unwrap_or_default());
        Self {
            since: Instant::now(),
            cpu_times: cpu_times.collect(),
        }
    }
}

struct Run<'a> {
    settings: &'a Settings,
    memory: Memory,
    group: Group,
    signals: SignalFd,
    observer: &'a mut dyn Observer,
    removed: Vec<bool>,
    notebook: Notebook,
    spinning: Spinning,
    announced: bool,
    patience: Option<Patience>,
    /// The signal that ended the program without its help.
    ended_by: Option<u8>,
    divergences: u64,
}

impl Run<'_> {
    fn watch(&mut self) -> Result<Outcome, RunError> {
        loop {
            self.group.reap(&self.memory)?;
            self.announce();
            self.tell_notes();
            self.watch_threads();
            if let Some(outcome) = self.decide()? {
                return Ok(outcome);
            }
            self.sleep()?;
            while let Some(signal) = self.signals.next().doing("reading signals")? {
                self.handle(signal);
            }
        }
    }

    fn sleep(&self) -> Result<(), RunError> {
        let regular = if self.group.is_complete() {
            PATIENCE
        } else {
            BIRTH_PATIENCE
        };
        let regular = if self.patience.is_some() {
            LINGER_PATIENCE
        } else {
            regular
        };
        let timeout = Timespec::try_from(regular).ok();
        let mut fds = [PollFd::from_borrowed_fd(
            self.signals.as_fd(),
            PollFlags::IN,
        )];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).doing("waiting for signals"),
        }
    }

    fn handle(&mut self, signal: SignalInfo) {
        match signal.number {
            SIGCHLD | SIG_NOTIFY => {}
            SIGTSTP | SIGTTIN | SIGTTOU => self.pause(),
            number if self.is_fatal(number) => self.ended_by = u8::try_from(number).ok(),
            _ => {
                self.memory.push_signal(signal);
                if let Some(primary) = self.primary() {
                    self.group.signal(primary, SIG_KICK);
                }
            }
        }
    }

    /// Whether the signal ends the program at once, by the account of all living members. A replica
    /// that computes without system calls could not act on it; ending needs no agreement on where.
    fn is_fatal(&self, number: u32) -> bool {
        let members = (0..self.removed.len()).filter(|&index| !self.removed[index]);
        let mut living = members
            .filter(|&index| self.group.process(index) == Process::Alive)
            .peekable();
        let bit = 1_u64.checked_shl(number.wrapping_sub(1)).unwrap_or(0);
        living.peek().is_some()
            && living.all(|index| self.memory.report(index).fatal.load(Acquire) & bit != 0)
    }

    /// Job control: stops the replicas, then ourselves, until someone continues us.
    fn pause(&mut self) {
        let start = Instant::now();
        self.group.pause();
        stop_self();
        self.memory.add_pause(start.elapsed());
        self.group.resume();
    }

    /// The member with the lowest number.
    fn primary(&self) -> Option<usize> {
        self.removed.iter().position(|removed| !removed)
    }

    /// Tells of the start as soon as all process ids are known.
    fn announce(&mut self) {
        if self.announced || !self.group.is_complete() {
            return;
        }
        self.announced = true;
        let replicas = self
            .settings
            .cores
            .iter()
            .enumerate()
            .map(|(id, &core)| ReplicaInfo {
                id,
                pid: self.group.pid(id).unwrap_or(0),
                core,
            });
        let event = Event::Start {
            version: env!("CARGO_PKG_VERSION"),
            program: self.settings.program.exe.display().to_string(),
            seed: self.settings.seed,
            replicas: replicas.collect(),
        };
        self.observer.event(&event);
    }

    fn tell_notes(&mut self) {
        let teller = self.primary().unwrap_or(0);
        for text in self.notebook.news(self.memory.report(teller)) {
            if self.settings.strict {
                let text = format!("{text}; --strict: the program is ended");
                self.observer.error(&text);
            } else {
                self.observer.warning(&text);
            }
        }
    }

    /// Warns of a thread that does not give way.
    fn watch_threads(&mut self) {
        let Some(primary) = self.primary() else {
            return;
        };
        let report = self.memory.report(primary);
        let seen = Seen {
            calls: report.calls.iter().map(|cell| cell.load(Relaxed)).sum(),
            held_up: report.held_up.load(Relaxed) != 0,
            cpu_time: self.group.cpu_time(primary).unwrap_or_default(),
        };
        if let Some(text) = self.spinning.look(seen) {
            self.observer.warning(text);
        }
    }

    fn facts(&self, index: usize) -> Facts {
        let report = self.memory.report(index);
        let published = Published::read(&self.memory, index);
        Facts {
            process: self.group.process(index),
            // A word that is no phase tells nothing: it counts as running until something ends it.
            phase: phase(&self.memory, index).unwrap_or(Phase::Running),
            ending: Ending::unpack(report.ending.load(Acquire)),
            load_error: report.load_error.load(Relaxed),
            halt: published.halt,
            members: published.members,
            removed: self.removed[index],
        }
    }

    /// Carries out decisions until there is nothing more to do; `Some` ends the run.
    fn decide(&mut self) -> Result<Option<Outcome>, RunError> {
        if let Some(signal) = self.ended_by {
            return Ok(Some(Outcome::Ended(Ending::Signal(signal))));
        }
        if self.group.lost_someone() {
            self.diverge(
                DivergenceKind::Death,
                None,
                None,
                "a replica died before it said which one it was",
            );
            return Ok(Some(self.fail_stop()));
        }
        loop {
            let facts = (0..self.removed.len())
                .map(|index| self.facts(index))
                .collect::<Vec<_>>();
            let decision = judge(&facts, self.settings.mask, self.is_overdue());
            if decision != Decision::Linger {
                self.patience = None;
            }
            match decision {
                Decision::Wait => return Ok(None),
                Decision::Linger => {
                    let patience = Patience::new(&self.group, self.removed.len());
                    self.patience.get_or_insert(patience);
                    return Ok(None);
                }
                Decision::Remove(index, fault) => self.remove(index, fault, facts[index].process),
                Decision::FailStop(index, fault) => {
                    self.blame(index, fault, index.map(|index| facts[index].process));
                    return Ok(Some(self.fail_stop()));
                }
                Decision::Finish(ending) => return Ok(Some(Outcome::Ended(ending))),
                failure => return Err(self.failure(failure)),
            }
        }
    }

    /// Whether a late replica has had its time: its own CPU time, or much more on the
    /// wall; a stopped one uses no CPU and is not excused by that.
    fn is_overdue(&self) -> bool {
        let Some(patience) = &self.patience else {
            return false;
        };
        let waited = patience.since.elapsed();
        let used_up = patience
            .cpu_times
            .iter()
            .enumerate()
            .any(|(index, &before)| {
                let used = self
                    .group
                    .cpu_time(index)
                    .unwrap_or(before)
                    .saturating_sub(before);
                used >= self.settings.timeout
                    || (self.memory.is_stopped(index) && waited >= self.settings.timeout)
            });
        used_up || waited >= self.settings.wall_cap()
    }

    fn failure(&self, decision: Decision) -> RunError {
        match decision {
            Decision::LoadFailed(errno) => RunError::Load {
                program: self.settings.program.exe.clone(),
                error: std::io::Error::from_raw_os_error(errno.cast_signed()),
            },
            Decision::AgentFailed(index) => RunError::Agent(epitaph(self.memory.report(index))),
            _ => RunError::Agent(format!(
                "a replica ended before all had started ({})",
                describe(self.group.process(0))
            )),
        }
    }

    fn remove(&mut self, index: usize, fault: Fault, process: Process) {
        self.blame(Some(index), fault, Some(process));
        self.removed[index] = true;
        self.group.expel(index, &self.memory);
        let primary = self.primary().unwrap_or(0);
        self.observer.event(&Event::Downgrade {
            removed: index,
            primary,
        });
        let left = self.removed.iter().filter(|&&removed| !removed).count();
        self.observer
            .warning(&format!("replica {index} removed; going on with {left}"));
    }

    /// Tells who is at fault and what differed.
    fn blame(&mut self, index: Option<usize>, fault: Fault, process: Option<Process>) {
        let (kind, what) = match fault {
            Fault::Death => {
                let end = process.map_or_else(String::new, describe);
                (
                    DivergenceKind::Death,
                    format!("its process ended unexpectedly ({end})"),
                )
            }
            Fault::Agent => {
                let words = index.map(|index| epitaph(self.memory.report(index)));
                (
                    DivergenceKind::Fault,
                    format!("failed: {}", words.unwrap_or_default()),
                )
            }
            Fault::Verdict => {
                let finding = Finding::gather(&self.memory, index);
                return self.diverge(
                    finding.kind,
                    finding.suspect,
                    finding.event,
                    &finding.detail,
                );
            }
            Fault::NoEnd => (
                DivergenceKind::Timeout,
                "its program did not end with the others".to_owned(),
            ),
        };
        self.diverge(kind, index, None, &what);
    }

    fn diverge(
        &mut self,
        kind: DivergenceKind,
        replica: Option<usize>,
        event: Option<u64>,
        detail: &str,
    ) {
        self.divergences += 1;
        let core = replica.map(|index| self.settings.cores[index]);
        self.observer.event(&Event::Divergence {
            kind,
            replica,
            core,
            event,
            detail: detail.to_owned(),
        });
        let who = match (replica, core) {
            (Some(replica), Some(core)) => format!("replica {replica} (core {core}): "),
            _ => String::new(),
        };
        self.observer
            .error(&format!("{}: {who}{detail}", kind.name()));
    }

    /// Stops everything at once, so that nothing more goes out.
    fn fail_stop(&mut self) -> Outcome {
        self.group.end();
        self.observer
            .error("fail-stop: no safe way on; all replicas stopped, nothing unvoted was let out");
        Outcome::FailStop
    }

    fn stats(&self) -> Stats {
        let replicas = 0..self.settings.replicas();
        Stats::gather(replicas.map(|index| {
            (
                self.memory.report(index),
                Published::read(&self.memory, index).rendezvous,
            )
        }))
    }

    fn counts(&self, stats: &Stats) -> Counts {
        let first = self
            .removed
            .iter()
            .position(|removed| !removed)
            .unwrap_or(0);
        let downgrades = self.removed.iter().filter(|&&removed| removed).count();
        Counts {
            calls: stats.calls(first),
            rendezvous: stats.rendezvous(first),
            bytes_voted: stats.bytes_voted(first),
            divergences: self.divergences,
            downgrades: u64::try_from(downgrades).unwrap_or(u64::MAX),
            replicas: self.removed.len() - downgrades,
        }
    }
}

fn describe(process: Process) -> String {
    match process {
        Process::Unborn => "never seen".into(),
        Process::Alive => "alive".into(),
        Process::Exited(status) => format!("exit status {status}"),
        Process::Killed(signal) => format!("signal {signal}"),
    }
}
