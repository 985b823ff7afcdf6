//! Writes into the ledger while a run goes on, without holding it up.
//!
//! A disk can be slow or hang, and a faulty replica must be removed at once: a thread of its own
//! writes, from the first fault on. It also reads what the ledger says after each fault, so that a
//! run in progress can leave a core that has become suspect.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::{Entry, Ledger, host_name, seconds_of, suspects, tally};

/// Longest time that the end of a run waits for the disk.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Takes entries and sees to it that they are written.
#[derive(Debug)]
pub(crate) struct Clerk {
    ledger: Option<Ledger>,
    suspect_after: u32,
    desk: Option<Desk>,
    pending: usize,
    complained: bool,
}

/// The suspect cores, once an entry is written.
type Written = io::Result<Vec<u32>>;

/// What comes of writing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// What the user should know, once a run.
    Complaint(String),
    /// The cores that are suspect, those with the shortest record first.
    Suspects(Vec<u32>),
}

#[derive(Debug)]
struct Desk {
    orders: Sender<Entry>,
    results: Receiver<Written>,
}

impl Clerk {
    /// A clerk of this ledger, or one that has nothing to write to.
    pub(crate) const fn new(ledger: Option<Ledger>, suspect_after: u32) -> Self {
        Self {
            ledger,
            suspect_after,
            desk: None,
            pending: 0,
            complained: false,
        }
    }

    /// Has an entry written; returns at once.
    pub(crate) fn write(&mut self, entry: Entry) -> Option<String> {
        let ledger = self.ledger.as_ref()?;
        if self.desk.is_none() {
            match open(ledger.clone(), self.suspect_after) {
                Ok(desk) => self.desk = Some(desk),
                Err(error) => return self.complain(&error),
            }
        }
        let desk = self.desk.as_ref()?;
        if desk.orders.send(entry).is_ok() {
            self.pending += 1;
        }
        None
    }

    /// Does the clerk still write?
    pub(crate) const fn is_busy(&self) -> bool {
        self.pending > 0
    }

    /// What has come of writing, if there is news.
    pub(crate) fn news(&mut self) -> Option<News> {
        let result = self.desk.as_ref()?.results.try_recv().ok()?;
        self.pending = self.pending.saturating_sub(1);
        match result {
            Ok(suspects) => Some(News::Suspects(suspects)),
            Err(error) => self.complain(&error).map(News::Complaint),
        }
    }

    /// Waits for what is still to be written, but not for ever.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let deadline = Instant::now() + LAST_PATIENCE;
        let desk = self.desk.take()?;
        drop(desk.orders);
        let mut complaint = None;
        for _ in 0..self.pending {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match desk.results.recv_timeout(left) {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => error,
                Err(RecvTimeoutError::Timeout) => io::ErrorKind::TimedOut.into(),
                Err(RecvTimeoutError::Disconnected) => io::ErrorKind::BrokenPipe.into(),
            };
            complaint = complaint.or_else(|| self.complain(&error));
        }
        self.pending = 0;
        complaint
    }

    fn complain(&mut self, error: &io::Error) -> Option<String> {
        if self.complained {
            return None;
        }
        self.complained = true;
        let path = self.ledger.as_ref()?.path();
        Some(format!(
            "the ledger of cores {} cannot be written: {error}",
            path.display()
        ))
    }
}

fn open(ledger: Ledger, suspect_after: u32) -> io::Result<Desk> {
    let (orders, incoming) = channel::<Entry>();
    let (outgoing, results) = channel();
    let work = move || {
        for entry in incoming {
            let written = ledger
                .append(&entry)
                .and_then(|()| suspected(&ledger, suspect_after));
            if outgoing.send(written).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("ledger".into()).spawn(work)?;
    Ok(Desk { orders, results })
}

fn suspected(ledger: &Ledger, suspect_after: u32) -> Written {
    let now = seconds_of(SystemTime::now());
    let content = ledger.read()?;
    let records = tally(&content.entries, &host_name(), now, suspect_after);
    Ok(suspects(&records))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::ledger::Clearing;

    fn entry(core: u32) -> Entry {
        Entry::Clear(Clearing {
            time: 1.0,
            host: "h".into(),
            core: Some(core),
        })
    }

    #[test]
    fn all_is_written_when_the_clerk_has_finished() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let ledger = Ledger::new(folder.path().join("rcoe"));
        let mut clerk = Clerk::new(Some(ledger.clone()), 3);
        for core in 0..20 {
            assert_eq!(clerk.write(entry(core)), None);
        }
        assert_eq!(clerk.finish(), None);
        let written = ledger.read().expect("read").entries;
        assert!(written.into_iter().eq((0..20).map(entry)));
    }

    #[test]
    fn one_complaint_about_a_ledger_that_cannot_be_written() {
        let mut clerk = Clerk::new(Some(Ledger::new(PathBuf::from("/dev/null/rcoe"))), 3);
        for core in 0..3 {
            assert_eq!(clerk.write(entry(core)), None);
        }
        let complaint = clerk.finish().expect("a complaint");
        assert!(complaint.contains("/dev/null/rcoe"), "{complaint}");
        assert_eq!(clerk.write(entry(9)), None);
        assert_eq!(clerk.finish(), None, "told once");
    }

    #[test]
    fn without_a_ledger_nothing_is_written_or_told() {
        let mut clerk = Clerk::new(None, 3);
        assert_eq!(clerk.write(entry(0)), None);
        assert_eq!((clerk.news(), clerk.finish()), (None, None));
    }
}
