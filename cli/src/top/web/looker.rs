//! Looks at the jobs each second and keeps the page that shows them.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use askama::Template as _;
use rcoe_supervisor::{Ledger, Snapshot, host_name, seconds_of};

use super::super::render::{Look, rate};
use super::super::{PERIOD, job, jobs};
use super::cores::Book;
use super::view::{JobView, Page, View};

/// Looks that are kept of each job, for its curve.
const MOST_LOOKS: usize = 120;
/// Jobs that are shown in full; the others are counted.
const MOST_JOBS: usize = 32;

/// What browsers get.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<Texts>);

#[derive(Debug, Default)]
struct Texts {
    view: String,
    page: String,
    json: String,
}

impl Shown {
    fn texts(&self) -> MutexGuard<'_, Texts> {
        // Whoever panics ends the process: there is no half-done text to find.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole page.
    pub(super) fn page(&self) -> String {
        self.texts().page.clone()
    }

    /// The part of it that changes.
    pub(super) fn view(&self) -> String {
        self.texts().view.clone()
    }

    /// The same for scripts.
    pub(super) fn json(&self) -> String {
        self.texts().json.clone()
    }
}

/// Who looks, and remembers.
#[derive(Debug)]
pub(super) struct Looker {
    folder: PathBuf,
    /// The only job that is of interest.
    pid: Option<u32>,
    book: Book,
    before: Vec<Look>,
    /// Rendezvous a second of each job, looked at once a second.
    rates: BTreeMap<u32, VecDeque<f64>>,
    shown: Arc<Shown>,
}

impl Looker {
    /// Looks for the first time.
    ///
    /// # Errors
    ///
    /// If there is no such job, or the folder of jobs cannot be read.
    pub(super) fn new(folder: PathBuf, pid: Option<u32>) -> anyhow::Result<(Self, Arc<Shown>)> {
        let mut looker = Self {
            book: Book::new(Ledger::of_user(|name| env::var_os(name))),
            folder,
            pid,
            before: Vec::new(),
            rates: BTreeMap::new(),
            shown: Arc::default(),
        };
        let found = looker.find()?;
        looker.show(found, None);
        let shown = Arc::clone(&looker.shown);
        Ok((looker, shown))
    }

    /// Looks until the process ends.
    pub(super) fn look_on(mut self) {
        loop {
            std::thread::sleep(PERIOD);
            match self.find() {
                Ok(found) => self.show(found, None),
                Err(_) if self.pid.is_some() => {
                    self.show(Vec::new(), Some("The job has ended.".to_owned()));
                }
                Err(error) => self.show(Vec::new(), Some(format!("{error:#}"))),
            }
        }
    }

    fn find(&self) -> anyhow::Result<Vec<Snapshot>> {
        match self.pid {
            Some(pid) => Ok(vec![job(&self.folder, pid)?]),
            None => jobs(&self.folder),
        }
    }

    fn show(&mut self, found: Vec<Snapshot>, note: Option<String>) {
        let now = Instant::now();
        let looks = found.into_iter().map(|snapshot| Look { now, snapshot });
        let looks = looks.collect::<Vec<_>>();
        self.remember(&looks);
        let before = |pid: u32| self.before.iter().find(|look| look.snapshot.pid == pid);
        let views = looks.iter().take(MOST_JOBS).map(|look| {
            let pid = look.snapshot.pid;
            JobView::new(look, before(pid), self.rates.get(&pid))
        });
        let view = View {
            host: host_name(),
            time: rcoe_pages::date(seconds_of(SystemTime::now())),
            note,
            jobs: views.collect(),
            hidden: looks.len().saturating_sub(MOST_JOBS),
            cores: self.book.rows(&looks),
            ledger: self.book.note(),
        };
        self.publish(&view, &looks);
        self.before = looks;
    }

    /// Adds to the curves, and forgets those of jobs that are gone.
    fn remember(&mut self, looks: &[Look]) {
        let is_there = |pid: u32| looks.iter().any(|look| look.snapshot.pid == pid);
        self.rates.retain(|&pid, _| is_there(pid));
        for look in looks {
            let pid = look.snapshot.pid;
            let before = self.before.iter().find(|old| old.snapshot.pid == pid);
            let Some(rate) = rate(look, before, |job| job.totals.rendezvous) else {
                continue;
            };
            let rates = self.rates.entry(pid).or_default();
            if rates.len() == MOST_LOOKS {
                rates.pop_front();
            }
            rates.push_back(rate);
        }
    }

    fn publish(&self, view: &View, looks: &[Look]) {
        let jobs = looks.iter().map(|look| &look.snapshot).collect::<Vec<_>>();
        // Writing into a string cannot fail.
        let view = view.render().unwrap_or_default();
        let page = Page { view: &view }.render().unwrap_or_default();
        *self.shown.texts() = Texts {
            page,
            view,
            json: serde_json::to_string(&jobs).unwrap_or_default(),
        };
    }
}
