//! Redis in the machine, under YCSB on the host: throughput by the host's clock.
//!
//! The server is the distribution's own `redis-server`, the client the genuine YCSB core with
//! `dataintegrity=true`, and between them are the published port, the emulated network card, its
//! driver and the TCP/IP stack, all but the card replicated. All cores of the machine are emulated
//! on one thread of the host, so n replicas share what one has: 1/n is what an emulator without any
//! cost of replication leaves. The workloads A, B, C, F, D and E follow one load (DSN'19, figure 3;
//! EDCC'19, figures 8 to 10).
//!
//! Contract: a run with an error, a value that did not verify, or a divergence fails.
//!
//! Apart from that, how long it takes from the start of rcoe to the server's first answer.
//!
//! Not covered: persistence.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::{NS, Order, Row, Told, head, row};
use crate::client::{Client, Work};
use crate::server::wait;
use crate::workshop::{Workshop, tool};

/// Records and operations, unless it is told otherwise.
pub(super) const USUAL: u64 = 500;
/// Of workload E so many times fewer: an operation of that reads many records.
const SCANS: u64 = 20;
const WORKLOADS: [&str; 6] = ["A", "B", "C", "F", "D", "E"];
/// Longest wait for the server to answer or end, and for one answer.
const PATIENCE: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(2);

/// Measures all workloads for each number of replicas, and for each way to compare.
pub(super) fn measure(rcoe: &Path, order: &Order, out: &mut Told) -> Result<()> {
    check(order)?;
    let client = Client::build().context("the YCSB client cannot be built")?;
    let workshop = Workshop::open(rcoe)?;
    let work = Work {
        records: order.records,
        operations: order.operations,
        scans: (order.operations / SCANS).max(1),
    };
    let size = match [order.records, order.operations] {
        [USUAL, USUAL] => String::new(),
        [records, operations] => format!(", {records} records, {operations} operations"),
    };
    let _ = writeln!(out, "\n### Redis under YCSB, operations a second\n");
    head(out);
    let counted = std::mem::replace(&mut out.counted, "op/s");
    let wanted: Vec<usize> = (0..NS.len())
        .filter(|&at| order.replicas.contains(&NS[at]))
        .collect();
    for compare in order.modes.iter().map(String::as_str) {
        let mut rows: Vec<Row> = vec![Row::default(); order.workloads.len()];
        for repetition in 0..order.repetitions {
            for turn in 0..wanted.len() {
                let at = wanted[(turn + repetition) % wanted.len()];
                let memory = memory(order.records);
                let machine = Machine::start(&workshop, rcoe, NS[at], (compare, memory))?;
                let figures = machine.run(&client, work, &order.workloads)?;
                eprintln!("ycsb: n={} {compare}: {figures:.0?} op/s", NS[at]);
                for (row, figure) in rows.iter_mut().zip(figures) {
                    row[at].push(figure);
                }
            }
        }
        for (workload, values) in order.workloads.iter().zip(&rows) {
            let what = format!("Redis under YCSB, throughput{size}: {workload}");
            row(out, &what, compare, values, 2);
        }
    }
    // What is measured next is counted as before.
    out.counted = counted;
    Ok(())
}

/// Refuses workloads and numbers of replicas that are not known.
fn check(order: &Order) -> Result<()> {
    for workload in &order.workloads {
        let known = WORKLOADS.contains(&workload.as_str());
        ensure!(known, "unknown workload '{workload}'; known: {WORKLOADS:?}");
    }
    for n in &order.replicas {
        ensure!(
            NS.contains(n),
            "{n} replicas are not measured; known: {NS:?}"
        );
    }
    Ok(())
}

/// Memory of each replica: a record is some 2.7 kB in the server.
const fn memory(records: u64) -> &'static str {
    if records > 20_000 { "512M" } else { "256M" }
}

/// Measures how long it takes from the start of rcoe until the server answers.
pub(super) fn start(rcoe: &Path, order: &Order, out: &mut Told) -> Result<()> {
    let workshop = Workshop::open(rcoe)?;
    let _ = writeln!(out, "\n### From the start to the first answer, ms\n");
    head(out);
    let counted = std::mem::replace(&mut out.counted, "ms");
    let mut took = Row::default();
    for repetition in 0..order.repetitions {
        for at in 0..NS.len() {
            let at = (at + repetition) % NS.len();
            let began = Instant::now();
            let machine = Machine::start(&workshop, rcoe, NS[at], ("args", memory(0)))?;
            took[at].push(began.elapsed().as_secs_f64() * 1e3);
            machine.finish()?;
        }
    }
    row(
        out,
        "Redis in the machine, from the start to the first answer",
        "args",
        &took,
        2,
    );
    out.counted = counted;
    Ok(())
}

/// A machine that serves; killed if dropped before its end.
struct Machine {
    child: Child,
    port: u16,
    events: PathBuf,
}

impl Machine {
    fn start(
        workshop: &Workshop,
        rcoe: &Path,
        replicas: usize,
        (compare, memory): (&str, &str),
    ) -> Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let events = workshop.path("events");
        let mut command = Command::new(rcoe);
        command.args(["run", "--sphere", "system", "-n", &replicas.to_string()]);
        command.args(["--compare", compare, "--memory", memory]);
        command.args(["--publish", &format!("127.0.0.1:{port}:6379")]);
        command.arg("--events").arg(&events).arg("--");
        command.arg(tool("redis-server", "redis-server")?);
        command.args(["--save", "", "--protected-mode", "no"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start rcoe")?;
        let mut machine = Self {
            child,
            port,
            events,
        };
        machine.until_it_answers()?;
        Ok(machine)
    }

    /// The emulator takes connections before anybody listens, so an answer is asked for.
    fn until_it_answers(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.ask("PING\r\n").is_ok_and(|it| it.starts_with("+PONG")) {
            if let Some(status) = self.child.try_wait()? {
                bail!("the machine ended with {status} before its server answered");
            }
            ensure!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn ask(&self, request: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = [0; 64];
        let len = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..len]).into_owned())
    }

    /// Operations a second of each workload; then the machine ends, without a divergence.
    fn run(self, client: &Client, work: Work, workloads: &[String]) -> Result<Vec<f64>> {
        let drive = |workload: &str| client.finish(client.start(work, workload, self.port)?);
        drive("load")?;
        let mut figures = Vec::new();
        for workload in workloads {
            figures.push(drive(workload).with_context(|| format!("workload {workload}"))?);
        }
        self.finish()?;
        Ok(figures)
    }

    /// The machine ends, without a divergence.
    fn finish(mut self) -> Result<()> {
        // There is no answer to that.
        let _ = self.ask("SHUTDOWN NOSAVE\r\n");
        let status = wait(&mut self.child, PATIENCE).context("the server was told to end")?;
        ensure!(status.success(), "the machine ended with {status}");
        let told = std::fs::read_to_string(&self.events)?;
        let last = told.lines().last().context("no events")?;
        let last: serde_json::Value = serde_json::from_str(last)?;
        let clean = last["type"] == "stop" && last["counts"]["divergences"] == 0;
        ensure!(clean, "the replicas differed: {last}");
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // There is nobody left to tell of a failure.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
