//! A service under faults: Redis as three replicas, flipped bits in a random one again and again.
//!
//! Three things run beside the server: YCSB-B with `dataintegrity=true`, which verifies every value
//! it reads; a ledger client that counts up one key, so that an operation lost or done twice shows
//! at once; and the fault lab, which flips one bit of a random replica (the primary too), and again
//! as soon as some time has passed and all replicas are back.
//!
//! Contract: [`Outcome::is_right`] only if no client saw an error, a wrong value or a wrong count,
//! and all replicas were there at the end. Flips are a pure function of the seed and their number;
//! when they hit is not.
//!
//! Not covered: flips in memory that all replicas share, and in the clients.

mod ledger;
mod plot;
mod summary;
mod watch;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rcoe_faultlab::inject::{self, When};
use rcoe_faultlab::plan::{Plan, Space};
use rcoe_faultlab::target::Targets;
use serde::Serialize;

use crate::client::{Client, Work};
use crate::configuration::{Configuration, protected};
use crate::server::{Server, Service};
use crate::workshop::Workshop;
use crate::ycsb::throughput;

pub use ledger::Ledger;
pub use plot::draw;
pub use summary::markdown;
pub use watch::{Moment, What};

/// Stops of a replica in search of a moment at which it can be hit.
const STOPS: u32 = inject::STOPS;
/// How long all replicas may take to be back after the last flip.
const SETTLE: Duration = Duration::from_secs(60);
/// Between two looks at the events.
const LOOK: Duration = Duration::from_millis(50);
/// More operations than any run makes: the time ends it.
const ENDLESS: u64 = 1_000_000_000;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Order {
    /// For how many minutes.
    #[arg(long, default_value_t = 30.0)]
    pub minutes: f64,
    /// Seconds between two flips, at least; the next one also waits until all replicas are back.
    #[arg(long, default_value_t = 5.0)]
    pub every: f64,
    /// Number of replicas.
    #[arg(short = 'n', long, default_value_t = 3,
        value_parser = clap::value_parser!(u8).range(3..9))]
    pub replicas: u8,
    /// Decides what is flipped.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// MiB of memory that replicas compare a second (`rcoe run --scrub`); 0 for none.
    #[arg(long, default_value_t = 16)]
    pub scrub: u16,
    /// What is flipped: gpr, xmm, text, data, heap, stack, mmap, agent, or regs and mem.
    #[arg(long, default_value = "regs,mem")]
    pub targets: String,
    /// Write throughput, longest wait and faults over time to this file, as SVG.
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Write everything that was seen to this file, as JSON.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// One second of the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Second {
    /// Seconds since the start.
    pub at: f64,
    /// Operations of YCSB in this second.
    pub operations: f64,
}

/// What was seen.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Bits flipped.
    pub flips: Vec<Moment>,
    /// Faults that rcoe noticed, replicas that it removed and brought back.
    pub events: Vec<Moment>,
    /// YCSB, second by second.
    pub seconds: Vec<Second>,
    /// The client that counts.
    pub ledger: Ledger,
    /// YCSB's operations a second over all, or what went wrong.
    pub ycsb: Result<f64, String>,
    /// What went wrong with the server, if anything.
    pub server: Option<String>,
    /// Replicas at the end.
    pub replicas: usize,
    /// Replicas asked for.
    pub wanted: usize,
}

impl Outcome {
    /// No client saw anything wrong, and all replicas were there at the end.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.ycsb.is_ok()
            && self.server.is_none()
            && self.ledger.is_right()
            && self.replicas == self.wanted
    }

    /// How many events of this kind there were.
    #[must_use]
    pub fn count(&self, what: What) -> usize {
        self.events
            .iter()
            .filter(|event| event.what == what)
            .count()
    }
}

/// Runs it.
///
/// # Errors
///
/// If a part cannot be started. What goes wrong after that is in the outcome.
pub fn run(workshop: &Workshop, order: &Order) -> Result<Outcome> {
    let client = Client::build().context("the YCSB client cannot be built")?;
    let replicas = usize::from(order.replicas);
    let configuration = Configuration {
        scrub: Some(order.scrub),
        ..protected(replicas, "args")
    };
    let mut server = Server::start(workshop, Service::Redis, configuration, 0)?;
    let work = Work {
        records: 1_000,
        operations: ENDLESS,
        scans: 0,
    };
    let load = client.start(work, "load", server.port())?;
    client.finish(load)?;
    let scene = Scene {
        order,
        server: &server,
        started: Instant::now(),
        over: AtomicBool::new(false),
        moments: Mutex::default(),
    };
    let (flips, ycsb, seconds, ledger) = scene.play(&client, work)?;
    let watch = scene.moments.into_inner().expect("no thread panicked");
    let outcome = Outcome {
        flips,
        events: watch.moments().to_vec(),
        replicas: watch.present(),
        seconds,
        ledger,
        ycsb,
        server: None,
        wanted: replicas,
    };
    let ended = server.end().err().map(|error| format!("{error:#}"));
    Ok(Outcome {
        server: ended,
        ..outcome
    })
}

/// What the threads of a run share.
struct Scene<'a> {
    order: &'a Order,
    server: &'a Server,
    started: Instant,
    over: AtomicBool,
    moments: Mutex<watch::Watch>,
}

/// Flips, YCSB's result, YCSB's seconds, the ledger.
type Parts = (Vec<Moment>, Result<f64, String>, Vec<Second>, Ledger);

impl Scene<'_> {
    fn play(&self, client: &Client, work: Work) -> Result<Parts> {
        let length = Duration::from_secs_f64(self.order.minutes * 60.0);
        let mut ycsb = client.start_timed(work, "B", self.server.port(), length)?;
        let progress = ycsb.stderr.take().context("the client's progress")?;
        thread::scope(|scope| {
            let ledger = scope.spawn(|| Ledger::keep(self.server.port(), &self.over));
            let seconds = scope.spawn(|| self.read_progress(BufReader::new(progress)));
            let flips = scope.spawn(|| self.flip_until(length));
            let finished = ycsb.wait_with_output();
            let flips = flips.join().expect("flipping does not panic");
            self.settle();
            self.over.store(true, Ordering::Release);
            let result = finished.map_err(anyhow::Error::from).and_then(|output| {
                ensure!(output.status.success(), "YCSB ended with {}", output.status);
                throughput(&String::from_utf8_lossy(&output.stdout))
            });
            Ok((
                flips?,
                result.map_err(|error| format!("{error:#}")),
                seconds.join().expect("reading does not panic"),
                ledger.join().expect("counting does not panic"),
            ))
        })
    }

    /// Flips bits until the time is over or the server is gone.
    fn flip_until(&self, length: Duration) -> Result<Vec<Moment>> {
        let space = Space {
            seed: self.order.seed,
            programs: 1,
            replicas: self.order.replicas.into(),
            flips: 1,
            targets: self.targets()?,
        };
        let mut flips = Vec::new();
        let mut last = Instant::now();
        let mut index = 0;
        while self.started.elapsed() < length && !self.is_gone() {
            thread::sleep(LOOK);
            let complete = self.look() == usize::from(self.order.replicas);
            if !complete || last.elapsed().as_secs_f64() < self.order.every {
                continue;
            }
            flips.extend(self.flip(&Plan::derive(&space, index, 0)));
            index += 1;
            last = Instant::now();
        }
        Ok(flips)
    }

    fn flip(&self, plan: &Plan) -> Option<Moment> {
        let pid = self.lock().pid(plan.replica)?;
        let hit = inject::flip(pid, When::Any, plan, STOPS).ok()?;
        let moment = Moment {
            at: self.started.elapsed().as_secs_f64(),
            what: What::Flip,
            replica: u64::try_from(plan.replica).ok(),
            detail: format!("{} bit {}", hit.place, hit.bit),
        };
        eprintln!(
            "{:7.1} s  flip in replica {}: {}",
            moment.at, plan.replica, moment.detail
        );
        Some(moment)
    }

    fn targets(&self) -> Result<Targets> {
        self.order.targets.parse().map_err(anyhow::Error::msg)
    }

    /// Waits for all replicas to be back.
    fn settle(&self) {
        let deadline = Instant::now() + SETTLE;
        while self.look() < self.order.replicas.into() && Instant::now() < deadline {
            if self.is_gone() {
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Reads the new events; how many replicas there are.
    fn look(&self) -> usize {
        let mut watch = self.lock();
        for moment in watch.follow(self.server.events(), self.started) {
            eprintln!("{:7.1} s    {}: {}", moment.at, moment.what, moment.detail);
        }
        watch.present()
    }

    fn is_gone(&self) -> bool {
        self.lock().is_over()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, watch::Watch> {
        self.moments.lock().expect("no holder panics")
    }

    /// Operations second by second, from the lines that YCSB writes meanwhile.
    fn read_progress(&self, lines: impl BufRead) -> Vec<Second> {
        let mut before = (0.0, 0.0);
        let mut seconds = Vec::new();
        for line in lines.lines().map_while(Result::ok) {
            let Some(total) = operations_of(&line) else {
                continue;
            };
            let at = self.started.elapsed().as_secs_f64();
            let rate = (total - before.1) / (at - before.0).max(1e-3);
            seconds.push(Second {
                at,
                operations: rate.max(0.0),
            });
            before = (at, total);
        }
        seconds
    }
}

/// The operations so far, from `... 12 sec: 3456 operations; ...`.
fn operations_of(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once(" sec: ")?;
    rest.split_once(" operations")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::operations_of;

    #[test]
    fn progress_of_the_client_is_understood() {
        let line = "2026-01-01 00:00:01:123 12 sec: 3456 operations; 300 current ops/sec; ";
        assert_eq!(operations_of(line), Some(3456.0));
        assert_eq!(operations_of("Starting test."), None);
    }
}
