//! Runs injections: calibrates without faults, then draws, flips, observes and records.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::prctl;

use crate::child::{Finished, Running, Setup};
use crate::inject::{self, Hit, Miss, STOPS, When};
use crate::interrupt;
use crate::journal::{Journal, Record};
use crate::plan::{Plan, Rng, Space};
use crate::program::{self, Program};
use crate::taxonomy::{Expected, Verdict, classify};

/// How often an index is drawn anew when nothing could be flipped.
const ATTEMPTS: u32 = 6;
/// How many replicas of a program's processes are looked at in search of one to hit.
const TRIES: u32 = 200;
/// The replica that has the effects of a program, as long as nothing was flipped.
const PRIMARY: usize = 0;
/// Fault-free runs per program before a campaign.
const CALIBRATIONS: u64 = 5;

/// A folder with the programs' inputs that vanishes with this value.
#[derive(Debug)]
pub struct WorkFolder(PathBuf);

impl WorkFolder {
    /// Makes the folder and writes the inputs.
    ///
    /// # Errors
    ///
    /// If the system's folder for temporary files is not writable.
    pub fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("rcoe-faultlab-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let folder = Self(path);
        program::write_inputs(&folder.0)?;
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // A folder left in the place for temporary files does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program with what it does when nothing is flipped.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The program.
    pub program: Program,
    /// Output and status, from a bare run.
    pub expected: Expected,
    /// Time from the moment the replicas are known to the end of the run, without a flip.
    pub duration: Duration,
}

/// Everything needed to carry out any index of a campaign.
#[derive(Debug)]
pub struct Lab {
    setup: Setup,
    space: Space,
    when: When,
    programs: Vec<Calibrated>,
}

impl Lab {
    /// Calibrates the programs: a bare run each for the right output, then several runs as set up,
    /// which must be right and raise no alarm.
    ///
    /// # Errors
    ///
    /// If a program cannot be run, or goes wrong without any fault.
    pub fn prepare(
        setup: Setup,
        programs: &[Program],
        mut space: Space,
        when: When,
    ) -> Result<Self> {
        // Processes orphaned by a killed supervisor come to us, so that none can hide.
        prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
        let calibrated = programs.iter().map(|program| calibrate(&setup, program));
        let programs = calibrated.collect::<Result<Vec<_>>>()?;
        space.programs = programs.len();
        Ok(Self {
            when,
            setup,
            space,
            programs,
        })
    }

    /// The programs with what they do when nothing is flipped.
    #[must_use]
    pub fn programs(&self) -> &[Calibrated] {
        &self.programs
    }

    /// Carries out one index, from attempt `first` on; `worker` keeps concurrent ones apart.
    ///
    /// # Errors
    ///
    /// If a run cannot be started or waited for.
    pub fn inject(&self, index: u64, first: u32, worker: u64) -> Result<Record> {
        let mut misses = first;
        loop {
            let plan = Plan::derive(&self.space, index, misses);
            let target = &self.programs[plan.program];
            let (flipped, run) = self.attempt(&plan, target, worker)?;
            let applied = flipped.is_ok();
            let verdict = classify(self.setup.replicas, applied, &target.expected, &run);
            if verdict == Verdict::NotApplied && misses + 1 < first + ATTEMPTS {
                misses += 1;
                continue;
            }
            return Ok(record(plan, target, flipped, verdict, &run, misses));
        }
    }

    fn attempt(&self, plan: &Plan, target: &Calibrated, worker: u64) -> Result<(Strike, Finished)> {
        let running = Running::start(&self.setup, &target.program, worker)?;
        let flipped = strike(&running, self.when, plan, target);
        let finished = running.finish()?;
        Ok((flipped, finished))
    }
}

/// What was hit and how long after the start, or why nothing was.
type Strike = Result<(Hit, Duration), Miss>;

/// Waits for the moment and flips.
fn strike(running: &Running, when: When, plan: &Plan, target: &Calibrated) -> Strike {
    let replica = if when == When::Entry {
        PRIMARY
    } else {
        plan.replica
    };
    let pid = running.replica(replica).ok_or(Miss::Ended)?;
    thread::sleep(target.duration.mul_f64(plan.moment));
    let hit = if target.program.children && !running.is_bare() {
        strike_any(running, when, plan)?
    } else {
        inject::flip(pid, when, plan, STOPS)?
    };
    let at = hit
        .at
        .map_or_else(|| running.elapsed(), |at| running.since_start(at));
    Ok((hit, at))
}

/// Flips in a replica of any process of the program that can be found in the state asked for.
fn strike_any(running: &Running, when: When, plan: &Plan) -> Result<Hit, Miss> {
    let mut miss = Miss::Ended;
    let mut random = Rng::new(&[plan.process]);
    for _ in 0..TRIES {
        let pid = running.any_replica(random.next()).ok_or(miss.clone())?;
        match inject::flip(pid, when, plan, 1) {
            Ok(hit) => return Ok(hit),
            // It waits, or ended at this moment; others may not.
            Err(Miss::InKernel | Miss::Ended) => miss = Miss::InKernel,
            Err(other) => miss = other,
        }
    }
    Err(miss)
}

fn record(
    plan: Plan,
    target: &Calibrated,
    flipped: Strike,
    verdict: Verdict,
    run: &Finished,
    misses: u32,
) -> Record {
    let divergence = run.events.divergences.first();
    let mut detail = divergence.map_or_else(String::new, |d| d.detail.clone());
    let (hit, at) = match flipped {
        Ok((hit, at)) => (Some(hit), at),
        Err(miss) => {
            detail = format!("{miss}; {detail}");
            (None, run.wall)
        }
    };
    let detected_us = hit.as_ref().and(noticed(run, at));
    let evidence = if verdict.is_uncontrolled() {
        evidence(run)
    } else {
        String::new()
    };
    let replica = hit.as_ref().and_then(|hit| hit.replica);
    let replica = replica.unwrap_or(plan.replica as u64);
    let mut replicas = run.events.replicas.iter();
    Record {
        core: replicas.find(|it| it.id == replica).and_then(|it| it.core),
        charged: divergence.and_then(|divergence| divergence.core),
        plan,
        name: target.program.name.to_owned(),
        hit,
        verdict,
        exit: run.exit,
        named: divergence.and_then(|divergence| divergence.replica),
        detail,
        detected_us,
        after_us: micros(run.wall.saturating_sub(at)),
        wall_us: micros(run.wall),
        leftovers: run.leftovers,
        misses,
        evidence,
    }
}

/// Microseconds from a flip at that time until the first divergence was told; negative if that was
/// before the flip.
fn noticed(run: &Finished, flip: Duration) -> Option<i64> {
    let told = run.clock? + run.events.divergences.first()?.at?;
    let signed = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    Some(signed(told) - signed(flip))
}

/// The beginning of what an uncontrolled run wrote.
fn evidence(run: &Finished) -> String {
    let head = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
    let out = head(&run.stdout);
    format!(
        "{} bytes out: {out:?}; error output: {:?}",
        run.stdout.len(),
        head(run.stderr.as_bytes())
    )
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn calibrate(setup: &Setup, program: &Program) -> Result<Calibrated> {
    let bare = Setup {
        replicas: 0,
        ..setup.clone()
    };
    let run = Running::start(&bare, program, 0)?.finish()?;
    let exit = run
        .exit
        .with_context(|| format!("{} hangs when run bare", program.name))?;
    let expected = Expected {
        exit,
        stdout: run.stdout,
    };
    let mut times = Vec::new();
    for _ in 0..CALIBRATIONS {
        let running = Running::start(setup, program, 0)?;
        let known = running.replica(0).map(|_| running.elapsed());
        let run = running.finish()?;
        let verdict = classify(setup.replicas, false, &expected, &run);
        ensure!(
            verdict == Verdict::NotApplied && run.leftovers == 0,
            "{} with n = {} ends in '{}' without any flip: {} {}",
            program.name,
            setup.replicas,
            verdict.label(),
            evidence(&run),
            run.events
                .divergences
                .first()
                .map_or("", |divergence| &divergence.detail),
        );
        times.push(run.wall.saturating_sub(known.unwrap_or_default()));
    }
    times.sort_unstable();
    Ok(Calibrated {
        program: *program,
        expected,
        duration: times[times.len() / 2],
    })
}

/// Which indices a campaign works on.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// First index.
    pub start: u64,
    /// Number of indices.
    pub count: u64,
    /// This part (from 0) of so many.
    pub shard: (u64, u64),
}

impl Range {
    /// The indices in order.
    pub fn indices(self) -> impl Iterator<Item = u64> {
        let (part, parts) = self.shard;
        (self.start..self.start + self.count).filter(move |index| index % parts == part)
    }
}

/// Carries out all indices of `range` that the journal lacks, on `jobs` threads, until it is
/// interrupted; `tell` hears of every new result.
///
/// # Errors
///
/// The first failure of a run to start or of the journal to be written; other threads end after
/// their current run.
pub fn run(
    lab: &Lab,
    range: Range,
    jobs: u64,
    journal: &Mutex<Journal>,
    tell: &(dyn Fn(&Record, &Journal) + Sync),
) -> Result<()> {
    let todo: Vec<u64> = {
        let journal = journal
            .lock()
            .expect("no thread panics holding the journal");
        range
            .indices()
            .filter(|index| !journal.has(*index))
            .collect()
    };
    let next = AtomicU64::new(0);
    let work = |worker: u64| -> Result<()> {
        loop {
            let place = usize::try_from(next.fetch_add(1, Ordering::Relaxed))?;
            let Some(&index) = todo.get(place).filter(|_| !interrupt::is_due()) else {
                return Ok(());
            };
            let record = lab.inject(index, 0, worker).inspect_err(|_| {
                next.store(todo.len() as u64, Ordering::Relaxed);
            })?;
            let mut journal = journal
                .lock()
                .expect("no thread panics holding the journal");
            journal.append(record.clone())?;
            tell(&record, &journal);
        }
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (1..jobs).map(|id| scope.spawn(move || work(id))).collect();
        let own = work(0);
        let others = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked")))
        });
        others.fold(own, Result::and)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Range, noticed};
    use crate::child::Finished;
    use crate::events::Events;

    fn finished(clock: Option<u64>, events: &str) -> Finished {
        Finished {
            exit: None,
            stdout: Vec::new(),
            stderr: String::new(),
            events: Events::parse(events),
            wall: Duration::ZERO,
            clock: clock.map(Duration::from_millis),
            leftovers: 0,
        }
    }

    #[test]
    fn what_was_noticed_is_timed_by_the_first_divergence_on_one_clock() {
        let told = "{\"type\":\"divergence\",\"t\":1.5}\n{\"type\":\"divergence\",\"t\":9}";
        let run = finished(Some(20), told);
        let late = |ms| noticed(&run, Duration::from_millis(ms));
        assert_eq!(late(1000), Some(520_000));
        assert_eq!(late(2000), Some(-480_000), "before the flip");
        let flip = Duration::from_secs(1);
        assert_eq!(noticed(&finished(None, told), flip), None);
        assert_eq!(noticed(&finished(Some(20), ""), flip), None);
        let old = "{\"type\":\"divergence\"}";
        assert_eq!(noticed(&finished(Some(20), old), flip), None);
    }

    #[test]
    fn shards_share_out_all_indices() {
        let mut all: Vec<u64> = (0..3)
            .flat_map(|part| {
                Range {
                    start: 10,
                    count: 20,
                    shard: (part, 3),
                }
                .indices()
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all, (10..30).collect::<Vec<_>>());
    }
}
