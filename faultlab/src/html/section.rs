//! What came of a campaign of flips, as drawings and tables.

use std::collections::BTreeMap;

use rcoe_pages::{Bin, Bins, Cell, Kind, Lane, Mark, Sign, Table, Timeline, duration, shortened};

use super::Section;
use crate::report::{Latencies, Tally, share};
use crate::stats::{quantile, to_f64};
use crate::taxonomy::Verdict;

/// Heaps of the drawing of outcomes.
const MOST_BINS: usize = 100;
/// Signs on the time line.
const MOST_SIGNS: usize = 500;
/// Cases that are listed.
const MOST_CASES: usize = 500;
/// Characters of a case's text that are shown.
const MOST_TEXT: usize = 600;

/// One run in which something was flipped, or was to be.
#[derive(Debug)]
pub(super) struct Case<'a> {
    /// Its index, and the attempt where there are several.
    pub(super) name: String,
    pub(super) program: &'a str,
    /// Which replica was hit.
    pub(super) replica: Option<u64>,
    /// On which core it ran.
    pub(super) core: Option<u64>,
    /// Which core was told to be at fault.
    pub(super) charged: Option<u64>,
    /// Which replica was told to be.
    pub(super) named: Option<u64>,
    /// What was flipped, and what became of that.
    pub(super) flips: Vec<(String, &'a Verdict)>,
    pub(super) verdict: &'a Verdict,
    /// What was flipped last, in words.
    pub(super) place: String,
    pub(super) detail: String,
    /// From the flip until it was told, if it was; negative if that was before the flip.
    pub(super) detected_us: Option<i64>,
    /// From the flip to the end.
    pub(super) after_us: Option<u64>,
    pub(super) wall_us: u64,
    pub(super) leftovers: usize,
}

/// The section on these cases, in the order of their ends.
pub(super) fn section(
    title: String,
    mut facts: Vec<(&'static str, String)>,
    replicas: usize,
    cases: &[Case<'_>],
) -> Section {
    let flips = cases.iter().flat_map(|case| &case.flips);
    let tally = Tally::of_verdicts(flips.map(|(_, verdict)| *verdict).chain(unflipped(cases)));
    let is_protected = replicas > 1;
    let left: usize = cases.iter().map(|case| case.leftovers).sum();
    let wrong = tally.uncontrolled();
    facts.insert(0, ("injections", tally.applied().to_string()));
    facts.insert(1, ("errors observed", tally.errors().to_string()));
    let mut tables = vec![outcomes(&tally, replicas)];
    tables.push(counted("Targets", "target", cases, |case| {
        case.flips
            .iter()
            .map(|(target, it)| (target.clone(), *it))
            .collect()
    }));
    if is_protected {
        tables.push(counted(
            "Replicas that were hit",
            "replica",
            cases,
            |case| numbered(case.replica, case),
        ));
        tables.extend(cores(cases));
        tables.extend(detection(cases));
        tables.extend(latency(cases));
    }
    tables.push(listed(cases));
    Section {
        title,
        facts,
        sum: sum(&tally, is_protected, left),
        is_good: !is_protected || (wrong == 0 && left == 0),
        bins: bins(cases),
        timeline: is_protected.then(|| timeline(cases)),
        tables,
    }
}

/// Verdicts of runs in which nothing was flipped, but for those that say no more than that.
fn unflipped<'a>(cases: &'a [Case<'a>]) -> impl Iterator<Item = &'a Verdict> {
    let without = cases.iter().filter(|case| case.flips.is_empty());
    without.map(|case| case.verdict)
}

fn sum(tally: &Tally, is_protected: bool, left: usize) -> String {
    if tally.applied() == 0 {
        return "Nothing was flipped".to_owned();
    }
    let wrong = tally.uncontrolled();
    let mut text = match (wrong, is_protected) {
        (_, false) => format!("{wrong} of {} went wrong, unprotected", tally.applied()),
        (0, true) => format!("No uncontrolled outcome in {}", tally.applied()),
        (1, true) => format!("1 uncontrolled outcome in {}", tally.applied()),
        (wrong, true) => format!("{wrong} uncontrolled outcomes in {}", tally.applied()),
    };
    if left > 0 {
        text.push_str(&format!("; {left} processes were left behind"));
    }
    text
}

/// Class of the style sheet for an outcome.
fn class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Masked | Verdict::NotApplied => "none",
        Verdict::Corrected(_) => "good",
        Verdict::Unreturned(_) | Verdict::FailStop(_) => "fair",
        _ => "bad",
    }
}

/// Kinds of outcomes as drawings tell them apart.
const KINDS: [(&str, &str); 4] = [
    ("none", "masked"),
    ("good", "detected, corrected"),
    ("fair", "detected, fail-stop"),
    ("bad", "uncontrolled"),
];

fn outcomes(tally: &Tally, replicas: usize) -> Table {
    let row = |name: Cell, count: u64, of_errors: bool| {
        let second = if of_errors {
            share(count, tally.errors())
        } else {
            "–".to_owned()
        };
        vec![
            name,
            count.into(),
            share(count, tally.applied()).into(),
            second.into(),
        ]
    };
    let mut rows: Vec<_> = tally
        .counts()
        .map(|(verdict, count)| {
            let name = Cell::coloured(verdict.label(), class(verdict));
            row(name, count, verdict.is_error())
        })
        .collect();
    if replicas > 1 {
        rows.push(row("all uncontrolled".into(), tally.uncontrolled(), true));
    }
    Table {
        caption: "Outcomes".to_owned(),
        columns: vec![
            ("outcome", Kind::Word),
            ("count", Kind::Number),
            ("of injections [95 %]", Kind::Number),
            ("of observed errors [95 %]", Kind::Number),
        ],
        rows,
        note: String::new(),
    }
}

fn numbered<'a>(number: Option<u64>, case: &Case<'a>) -> Vec<(String, &'a Verdict)> {
    let flipped = !case.flips.is_empty();
    let number = number.filter(|_| flipped);
    number
        .map(|it| (it.to_string(), case.verdict))
        .into_iter()
        .collect()
}

/// Outcomes by something that cases have.
fn counted<'a>(
    caption: &str,
    name: &'static str,
    cases: &[Case<'a>],
    by: impl Fn(&Case<'a>) -> Vec<(String, &'a Verdict)>,
) -> Table {
    let mut groups: BTreeMap<String, Vec<&Verdict>> = BTreeMap::new();
    for (key, verdict) in cases.iter().flat_map(by) {
        groups.entry(key).or_default().push(verdict);
    }
    let rows = groups.into_iter().map(|(key, verdicts)| {
        let tally = Tally::of_verdicts(verdicts);
        let mut row = vec![key.into(), tally.applied().into()];
        row.extend(parts(&tally));
        row
    });
    Table {
        caption: caption.to_owned(),
        columns: vec![
            (name, Kind::Word),
            ("injections", Kind::Number),
            ("masked", Kind::Number),
            ("corrected", Kind::Number),
            ("fail-stop", Kind::Number),
            ("uncontrolled", Kind::Number),
        ],
        rows: rows.collect(),
        note: String::new(),
    }
}

/// Counts in the order of [`KINDS`].
fn parts(tally: &Tally) -> [Cell; 4] {
    KINDS.map(|(kind, _)| {
        let count = tally.sum(|it| class(it) == kind && *it != Verdict::NotApplied);
        let is_wrong = kind == "bad" && count > 0;
        Cell::coloured(count.to_string(), if is_wrong { "bad" } else { "" })
    })
}

/// The cores and what they were charged with, as far as the journal tells.
fn cores(cases: &[Case<'_>]) -> Option<Table> {
    let mut cores: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    for case in cases.iter().filter(|case| !case.flips.is_empty()) {
        if let Some(core) = case.core {
            cores.entry(core).or_default()[0] += 1;
        }
        if let Some(core) = case.charged {
            let is_right = case.core.is_none_or(|own| own == core);
            cores.entry(core).or_default()[if is_right { 1 } else { 2 }] += 1;
        }
    }
    let rows = cores.into_iter().map(|(core, [hit, right, wrong])| {
        let wrong = Cell::coloured(wrong.to_string(), if wrong > 0 { "warn" } else { "" });
        vec![core.into(), hit.into(), right.into(), wrong]
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| Table {
        caption: "Cores and what they were charged with".to_owned(),
        columns: vec![
            ("core", Kind::Word),
            ("replicas hit there", Kind::Number),
            ("charged rightly", Kind::Number),
            ("charged for another", Kind::Number),
        ],
        rows,
        note: "Where a fault stopped the run no core may have been named.".to_owned(),
    })
}

/// How late rcoe noticed what was flipped.
fn detection(cases: &[Case<'_>]) -> Option<Table> {
    let all = Latencies::of(cases.iter().map(|case| (case.verdict, case.detected_us)));
    let rows = all.rows.iter().map(|row| {
        let [median, most_of, most] = row.ms.map(|ms| Cell::from(format!("{ms:.1} ms")));
        vec![(&row.what).into(), row.runs.into(), median, most_of, most]
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty() || all.early > 0).then(|| Table {
        caption: "From the flip until rcoe told of it".to_owned(),
        columns: vec![
            ("outcome", Kind::Word),
            ("runs", Kind::Number),
            ("median", Kind::Number),
            ("99 % within", Kind::Number),
            ("most", Kind::Number),
        ],
        rows,
        note: all.note(),
    })
}

/// Time from flip to the end of a stopped run: an upper bound that every journal has.
fn latency(cases: &[Case<'_>]) -> Option<Table> {
    let mut kinds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for case in cases {
        if let (Verdict::FailStop(kind), Some(after)) = (case.verdict, case.after_us) {
            kinds.entry(kind).or_default().push(to_f64(after) / 1e3);
        }
    }
    let rows = kinds.into_iter().map(|(kind, sample)| {
        let at = |share| format!("{:.1} ms", quantile(&sample, share).unwrap_or(0.0));
        vec![
            kind.into(),
            sample.len().into(),
            at(0.5).into(),
            at(0.99).into(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    (!rows.is_empty()).then(|| Table {
        caption: "From the flip to the end of the run".to_owned(),
        columns: vec![
            ("fail-stop by", Kind::Word),
            ("runs", Kind::Number),
            ("median", Kind::Number),
            ("99 % within", Kind::Number),
        ],
        rows,
        note: String::new(),
    })
}

/// Outcomes in the course of the campaign.
fn bins(cases: &[Case<'_>]) -> Option<Bins> {
    let (first, last) = (cases.first()?, cases.last()?);
    let width = cases.len().div_ceil(MOST_BINS);
    let bins = cases.chunks(width).map(|some| {
        let count = |kind| {
            let of_kind = |case: &&Case<'_>| {
                class(case.verdict) == kind && *case.verdict != Verdict::NotApplied
            };
            some.iter().filter(of_kind).count() as u64
        };
        let counts = KINDS.map(|(kind, _)| count(kind));
        let named = KINDS.iter().zip(counts).filter(|(_, count)| *count > 0);
        let named: Vec<_> = named
            .map(|((_, name), count)| format!("{name} {count}"))
            .collect();
        Bin {
            title: format!("from {}: {}", some[0].name, named.join(", ")),
            counts: counts.to_vec(),
        }
    });
    Some(Bins {
        title: "Outcomes of runs in the course of the campaign".to_owned(),
        kinds: KINDS.to_vec(),
        bins: bins.collect(),
        from: format!("index {}", first.name),
        to: format!("index {}", last.name),
    })
}

/// When what showed was flipped, by the replica that was hit.
fn timeline(cases: &[Case<'_>]) -> Timeline {
    let whole: u64 = cases.iter().map(|case| case.wall_us).sum();
    let mut lanes: BTreeMap<u64, Vec<Mark>> = BTreeMap::new();
    let (mut now, mut left) = (0, MOST_SIGNS);
    for case in cases {
        now += case.wall_us;
        let lane = lanes.entry(case.replica.unwrap_or(0)).or_default();
        let sign = match class(case.verdict) {
            "none" => continue,
            "good" => Sign::Back,
            "fair" => Sign::Gone,
            _ => Sign::Fault,
        };
        if left == 0 {
            continue;
        }
        left -= 1;
        lane.push(Mark {
            at: to_f64(now) / to_f64(whole.max(1)),
            sign,
            title: format!(
                "{}: {} in {}",
                case.name,
                case.verdict.label(),
                case.program
            ),
        });
    }
    let of = if left == 0 { ", the first 500" } else { "" };
    Timeline {
        title: format!(
            "Faults that showed{of}, by the replica that was hit: cross uncontrolled, ring \
             fail-stop, dot corrected"
        ),
        lanes: lanes
            .into_iter()
            .map(|(id, marks)| lane(id, marks))
            .collect(),
        from: "start".to_owned(),
        to: format!("after {} of runs", duration(to_f64(whole) / 1e6)),
    }
}

fn lane(replica: u64, marks: Vec<Mark>) -> Lane {
    Lane {
        name: format!("replica {replica}"),
        marks,
    }
}

/// All that showed, the uncontrolled first.
fn listed(cases: &[Case<'_>]) -> Table {
    let showed = |case: &&&Case<'_>| !matches!(class(case.verdict), "none");
    let wrong = |case: &&&Case<'_>| case.verdict.is_uncontrolled();
    let bad = cases.iter().filter(|case| wrong(&case));
    let other = cases.iter().filter(|case| showed(&case) && !wrong(&case));
    let all: Vec<_> = bad.chain(other).collect();
    let more = all.len().saturating_sub(MOST_CASES);
    Table {
        caption: "Cases that showed, the uncontrolled first".to_owned(),
        columns: vec![
            ("index", Kind::Word),
            ("outcome", Kind::Long),
            ("program", Kind::Word),
            ("replica", Kind::Number),
            ("named", Kind::Number),
            ("what was flipped", Kind::Long),
            ("what was told", Kind::Long),
        ],
        rows: all
            .iter()
            .take(MOST_CASES)
            .map(|case| listed_case(case))
            .collect(),
        note: match more {
            0 => String::new(),
            more => format!("and {more} cases more, in the journal"),
        },
    }
}

fn listed_case(case: &Case<'_>) -> Vec<Cell> {
    let number = |it: Option<u64>| it.map_or_else(|| "–".to_owned(), |it| it.to_string());
    vec![
        (&case.name).into(),
        Cell::coloured(case.verdict.label(), class(case.verdict)),
        shortened(case.program, MOST_TEXT).into(),
        number(case.replica).into(),
        number(case.named).into(),
        shortened(&case.place, MOST_TEXT).into(),
        shortened(&case.detail, MOST_TEXT).into(),
    ]
}
