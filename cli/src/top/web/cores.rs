//! The table of cores: what runs on them, and what the ledger says of them.

use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

use rcoe_pages::{date, shortened};
use rcoe_supervisor::{CoreRecord, Ledger, SUSPECT_AFTER};

use super::super::render::Look;
use crate::cores::records;

/// Characters of a text in the table that are shown.
const MOST_TEXT: usize = 200;

/// The ledger, read again only when it has changed.
#[derive(Debug)]
pub(super) struct Book {
    ledger: Option<Ledger>,
    /// Size and time of what was read.
    state: Option<(u64, SystemTime)>,
    records: Vec<CoreRecord>,
    trouble: Option<String>,
}

/// A line of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct CoreRow {
    pub(super) core: u32,
    pub(super) suspect: bool,
    /// Replicas that run there, by job and number.
    pub(super) replicas: usize,
    pub(super) seconds: f64,
    pub(super) faults: u32,
    pub(super) shared: u32,
    pub(super) uncounted: u32,
    pub(super) last: String,
    pub(super) programs: String,
}

impl Book {
    pub(super) const fn new(ledger: Option<Ledger>) -> Self {
        Self {
            ledger,
            state: None,
            records: Vec::new(),
            trouble: None,
        }
    }

    /// What is wrong with the ledger.
    pub(super) fn note(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// All cores that have a record or are in use.
    pub(super) fn rows(&mut self, looks: &[Look]) -> Vec<CoreRow> {
        self.read();
        let mut rows = BTreeMap::<u32, CoreRow>::new();
        for record in &self.records {
            rows.insert(record.core, row(record));
        }
        for job in looks.iter().map(|look| &look.snapshot) {
            for used in &job.totals.cpu {
                rows.entry(used.core).or_default().seconds += used.seconds;
            }
            let replicas = job.processes.iter().flat_map(|process| &process.replicas);
            for replica in replicas.filter(|it| it.pid != 0 && it.state != "removed") {
                rows.entry(replica.core).or_default().replicas += 1;
            }
        }
        for (core, row) in &mut rows {
            row.core = *core;
        }
        rows.into_values().collect()
    }

    fn read(&mut self) {
        let Some(ledger) = &self.ledger else {
            return;
        };
        let metadata = fs::metadata(ledger.path()).ok();
        let state = metadata.and_then(|it| Some((it.len(), it.modified().ok()?)));
        if state.is_some() && state == self.state {
            return;
        }
        self.state = state;
        match records(ledger, SUSPECT_AFTER) {
            Ok(records) => (self.records, self.trouble) = (records, None),
            Err(error) => {
                let path = ledger.path();
                let text = format!("the ledger {} cannot be read: {error}", path.display());
                self.trouble = Some(text);
            }
        }
    }
}

fn row(record: &CoreRecord) -> CoreRow {
    let programs = record.programs.iter().map(String::as_str);
    CoreRow {
        core: record.core,
        suspect: record.suspect,
        faults: record.faults,
        shared: record.shared,
        uncounted: record.uncounted,
        last: date(record.last),
        programs: shortened(&programs.collect::<Vec<_>>().join(" "), MOST_TEXT),
        ..CoreRow::default()
    }
}
