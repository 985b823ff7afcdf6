//! Jobs as text.

use std::fmt::Write as _;
use std::time::Instant;

use rcoe_pages::duration;
use rcoe_supervisor::{ProcessView, ReplicaView, Snapshot};

/// Processes of one job that are shown; the others are counted.
pub(super) const MOST_PROCESSES: usize = 20;

/// A job at a moment.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) now: Instant,
    pub(super) snapshot: Snapshot,
}

/// One job in full.
pub(super) fn draw_one(look: &Look, before: Option<&Look>) -> String {
    let job = &look.snapshot;
    let mut text = String::new();
    let words = command(job);
    // Writing into a string cannot fail.
    let _ = writeln!(text, "rcoe {} (process {}): {words}", job.version, job.pid);
    let _ = writeln!(
        text,
        "up {}, {} of {} replicas, {} processes ({} so far)",
        duration(job.uptime_seconds),
        job.live,
        job.configured,
        job.processes.len(),
        job.totals.processes
    );
    let _ = writeln!(text, "{}\n{}\n", counters(look, before), faults(job));
    let _ = writeln!(
        text,
        "{:>9} {:>7} {:>9} {:>4}  {:<8} {:<7} {:>10} {:>6} {:>12} {:>8} {:>10}  in call",
        "process",
        "replica",
        "pid",
        "core",
        "state",
        "role",
        "cpu s",
        "cpu %",
        "rendezvous",
        "lag",
        "lag bytes"
    );
    for process in job.processes.iter().take(MOST_PROCESSES) {
        for replica in &process.replicas {
            let old = before.and_then(|look| find(&look.snapshot, process, replica));
            let seconds = before.map(|before| (look.now - before.now).as_secs_f64());
            line(&mut text, process, replica, old.zip(seconds));
        }
    }
    let hidden = job.processes.len().saturating_sub(MOST_PROCESSES);
    if hidden > 0 {
        let _ = writeln!(text, "and {hidden} processes more (see --json)");
    }
    text
}

/// All jobs, a line each.
pub(super) fn draw_all<'a>(looks: &[Look], before: impl Fn(u32) -> Option<&'a Look>) -> String {
    let mut text = format!(
        "{:>9} {:>9} {:>8} {:>9} {:>7} {:>10} {:>10}  program\n",
        "rcoe", "up", "replicas", "processes", "faults", "cpu s", "votes/s"
    );
    for look in looks {
        let job = &look.snapshot;
        let cpu: f64 = job.totals.cpu.iter().map(|cpu| cpu.seconds).sum();
        let votes = rate(look, before(job.pid), |job| job.totals.rendezvous);
        let _ = writeln!(
            text,
            "{:>9} {:>9} {:>8} {:>9} {:>7} {cpu:>10.2} {:>10}  {}",
            job.pid,
            duration(job.uptime_seconds),
            format!("{}/{}", job.live, job.configured),
            job.processes.len(),
            job.totals.faults.total(),
            votes.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
            command(job)
        );
    }
    text
}

fn line(
    text: &mut String,
    process: &ProcessView,
    replica: &ReplicaView,
    before: Option<(&ReplicaView, f64)>,
) {
    let share = before.map_or_else(
        || "-".to_owned(),
        |(old, seconds)| {
            let used = (replica.cpu_seconds - old.cpu_seconds).max(0.0);
            format!("{:.0}", 100.0 * used / seconds.max(1e-3))
        },
    );
    let _ = writeln!(
        text,
        "{:>9} {:>7} {:>9} {:>4}  {:<8} {:<7} {:>10.2} {share:>6} {:>12} {:>8} {:>10}  {}",
        process.pid,
        replica.id,
        replica.pid,
        replica.core,
        replica.state,
        if replica.primary { "primary" } else { "" },
        replica.cpu_seconds,
        replica.rendezvous,
        replica.lag_rendezvous,
        replica.lag_bytes,
        replica.in_call.as_deref().unwrap_or("-")
    );
}

fn counters(look: &Look, before: Option<&Look>) -> String {
    let totals = &look.snapshot.totals;
    let per_second = |counter: fn(&Snapshot) -> u64| {
        rate(look, before, counter).map_or_else(String::new, |rate| format!(" ({rate:.0}/s)"))
    };
    format!(
        "calls {}{}, rendezvous {}{}, votes {}, voted {} bytes{}",
        totals.calls,
        per_second(|job| job.totals.calls),
        totals.rendezvous,
        per_second(|job| job.totals.rendezvous),
        totals.votes,
        totals.bytes_voted,
        per_second(|job| job.totals.bytes_voted),
    )
}

fn faults(job: &Snapshot) -> String {
    let faults = job.totals.faults;
    format!(
        "faults {} (mismatch {}, timeout {}, fault {}, death {}), removed {}, takeovers {}",
        faults.total(),
        faults.mismatch,
        faults.timeout,
        faults.fault,
        faults.death,
        job.totals.removals,
        job.totals.takeovers
    )
}

/// The same replica of the same process.
pub(super) fn find<'a>(
    job: &'a Snapshot,
    process: &ProcessView,
    replica: &ReplicaView,
) -> Option<&'a ReplicaView> {
    let process = job.processes.iter().find(|it| it.pid == process.pid)?;
    process.replicas.iter().find(|it| it.id == replica.id)
}

/// The command line, without anything that moves a terminal's cursor.
pub(super) fn command(job: &Snapshot) -> String {
    job.arguments.join(" ").replace(char::is_control, "?")
}

/// How fast a counter grows, a second.
#[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
pub(super) fn rate(
    look: &Look,
    before: Option<&Look>,
    counter: fn(&Snapshot) -> u64,
) -> Option<f64> {
    let before = before?;
    let seconds = (look.now - before.now).as_secs_f64();
    let grown = counter(&look.snapshot).saturating_sub(counter(&before.snapshot));
    (seconds > 0.0).then(|| grown as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcoe_supervisor::Totals;

    use super::*;

    fn look(now: Instant, calls: u64, cpu_seconds: f64) -> Look {
        Look {
            now,
            snapshot: Snapshot {
                pid: 7,
                arguments: vec!["prog".into(), "arg".into()],
                configured: 1,
                live: 1,
                totals: Totals {
                    calls,
                    ..Totals::default()
                },
                processes: vec![ProcessView {
                    pid: 7,
                    members: 1,
                    replicas: vec![ReplicaView {
                        state: "running".into(),
                        primary: true,
                        cpu_seconds,
                        ..ReplicaView::default()
                    }],
                }],
                ..Snapshot::default()
            },
        }
    }

    #[test]
    fn rates_are_differences_between_two_looks() {
        let start = Instant::now();
        let (old, new) = (
            look(start, 100, 1.0),
            look(start + Duration::from_secs(2), 300, 2.0),
        );
        let first = draw_one(&old, None);
        assert!(first.contains("calls 100, "), "{first}");
        let second = draw_one(&new, Some(&old));
        assert!(second.contains("calls 300 (100/s)"), "{second}");
        let line = second.lines().last().expect("a replica");
        let words = line.split_whitespace().collect::<Vec<_>>();
        assert_eq!(words[7], "50", "half of a processor: {line}");
        let all = draw_all(&[new], |_| Some(&old));
        assert!(all.contains("1/1") && all.ends_with("prog arg\n"), "{all}");
    }
}
