//! The supervisor's loop: signals in, facts gathered, decisions carried out.

mod debugging;
mod limits;
mod relocation;
mod removal;
mod rounds;
mod upkeep;
mod witness;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcoe_linux_abi::Ending;
use rcoe_linux_sys::host::{
    Guardian, Inherited, SignalFd, block_all_signals, can_signal_by_descriptor,
    default_child_signal,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::doorman::Doorman;
use crate::error::{Doing, EXIT_FAIL_STOP, RunError};
use crate::events::{Counts, DivergenceKind, Event, Observer, ReplicaInfo, SCHEMA};
use crate::family::Family;
use crate::finds::Finds;
use crate::gdb::Debugger;
use crate::group::Group;
use crate::judge::{Decision, Fault, judge};
use crate::ledger::Clerk;
use crate::memory::Memory;
use crate::notes::{Notebook, epitaph};
use crate::notify::Notifier;
use crate::numbers::{SIGCHLD, SIGKILL};
use crate::reaper::Reaper;
use crate::recovery::Recoveries;
use crate::reunion::Reunions;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::status::{Chronicle, Happened, Window};
use crate::stuck::Stuck;
use crate::tally::Tally;
use crate::team::{State, Team};
use removal::describe;
use witness::Witness;

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

/// The program's first process.
fn root_team(settings: &Settings, memory: Memory, group: Group, pid: u32) -> Team {
    let mut root = Team::new(memory, group, settings.cores.clone(), 0);
    root.state = State::Living;
    root.pid = pid;
    root.serial = 1;
    root
}

fn open_window(settings: &Settings, observer: &mut dyn Observer) -> Result<Window, RunError> {
    let (window, metrics) = Window::open(settings)?;
    if let Some(address) = metrics {
        observer.event(&Event::Metrics {
            address: address.to_string(),
        });
    }
    Ok(window)
}

fn open_notifier(settings: &Settings, observer: &mut dyn Observer) -> Notifier {
    let (notifier, warning) = Notifier::open(settings.notify.as_ref(), settings.wall_cap());
    if let Some(text) = warning {
        observer.warning(&text);
    }
    notifier
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
    let mut window = open_window(settings, observer)?;
    let notifier = open_notifier(settings, observer);
    let debugger = debugging::open(settings, observer)?;
    can_signal_by_descriptor().doing("signalling by a descriptor of a process (pidfd)")?;
    let memory = Memory::create(settings, inherited)?;
    // The program may ask who it is as soon as it runs.
    let pid = std::process::id();
    memory.set(|control| &control.pid, pid);
    let signals = SignalFd::all().doing("collecting signals")?;
    let bell = Arc::new(memory.doorbell().doing("mapping the doorbell")?);
    let mut reaper = Reaper::new(settings.gdb.is_some());
    let group = Group::start(settings, &memory, inherited)?;
    // It comes to code later than this is done.
    let finds = Finds::open(settings, &memory);
    let root = root_team(settings, memory, group, pid);
    let mut family = Family::new(root, Arc::clone(&bell));
    // What the first replica needs not is done while it comes to its work.
    let guardian = Guardian::new()
        .doing("starting the guardian")
        .inspect_err(|_| reaper.end(&mut family.teams))?;
    reaper.leave_alone(guardian.id());
    let doorman = Doorman::start(bell)
        .doing("listening to the doorbell")
        .inspect_err(|_| reaper.end(&mut family.teams))?;
    if let Some(text) = window.enter(settings) {
        observer.warning(&text);
    }
    let mut run = Run {
        settings,
        debugger,
        is_killed: false,
        family,
        reaper,
        signals,
        doorman,
        guardian,
        observer: Chronicle::new(observer),
        notebook: Notebook::default(),
        announced: false,
        happened: Happened::default(),
        woken: Instant::now(),
        recoveries: Recoveries::default(),
        tally: Tally::default(),
        window,
        notifier,
        clerk: Clerk::new(settings.ledger.clone(), settings.suspect_after),
        reunions: Reunions::default(),
        looker: None,
        stuck: Stuck::default(),
        witness: Witness::default(),
    };
    let outcome = run.watch_to_the_end();
    run.tell_scene();
    run.end_all();
    run.tell_recoveries();
    run.tell_notes();
    run.keep(finds, &outcome);
    if let Some(text) = run.clerk.finish() {
        run.observer.warning(&text);
    }
    let mut stats = run.family.stats();
    stats.set_recoveries(run.tally);
    run.tell_stop(&outcome, &stats);
    outcome.map(|outcome| (outcome, stats))
}

struct Run<'a> {
    settings: &'a Settings,
    family: Family,
    reaper: Reaper,
    signals: SignalFd,
    doorman: Doorman,
    /// Ends all replicas if rcoe is killed.
    guardian: Guardian,
    observer: Chronicle<'a>,
    notebook: Notebook,
    announced: bool,
    happened: Happened,
    /// When the loop was last woken.
    woken: Instant,
    recoveries: Recoveries,
    tally: Tally,
    window: Window,
    notifier: Notifier,
    clerk: Clerk,
    reunions: Reunions,
    /// Group and birth of the process that looks at the memory that processes share, and its passes
    /// when it was chosen.
    looker: Option<((usize, u32), u64)>,
    stuck: Stuck,
    witness: Witness,
    debugger: Option<Debugger>,
    /// The debugger has killed the program.
    is_killed: bool,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.end_all();
        self.window.close();
    }
}

impl Run<'_> {
    /// Takes in what has come: signals, and what replicas ask for.
    fn hear(&mut self) -> Result<(), RunError> {
        while let Some(signal) = self.signals.next().doing("reading signals")? {
            if signal.number != SIGCHLD {
                self.family.deliver(signal);
            }
            self.family.stand_still();
        }
        self.family.hear_deputies();
        self.family.rouse();
        if self.debugger.as_mut().is_none_or(Debugger::may_call) {
            self.family.call_to_points();
        }
        if self.family.is_asked() {
            // The sender must be known, and who has died must not be asked for any more.
            self.reaper.reap(&mut self.family.teams)?;
            self.family.hear_requests()?;
            self.family.stand_still();
        }
        Ok(())
    }

    /// Kills and reaps every process of the run. Those who helped to watch them may go, which they
    /// do while the rest is put away.
    fn end_all(&mut self) {
        self.reaper.end(&mut self.family.teams);
        self.doorman.dismiss();
        self.guardian.dismiss();
    }

    /// Waits for signals and for those who ask, until it is time to look again.
    fn sleep(&mut self) -> Result<(), RunError> {
        let teams = || self.family.teams.iter().flatten().map(Box::as_ref);
        let regular = if teams().any(|team| team.patience.is_some()) {
            LINGER_PATIENCE
        } else if teams().all(|team| team.group.is_complete()) {
            PATIENCE
        } else {
            BIRTH_PATIENCE
        };
        let regular = self.notifier.due().map_or(regular, |due| regular.min(due));
        let soon = self.upkeep_due();
        let regular = soon.map_or(regular, |soon| regular.min(soon));
        let limit = teams().filter_map(Team::cpu_limit_alarm).min();
        let regular = limit.map_or(regular, |limit| regular.min(limit));
        let due = self.debugger.as_ref().and_then(Debugger::due);
        let regular = due.map_or(regular, |due| regular.min(due));
        let timeout = Timespec::try_from(regular).ok();
        let all = [self.signals.as_fd(), self.doorman.as_fd()]
            .into_iter()
            .chain(self.debugger.as_ref().and_then(Debugger::descriptor))
            .chain(self.window.descriptors());
        let mut fds = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect::<Vec<_>>();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).doing("waiting for signals"),
        }
        let debugged = self
            .debugger
            .as_ref()
            .and_then(Debugger::descriptor)
            .is_some();
        let own = 2 + usize::from(debugged);
        let asked = fds.iter().skip(own).any(|fd| !fd.revents().is_empty());
        let debugged = debugged && !fds[2].revents().is_empty();
        if !fds[1].revents().is_empty() {
            self.doorman.hear();
        }
        self.woken = Instant::now();
        if debugged {
            self.attend_debugger();
        }
        if asked
            && let Some(text) =
                self.window
                    .attend(self.settings, &self.family, &self.happened, &self.observer)
        {
            self.observer.warning(&text);
        }
        Ok(())
    }

    /// Tells of the start as soon as all process ids are known.
    fn announce(&mut self) {
        if self.announced || !self.family.root().group.is_complete() {
            return;
        }
        self.announced = true;
        self.notifier.ready();
        let replicas = self
            .settings
            .cores
            .iter()
            .enumerate()
            .map(|(id, &core)| ReplicaInfo {
                id,
                pid: self.family.root().group.pid(id).unwrap_or(0),
                core,
            });
        let event = Event::Start {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            program: self.settings.program.exe.display().to_string(),
            seed: self.settings.seed,
            replicas: replicas.collect(),
            avoided: self.settings.avoided.clone(),
        };
        self.observer.event(&event);
    }

    /// Keeps what was found in files. Of a run that was stopped nobody knows what was wrong.
    fn keep(&mut self, finds: Option<Finds<'_>>, outcome: &Result<Outcome, RunError>) {
        if let Some(finds) = finds
            && matches!(outcome, Ok(Outcome::Ended(_)))
        {
            finds.close(&self.family.root().memory);
        }
    }

    /// Tells how the run ended.
    fn tell_stop(&mut self, outcome: &Result<Outcome, RunError>, stats: &Stats) {
        let (status, reason) = match outcome {
            Ok(end @ Outcome::Ended(Ending::Exit(_))) => (end.status(), "exit".to_owned()),
            Ok(end @ Outcome::Ended(Ending::Signal(signal))) => {
                (end.status(), format!("signal {signal}"))
            }
            Ok(end @ Outcome::FailStop) => (end.status(), "fail-stop".to_owned()),
            Err(error) => (error.exit_status(), error.to_string()),
        };
        let counts = self.counts(stats);
        self.observer.event(&Event::Stop {
            status,
            reason,
            counts,
        });
    }

    fn tell_recoveries(&mut self) {
        let over = self.recoveries.finished(&self.family, &mut self.tally);
        for event in over {
            self.observer.event(&event);
        }
    }

    fn tell_notes(&mut self) {
        for team in self.family.teams.iter().flatten() {
            let teller = team.primary().unwrap_or(0);
            for text in self.notebook.news(team.memory.report(teller)) {
                self.observer.warning(&text);
            }
        }
    }

    /// Warns of a thread that does not give way.
    fn watch_threads(&mut self) {
        let mut all = self.family.teams.iter().flatten();
        let awaited = all.any(|team| team.awaits_turn());
        for team in self.family.teams.iter_mut().flatten() {
            if let Some(text) = team.look_for_spinning(awaited) {
                self.observer.warning(text);
            }
        }
    }

    fn team(&mut self, group: usize) -> &mut Team {
        self.family.teams[group]
            .as_mut()
            .expect("an existing group")
    }

    /// Carries out decisions until there is nothing more to do; `Some` ends the run.
    fn decide_all(&mut self) -> Result<Option<Outcome>, RunError> {
        if self.reaper.lost_someone() {
            self.diverge(
                0,
                DivergenceKind::Death,
                None,
                None,
                "a replica died before it said which one it was",
            );
            return Ok(Some(self.fail_stop()));
        }
        for group in self.family.groups() {
            if let Some(outcome) = self.decide(group)? {
                return Ok(Some(outcome));
            }
        }
        if let Err((group, index)) = self.expel_sleeper() {
            self.blame(group, Some(index), Fault::Asleep, None);
            return Ok(Some(self.fail_stop()));
        }
        if let Err((group, index)) = self.expel_sharers() {
            let what = "it shares memory with a replica that was removed";
            self.diverge(group, DivergenceKind::Death, Some(index), None, what);
            return Ok(Some(self.fail_stop()));
        }
        // What has just been judged may be over already.
        self.family.settle()?;
        if !self.family.is_over() {
            return Ok(None);
        }
        match self.family.root().state {
            State::Zombie(ending) => Ok(Some(Outcome::Ended(ending))),
            _ => Ok(None),
        }
    }

    fn decide(&mut self, group: usize) -> Result<Option<Outcome>, RunError> {
        let (timeout, wall_cap) = (self.settings.timeout, self.settings.wall_cap());
        let mask = self.settings.mask;
        let held = self.debugger.as_ref().is_some_and(Debugger::holds);
        while self.team(group).state == State::Living && !self.team(group).is_stopped() {
            let team = self.team(group);
            if team.met_its_hard_limit() {
                team.finish(Ending::Signal((SIGKILL & 0x7f) as u8));
                return Ok(None);
            }
            let overdue = !held && team.is_overdue(timeout, wall_cap);
            let facts = team.all_facts(overdue, timeout);
            let decision = self.spare_the_killed(group, judge(&facts, mask, overdue))?;
            let team = self.team(group);
            if decision != Decision::Linger {
                team.patience = None;
            }
            match decision {
                Decision::Wait => return Ok(None),
                Decision::Linger => {
                    team.begin_patience();
                    return Ok(None);
                }
                Decision::Remove(index, fault) => {
                    self.remove(group, index, fault, facts[index].process);
                }
                Decision::FailStop(index, fault) => {
                    self.blame(group, index, fault, index.map(|index| facts[index].process));
                    return Ok(Some(self.fail_stop()));
                }
                Decision::Finish(ending) => team.finish(ending),
                Decision::StartFailed(index) if group != 0 => {
                    return Ok(Some(self.fail_birth(group, index, Fault::Death)));
                }
                Decision::AgentFailed(index) if team.is_newborn() => {
                    return Ok(Some(self.fail_birth(group, index, Fault::Agent)));
                }
                failure => return Err(self.failure(group, failure)),
            }
        }
        Ok(None)
    }

    /// A child's replicas descend from one process, so what hit that one can end all of them alike.
    fn fail_birth(&mut self, group: usize, first: usize, fault: Fault) -> Outcome {
        let process = self.team(group).group.fate(first);
        self.blame(group, Some(first), fault, Some(process));
        self.fail_stop()
    }

    fn failure(&self, group: usize, decision: Decision) -> RunError {
        let team = self.family.teams[group]
            .as_ref()
            .expect("an existing group");
        match decision {
            Decision::LoadFailed(errno) => RunError::Load {
                program: self.settings.program.exe.clone(),
                error: std::io::Error::from_raw_os_error(errno.cast_signed()),
            },
            Decision::AgentFailed(index) => RunError::Agent(epitaph(team.memory.report(index))),
            _ => RunError::Agent(format!(
                "a replica ended before all had started ({})",
                describe(team.group.process(0))
            )),
        }
    }

    /// Stops everything at once, so that nothing more goes out.
    fn fail_stop(&mut self) -> Outcome {
        self.await_scene();
        self.tell_scene();
        self.end_all();
        self.observer
            .error("fail-stop: no safe way on; all replicas stopped, nothing unvoted was let out");
        Outcome::FailStop
    }

    fn counts(&self, stats: &Stats) -> Counts {
        let root = self.family.root();
        let first = root.primary().unwrap_or(0);
        let replicas = root.members().count();
        let mut counts = Counts {
            calls: stats.calls(first),
            rendezvous: stats.rendezvous(first),
            bytes_voted: stats.bytes_voted(first),
            removals_ns: stats.removals_ns(first),
            divergences: self.happened.faults.total(),
            downgrades: self.happened.removals,
            reintegrations: self.happened.reintegrations,
            repairs: self.happened.repairs,
            replicas,
            ..Counts::default()
        };
        self.tally.tell(&mut counts);
        counts
    }
}
