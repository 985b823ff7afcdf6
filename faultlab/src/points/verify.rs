//! One run of which each point is verified.
//!
//! The observer sends a signal, so that a point is looked for; when all replicas stand there it
//! compares them, lets them go on, one of them later than the others by a distance that varies, and
//! sends the next. So it knows how far they are apart when it does, and how long they take.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::child::{Exit, Finished, Running, Setup};
use crate::plan::Rng;
use crate::points::compare;
use crate::points::observer::{Came, Observer};
use crate::points::programs::Subject;
use crate::points::symbols::{Places, places};

/// How much later one replica goes on than the others, in microseconds; in turn.
pub const LAGS: [u64; 6] = [0, 100, 500, 2_000, 5_000, 20_000];
/// What takes the signal at a call comes to no point.
const AT_CALL: Duration = Duration::from_millis(500);
/// A run ends when so many times as many signals were taken at calls.
const MOST_CALLS: u64 = 2;
/// Who has not come then never comes.
const HANG: Duration = Duration::from_secs(90);

/// What a run is.
#[derive(Clone, Debug)]
pub struct Case {
    /// Number in the campaign.
    pub index: u64,
    /// Of the campaign.
    pub seed: u64,
    /// The program.
    pub subject: Subject,
    /// Replicas.
    pub replicas: usize,
    /// Points to verify.
    pub points: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Number in the campaign.
    pub index: u64,
    /// Name of the program.
    pub program: String,
    /// Replicas.
    pub replicas: usize,
    /// Points at which all stood and were compared.
    pub verified: u64,
    /// Those at which they were not in one state.
    pub false_agreements: u64,
    /// Pages that were compared, of each pair of replicas.
    pub pages: u64,
    /// Signals that were taken at a call.
    pub at_calls: u64,
    /// Attempts that were agreed on, those that ended at a call among them, and others.
    pub attempts: [u64; 2],
    /// For each point that a signal led to: distance, and time from the signal until the last one
    /// stood there, in microseconds.
    pub times: Vec<[u64; 2]>,
    /// How rcoe ended; nothing if it had to be killed.
    pub exit: Option<Exit>,
    /// What went wrong, or nothing.
    pub wrong: String,
}

/// Carries one run out.
///
/// # Errors
///
/// If it cannot be started or observed.
pub fn run(setup: &Setup, case: &Case) -> Result<Record> {
    let setup = Setup {
        replicas: case.replicas,
        ..setup.clone()
    };
    let program = case.subject.program(&setup.folder);
    let mut running = Running::start(&setup, &program, case.index)?;
    let mut record = Record {
        index: case.index,
        program: case.subject.name.into(),
        replicas: case.replicas,
        ..Record::default()
    };
    let observed = observe(&mut running, case, &mut record);
    if let Err(error) = observed {
        record.wrong = format!("{error:#}");
        // It would go on for ever.
        kill(Pid::from_raw(running.pid()), Signal::SIGTERM)?;
    }
    judge(&running.finish()?, &mut record);
    Ok(record)
}

/// Verifies points until there are enough, and has the program end.
fn observe(running: &mut Running, case: &Case, record: &mut Record) -> Result<()> {
    let replica = |id| running.replica(id).context("it ended at its start");
    let pids: Vec<i32> = (0..case.replicas).map(replica).collect::<Result<_>>()?;
    // Who has not begun to execute the agent would lose its breakpoint.
    let agents = pids.iter().map(|pid| wait_for_agent(running, *pid));
    let agents = agents.collect::<Result<Vec<_>>>()?;
    let mut observer = Observer::attach(&pids, agents[0])?;
    let supervisor = Pid::from_raw(running.pid());
    running.release()?;
    let mut pauses = Rng::new(&[case.seed, case.index]);
    while record.verified < case.points && record.at_calls <= MOST_CALLS * case.points {
        let lag = lag_of(case, record.verified);
        go_on(&mut observer, lag, record.verified);
        thread::sleep(Duration::from_micros(pauses.next() % 1_000));
        let sent = Instant::now();
        kill(supervisor, Signal::SIGWINCH)?;
        match observer.wait(AT_CALL, HANG) {
            Came::All(since) => {
                let time = since.saturating_duration_since(sent).as_micros();
                record.times.push([lag, u64::try_from(time)?]);
                verify(&observer, record)?;
            }
            Came::None => record.at_calls += 1,
            Came::Some(some) => bail!("only {some:?} came to point {}", record.verified),
            Came::Gone => return Ok(()),
        }
    }
    end(&mut observer, supervisor, record)
}

/// The image shows when a replica has become one.
fn wait_for_agent(running: &Running, pid: i32) -> Result<Places> {
    loop {
        match places(pid) {
            Ok(places) => return Ok(places),
            Err(error) if Instant::now() > running.deadline() => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Threads take slices meanwhile: distances would not be what they were made.
fn lag_of(case: &Case, number: u64) -> u64 {
    let turn = usize::try_from(number / case.replicas as u64).unwrap_or(0) % LAGS.len();
    if case.subject.has_threads() {
        0
    } else {
        LAGS[turn]
    }
}

/// One replica goes on later than the others.
fn go_on(observer: &mut Observer, lag: u64, number: u64) {
    let late = usize::try_from(number).unwrap_or(0) % observer.count();
    for index in (0..observer.count()).filter(|index| *index != late) {
        observer.let_go(index);
    }
    thread::sleep(Duration::from_micros(lag));
    observer.let_go(late);
}

fn verify(observer: &Observer, record: &mut Record) -> Result<()> {
    let first = observer.registers(0).context("it stands there")?;
    for other in 1..observer.count() {
        let registers = observer.registers(other).context("it stands there")?;
        let memory = compare::memory(observer.pid(0), observer.pid(other))?;
        record.pages += memory.pages;
        let found = first.difference(registers).or(memory.difference);
        if let Some(found) = found {
            record.false_agreements += 1;
            record.wrong = format!("point {}: 0 and {other} differ, {found}", record.verified);
            break;
        }
    }
    record.verified += 1;
    Ok(())
}

/// The program prints what it has seen, and ends; points on the way are verified, too.
fn end(observer: &mut Observer, supervisor: Pid, record: &mut Record) -> Result<()> {
    kill(supervisor, Signal::SIGUSR1)?;
    loop {
        go_on(observer, 0, 0);
        match observer.wait(HANG, HANG) {
            Came::All(_) => verify(observer, record)?,
            Came::Gone => return Ok(()),
            other => bail!("it was to end: {other:?}"),
        }
    }
}

fn judge(run: &Finished, record: &mut Record) {
    record.exit = run.exit;
    record.attempts = ["points between calls", "points not agreed on"].map(|row| count(run, row));
    if let Err(error) = is_well(run, record) {
        let before = if record.wrong.is_empty() { "" } else { "; " };
        record.wrong += &format!("{before}{error}");
    }
}

fn is_well(run: &Finished, record: &Record) -> Result<()> {
    ensure!(
        run.exit == Some(Exit::Code(0)),
        "ended with {:?}: {}",
        run.exit,
        run.stderr
    );
    let alarm = run.events.divergences.first();
    ensure!(alarm.is_none(), "false alarm: {alarm:?}");
    ensure!(run.leftovers == 0, "processes are left");
    ensure!(
        record.attempts[1] == 0,
        "{} attempts came to no end",
        record.attempts[1]
    );
    Ok(())
}

/// The most that a replica has in a row of `--stats`.
fn count(run: &Finished, name: &str) -> u64 {
    let row = run
        .stderr
        .lines()
        .find_map(|line| line.trim().strip_prefix(name));
    let words = row.unwrap_or_default().split_whitespace();
    words
        .filter_map(|word| word.parse().ok())
        .max()
        .unwrap_or(0)
}
