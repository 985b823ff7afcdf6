//! What came of a campaign of kills.

use std::collections::BTreeMap;

use rcoe_pages::{Cell, Kind, Lane, Mark, Sign, Table, Timeline, duration, shortened};

use super::Section;
use crate::kills::{Header, Run, Runs};
use crate::stats::to_f64;

/// Runs that are drawn and listed.
const MOST_RUNS: usize = 500;
/// Characters of what was wrong that are shown.
const MOST_TEXT: usize = 600;

/// The section on these runs.
pub(super) fn section(header: &Header, runs: &Runs) -> Section {
    let campaign = &header.campaign;
    let wrong = runs.wrong();
    let facts = vec![
        ("faults", runs.kills().to_string()),
        ("of them", runs.kinds()),
        ("runs", runs.runs.len().to_string()),
        ("seed", campaign.seed.to_string()),
        ("compared", campaign.compare.clone()),
        ("timeout", campaign.timeout.clone()),
        ("commit", header.commit.clone()),
        ("machine", header.machine.clone()),
    ];
    let sum = match wrong {
        0 => format!(
            "No effect lost, doubled or wrong after {} faults",
            runs.kills()
        ),
        wrong => format!("{wrong} runs wrong after {} faults", runs.kills()),
    };
    Section {
        title: format!("{} replicas, killed or stopped", campaign.replicas),
        facts,
        sum,
        is_good: wrong == 0,
        bins: None,
        timeline: Some(timeline(&runs.runs)),
        tables: vec![workloads(&runs.runs), listed(&runs.runs)],
    }
}

/// Ends of runs, by workload.
fn timeline(runs: &[Run]) -> Timeline {
    let whole: u64 = runs.iter().map(|run| run.ms).sum();
    let mut lanes: BTreeMap<&str, Vec<Mark>> = BTreeMap::new();
    let mut now = 0;
    for (place, run) in runs.iter().enumerate() {
        now += run.ms;
        let lane = lanes.entry(run.workload.name()).or_default();
        if place < MOST_RUNS || !run.wrong.is_empty() && lane.len() < 2 * MOST_RUNS {
            lane.push(mark(run, to_f64(now) / to_f64(whole.max(1))));
        }
    }
    let lanes = lanes.into_iter().map(|(name, marks)| Lane {
        name: name.to_owned(),
        marks,
    });
    Timeline {
        title: "Runs by workload, where they ended: dot right, cross wrong".to_owned(),
        lanes: lanes.collect(),
        from: "start".to_owned(),
        to: format!("after {} of runs", duration(to_f64(whole) / 1e3)),
    }
}

fn mark(run: &Run, at: f64) -> Mark {
    let is_right = run.wrong.is_empty();
    Mark {
        at,
        sign: if is_right { Sign::Back } else { Sign::Fault },
        title: format!(
            "run {}: {} faults, {} effects",
            run.index, run.kills, run.effects
        ),
    }
}

fn workloads(runs: &[Run]) -> Table {
    let mut groups: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        groups.entry(run.workload.name()).or_default().push(run);
    }
    let rows = groups.into_iter().map(|(name, runs)| {
        let sum = |field: fn(&Run) -> u64| runs.iter().map(|run| field(run)).sum::<u64>();
        let wrong = runs.iter().filter(|run| !run.wrong.is_empty()).count();
        vec![
            name.into(),
            runs.len().into(),
            sum(|run| run.kills).into(),
            sum(|run| run.primaries).into(),
            sum(|run| run.effects).into(),
            Cell::coloured(wrong.to_string(), if wrong > 0 { "bad" } else { "" }),
        ]
    });
    Table {
        caption: "Workloads".to_owned(),
        columns: vec![
            ("workload", Kind::Word),
            ("runs", Kind::Number),
            ("faults", Kind::Number),
            ("of the primary", Kind::Number),
            ("effects", Kind::Number),
            ("runs wrong", Kind::Number),
        ],
        rows: rows.collect(),
        note: String::new(),
    }
}

/// Runs that went wrong.
fn listed(runs: &[Run]) -> Table {
    let wrong: Vec<_> = runs.iter().filter(|run| !run.wrong.is_empty()).collect();
    let rows = wrong.iter().take(MOST_RUNS).map(|run| {
        let told = shortened(&run.wrong, MOST_TEXT);
        vec![
            run.index.into(),
            run.workload.name().into(),
            run.kills.into(),
            told.into(),
        ]
    });
    Table {
        caption: "Runs that went wrong".to_owned(),
        columns: vec![
            ("run", Kind::Word),
            ("workload", Kind::Word),
            ("faults", Kind::Number),
            ("what was wrong", Kind::Long),
        ],
        rows: rows.collect(),
        note: match wrong.len() {
            count if count > MOST_RUNS => format!("and {} runs more", count - MOST_RUNS),
            _ => String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kills::Workload;

    fn run(index: u64, wrong: &str) -> Run {
        Run {
            kills: 10,
            primaries: 6,
            effects: 99,
            ms: 1,
            wrong: wrong.to_owned(),
            ..Run::new(index, Workload::Pipe)
        }
    }

    #[test]
    fn runs_that_went_wrong_are_crosses_and_listed() {
        let runs = [run(0, ""), run(1, "<b>lost")];
        let line = timeline(&runs).to_string();
        assert!(line.contains("class=\"mark back\" x=\"50.00%\""), "{line}");
        assert!(
            line.contains("class=\"mark fault\" x=\"100.00%\""),
            "{line}"
        );
        assert!(listed(&runs).to_string().contains("&#60;b&#62;lost"));
        assert!(
            workloads(&runs)
                .to_string()
                .contains("<td class=\"number bad\">1</td>")
        );
    }
}
