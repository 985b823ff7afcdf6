//! What a run shows to those who ask: `rcoe top` by a socket of its own, scrapers by `--metrics`.
//!
//! Until somebody asks there is only a bound socket, which the supervisor's loop polls. The first
//! client has a thread started that serves it and all later ones, so that no client can hold up the
//! loop (see [`rcoe_http`]).
//!
//! Not covered: the answers are of this run only; nothing is kept when it is over.

mod board;
mod chronicle;
mod gather;
mod jobs;
mod listen;
mod pages;
mod prometheus;
mod snapshot;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::error::RunError;
use crate::family::Family;
use crate::ledger::seconds_of;
use crate::settings::Settings;

use board::Board;
pub(crate) use chronicle::Chronicle;
pub(crate) use gather::{Happened, Past};
pub use jobs::{find_job, find_jobs, jobs_folder};
use listen::Listener;
pub use listen::MetricsAddress;
pub use snapshot::{CpuView, FaultCounts, Happening, ProcessView, ReplicaView, Snapshot, Totals};

/// The sockets of a run.
#[derive(Debug)]
pub(crate) struct Window {
    start: Instant,
    started_at: f64,
    listeners: Arc<Vec<Listener>>,
    /// The folder of all jobs.
    jobs: Option<PathBuf>,
    /// There from the first client on.
    board: Option<Arc<Board>>,
}

impl Window {
    /// Binds the address for scrapers, if the settings ask for one; also returns it.
    ///
    /// # Errors
    ///
    /// If it cannot be bound.
    pub(crate) fn open(settings: &Settings) -> Result<(Self, Option<MetricsAddress>), RunError> {
        let mut listeners = Vec::new();
        let mut bound = None;
        if let Some(address) = &settings.metrics {
            let wrong = |error| RunError::Setting(format!("--metrics: {address}: {error}"));
            let listener = Listener::metrics(address).map_err(wrong)?;
            bound = Some(listener.address().map_err(wrong)?);
            listeners.push(listener);
        }
        let window = Self {
            start: Instant::now(),
            started_at: seconds_of(SystemTime::now()),
            listeners: Arc::new(listeners),
            jobs: None,
            board: None,
        };
        Ok((window, bound))
    }

    /// Lets `rcoe top` find this run, if the settings say so; or returns a warning, since that is
    /// an amenity.
    ///
    /// # Panics
    ///
    /// If somebody has been answered already.
    pub(crate) fn enter(&mut self, settings: &Settings) -> Option<String> {
        self.jobs.clone_from(&settings.jobs);
        let folder = self.jobs.as_ref()?;
        match jobs::enter(folder) {
            Ok(listener) => {
                let listeners = Arc::get_mut(&mut self.listeners);
                listeners.expect("nobody is served").push(listener);
                None
            }
            Err(error) => {
                let folder = folder.display();
                Some(format!(
                    "rcoe top will not find this run: {folder}: {error}"
                ))
            }
        }
    }

    /// What the loop must poll for reading before it calls [`Self::attend`].
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.board {
            Some(board) => vec![board.as_fd()],
            None => self.listeners.iter().map(AsFd::as_fd).collect(),
        }
    }

    /// One of the descriptors is ready: starts the thread, or answers it. Returns a warning.
    pub(crate) fn attend(
        &mut self,
        settings: &Settings,
        family: &Family,
        happened: &Happened,
        chronicle: &Chronicle<'_>,
    ) -> Option<String> {
        let Some(board) = &self.board else {
            return self.start_thread().err().map(|error| {
                self.listeners = Arc::default();
                format!("nobody can ask about this run any more: {error}")
            });
        };
        if board.is_asked() {
            board.post(Snapshot {
                uptime_seconds: self.start.elapsed().as_secs_f64(),
                started_at: self.started_at,
                recent: chronicle.recent(),
                ..gather::gather(settings, family, happened)
            });
        }
        None
    }

    fn start_thread(&mut self) -> std::io::Result<()> {
        let board = Arc::new(Board::new()?);
        let (listeners, own) = (Arc::clone(&self.listeners), Arc::clone(&board));
        let work = move || {
            rcoe_http::serve(&listeners, |listener: &Listener, request| {
                pages::page(listener.offer, request, &own)
            });
        };
        std::thread::Builder::new()
            .name("status".into())
            .spawn(work)?;
        self.board = Some(board);
        Ok(())
    }

    /// Removes the names under which this run is found.
    pub(crate) fn close(&self) {
        self.listeners.iter().for_each(Listener::unlink);
        if let Some(folder) = &self.jobs {
            jobs::leave(folder);
        }
    }
}
