//! Recovery: how long it takes to remove a replica and to bring it back, and what a client notices.
//!
//! Three replicas run a service that holds so much memory and answers eight bytes with eight bytes
//! (`probe.c`, `serve`). A client asks again as soon as it has its answer and keeps the longest
//! time between two answers: the *pause*. A replica is killed, or gives a wrong answer because a
//! word of its memory was overwritten. Removals are measured without re-integration, each on a
//! service of its own, so that nothing else is in their pause; re-integrations one after the other
//! on one service, and their pause holds the follower's removal too.
//!
//! *Undisturbed* is the longest time between two answers in as long a time just before each
//! re-integration, with nothing wrong: on a machine where the client and the replicas outnumber
//! the CPUs, a pause means something only beside it.
//!
//! Contract: a wrong answer, a fault that is not masked, or a service that ends fails the suite.
//!
//! *Gone* is what `rcoe run --events` tells as `recovery`: from the supervisor's waking to the end
//! of the removed replica. *Held up* is what it tells at the end: for how long the removal kept the
//! remaining primary, from the beginning of the vote until it went on. Nobody waits for the end of
//! a follower.

mod session;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::configuration::{Configuration, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop};

use session::{Fault, Session};

/// Resident memory in MiB, and by what the number of repetitions is divided.
const SIZES: [(u64, usize); 3] = [(10, 1), (200, 1), (1024, 3)];
/// How long things stay quiet before a fault, at least.
const QUIET: Duration = Duration::from_millis(100);
/// How long after the end of a recovery the client's pause may still begin.
const AFTER: Duration = Duration::from_millis(20);
/// Follower or primary, and what happens to it.
const REMOVALS: [(&str, u64, Fault); 4] = [
    ("follower killed", 2, Fault::Killed),
    ("follower wrong", 2, Fault::Wrong),
    ("primary killed", 0, Fault::Killed),
    ("primary wrong", 0, Fault::Wrong),
];

/// Measures removals and re-integrations at all sizes.
///
/// # Errors
///
/// If a fault is not masked, or an answer is wrong.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let mut collector = Collector::default();
    for (mib, fewer) in SIZES {
        let count = (scale.short / fewer).max(2);
        for _ in 0..count {
            for (name, victim, fault) in REMOVALS {
                let done = removal(workshop, mib, victim, fault);
                let removal = done.with_context(|| format!("{name}, {mib} MiB"))?;
                let mut add = |what: &str, value| {
                    let what = format!("{name}, {mib} MiB: {what}");
                    collector.add(&what, protected(3, "args"), "us", value);
                };
                add("gone", removal.gone);
                add("held up", removal.held_up);
                add("pause", removal.pause);
            }
        }
        returns(workshop, mib, count, &mut collector)
            .with_context(|| format!("re-integration, {mib} MiB"))?;
        eprintln!("recovery: {mib} MiB: {count} repetitions");
    }
    Ok(collector.finish())
}

/// What one removal took, in microseconds.
struct Removal {
    /// Until the removed replica did nothing any more, as `recovery` tells.
    gone: f64,
    /// For which the primary was held up, as the counts at the end tell.
    held_up: f64,
    /// The client's pause.
    pause: f64,
}

/// Removes one replica of a new service.
fn removal(workshop: &Workshop, mib: u64, victim: u64, fault: Fault) -> Result<Removal> {
    let configuration = Configuration {
        reintegrate: false,
        ..protected(3, "args")
    };
    let mut session = Session::start(workshop, configuration, mib)?;
    std::thread::sleep(QUIET);
    session.restart_clock();
    session.harm(victim, fault)?;
    let told = session.until(|event| event["type"] == "recovery")?;
    std::thread::sleep(AFTER);
    let pause = session.longest_gap();
    let held_up = session.end()?["counts"]["removals_ns"].as_f64();
    Ok(Removal {
        gone: told["us"].as_f64().context("no duration")?,
        held_up: held_up.context("no time")? / 1e3,
        pause,
    })
}

/// Makes a follower wrong and waits for its return, again and again.
fn returns(workshop: &Workshop, mib: u64, count: usize, collector: &mut Collector) -> Result<()> {
    let mut session = Session::start(workshop, protected(3, "args"), mib)?;
    let mut window = QUIET;
    for _ in 0..count {
        session.restart_clock();
        std::thread::sleep(window);
        let quiet = session.longest_gap();
        session.restart_clock();
        let began = Instant::now();
        session.harm(2, Fault::Wrong)?;
        let done = session.until(|event| event["stage"] == "done")?;
        std::thread::sleep(AFTER);
        let pause = session.longest_gap();
        window = began.elapsed().max(QUIET);
        let mut add = |what: &str, value| {
            let what = format!("re-integration, {mib} MiB: {what}");
            collector.add(&what, protected(3, "args"), "us", value);
        };
        add("duration", done["us"].as_f64().context("no duration")?);
        let of_primary = done["pause_us"].as_f64();
        add("primary's pause", of_primary.context("no pause")?);
        add("pause", pause);
        add("undisturbed", quiet);
    }
    session.end().map(drop)
}
