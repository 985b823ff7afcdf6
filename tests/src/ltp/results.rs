//! Keeps what tests came to, as they end: a file that has a line for each.
//!
//! Running all tests takes long. What stands in the file is not run again, so that a run can go on
//! where another one was stopped, and the page can be made anew with other explanations.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::plan::Sphere;
use super::told::{self, Told};

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The sphere.
    sphere: Sphere,
    /// Replicas, or 0 on Linux.
    replicas: u32,
    test: String,
    result: told::Result,
    said: String,
}

/// Results of tests, on Linux and with so many replicas.
#[derive(Debug)]
pub struct Results {
    known: Mutex<[Told; 2]>,
    file: Option<Mutex<File>>,
    sphere: Sphere,
    replicas: u32,
}

impl Results {
    /// Those of this run alone.
    #[must_use]
    pub fn new(sphere: Sphere, replicas: u32) -> Self {
        Self {
            known: Mutex::default(),
            file: None,
            sphere,
            replicas,
        }
    }

    /// Those of a file, to which more are added.
    ///
    /// # Errors
    /// If it cannot be read or written, or has other lines.
    pub fn open(path: &Path, sphere: Sphere, replicas: u32) -> Result<Self> {
        let failed = || path.display().to_string();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .read(true)
            .open(path);
        let file = file.with_context(failed)?;
        let mut known = <[Told; 2]>::default();
        for line in BufReader::new(&file).lines() {
            let line: Line = serde_json::from_str(&line?).with_context(failed)?;
            let place = match line.replicas {
                0 => &mut known[0],
                other if (line.sphere, other) == (sphere, replicas) => &mut known[1],
                _ => continue,
            };
            place.results.insert(line.test.clone(), line.result);
            place.said.insert(line.test, line.said);
        }
        Ok(Self {
            known: Mutex::new(known),
            file: Some(Mutex::new(file)),
            sphere,
            replicas,
        })
    }

    /// Has a test been run, on Linux or as replicas?
    #[must_use]
    pub fn has(&self, on_linux: bool, test: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known[usize::from(!on_linux)].results.contains_key(test)
    }

    /// Does a test pass on Linux?
    #[must_use]
    pub fn passed(&self, test: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known[0].of(test).is_passed()
    }

    /// Adds what a test came to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&self, on_linux: bool, test: &str, told: &Told) -> Result<()> {
        let result = told.of(test);
        let said = told.said.get(test).cloned().unwrap_or_default();
        if let Some(file) = &self.file {
            let line = Line {
                sphere: self.sphere,
                replicas: if on_linux { 0 } else { self.replicas },
                test: test.to_owned(),
                result,
                said: said.clone(),
            };
            let line = serde_json::to_string(&line)? + "\n";
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes())?;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = &mut known[usize::from(!on_linux)];
        place.results.insert(test.to_owned(), result);
        place.said.insert(test.to_owned(), said);
        Ok(())
    }

    /// What is known: of Linux, and of replicas.
    #[must_use]
    pub fn into_both(self) -> [Told; 2] {
        self.known
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_run_is_known_later_for_as_many_replicas() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let mut told = Told::default();
        told.read("@ begin a01\nTPASS\n@ end a01 0\n");
        let results = Results::open(&path, Sphere::System, 2).unwrap();
        results.add(true, "a01", &told).unwrap();
        results.add(false, "a01", &told).unwrap();
        drop(results);
        for (sphere, replicas, is_known) in [
            (Sphere::System, 2, true),
            (Sphere::System, 1, false),
            (Sphere::Process, 2, false),
        ] {
            let results = Results::open(&path, sphere, replicas).unwrap();
            assert!(results.has(true, "a01") && !results.has(true, "a02"));
            assert_eq!(results.has(false, "a01"), is_known);
            let [native, _] = results.into_both();
            assert!(native.of("a01").is_passed() && native.said["a01"].contains("TPASS"));
        }
        std::fs::write(&path, "no line\n").unwrap();
        assert!(Results::open(&path, Sphere::System, 1).is_err());
    }
}
