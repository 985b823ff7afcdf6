//! The ledger of cores: every detected fault, charged to the core that it happened on.
//!
//! It is a file of JSON lines in the user's state folder, only ever appended to, and read when a
//! run is placed. Taking a core's faults back is a line too.
//!
//! Contract: a line is written whole or not at all, however many rcoe write at once: the folder is
//! locked, a line that a crash has cut short is closed off before the next one, and a full disk
//! leaves the file as it was. The file is bounded: past [`MOST_BYTES`] it becomes the older
//! generation, of which one is kept.
//!
//! Not covered: what happened is not proved here. Who can write the file can clear or accuse any
//! core.

mod blame;
mod clerk;
mod entry;
mod tally;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::folders::absolute;

pub(crate) use blame::{Circumstances, judge_core};
pub(crate) use clerk::{Clerk, News};
pub(crate) use entry::shortened;
pub use entry::{Blame, Charge, Clearing, Entry, host_name, seconds_of};
pub use tally::{CoreRecord, SUSPECT_AFTER, WINDOW_DAYS, suspects, tally};

const FILE: &str = "cores.ndjson";
const OLDER: &str = "cores.older.ndjson";
/// Length in bytes from which on a new file is begun; about 3,000 faults.
const MOST_BYTES: u64 = 1 << 20;

/// The ledger in one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    folder: PathBuf,
}

/// What a ledger holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// Its entries, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that are none: cut short by a crash, or damaged.
    pub unreadable: usize,
}

impl Ledger {
    /// The ledger in this folder, which need not exist yet.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The user's ledger: in `rcoe` below `XDG_STATE_HOME`, or below `.local/state` of `HOME`.
    /// Relative folders do not count.
    #[must_use]
    pub fn of_user(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<Self> {
        let folder = |name| absolute(variable(name));
        let state = folder("XDG_STATE_HOME")
            .or_else(|| folder("HOME").map(|home| home.join(".local/state")))?;
        Some(Self::new(state.join("rcoe")))
    }

    /// The file that new entries go to.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Reads all of it; empty if nothing was ever written.
    ///
    /// # Errors
    ///
    /// If a file exists and cannot be read.
    pub fn read(&self) -> io::Result<Content> {
        let mut content = Content::default();
        for name in [OLDER, FILE] {
            read_file(&self.folder.join(name), &mut content)?;
        }
        Ok(content)
    }

    /// Appends an entry and brings it to the disk. Waits for others that write.
    ///
    /// # Errors
    ///
    /// If it cannot be written whole; then nothing of it stays.
    pub fn append(&self, entry: &Entry) -> io::Result<()> {
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700).create(&self.folder)?;
        let lock = File::open(&self.folder)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let path = self.path();
        let file = open(&path)?;
        let length = file.metadata()?.len();
        if length < MOST_BYTES {
            return append_line(&file, length, entry);
        }
        std::fs::rename(&path, self.folder.join(OLDER))?;
        append_line(&open(&path)?, 0, entry)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    options.open(path)
}

fn append_line(mut file: &File, length: u64, entry: &Entry) -> io::Result<()> {
    let mut line = Vec::new();
    if length > 0 {
        let mut last = [0];
        file.read_exact_at(&mut last, length - 1)?;
        if last != *b"\n" {
            line.push(b'\n');
        }
    }
    serde_json::to_writer(&mut line, entry)?;
    line.push(b'\n');
    file.write_all(&line).inspect_err(|_| {
        // What does not fit must not stay in part; if this fails too, the next writer closes it
        // off.
        let _ = file.set_len(length);
    })?;
    file.sync_data()
}

fn read_file(path: &Path, content: &mut Content) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    // One line may go past the limit; what is longer was not written by us.
    file.take(2 * MOST_BYTES).read_to_end(&mut bytes)?;
    for line in bytes.split(|&byte| byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(entry) => content.entries.push(entry),
            Err(_) if line.is_empty() => {}
            Err(_) => content.unreadable += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
