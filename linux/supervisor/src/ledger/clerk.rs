//! Writes into the ledger while a run goes on, without holding it up.
//!
//! A disk can be slow or hang, and a faulty replica must be removed at once: a thread of its own
//! writes, from the first fault on.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{Entry, Ledger};

/// Longest time that the end of a run waits for the disk.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Takes entries and sees to it that they are written.
#[derive(Debug)]
pub(crate) struct Clerk {
    ledger: Option<Ledger>,
    desk: Option<Desk>,
    pending: usize,
    complained: bool,
}

#[derive(Debug)]
struct Desk {
    orders: Sender<Entry>,
    results: Receiver<io::Result<()>>,
}

impl Clerk {
    /// A clerk of this ledger, or one that has nothing to write to.
    pub(crate) const fn new(ledger: Option<Ledger>) -> Self {
        Self {
            ledger,
            desk: None,
            pending: 0,
            complained: false,
        }
    }

    /// Has an entry written; returns at once.
    pub(crate) fn write(&mut self, entry: Entry) -> Option<String> {
        let ledger = self.ledger.as_ref()?;
        if self.desk.is_none() {
            match open(ledger.clone()) {
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

    /// What the user should know, once a run.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        let result = self.desk.as_ref()?.results.try_recv().ok()?;
        self.pending = self.pending.saturating_sub(1);
        self.complain(&result.err()?)
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
                Ok(Ok(())) => continue,
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

fn open(ledger: Ledger) -> io::Result<Desk> {
    let (orders, incoming) = channel::<Entry>();
    let (outgoing, results) = channel();
    let work = move || {
        for entry in incoming {
            if outgoing.send(ledger.append(&entry)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("ledger".into()).spawn(work)?;
    Ok(Desk { orders, results })
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
        let mut clerk = Clerk::new(Some(ledger.clone()));
        for core in 0..20 {
            assert_eq!(clerk.write(entry(core)), None);
        }
        assert_eq!(clerk.finish(), None);
        let written = ledger.read().expect("read").entries;
        assert!(written.into_iter().eq((0..20).map(entry)));
    }

    #[test]
    fn one_complaint_about_a_ledger_that_cannot_be_written() {
        let mut clerk = Clerk::new(Some(Ledger::new(PathBuf::from("/dev/null/rcoe"))));
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
        let mut clerk = Clerk::new(None);
        assert_eq!(clerk.write(entry(0)), None);
        assert_eq!((clerk.complaint(), clerk.finish()), (None, None));
    }
}
