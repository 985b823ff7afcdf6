//! What a server costs: Redis and nginx, natively and as replicas, side by side in one run.
//!
//! In each round every configuration has its turn, in an order that rotates: fresh servers are
//! started, each load is warmed up, measured and noted, and the servers end. Clients share the CPUs
//! with the server.
//!
//! *Floor*: as many native servers at once as there are replicas, each with a client of its own at
//! the same time. Its throughput and latencies are the mean of one of them; its CPU time is that of
//! all servers for one request of each. So it is what remains to a service on this machine if it is
//! simply run so often, clients included, with nothing compared. What has several replicas is held
//! against the floor of the same round, what has one against native. Two replicas run once more
//! with `--defer off`, which tells what deferred effects bring. A native server runs under Syscall
//! User Dispatch that lets every call through, too: what one replica cannot go below.
//!
//! Contract: a request that fails, a divergence or a downgrade fails the suite. No server and no
//! client outlives it, however it ends.
//!
//! Not covered: persistence, several workers, and clients on another machine.

mod client;
mod table;

use anyhow::{Context, Result, ensure};

use crate::configuration::{Configuration, DISPATCHED, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::server::{Server, Service, cpu_time};
use crate::workshop::{Scale, Workshop, rotated};

use client::{Client, Load, Report};

pub use table::table;

/// What is measured of each load, as its series are named.
const THROUGHPUT: &str = "throughput";
const MEDIAN: &str = "50 % latency";
const P99: &str = "99 % latency";
const CPU: &str = "server CPU a request";

/// What runs, each beside what it is held against.
const ALL: [Configuration; 8] = [
    NATIVE,
    DISPATCHED,
    protected(1, "args"),
    NATIVE.copies(2),
    protected(2, "args"),
    Configuration {
        defer: false,
        ..protected(2, "args")
    },
    NATIVE.copies(3),
    protected(3, "args"),
];

/// A load and what it is called.
struct Cell {
    service: Service,
    name: &'static str,
    load: Load,
    /// Share of a turn's time.
    share: f64,
}

const fn redis(name: &'static str, command: &'static str, pipeline: u64) -> Cell {
    Cell {
        service: Service::Redis,
        name,
        load: Load::Redis { command, pipeline },
        share: 0.5,
    }
}

const CELLS: [Cell; 5] = [
    redis("Redis SET", "set", 1),
    redis("Redis GET", "get", 1),
    redis("Redis SET, pipelined by 16", "set", 16),
    redis("Redis GET, pipelined by 16", "get", 16),
    Cell {
        service: Service::Nginx,
        name: "nginx",
        load: Load::Page,
        share: 1.0,
    },
];

/// Throughput, latencies and CPU time of all loads in all configurations.
///
/// # Errors
///
/// If a program is missing, or anything goes wrong in a run.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let mut collector = Collector::default();
    for round in 0..scale.rounds {
        for service in [Service::Redis, Service::Nginx] {
            for configuration in rotated(&ALL, round) {
                let turn = Turn {
                    workshop,
                    service,
                    configuration,
                    seconds: scale.seconds,
                };
                let done = turn.measure(&mut collector);
                done.with_context(|| format!("{service:?}, {configuration}"))?;
            }
        }
        eprintln!("servers: round {} of {}", round + 1, scale.rounds);
    }
    Ok(collector.finish())
}

/// One service in one configuration in one round.
struct Turn<'a> {
    workshop: &'a Workshop,
    service: Service,
    configuration: Configuration,
    seconds: f64,
}

impl Turn<'_> {
    fn measure(&self, collector: &mut Collector) -> Result<()> {
        let servers: Vec<Server> = (0..self.configuration.copies)
            .map(|index| Server::start(self.workshop, self.service, self.configuration, index))
            .collect::<Result<_>>()?;
        for cell in CELLS.iter().filter(|cell| cell.service == self.service) {
            let values = self.load(&servers, cell).context(cell.name)?;
            for (what, unit, value) in values {
                let what = format!("{}: {what}", cell.name);
                collector.add(&what, self.configuration, unit, value);
            }
        }
        servers.into_iter().try_for_each(Server::stop)
    }

    /// Warms up and measures one load.
    fn load(&self, servers: &[Server], cell: &Cell) -> Result<[(&str, &'static str, f64); 4]> {
        let amount = self.warm_up(servers, cell)?;
        let before = self.cpu_times(servers)?;
        let reports = self.drive(servers, cell.load, amount)?;
        let after = self.cpu_times(servers)?;
        let used = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        let each = used
            .zip(&reports)
            .map(|(used, report)| used / report.requests);
        Ok([
            (THROUGHPUT, "/s", mean(&reports, |report| report.throughput)),
            (MEDIAN, "ms", mean(&reports, |report| report.median_ms)),
            (P99, "ms", mean(&reports, |report| report.p99_ms)),
            (CPU, "us", each.sum()),
        ])
    }

    /// Repeats the load until it has lasted a tenth of what is measured; the amount for that.
    fn warm_up(&self, servers: &[Server], cell: &Cell) -> Result<u64> {
        let seconds = self.seconds * cell.share;
        let mut amount = cell.load.first();
        loop {
            let reports = self.drive(servers, cell.load, amount)?;
            let throughput = mean(&reports, |report| report.throughput);
            let planned = cell.load.lasting(seconds, throughput);
            if amount >= planned / 10 {
                return Ok(planned);
            }
            amount *= 4;
        }
    }

    /// The load on all servers at once.
    fn drive(&self, servers: &[Server], load: Load, amount: u64) -> Result<Vec<Report>> {
        let start = |server: &Server| Client::start(self.workshop, load, server.port(), amount);
        let clients: Vec<Client> = servers.iter().map(start).collect::<Result<_>>()?;
        let reports = clients.into_iter().map(Client::finish);
        let reports: Vec<Report> = reports.collect::<Result<_>>()?;
        let answered = reports.iter().all(|report| report.requests > 0.0);
        ensure!(answered, "nothing was answered");
        Ok(reports)
    }

    /// Microseconds that each server has used.
    fn cpu_times(&self, servers: &[Server]) -> Result<Vec<f64>> {
        let of_one = |server| Ok(cpu_time(std::slice::from_ref(server))?.as_secs_f64() * 1e6);
        servers.iter().map(of_one).collect()
    }
}

fn mean(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    reports.iter().map(of).sum::<f64>() / reports.len() as f64
}
