//! Jobs as they stand on the page. The templates lay them out and escape every text.

use std::collections::VecDeque;

use askama::Template;
use rcoe_pages::{Curve, Lane, Mark, Sign, Timeline, duration, shortened};
use rcoe_supervisor::{Happening, ProcessView, ReplicaView, Snapshot};

use super::super::render::{Look, MOST_PROCESSES, command, find, rate};
use super::cores::CoreRow;

/// Characters of a command line that are shown.
const MOST_COMMAND: usize = 300;
/// Characters of a happening's detail that are shown.
const MOST_DETAIL: usize = 400;

/// The page as it is loaded.
#[derive(Debug, Template)]
#[template(path = "top.html")]
pub(super) struct Page<'a> {
    /// The part that changes, made by its own template.
    pub(super) view: &'a str,
}

/// The part of the page that changes.
#[derive(Debug, Template)]
#[template(path = "top-view.html")]
pub(super) struct View {
    pub(super) host: String,
    pub(super) time: String,
    pub(super) note: Option<String>,
    pub(super) jobs: Vec<JobView>,
    /// Jobs that are not shown.
    pub(super) hidden: usize,
    pub(super) cores: Vec<CoreRow>,
    /// What is wrong with the ledger.
    pub(super) ledger: Option<String>,
}

/// A figure with its name.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) is_bad: bool,
}

/// A replica's line.
#[derive(Debug)]
pub(super) struct ReplicaRow {
    pub(super) process: u32,
    pub(super) replica: ReplicaView,
    /// Share of a processor in percent, if there was an earlier look.
    pub(super) share: Option<f64>,
}

/// One job.
#[derive(Debug)]
pub(super) struct JobView {
    pub(super) job: Snapshot,
    pub(super) command: String,
    pub(super) up: String,
    pub(super) cpu: f64,
    pub(super) rate: Option<f64>,
    pub(super) facts: Vec<Fact>,
    pub(super) curve: Curve,
    pub(super) timeline: Timeline,
    pub(super) rows: Vec<ReplicaRow>,
    /// Processes that are not shown.
    pub(super) hidden: usize,
}

impl JobView {
    /// The job, with what has changed since the look before.
    pub(super) fn new(look: &Look, before: Option<&Look>, rates: Option<&VecDeque<f64>>) -> Self {
        let job = &look.snapshot;
        let shown = job.processes.iter().take(MOST_PROCESSES);
        let replicas = shown.flat_map(|it| it.replicas.iter().map(move |replica| (it, replica)));
        let curve = Curve {
            title: "Rendezvous a second".to_owned(),
            values: rates.into_iter().flatten().copied().collect(),
            from: "two minutes ago at most".to_owned(),
            to: "now".to_owned(),
        };
        Self {
            command: shortened(&command(job), MOST_COMMAND),
            up: duration(job.uptime_seconds),
            cpu: job.totals.cpu.iter().map(|cpu| cpu.seconds).sum(),
            rate: rate(look, before, |job| job.totals.rendezvous),
            facts: facts(look, before),
            curve,
            timeline: timeline(job),
            rows: replicas
                .map(|(process, it)| row(look, before, process, it))
                .collect(),
            hidden: job.processes.len().saturating_sub(MOST_PROCESSES),
            job: job.clone(),
        }
    }

    /// Whether a replica is missing.
    fn is_short(&self) -> bool {
        self.job.live < self.job.configured
    }

    /// What has happened, the last first.
    fn recent(&self) -> impl Iterator<Item = &Happening> {
        self.job.recent.iter().rev()
    }
}

/// A happening's detail as it is shown.
fn detail(happening: &Happening) -> String {
    shortened(&happening.detail, MOST_DETAIL)
}

fn row(
    look: &Look,
    before: Option<&Look>,
    process: &ProcessView,
    replica: &ReplicaView,
) -> ReplicaRow {
    let share = before.and_then(|before| {
        let old = find(&before.snapshot, process, replica)?;
        let seconds = (look.now - before.now).as_secs_f64().max(1e-3);
        Some(100.0 * (replica.cpu_seconds - old.cpu_seconds).max(0.0) / seconds)
    });
    ReplicaRow {
        process: process.pid,
        replica: replica.clone(),
        share,
    }
}

fn facts(look: &Look, before: Option<&Look>) -> Vec<Fact> {
    let job = &look.snapshot;
    let totals = &job.totals;
    let figure = |name, counter: fn(&Snapshot) -> u64| Fact {
        name,
        value: match rate(look, before, counter) {
            Some(rate) => format!("{} ({rate:.0}/s)", counter(job)),
            None => counter(job).to_string(),
        },
        is_bad: false,
    };
    let count = |name, count: u64| Fact {
        name,
        value: count.to_string(),
        is_bad: false,
    };
    let faults = totals.faults;
    let told = format!(
        "{} (mismatch {}, timeout {}, fault {}, death {})",
        faults.total(),
        faults.mismatch,
        faults.timeout,
        faults.fault,
        faults.death
    );
    vec![
        figure("calls", |job| job.totals.calls),
        figure("rendezvous", |job| job.totals.rendezvous),
        count("votes", totals.votes),
        figure("bytes voted", |job| job.totals.bytes_voted),
        Fact {
            name: "faults",
            value: told,
            is_bad: faults.total() > 0,
        },
        count("removed", totals.removals),
        count("takeovers", totals.takeovers),
        count("back", totals.reintegrations),
        count("pages repaired", totals.repairs),
        count("processes so far", totals.processes),
    ]
}

/// A lane for each number of a replica, and one for what is about none.
fn timeline(job: &Snapshot) -> Timeline {
    let most = job.recent.iter().filter_map(|it| it.replica).max();
    let count = job.configured.max(most.map_or(0, |most| most + 1));
    let mut lanes = (0..count)
        .map(|id| Lane {
            name: format!("replica {id}"),
            marks: marks(job, Some(id)),
        })
        .collect::<Vec<_>>();
    let others = marks(job, None);
    if !others.is_empty() {
        lanes.push(Lane {
            name: "not known which".to_owned(),
            marks: others,
        });
    }
    Timeline {
        title: "Faults, and what followed: cross fault, ring removed, dot back or repaired, \
                triangle moved"
            .to_owned(),
        lanes,
        from: "start".to_owned(),
        to: format!("now, after {}", duration(job.uptime_seconds)),
    }
}

fn marks(job: &Snapshot, replica: Option<usize>) -> Vec<Mark> {
    let own = job.recent.iter().filter(|it| it.replica == replica);
    own.map(|it| Mark {
        at: it.t / job.uptime_seconds.max(1e-3),
        sign: sign(&it.what),
        title: format!("{} after {}: {}", it.what, duration(it.t), detail(it)),
    })
    .collect()
}

fn sign(what: &str) -> Sign {
    match what {
        "removal" => Sign::Gone,
        "return" | "scrub" => Sign::Back,
        "takeover" | "relocation" => Sign::Moved,
        _ => Sign::Fault,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// What must not get out of the text it stands in.
    const HOSTILE: &str = "</code><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";

    fn hostile() -> Look {
        let replica = ReplicaView {
            pid: 8,
            state: HOSTILE.into(),
            in_call: Some(HOSTILE.into()),
            ..ReplicaView::default()
        };
        let happening = Happening {
            t: 1.0,
            what: HOSTILE.into(),
            detail: HOSTILE.into(),
            replica: Some(1),
            ..Happening::default()
        };
        Look {
            now: Instant::now(),
            snapshot: Snapshot {
                version: HOSTILE.into(),
                pid: 7,
                arguments: vec![HOSTILE.into(), "\u{1b}[2J\u{202e}".into()],
                configured: 3,
                live: 2,
                uptime_seconds: 4.0,
                processes: vec![ProcessView {
                    pid: 7,
                    members: 1,
                    replicas: vec![replica],
                }],
                recent: vec![happening],
                ..Snapshot::default()
            },
        }
    }

    fn page(look: &Look) -> String {
        let core = CoreRow {
            programs: HOSTILE.into(),
            ..CoreRow::default()
        };
        let view = View {
            host: HOSTILE.into(),
            time: "now".into(),
            note: Some(HOSTILE.into()),
            jobs: vec![JobView::new(look, None, None)],
            hidden: 0,
            cores: vec![core],
            ledger: Some(HOSTILE.into()),
        };
        let view = view.to_string();
        Page { view: &view }.to_string()
    }

    #[test]
    fn hostile_texts_stay_texts() {
        let text = page(&hostile());
        assert!(
            text.matches("&#60;script&#62;alert(1)").count() > 7,
            "{text}"
        );
        assert!(
            !text.contains("<script>") && !text.contains("<img"),
            "{text}"
        );
        // No attribute is left by a quote.
        assert!(!text.contains("\"'&"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn signs_stand_at_the_time_of_what_happened() {
        let text = page(&hostile());
        assert!(text.contains("x=\"25.00%\""), "{text}");
        assert!(text.contains("replica 1, signs: 1"), "{text}");
    }

    #[test]
    fn long_command_lines_are_cut() {
        let mut look = hostile();
        look.snapshot.arguments = vec!["x".repeat(100_000)];
        assert!(page(&look).len() < 20_000);
    }
}
