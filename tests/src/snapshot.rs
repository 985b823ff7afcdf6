//! What lies in a directory: content and mode of every file, to lay out again or to compare.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

/// Time stamp of everything laid out, in seconds: a fixed moment, so that listings are equal.
const LAID_OUT_AT: i64 = 1_767_322_800;

/// One entry of a directory tree.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { target: PathBuf },
    Other { mode: u32 },
}

/// All entries below one directory, by relative path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, Entry>);

impl Snapshot {
    /// Adds a plain file.
    pub fn add_file(&mut self, path: impl Into<PathBuf>, content: Vec<u8>) {
        self.0.insert(
            path.into(),
            Entry::File {
                mode: 0o644,
                content,
            },
        );
    }

    /// Reads everything below `root`.
    ///
    /// # Errors
    /// If something below `root` cannot be read.
    pub fn take(root: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        read_below(root, Path::new(""), &mut entries)
            .with_context(|| format!("reading {}", root.display()))?;
        Ok(Self(entries))
    }

    /// Empties `root` and lays the entries out in it, all with one fixed time stamp.
    ///
    /// # Errors
    /// If something below `root` cannot be removed or written.
    pub fn lay_out(&self, root: &Path) -> Result<()> {
        if root.exists() {
            fs::remove_dir_all(root).with_context(|| format!("emptying {}", root.display()))?;
        }
        fs::create_dir_all(root)?;
        for (path, entry) in &self.0 {
            write_entry(&root.join(path), entry)
                .with_context(|| format!("laying out {}", path.display()))?;
        }
        for path in self.0.keys().rev() {
            stamp(&root.join(path))?;
        }
        stamp(root)
    }

    /// Says what differs from `other`, in one line; nothing if they are equal.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        for (path, entry) in &self.0 {
            let path_text = path.display();
            match other.0.get(path) {
                None => return Some(format!("file {path_text} is missing")),
                Some(found) if found != entry => {
                    return Some(format!(
                        "file {path_text}: {}",
                        entry_difference(entry, found)
                    ));
                }
                Some(_) => {}
            }
        }
        let extra = other.0.keys().find(|path| !self.0.contains_key(*path))?;
        Some(format!("file {} should not be there", extra.display()))
    }
}

fn stamp(path: &Path) -> Result<()> {
    let moment = Timespec {
        tv_sec: LAID_OUT_AT,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: moment,
        last_modification: moment,
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn write_entry(path: &Path, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Directory { mode } => {
            fs::create_dir_all(path)?;
            fs::set_permissions(path, Permissions::from_mode(*mode))?;
        }
        Entry::File { mode, content } => {
            fs::write(path, content)?;
            fs::set_permissions(path, Permissions::from_mode(*mode))?;
        }
        Entry::Link { target } => symlink(target, path)?,
        Entry::Other { .. } => anyhow::bail!("a special file cannot be laid out"),
    }
    Ok(())
}

fn read_below(root: &Path, below: &Path, entries: &mut BTreeMap<PathBuf, Entry>) -> Result<()> {
    for item in fs::read_dir(root.join(below))? {
        let item = item?;
        let path = below.join(item.file_name());
        let metadata = item.path().symlink_metadata()?;
        let mode = metadata.permissions().mode() & 0o7777;
        let entry = if metadata.is_dir() {
            read_below(root, &path, entries)?;
            Entry::Directory { mode }
        } else if metadata.is_symlink() {
            Entry::Link {
                target: fs::read_link(item.path())?,
            }
        } else if metadata.is_file() {
            Entry::File {
                mode,
                content: fs::read(item.path())?,
            }
        } else {
            Entry::Other { mode }
        };
        entries.insert(path, entry);
    }
    Ok(())
}

fn entry_difference(expected: &Entry, found: &Entry) -> String {
    match (expected, found) {
        (
            Entry::File {
                content: a,
                mode: m,
            },
            Entry::File {
                content: b,
                mode: n,
            },
        ) => content_difference(a, b).unwrap_or_else(|| format!("mode {m:o}, got {n:o}")),
        (Entry::Link { target: a }, Entry::Link { target: b }) => {
            let (a, b) = (a.as_os_str().as_bytes(), b.as_os_str().as_bytes());
            content_difference(a, b).unwrap_or_default()
        }
        (Entry::Directory { mode: m }, Entry::Directory { mode: n }) => {
            format!("mode {m:o}, got {n:o}")
        }
        _ => "another kind of file".to_owned(),
    }
}

/// Says where two byte strings part; nothing if they are equal.
#[must_use]
pub fn content_difference(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected == found {
        return None;
    }
    let at = expected
        .iter()
        .zip(found)
        .take_while(|(a, b)| a == b)
        .count();
    let tail = |bytes: &[u8]| {
        let end = bytes.len().min(at + 60);
        String::from_utf8_lossy(&bytes[at..end])
            .escape_debug()
            .to_string()
    };
    Some(format!(
        "{} bytes, got {}; at byte {at} \"{}\", got \"{}\"",
        expected.len(),
        found.len(),
        tail(expected),
        tail(found)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.add_file("a.txt", b"hello".to_vec());
        snapshot
    }

    #[test]
    fn what_is_laid_out_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("case");
        sample().lay_out(&root).unwrap();
        fs::write(root.join("left-over"), "x").unwrap();
        sample().lay_out(&root).unwrap();
        assert_eq!(Snapshot::take(&root).unwrap(), sample());
    }

    #[test]
    fn each_kind_of_difference_is_told() {
        let mut other = sample();
        other.add_file("a.txt", b"help!".to_vec());
        assert!(sample().difference(&other).unwrap().contains("at byte 3"));
        assert!(
            sample()
                .difference(&Snapshot::default())
                .unwrap()
                .contains("missing")
        );
        assert!(
            Snapshot::default()
                .difference(&sample())
                .unwrap()
                .contains("should not")
        );
        assert_eq!(sample().difference(&sample()), None);
    }
}
