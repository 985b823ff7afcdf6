//! Redis under YCSB: throughput and the server's CPU time per operation.
//!
//! The client is the genuine YCSB core with a binding of our own (`ycsb/Redis.java`), 8 threads,
//! `dataintegrity=true`: every value read is verified. It shares the CPUs with the server. For each
//! configuration a fresh server is loaded once and then goes through the workloads A, B, C, F, D
//! and E, in YCSB's own recommended order but for E's second load.
//!
//! *Floor*: as many native servers at once as there are replicas, each with a client of its own
//! that makes all the operations. The throughput is that of one of them (their mean), and the CPU
//! time that of all servers for one operation of each. So it is what remains to a service on this
//! machine if it is simply run so often, clients included, with nothing compared.
//!
//! Contract: a run with an error, a value that did not verify, a divergence or a downgrade fails.
//!
//! Not covered: persistence and pipelining (see the scenes of `cargo xtask programs`).

use std::process::Child;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::client::{Client, Work};
use crate::configuration::{Configuration, NATIVE, protected};
use crate::floor::{counterpart, multiples, text, values};
use crate::sample::{Collector, Series, Spread};
use crate::server::{Server, Service, cpu_time};
use crate::workshop::{Scale, Workshop, rotated};

/// Workloads in the order they are run.
const WORKLOADS: [&str; 6] = ["A", "B", "C", "F", "D", "E"];

/// What is measured of each workload, as its series are named.
const THROUGHPUT: &str = "throughput";
const CPU: &str = "server CPU an operation";

/// Measures all workloads in all configurations.
///
/// # Errors
///
/// If the client cannot be had, redis-server is missing, or a run is not free of errors.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let client = Client::build().context("the YCSB client cannot be built")?;
    let work = Work::scaled(scale);
    eprintln!(
        "ycsb: {} records, {} operations (E: {}) by 8 threads",
        work.records, work.operations, work.scans
    );
    let all = configurations();
    let mut collector = Collector::default();
    for repetition in 0..scale.rare {
        for configuration in rotated(&all, repetition) {
            let run = Run {
                workshop,
                client: &client,
                work,
                configuration,
            };
            run.measure(&mut collector)
                .with_context(|| format!("{configuration}"))?;
        }
    }
    Ok(collector.finish())
}

fn configurations() -> Vec<Configuration> {
    let mut all = vec![NATIVE, NATIVE.copies(2), NATIVE.copies(3)];
    for replicas in 1..=3 {
        all.extend(["io", "args", "every"].map(|compare| protected(replicas, compare)));
    }
    all
}

/// Shares of native and of the floor, a workload in a column.
#[must_use]
pub fn table(series: &[Series]) -> String {
    let mut out = String::from(
        "Throughput as a share, and CPU time an operation as a multiple, of as many native servers \
         at once in the same round (the floor); for one replica and for the floors themselves of \
         native. Native: operations a second and microseconds.\n\n",
    );
    out.push_str("| run as |");
    for workload in WORKLOADS {
        out.push_str(&format!(" {workload} |"));
    }
    out.push_str(&format!("\n|---|{}\n", "---|".repeat(WORKLOADS.len())));
    for configuration in configurations() {
        let cells = WORKLOADS.map(|workload| cell(series, workload, configuration));
        out.push_str(&format!("| {configuration} | {} |\n", cells.join(" | ")));
    }
    out
}

fn cell(series: &[Series], workload: &str, configuration: Configuration) -> String {
    let named = |what: &str| format!("{workload}: {what}");
    if configuration.is_native() {
        let value = |what: &str, digits| {
            let found = values(series, &named(what), configuration);
            text(found.map(Spread::of), digits)
        };
        return format!("{}, {}", value(THROUGHPUT, 0), value(CPU, 1));
    }
    let pair = [configuration, counterpart(configuration)];
    let over = |what: &str| text(multiples(series, &named(what), pair), 2);
    format!("{}, {}", over(THROUGHPUT), over(CPU))
}

/// One configuration in one repetition.
struct Run<'a> {
    workshop: &'a Workshop,
    client: &'a Client,
    work: Work,
    configuration: Configuration,
}

impl Run<'_> {
    fn measure(&self, collector: &mut Collector) -> Result<()> {
        let started = Instant::now();
        let servers: Vec<Server> = (0..self.configuration.copies)
            .map(|index| Server::start(self.workshop, Service::Redis, self.configuration, index))
            .collect::<Result<_>>()?;
        self.drive(&servers, "load")?;
        for workload in WORKLOADS {
            let before = cpu_time(&servers)?;
            let throughput = self.drive(&servers, workload)?;
            let used = cpu_time(&servers)?.saturating_sub(before);
            let operations = self.work.operations_of(workload);
            let cpu = used.as_secs_f64() * 1e6 / operations as f64;
            let name = |what: &str| format!("{workload}: {what}");
            collector.add(&name(THROUGHPUT), self.configuration, "op/s", throughput);
            collector.add(&name(CPU), self.configuration, "us", cpu);
        }
        servers.into_iter().try_for_each(Server::stop)?;
        let taken = started.elapsed().as_secs();
        eprintln!("ycsb: {}: {taken} s", self.configuration);
        Ok(())
    }

    /// One workload on all servers at once; the mean throughput.
    fn drive(&self, servers: &[Server], workload: &str) -> Result<f64> {
        let clients: Vec<Child> = servers
            .iter()
            .map(|server| self.client.start(self.work, workload, server.port()))
            .collect::<Result<_>>()?;
        let mut sum = 0.0;
        for client in clients {
            sum += self.client.finish(client)?;
        }
        Ok(sum / servers.len() as f64)
    }
}

/// What the client's report says: operations a second, if nothing went wrong.
///
/// # Errors
///
/// If an operation failed or a value did not verify.
pub fn throughput(report: &str) -> Result<f64> {
    let mut found = None;
    for line in report.lines() {
        let fields: Vec<&str> = line.split(", ").collect();
        match fields[..] {
            ["[OVERALL]", "Throughput(ops/sec)", value] => found = Some(value.parse()?),
            [_, result, count] if result.starts_with("Return=") && result != "Return=OK" => {
                bail!("{count} operations with {line}")
            }
            _ => {}
        }
    }
    found.context("the client reported no throughput")
}

#[cfg(test)]
mod tests {
    use super::{configurations, table, throughput};
    use crate::configuration::{Configuration, NATIVE};
    use crate::sample::{Collector, Series};

    /// Two rounds of workload A; the machine is half as fast in the second.
    fn two_rounds() -> Vec<Series> {
        let share = |configuration: Configuration| match (configuration.replicas, configuration) {
            (0, it) if it == NATIVE => 1.0,
            (0, _) => 0.5,
            (2, _) => 0.48,
            _ => 0.4,
        };
        let mut collector = Collector::default();
        for speed in [1000.0, 500.0] {
            for configuration in configurations() {
                let value = speed * share(configuration);
                collector.add("A: throughput", configuration, "op/s", value);
                collector.add("A: server CPU an operation", configuration, "us", 10.0);
            }
        }
        collector.finish()
    }

    #[test]
    fn replicas_are_held_against_the_floor_of_their_round() {
        let row = "| n=2 args | 0.96 (0.96 to 0.96), 1.00 (1.00 to 1.00) |";
        assert!(table(&two_rounds()).contains(row));
    }

    #[test]
    fn a_report_with_an_error_does_not_count() {
        let good = "[OVERALL], Throughput(ops/sec), 2000.5\n[READ], Return=OK, 10\n";
        assert!((throughput(good).unwrap() - 2000.5).abs() < 1e-9);
        for bad in [
            "[VERIFY], Return=UNEXPECTED_STATE, 1",
            "[READ], Return=ERROR, 3",
        ] {
            assert!(throughput(&format!("{good}{bad}")).is_err());
        }
        assert!(throughput("[READ], Return=OK, 10").is_err());
    }
}
