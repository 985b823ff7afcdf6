//! A file that keeps what long runs found, a line of JSON for each part, as the parts end.
//!
//! What stands in it is not run again, so that a run can go on where another one was stopped, and
//! a page can be made anew with other explanations. A last line that is not whole is that of a run
//! which was ended while it wrote: its part is run again.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The file; by default there is none, and nothing is kept.
#[derive(Debug, Default)]
pub struct Kept {
    file: Option<Mutex<File>>,
}

impl Kept {
    /// Opens or makes a file; also what it holds.
    ///
    /// # Errors
    /// If it cannot be read or written, or has other lines.
    pub fn open<T: DeserializeOwned>(path: &Path) -> Result<(Self, Vec<T>)> {
        let failed = || path.display().to_string();
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).read(true).open(path);
        let file = file.with_context(failed)?;
        let text = fs::read_to_string(path).with_context(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let lines = text[..whole].lines().map(serde_json::from_str);
        let lines = lines.collect::<Result<_, _>>().with_context(failed)?;
        file.set_len(whole as u64).with_context(failed)?;
        let file = Some(Mutex::new(file));
        Ok((Self { file }, lines))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&self, line: &impl Serialize) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let line = serde_json::to_string(line)? + "\n";
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_there_later_and_a_torn_one_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let (kept, none) = Kept::open::<u32>(path).unwrap();
        assert!(none.is_empty());
        kept.add(&1).unwrap();
        kept.add(&22).unwrap();
        fs::write(path, "1\n22\n33").unwrap();
        let (kept, lines) = Kept::open::<u32>(path).unwrap();
        assert_eq!(lines, [1, 22]);
        kept.add(&44).unwrap();
        assert_eq!(Kept::open::<u32>(path).unwrap().1, [1, 22, 44]);
        fs::write(path, "one\n").unwrap();
        let error = Kept::open::<u32>(path).unwrap_err().to_string();
        assert_eq!(error, path.display().to_string());
        Kept::default().add(&1).unwrap();
    }
}
