//! Errors observed in a machine that serves, by bits that flip in all that it consists of.
//!
//! As in the papers: several bits are flipped in one replica, one after the other, until an error
//! shows, which is charged to the last one. Clients on the host judge ([`super::clients`]). With
//! two replicas the error is to end the machine, and each machine shows one; with more the replica
//! is to be removed and to come back, and the next one is hit.
//!
//! Contract: an error is *corrected* if all that clients are answered stays right, no connection
//! breaks, and the replica is back; *not back* if all is so but for that, and clients are answered
//! still when it is given up; a *fail-stop* if the machine ends with the status for that and no
//! wrong answer was given. All else is uncontrolled. The seed decides what is flipped, but not
//! the moment at which the machine stands still.
//!
//! Not covered: an error that shows neither within the bound nor while clients are answered before
//! the next flip is charged to a later flip, or, if the machine ends before, to none.

mod report;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::clients::{Clients, Closed, Waited};
use super::machine::{Machine, Shape};
use super::{Setup, milliseconds};
use crate::events::Events;
use crate::interrupt;
use crate::plan::Rng;
use crate::system::Target;
use crate::system::plan::{Flip, OF_SERVICE, OF_TRANSFER};
use crate::taxonomy::{FAIL_STOP, RCOE_FAILURE, Verdict};

pub use report::{Header, markdown};

/// Answers that must come between two flips.
const ANSWERS: u64 = 20;
/// How long a machine whose clients have ended may take to end.
const AFTER: Duration = Duration::from_secs(20);

/// What a campaign does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// Seed.
    pub seed: u64,
    /// Replicas.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// Transfer memory is hit, and nothing else.
    pub transfer: bool,
    /// Milliseconds for which an error is waited for.
    pub bound_ms: u64,
    /// Most flips in one machine.
    pub flips: usize,
}

/// One flip, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// Of which class.
    pub target: Target,
    /// In which replica.
    pub victim: usize,
    /// It was the primary.
    pub primary: bool,
    /// What was changed, in words.
    pub what: String,
    /// What came of it.
    pub verdict: Verdict,
    /// The replica that was removed, or charged.
    pub named: Option<u64>,
    /// More about an error, if there is more.
    pub detail: String,
}

/// One machine from beginning to end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the campaign.
    pub index: u64,
    /// What was done, in this order.
    pub flips: Vec<Injection>,
    /// Right answers.
    pub answers: u64,
    /// Duration in milliseconds.
    pub ms: u64,
}

impl Run {
    /// Errors that it showed.
    #[must_use]
    pub fn errors(&self) -> usize {
        let shown = |it: &&Injection| it.verdict.is_error();
        self.flips.iter().filter(shown).count()
    }

    /// Charges an error to the last flip.
    fn charge(&mut self, error: Error) {
        if let Some(last) = self.flips.last_mut() {
            (last.verdict, last.named, last.detail) = (error.verdict, error.named, error.detail);
        }
    }
}

/// An error as it showed.
struct Error {
    verdict: Verdict,
    named: Option<u64>,
    detail: String,
    /// Is the machine still there, and whole?
    goes_on: bool,
}

impl Error {
    fn fatal(verdict: Verdict, detail: String) -> Self {
        Self {
            verdict,
            named: None,
            detail,
            goes_on: false,
        }
    }
}

/// Results so far, each machine a line of a file.
#[derive(Debug)]
pub struct Journal {
    file: File,
    runs: Vec<Run>,
}

impl Journal {
    /// Begins a journal, or goes on with one of the same campaign.
    ///
    /// # Errors
    /// If it is of another campaign, or cannot be written.
    pub fn open(path: &Path, header: &Header) -> Result<Self> {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if old.is_empty() {
            writeln!(file, "{}", serde_json::to_string(header)?)?;
            let runs = Vec::new();
            return Ok(Self { file, runs });
        }
        let is_none = || format!("{} is no journal", path.display());
        let whole = old.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = old[..whole].lines();
        let first = lines.next().with_context(is_none)?;
        let found: Header = serde_json::from_str(first).with_context(is_none)?;
        let same = found.campaign == header.campaign && found.commit == header.commit;
        ensure!(same, "{} is of another campaign or build", path.display());
        let runs = lines.map(serde_json::from_str).collect::<Result<_, _>>();
        let runs = runs.with_context(is_none)?;
        // Only of what is a journal is a line given up that a run was killed in.
        file.set_len(whole as u64)?;
        Ok(Self { file, runs })
    }

    /// All results.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Errors in all of them.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.runs.iter().map(Run::errors).sum()
    }

    fn append(&mut self, run: Run) -> Result<()> {
        let line = serde_json::to_string(&run)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.runs.push(run);
        Ok(())
    }
}

impl Campaign {
    /// Checks what is asked.
    ///
    /// # Errors
    /// If there are too few replicas for an error to be noticed.
    pub fn check(&self) -> Result<()> {
        let compared = self.replicas >= 2;
        ensure!(compared, "an error is noticed by two replicas or more");
        Ok(())
    }

    /// Runs machines until the journal holds so many errors, or so many machines; `told` hears of
    /// each.
    ///
    /// # Errors
    /// As [`Self::check`]; if a machine does not come to serve, or the journal cannot be written.
    pub fn run(
        &self,
        setup: &Setup,
        (errors, machines): (usize, usize),
        journal: &mut Journal,
        mut told: impl FnMut(&Journal),
    ) -> Result<()> {
        self.check()?;
        let enough = |all: &Journal| all.errors() >= errors || all.runs.len() >= machines;
        while !enough(journal) && !interrupt::is_due() {
            let index = journal.runs.len() as u64;
            let left = errors - journal.errors();
            let run = self.machine(setup, index, left);
            let run = run.with_context(|| format!("machine {index}"))?;
            let hit = !run.flips.is_empty() || interrupt::is_due();
            ensure!(hit, "machine {index}: there was nothing to be hit");
            journal.append(run)?;
            told(journal);
        }
        Ok(())
    }

    /// One machine, which shows so many errors at most.
    fn machine(&self, setup: &Setup, index: u64, errors: usize) -> Result<Run> {
        let mut rng = Rng::new(&[self.seed, index]);
        let folder = setup.folder.join(format!("run-{index}"));
        let shape = Shape {
            replicas: self.replicas,
            compare: &self.compare,
        };
        let mut machine = Machine::start(shape, setup, &folder)?;
        let began = Instant::now();
        let clients = Clients::start(machine.port, machine.began, setup.deadline, rng.next())?;
        let mut run = Run {
            index,
            ..Run::default()
        };
        let whole = self.harm(&mut machine, &clients, &mut rng, (&mut run, errors))?;
        run.answers = if whole {
            end(machine, clients, &mut run)?
        } else {
            leave(machine, clients, &mut run)
        };
        run.ms = milliseconds(began.elapsed());
        Ok(run)
    }

    /// Flips bits until there is enough of it, or the machine is not what it was; false then.
    fn harm(
        &self,
        machine: &mut Machine,
        clients: &Clients,
        rng: &mut Rng,
        (run, errors): (&mut Run, usize),
    ) -> Result<bool> {
        let mut victim = usize::try_from(rng.next() % self.replicas as u64)?;
        let targets: &[(Target, u64)] = if self.transfer {
            &OF_TRANSFER
        } else {
            &OF_SERVICE
        };
        let mut known = 0;
        for _ in 0..self.flips {
            if run.errors() >= errors || interrupt::is_due() {
                break;
            }
            let primary = machine.seen().primary == victim as u64;
            let Some(hit) = machine.flip(victim, &Flip::among(rng, targets))? else {
                if machine.is_over()? {
                    run.charge(of_end(machine)?);
                    return Ok(false);
                }
                continue;
            };
            run.flips.push(Injection {
                target: hit.target,
                victim,
                primary,
                what: hit.to_string(),
                verdict: Verdict::Masked,
                named: None,
                detail: String::new(),
            });
            let Some(error) = self.see(machine, clients, &mut known)? else {
                continue;
            };
            let goes_on = error.goes_on;
            run.charge(error);
            if !goes_on {
                return Ok(false);
            }
            victim = (victim + 1) % self.replicas;
        }
        Ok(true)
    }

    /// Waits for an error until the bound is over and clients were answered, and what comes of it.
    fn see(
        &self,
        machine: &mut Machine,
        clients: &Clients,
        known: &mut usize,
    ) -> Result<Option<Error>> {
        let bound = Duration::from_millis(self.bound_ms);
        let removed = |seen: &Events| seen.removed.len() > *known;
        let told = machine.watch_to_end(bound, removed)?;
        if told.is_none() && !machine.is_over()? {
            match clients.wait(ANSWERS, || machine.seen().removed.len() > *known) {
                Waited::Answered => return Ok(None),
                Waited::Ended => return of_clients(machine).map(Some),
                Waited::Silent => {
                    let why = format!("no client is answered: {}", machine.condition());
                    return Ok(Some(Error::fatal(Verdict::Hang, why)));
                }
                Waited::Else => {}
            }
        }
        if machine.is_over()? {
            return of_end(machine).map(Some);
        }
        let at = *known;
        let error = see_back(machine, clients, at)?;
        *known = machine.seen().removed.len();
        Ok(Some(error))
    }
}

/// A replica was removed, and is to come back.
fn see_back(machine: &mut Machine, clients: &Clients, known: usize) -> Result<Error> {
    let is_back = |seen: &Events| seen.returned.len() >= seen.removed.len();
    let seen = machine.watch_to_end(machine.patience(), is_back)?;
    if machine.is_over()? {
        return of_end(machine);
    }
    let Some(seen) = seen else {
        return of_missing(machine, clients, known);
    };
    Ok(Error {
        verdict: Verdict::Corrected(kind_of(&seen, known)),
        named: seen.removed.get(known).copied(),
        detail: String::new(),
        goes_on: true,
    })
}

/// A replica does not come back: are clients answered without it?
fn of_missing(machine: &mut Machine, clients: &Clients, known: usize) -> Result<Error> {
    let why = format!("the replica does not come back: {}", machine.condition());
    let verdict = match clients.wait(ANSWERS, || false) {
        Waited::Answered => Verdict::Unreturned(kind_of(&machine.seen(), known)),
        Waited::Ended => return of_clients(machine),
        Waited::Silent | Waited::Else => Verdict::Hang,
    };
    Ok(Error::fatal(verdict, why))
}

/// By what the replica was found that was removed after so many others.
fn kind_of(seen: &Events, known: usize) -> String {
    let kind = seen.divergences.get(known).map(|it| it.kind.clone());
    kind.unwrap_or_else(|| "unreported".into())
}

/// The error by which a machine ended, if its clients saw nothing wrong.
fn of_end(machine: &mut Machine) -> Result<Error> {
    let status = machine.status()?;
    let last = machine.seen().divergences.pop();
    let named = last.as_ref().and_then(|it| it.replica);
    let kind = last.map_or_else(|| "unreported".into(), |it| it.kind);
    let verdict = match status.and_then(|it| it.code()) {
        Some(FAIL_STOP) => Verdict::FailStop(kind),
        Some(RCOE_FAILURE) => Verdict::RcoeFailure,
        None if status.is_none() => Verdict::Hang,
        _ => Verdict::Crash,
    };
    // Where others could have gone on, it is told why they did not.
    let detail = if verdict.is_uncontrolled() || machine.can_mask() {
        machine.told()
    } else {
        String::new()
    };
    Ok(Error {
        named,
        ..Error::fatal(verdict, detail)
    })
}

/// A client has ended: so does the machine, or it is the client that has seen what is wrong.
fn of_clients(machine: &mut Machine) -> Result<Error> {
    machine.watch_to_end(AFTER, |_| false)?;
    if machine.is_over()? {
        return of_end(machine);
    }
    let why = "a connection broke".to_owned();
    Ok(Error::fatal(Verdict::Crash, why))
}

/// Ends a machine that is whole, as far as is known; the number of right answers.
fn end(mut machine: Machine, clients: Clients, run: &mut Run) -> Result<u64> {
    let closed = clients.stop();
    let settled = closed.settle();
    if settled.is_err() && machine.is_over()? {
        run.charge(of_end(&mut machine)?);
        judge(&closed, run);
        return Ok(closed.answers());
    }
    let ended = machine.finish();
    let wrong = match (&settled, &ended) {
        (Err(error), _) => {
            let verdict = match (closed.wrong(), closed.lost()) {
                (None, Some(ErrorKind::TimedOut)) => Verdict::Hang,
                (None, Some(_)) => Verdict::Crash,
                _ => Verdict::Sdc,
            };
            Some((verdict, error))
        }
        (_, Err(error)) => Some((Verdict::Crash, error)),
        _ => None,
    };
    if let Some((verdict, error)) = wrong {
        run.charge(Error::fatal(verdict, format!("at the end: {error:#}")));
    }
    Ok(closed.answers())
}

/// Leaves a machine that is not whole any more; the number of right answers.
fn leave(machine: Machine, clients: Clients, run: &mut Run) -> u64 {
    drop(machine);
    let closed = clients.stop();
    judge(&closed, run);
    closed.answers()
}

/// What clients saw is worse than how their machine ended.
fn judge(closed: &Closed, run: &mut Run) {
    if let (Some(wrong), Some(last)) = (closed.wrong(), run.flips.last_mut()) {
        let stopped = matches!(last.verdict, Verdict::FailStop(_));
        last.verdict = if stopped { Verdict::Leak } else { Verdict::Sdc };
        last.detail = wrong;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(seed: u64) -> Header {
        Header {
            campaign: Campaign {
                seed,
                replicas: 2,
                compare: "args".into(),
                transfer: false,
                bound_ms: 100,
                flips: 10,
            },
            commit: "c".into(),
            machine: "m".into(),
        }
    }

    #[test]
    fn a_journal_goes_on_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path, &header(1)).unwrap();
        journal.append(Run::default()).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"index\":1")).unwrap();
        assert_eq!(Journal::open(&path, &header(1)).unwrap().runs().len(), 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        for other in ["a letter", "a letter\nand more", whole.as_str()] {
            std::fs::write(&path, other).unwrap();
            assert!(Journal::open(&path, &header(2)).is_err(), "{other}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
    }
}
