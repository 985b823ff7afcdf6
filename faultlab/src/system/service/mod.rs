//! A service in a machine of the system sphere that loses its replicas, one after the other.
//!
//! The distribution's Redis runs in a machine of three replicas or more; clients on the host reach
//! it through the published port, know every answer, and never connect again. One replica after
//! the other is lost, beginning with the primary: its kernel is made to stop, its core is stuck, or
//! a bit of it is flipped; the next one as soon as the lost one is back and clients are answered.
//! Each kind of fault meets each replica before the next kind comes. A flip of which nothing is
//! told within a bound is *without effect* so far, which says nothing of what it would have done:
//! so that no two replicas are faulty, the next bit is flipped in the same one, and if a number of
//! them had no effect its kernel is made to stop. What shows after the bound all the same is
//! charged to the last flip.
//!
//! Contract: a run is right if every answer was, each count was made once, no connection broke, all
//! replicas were back each time, and machine and server ended with status 0. The seed decides
//! flips and pauses, but not the moment at which the machine stands still.
//!
//! Not covered: AArch64; two losses at a time, and losses while a replica is brought back.

mod clients;
pub mod errors;
mod faults;
mod machine;
mod report;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::events::Events;
use crate::interrupt;
use crate::plan::Rng;

use clients::Clients;
pub use faults::Kind;
use machine::{Machine, Shape};
pub use report::{Header, markdown};

/// Answers that must come between two faults.
const ANSWERS: u64 = 100;
/// A campaign in which so many runs were wrong is not worth going on with.
const ENOUGH_WRONG: usize = 10;

/// What a campaign does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// Seed.
    pub seed: u64,
    /// Replicas.
    pub replicas: usize,
    /// `--compare`.
    pub compare: String,
    /// Kinds of faults, in turn.
    pub kinds: Vec<Kind>,
    /// Milliseconds at most from the end of one fault to the next; by chance less.
    pub pause_ms: u64,
    /// Milliseconds after which a flip is without effect.
    pub bound_ms: u64,
    /// Flips of one replica until one has an effect, before it is made to stop.
    pub flips: usize,
    /// Most faults in one machine.
    pub per_run: usize,
}

/// Where machines run, and how.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The `rcoe` binary.
    pub rcoe: PathBuf,
    /// Folder for machines.
    pub folder: PathBuf,
    /// How long to wait for an answer, for a loss to be told, and for a replica to be back.
    pub deadline: Duration,
}

/// One fault, and what was told of it. Times are of the machine's events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind.
    pub kind: Kind,
    /// To which replica.
    pub victim: usize,
    /// It was the primary.
    pub primary: bool,
    /// What was done, in words.
    pub what: String,
    /// Milliseconds since the run began.
    pub at_ms: u64,
    /// What the machine called it, or nothing: it was without effect.
    pub told: Option<Told>,
}

/// How a loss was noticed, and mended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// `fault`, `timeout` or `mismatch`.
    pub kind: String,
    /// Replicas that were removed: the victim alone, as a rule.
    pub removed: Vec<u64>,
    /// Milliseconds from the fault until that was told, which the lab's clock knows to some five.
    pub late_ms: u64,
    /// Milliseconds from then on until all were back.
    pub back_ms: u64,
}

/// One machine from beginning to end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number in the campaign.
    pub index: u64,
    /// What was done, in this order.
    pub faults: Vec<Fault>,
    /// Right answers.
    pub answers: u64,
    /// Answers in each tenth of a second since the run began.
    pub tenths: Vec<u32>,
    /// Microseconds of the longest wait for an answer.
    pub slowest_us: u64,
    /// Duration in milliseconds.
    pub ms: u64,
    /// What was wrong; empty if nothing was.
    pub wrong: String,
    /// A client saw a wrong answer, or its connection broke.
    pub spoilt: bool,
}

/// Sleeps for a time by chance, of so many milliseconds at most.
fn pause(rng: &mut Rng, most: u64) {
    thread::sleep(Duration::from_micros(rng.next() % (1000 * most).max(1)));
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Campaign {
    /// Run number `index`, with at most `faults` faults.
    ///
    /// # Errors
    /// If the machine does not come to serve.
    pub fn run(&self, setup: &Setup, index: u64, faults: usize) -> Result<Run> {
        let mut rng = Rng::new(&[self.seed, index]);
        let folder = setup.folder.join(format!("run-{index}"));
        let mut machine = Machine::start(self.shape(), setup, &folder)?;
        let (port, began) = (machine.port, machine.began);
        let clients = Clients::start(port, began, setup.deadline, rng.next())?;
        let mut run = Run {
            index,
            ..Run::default()
        };
        let most = faults.min(self.per_run);
        let harm = self.harm(&mut machine, &clients, &mut rng, (&mut run, most));
        run.slowest_us = clients.slowest.us();
        let pace = clients.pace.clone();
        let books = clients.close();
        run.tenths = pace.tenths();
        run.spoilt = books.is_err();
        let ended = match harm {
            Ok(()) => machine.finish(),
            Err(error) => Err(error),
        };
        let wrong = [books.as_ref().err(), ended.as_ref().err()];
        let wrong: Vec<String> = wrong
            .into_iter()
            .flatten()
            .map(|it| format!("{it:#}"))
            .collect();
        run.wrong = wrong.join("; ");
        run.answers = books.unwrap_or(0);
        run.ms = milliseconds(began.elapsed());
        Ok(run)
    }

    fn shape(&self) -> Shape<'_> {
        Shape {
            replicas: self.replicas,
            compare: &self.compare,
        }
    }

    /// Does so many faults, each when the one before is over.
    fn harm(
        &self,
        machine: &mut Machine,
        clients: &Clients,
        rng: &mut Rng,
        (run, most): (&mut Run, usize),
    ) -> Result<()> {
        let mut turn = 0;
        let (mut latent, mut flips) = (None, 0);
        while run.faults.len() < most && !interrupt::is_due() {
            clients.wait_for(ANSWERS)?;
            if clients.have_ended() {
                break;
            }
            pause(rng, self.pause_ms);
            if tell_late(machine, run)? {
                (latent, flips) = (None, 0);
            }
            let (kind, victim) = latent.take().unwrap_or_else(|| self.in_turn(&mut turn));
            let fault = self.lose(machine, kind, victim, rng, run)?;
            flips += 1;
            if fault.told.is_some() {
                flips = 0;
            } else if flips < self.flips {
                latent = Some((Kind::Flip, victim));
            } else {
                latent = Some((Kind::Stop, victim));
            }
            run.faults.push(fault);
        }
        // What has broken shows in the answers to come.
        clients.wait_for(ANSWERS)?;
        tell_late(machine, run).map(drop)
    }

    /// What is next: each replica, then the next kind.
    fn in_turn(&self, turn: &mut usize) -> (Kind, usize) {
        let (round, victim) = (*turn / self.replicas, *turn % self.replicas);
        *turn += 1;
        (self.kinds[round % self.kinds.len()], victim)
    }

    /// Does one fault, and waits until what it did is mended.
    fn lose(
        &self,
        machine: &mut Machine,
        kind: Kind,
        victim: usize,
        rng: &mut Rng,
        run: &mut Run,
    ) -> Result<Fault> {
        let before = machine.seen();
        let known = before.removed.len();
        let what = machine.inflict(kind, victim, rng)?;
        let at = machine.began.elapsed();
        let mut fault = Fault {
            kind,
            victim,
            primary: before.primary == victim as u64,
            what,
            at_ms: milliseconds(at),
            told: None,
        };
        match self.see_through(machine, kind, known) {
            Ok(seen) => fault.told = seen.map(|seen| Told::of(&seen, known, at)),
            Err(error) => {
                let told = format!("{} of replica {victim}, {}", kind.name(), fault.what);
                run.faults.push(fault);
                return Err(error).context(told);
            }
        }
        Ok(fault)
    }

    /// Waits until something is told and all are back; nothing, if nothing is told of a flip.
    fn see_through(
        &self,
        machine: &mut Machine,
        kind: Kind,
        known: usize,
    ) -> Result<Option<Events>> {
        let is_told = |seen: &Events| seen.removed.len() > known;
        if kind == Kind::Flip {
            let bound = Duration::from_millis(self.bound_ms);
            if machine.watch(bound, is_told)?.is_none() {
                return Ok(None);
            }
        } else {
            machine.wait("the loss to be told", is_told)?;
        }
        let is_back = |seen: &Events| seen.returned.len() >= seen.removed.len();
        machine.wait("the replica's return", is_back).map(Some)
    }
}

/// Waits until all replicas are there. Whether a flip that was without effect so far has shown
/// since, which is then told of it.
fn tell_late(machine: &mut Machine, run: &mut Run) -> Result<bool> {
    let is_whole = |seen: &Events| seen.returned.len() >= seen.removed.len();
    let seen = machine.wait("all replicas to be there", is_whole)?;
    let told = run.faults.iter().filter_map(|fault| fault.told.as_ref());
    let known: usize = told.map(|told| told.removed.len()).sum();
    let Some(fault) = run.faults.last_mut() else {
        return Ok(false);
    };
    if seen.removed.len() == known {
        return Ok(false);
    }
    let at = Duration::from_millis(fault.at_ms);
    fault.told = Some(Told::of(&seen, known, at));
    Ok(true)
}

impl Told {
    /// What is new in the events since a fault at `at`, before which so many were removed.
    fn of(seen: &Events, known: usize, at: Duration) -> Self {
        // Each removal has its divergence.
        let first = &seen.divergences[known];
        let told = first.at.unwrap_or_default();
        let back = seen.returned.last().and_then(|(_, at)| *at);
        Self {
            kind: first.kind.clone(),
            removed: seen.removed[known..].to_vec(),
            late_ms: milliseconds(told.saturating_sub(at)),
            back_ms: milliseconds(back.unwrap_or_default().saturating_sub(told)),
        }
    }
}

/// Checks what is asked.
///
/// # Errors
/// If there is nothing to do, or too few replicas to lose one.
pub fn check(campaign: &Campaign) -> Result<()> {
    ensure!(
        campaign.replicas >= 3,
        "a loss is masked by three replicas or more"
    );
    ensure!(!campaign.kinds.is_empty(), "no kind of fault is given");
    Ok(())
}

/// Runs of a campaign until there were so many faults, or enough is wrong; `told` hears of each.
///
/// # Errors
/// As [`Campaign::run`].
pub fn run(
    campaign: &Campaign,
    setup: &Setup,
    faults: usize,
    mut told: impl FnMut(&Run),
) -> Result<Vec<Run>> {
    check(campaign)?;
    let (mut runs, mut done, mut wrong) = (Vec::new(), 0, 0);
    while done < faults && wrong < ENOUGH_WRONG && !interrupt::is_due() {
        let index = runs.len() as u64;
        let run = campaign.run(setup, index, faults - done);
        let run = run.with_context(|| format!("run {index}"))?;
        told(&run);
        done += run.faults.len();
        wrong += usize::from(!run.wrong.is_empty());
        runs.push(run);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::{Campaign, Kind, check};

    #[test]
    fn each_kind_meets_each_replica_beginning_with_the_primary() {
        let campaign = Campaign {
            seed: 1,
            replicas: 3,
            compare: "args".into(),
            kinds: vec![Kind::Stuck, Kind::Flip],
            pause_ms: 0,
            bound_ms: 0,
            flips: 1,
            per_run: 1,
        };
        let mut turn = 0;
        let drawn = [(); 7].map(|()| campaign.in_turn(&mut turn));
        let of = |kind| [0, 1, 2].map(|victim| (kind, victim));
        assert_eq!(drawn[..3], of(Kind::Stuck));
        assert_eq!(drawn[3..6], of(Kind::Flip));
        assert_eq!(drawn[6], (Kind::Stuck, 0));
        assert!(check(&campaign).is_ok());
        let [two, none] = [campaign.clone(), campaign].map(|it| Campaign { replicas: 2, ..it });
        let none = Campaign {
            replicas: 3,
            kinds: Vec::new(),
            ..none
        };
        assert!(check(&two).is_err() && check(&none).is_err());
    }
}
