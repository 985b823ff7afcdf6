//! A page of what came of campaigns: one file that stands alone, for a browser.
//!
//! Nothing is loaded, and no script is in it; its policy allows neither. Drawings are bounded,
//! however long a journal is, and tables say what they leave out.

mod cases;
mod kills;
mod section;

use std::fs::{self, OpenOptions};
use std::path::Path;

use anyhow::{Context as _, Result};
use askama::Template;
use rcoe_pages::{Bins, STYLE, Table, Timeline};

use crate::{journal, kills as lost, system};

/// The report on one campaign or several.
#[derive(Debug, Default)]
pub struct Report {
    sections: Vec<Section>,
}

/// What came of one campaign.
#[derive(Debug)]
pub(crate) struct Section {
    title: String,
    /// Settings and sums by name.
    facts: Vec<(&'static str, String)>,
    /// What it comes to, and whether that is as it must be.
    sum: String,
    is_good: bool,
    bins: Option<Bins>,
    timeline: Option<Timeline>,
    tables: Vec<Table>,
}

/// The whole file.
#[derive(Debug, Template)]
#[template(path = "report.html")]
struct Page<'a> {
    style: &'static str,
    sections: &'a [Section],
}

impl Report {
    /// Adds a campaign of flips in processes.
    pub fn add(&mut self, header: &journal::Header, records: &[journal::Record]) {
        self.sections.push(cases::of_processes(header, records));
    }

    /// Adds a campaign against machines.
    pub fn add_system(&mut self, header: &system::Header, records: &[system::Record]) {
        self.sections.push(cases::of_machines(header, records));
    }

    /// Adds a campaign of kills.
    pub fn add_kills(&mut self, header: &lost::Header, runs: &lost::Runs) {
        self.sections.push(kills::section(header, runs));
    }

    /// The page.
    #[must_use]
    pub fn page(&self) -> String {
        let page = Page {
            style: STYLE,
            sections: &self.sections,
        };
        page.to_string()
    }

    /// Writes the page into this file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.page()).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Finds out before a long campaign whether a report can be written there.
///
/// # Errors
///
/// If it cannot.
pub fn try_out(path: &Path) -> Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map(drop)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inject::Hit;
    use crate::journal::tests::{header, record};
    use crate::taxonomy::Verdict;

    const HOSTILE: &str = "</style><script>alert(1)</script>\"'&";

    fn records() -> Vec<journal::Record> {
        let mut records: Vec<_> = (0..1000)
            .map(|index| record(index, Verdict::Masked))
            .collect();
        records[10] = record(10, Verdict::FailStop("mismatch".into()));
        records[20] = record(20, Verdict::Sdc);
        for (record, core) in records.iter_mut().zip([0, 1].into_iter().cycle()) {
            record.core = Some(core);
            record.wall_us = 1000;
            record.hit = Some(Hit {
                pid: 1,
                program: HOSTILE.into(),
                at: None,
                replica: Some(1),
                cpu_ns: 1,
                ip: 1,
                in_kernel: false,
                place: HOSTILE.into(),
                bit: 0,
                before: 0,
                after: 1,
                flips: 1,
            });
        }
        records[10].charged = Some(0);
        records[10].detected_us = Some(77_000);
        records[20].detail = HOSTILE.into();
        records
    }

    fn page(records: &[journal::Record]) -> String {
        let mut report = Report::default();
        let mut header = header(9);
        header.machine = HOSTILE.into();
        report.add(&header, records);
        report.page()
    }

    #[test]
    fn hostile_texts_stay_texts_and_nothing_is_loaded() {
        let text = page(&records());
        assert!(text.contains("&#60;script&#62;alert(1)"), "{text}");
        assert!(!text.contains("<script") && !text.contains("://"), "{text}");
        assert!(text.contains("default-src 'none'"), "{text}");
        assert_eq!(text.matches("</style>").count(), 1);
    }

    #[test]
    fn the_uncontrolled_come_first_and_cores_have_their_ledger() {
        let text = page(&records());
        let place = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("no {what}: {text}"))
        };
        assert!(text.contains("1 uncontrolled outcome"), "{text}");
        let cases = place("<caption>Cases");
        let (bad, other) = (place(">20.0</th>"), place(">10.0</th>"));
        assert!(cases < bad && bad < other, "{cases} {bad} {other}");
        assert!(text.contains("<caption>Cores"), "{text}");
        assert!(text.contains("class=\"mark fault\""), "{text}");
        assert!(text.contains("<caption>From the flip until"), "{text}");
        assert!(text.contains("77.0 ms"), "{text}");
    }

    #[test]
    fn a_report_that_cannot_be_written_is_told_before_the_campaign() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("report.html");
        try_out(&path).expect("it can be");
        let mut report = Report::default();
        report.add(&header(9), &records());
        report.write(&path).expect("written");
        try_out(&path).expect("still");
        let text = fs::read_to_string(&path).expect("there");
        assert_eq!(text, report.page(), "trying out changes nothing");
        let error = try_out(folder.path()).expect_err("a folder");
        assert!(error.to_string().contains("cannot write"), "{error}");
    }

    #[test]
    fn a_long_journal_makes_no_long_page() {
        let all = |count: u64| (0..count).map(|index| record(index, Verdict::Sdc));
        let text = page(&all(20_000).collect::<Vec<_>>());
        assert!(text.len() < 1 << 20, "{}", text.len());
        assert!(text.contains("cases more"), "the rest is counted");
        assert!(page(&[]).contains("Nothing was flipped"));
    }
}
