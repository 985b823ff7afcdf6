//! A snapshot in the text format of Prometheus, version 0.0.4.
//!
//! Names follow its conventions: base units, `_total` for counters. Labels are few: replica, core
//! and kind; processes are summed up, because a program can have any number of them.

use std::fmt::Write as _;

use super::snapshot::{Snapshot, Totals};

/// The content type of a page.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// One page of metrics.
pub(super) fn page(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    let totals = &snapshot.totals;
    page.family(
        "rcoe_build_info",
        "gauge",
        "Version of rcoe and the program it runs.",
    );
    let program = [
        ("version", snapshot.version.as_str()),
        ("program", snapshot.program.as_str()),
    ];
    page.sample("rcoe_build_info", &program, 1.0);
    for (name, help, value) in gauges(snapshot) {
        page.family(name, "gauge", help);
        page.sample(name, &[], value);
    }
    for (name, help, value) in counters(totals) {
        page.family(name, "counter", help);
        page.sample(name, &[], count(value));
    }
    faults(&mut page, snapshot);
    replicas(&mut page, snapshot);
    page.text
}

/// Name, help and value.
type Row<T> = (&'static str, &'static str, T);

fn gauges(snapshot: &Snapshot) -> [Row<f64>; 5] {
    [
        (
            "rcoe_start_time_seconds",
            "Start of the run, in seconds since 1970.",
            snapshot.started_at,
        ),
        (
            "rcoe_uptime_seconds",
            "Time since the start of the run.",
            snapshot.uptime_seconds,
        ),
        (
            "rcoe_replicas_configured",
            "Replicas asked for.",
            number(snapshot.configured),
        ),
        (
            "rcoe_replicas_live",
            "Replicas left of the process that has the fewest.",
            number(snapshot.live),
        ),
        (
            "rcoe_processes",
            "Processes of the program that live.",
            number(snapshot.processes.len()),
        ),
    ]
}

const fn counters(totals: &Totals) -> [Row<u64>; 9] {
    [
        (
            "rcoe_processes_started_total",
            "Processes that the program has had.",
            totals.processes,
        ),
        (
            "rcoe_calls_total",
            "System calls and trapped instructions of the primaries.",
            totals.calls,
        ),
        (
            "rcoe_rendezvous_total",
            "Points at which signatures were compared.",
            totals.rendezvous,
        ),
        (
            "rcoe_votes_total",
            "Full votes, which a suspicion calls for.",
            totals.votes,
        ),
        (
            "rcoe_voted_bytes_total",
            "Output content compared before it went out.",
            totals.bytes_voted,
        ),
        ("rcoe_removals_total", "Replicas removed.", totals.removals),
        (
            "rcoe_reintegrations_total",
            "Replicas brought back.",
            totals.reintegrations,
        ),
        (
            "rcoe_repairs_total",
            "Pages of memory that one replica had other than most, repaired.",
            totals.repairs,
        ),
        (
            "rcoe_takeovers_total",
            "Removed replicas that were the primary.",
            totals.takeovers,
        ),
    ]
}

fn faults(page: &mut Page, snapshot: &Snapshot) {
    let faults = snapshot.totals.faults;
    page.family("rcoe_faults_total", "counter", "Detected faults by kind.");
    for (kind, value) in [
        ("mismatch", faults.mismatch),
        ("timeout", faults.timeout),
        ("fault", faults.fault),
        ("death", faults.death),
    ] {
        page.sample("rcoe_faults_total", &[("kind", kind)], count(value));
    }
}

fn replicas(page: &mut Page, snapshot: &Snapshot) {
    let name = "rcoe_replica_cpu_seconds_total";
    page.family(
        name,
        "counter",
        "CPU time of a replica, all processes together.",
    );
    for cpu in &snapshot.totals.cpu {
        let (replica, core) = (cpu.replica.to_string(), cpu.core.to_string());
        page.sample(name, &[("replica", &replica), ("core", &core)], cpu.seconds);
    }
    let all = || {
        snapshot
            .processes
            .iter()
            .flat_map(|process| &process.replicas)
    };
    let lags = |id: usize| all().filter(move |it| it.id == id && it.state != "removed");
    let name = "rcoe_replica_lag_rendezvous";
    page.family(
        name,
        "gauge",
        "Rendezvous by which a replica is behind, at most.",
    );
    for id in 0..snapshot.configured {
        let most = lags(id).map(|it| it.lag_rendezvous).max().unwrap_or(0);
        page.sample(name, &[("replica", &id.to_string())], count(most));
    }
    let name = "rcoe_replica_lag_bytes";
    page.family(
        name,
        "gauge",
        "Results that a replica has yet to take, at most.",
    );
    for id in 0..snapshot.configured {
        let most = lags(id).map(|it| it.lag_bytes).max().unwrap_or(0);
        page.sample(name, &[("replica", &id.to_string())], count(most));
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels = labels
            .iter()
            .map(|(label, text)| format!("{label}=\"{}\"", escaped(text)))
            .collect::<Vec<_>>();
        let labels = match labels.as_slice() {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the format has floating point only"
)]
const fn count(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
const fn number(value: usize) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{CpuView, FaultCounts, ProcessView, ReplicaView};
    use super::*;

    fn snapshot() -> Snapshot {
        let replica = |id, state: &str, lag_bytes| ReplicaView {
            id,
            state: state.into(),
            lag_bytes,
            ..ReplicaView::default()
        };
        Snapshot {
            version: "1".into(),
            program: "/a \"b\"\\\n".into(),
            configured: 2,
            live: 1,
            totals: Totals {
                calls: 3_000_000_000,
                faults: FaultCounts {
                    mismatch: 2,
                    ..FaultCounts::default()
                },
                cpu: vec![CpuView {
                    replica: 1,
                    core: 5,
                    seconds: 0.25,
                }],
                ..Totals::default()
            },
            processes: vec![ProcessView {
                replicas: vec![replica(0, "running", 24), replica(1, "removed", 99)],
                ..ProcessView::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn samples_read_as_prometheus_wants_them() {
        let page = page(&snapshot());
        for line in [
            r#"rcoe_build_info{version="1",program="/a \"b\"\\\n"} 1"#,
            "rcoe_calls_total 3000000000",
            r#"rcoe_faults_total{kind="mismatch"} 2"#,
            r#"rcoe_faults_total{kind="death"} 0"#,
            r#"rcoe_replica_cpu_seconds_total{replica="1",core="5"} 0.25"#,
            r#"rcoe_replica_lag_bytes{replica="0"} 24"#,
            r#"rcoe_replica_lag_bytes{replica="1"} 0"#,
            "rcoe_replicas_live 1",
        ] {
            assert!(page.lines().any(|it| it == line), "no {line} in\n{page}");
        }
    }

    #[test]
    fn every_family_has_help_and_type_and_follows_the_conventions() {
        let page = page(&snapshot());
        let mut families = Vec::new();
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').expect("a type");
            assert!(page.contains(&format!("# HELP {name} ")), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
            assert!(!families.contains(&name), "{name} twice");
            families.push(name);
        }
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().expect("a name");
            assert!(families.contains(&name), "{line}");
        }
        assert!(page.ends_with('\n'));
    }
}
