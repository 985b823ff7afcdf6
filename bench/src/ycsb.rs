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

use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::client::{Client, Work};
use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop, rotated, words};

/// Workloads in the order they are run.
const WORKLOADS: [&str; 6] = ["A", "B", "C", "F", "D", "E"];
/// Longest wait for a server to answer or end.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let mut all = vec![NATIVE, NATIVE.copies(2), NATIVE.copies(3)];
    for replicas in 1..=3 {
        all.extend(["io", "args", "every"].map(|compare| protected(replicas, compare)));
    }
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
            .map(|index| Server::start(self.workshop, self.configuration, index))
            .collect::<Result<_>>()?;
        self.drive(&servers, "load")?;
        for workload in WORKLOADS {
            let before = cpu_time(&servers)?;
            let throughput = self.drive(&servers, workload)?;
            let used = cpu_time(&servers)?.saturating_sub(before);
            let operations = self.work.operations_of(workload);
            let cpu = used.as_secs_f64() * 1e6 / operations as f64;
            let name = |what: &str| format!("{workload}: {what}");
            collector.add(&name("throughput"), self.configuration, "op/s", throughput);
            collector.add(
                &name("server CPU an operation"),
                self.configuration,
                "us",
                cpu,
            );
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
            .map(|server| self.client.start(self.work, workload, server.port))
            .collect::<Result<_>>()?;
        let mut sum = 0.0;
        for client in clients {
            sum += self.client.finish(client)?;
        }
        Ok(sum / servers.len() as f64)
    }
}

/// A running server, killed with everything in its process group if dropped before its end.
pub(crate) struct Server {
    child: Child,
    port: u16,
    events: Option<PathBuf>,
}

impl Server {
    /// Starts it and waits until it answers; `index` tells servers of one folder apart.
    pub(crate) fn start(
        workshop: &Workshop,
        configuration: Configuration,
        index: usize,
    ) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let number = port.to_string();
        let mut line: Vec<OsString> = words(&["redis-server", "--bind", "127.0.0.1", "--port"]);
        line.extend(words(&[&number, "--save", "", "--appendonly", "no"]));
        let events = workshop.path(&format!("events-{index}"));
        let events = (configuration.replicas > 0).then_some(events);
        let mut command = workshop.command(configuration, events.as_deref(), &line);
        command.process_group(0);
        let child = command
            .spawn()
            .context("redis-server: apt-get install redis-server")?;
        let server = Self {
            child,
            port,
            events,
        };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// What rcoe tells; only of a protected server.
    pub(crate) fn events(&self) -> &Path {
        self.events.as_deref().unwrap_or_else(|| Path::new(""))
    }

    /// Tells the server to end, and waits until it has.
    pub(crate) fn end(&mut self) -> Result<()> {
        let number = self.port.to_string();
        let mut end = Command::new("redis-cli");
        end.args(["-p", &number, "shutdown", "nosave"])
            .stdout(Stdio::null());
        end.status()
            .context("redis-cli: apt-get install redis-tools")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// Ends the server; it must have run without a fault.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()?;
        let Some(events) = &self.events else {
            return Ok(());
        };
        let text = std::fs::read_to_string(events)?;
        let last = text.lines().last().context("no events")?;
        let last: serde_json::Value = serde_json::from_str(last)?;
        let counts = &last["counts"];
        let clean = counts["divergences"] == 0 && counts["downgrades"] == 0;
        ensure!(clean, "the replicas differed: {last}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // rcoe ends its replicas when it is killed; there is nobody left to tell of a failure.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// CPU time used so far by all threads of the servers' process groups.
pub(crate) fn cpu_time(servers: &[Server]) -> Result<Duration> {
    let groups: Vec<u32> = servers.iter().map(|server| server.child.id()).collect();
    let mut sum = 0;
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        if group_of(&path).is_some_and(|group| groups.contains(&group)) {
            sum += nanoseconds(&path);
        }
    }
    ensure!(sum > 0, "no CPU time found");
    Ok(Duration::from_nanos(sum))
}

/// Process group of the process with this folder below `/proc`.
fn group_of(process: &Path) -> Option<u32> {
    let line = std::fs::read_to_string(process.join("stat")).ok()?;
    let fields = line.rsplit_once(')')?.1;
    fields.split_whitespace().nth(2)?.parse().ok()
}

/// CPU time of its threads; of those that end meanwhile nothing is counted.
fn nanoseconds(process: &Path) -> u64 {
    let tasks = std::fs::read_dir(process.join("task"))
        .into_iter()
        .flatten();
    let times = tasks.flatten().filter_map(|task| {
        let line = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        line.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum()
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
    use super::{cpu_time, throughput};

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

    #[test]
    fn no_server_has_no_cpu_time() {
        assert!(cpu_time(&[]).is_err());
    }
}
