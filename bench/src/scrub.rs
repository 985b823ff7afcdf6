//! What scrubbing costs: CPU time for each request to Redis, with it and without.
//!
//! Three servers of three replicas wait side by side, two of them without scrubbing, one at the
//! default rate. Rounds of requests go to each in turn, in an order that rotates, and the CPU time
//! that all processes of that server use meanwhile is divided by the requests. Every figure is
//! compared with that of the first server in the same round. The second server without scrubbing
//! shows what such a comparison resolves on this machine and load.
//!
//! Contract: a server whose replicas differed fails the run.
//!
//! Not covered: what scrubbing costs a program that does nothing, and larger memory, which makes a
//! pass longer and not dearer.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::configuration::{Configuration, protected};
use crate::sample::Series;
use crate::server::{Server, Service, cpu_time};
use crate::workshop::{Scale, Workshop};

/// Rounds for each of the repetitions of a long suite.
const ROUNDS: usize = 4;
/// Requests of each kind in a round, if nothing is divided.
const REQUESTS: u64 = 50_000;

const OFF: Configuration = Configuration {
    scrub: Some(0),
    ..protected(3, "args")
};
const ON: Configuration = Configuration {
    scrub: Some(1),
    ..OFF
};
/// What runs, by what it is called in the tables.
const ALL: [(&str, Configuration); 3] = [
    ("CPU a request", OFF),
    ("CPU a request, once more", OFF),
    ("CPU a request", ON),
];

/// Microseconds of CPU time for a request; in place of native values stand those of the first
/// server, which does not scrub.
///
/// # Errors
///
/// If Redis is missing, or replicas differed.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let start = |(index, &(_, configuration)): (usize, &(_, Configuration))| {
        Server::start(workshop, Service::Redis, configuration, index)
    };
    let servers: Vec<Server> = ALL.iter().enumerate().map(start).collect::<Result<_>>()?;
    let requests = REQUESTS / scale.divide.min(4);
    // All have the same content, and have been looked at once, before anything counts.
    for server in &servers {
        drive(server, requests)?;
    }
    let mut values = vec![Vec::new(); ALL.len()];
    for round in 0..ROUNDS * scale.long {
        for turn in 0..ALL.len() {
            let which = (round + turn) % ALL.len();
            values[which].push(cost(&servers[which], requests)?);
        }
    }
    servers.into_iter().try_for_each(Server::stop)?;
    let series = |((what, configuration), own): (&(&str, Configuration), &Vec<f64>)| Series {
        what: (*what).to_owned(),
        configuration: *configuration,
        unit: "us",
        values: own.clone(),
        natives: values[0].clone(),
    };
    Ok(ALL.iter().zip(&values).map(series).collect())
}

/// CPU time in microseconds for one of so many requests.
fn cost(server: &Server, requests: u64) -> Result<f64> {
    let one = std::slice::from_ref(server);
    let before = cpu_time(one)?;
    drive(server, requests)?;
    let used = cpu_time(one)?.saturating_sub(before);
    Ok(used.as_secs_f64() * 1e6 / (2 * requests) as f64)
}

/// So many requests that read, and as many that write.
fn drive(server: &Server, requests: u64) -> Result<()> {
    let (port, count) = (server.port().to_string(), requests.to_string());
    let status = Command::new("redis-benchmark")
        .args(["-p", &port, "-n", &count, "-t", "set,get", "-q"])
        .args(["-P", "16", "-c", "20", "-r", "20000", "-d", "100"])
        .stdout(Stdio::null())
        .status()
        .context("redis-benchmark: apt-get install redis-tools")?;
    ensure!(status.success(), "the client ended with {status}");
    Ok(())
}
