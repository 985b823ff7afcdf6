//! Keeps what tests came to, as they end: a file that has a line for each.
//!
//! Running all tests takes long. What stands in the file is not run again, so that a run can go on
//! where another one was stopped, and the page can be made anew with other explanations.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// The number of replicas that stands for Linux.
pub const LINUX: u32 = 0;

/// What tests came to by the number of replicas, [`LINUX`] among them.
pub type ByReplicas = BTreeMap<u32, Told>;

/// Results of tests, on Linux and as replicas.
#[derive(Debug)]
pub struct Results {
    known: Mutex<ByReplicas>,
    file: Option<Mutex<File>>,
    sphere: Sphere,
}

impl Results {
    /// Those of this run alone.
    #[must_use]
    pub fn new(sphere: Sphere) -> Self {
        Self {
            known: Mutex::default(),
            file: None,
            sphere,
        }
    }

    /// Those of a file, to which more are added.
    ///
    /// # Errors
    /// If it cannot be read or written, or has other lines.
    pub fn open(path: &Path, sphere: Sphere) -> Result<Self> {
        let failed = || path.display().to_string();
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .read(true)
            .open(path);
        let file = file.with_context(failed)?;
        let mut known = ByReplicas::new();
        for line in BufReader::new(&file).lines() {
            let line: Line = serde_json::from_str(&line?).with_context(failed)?;
            if line.replicas == LINUX || line.sphere == sphere {
                put(
                    &mut known,
                    line.replicas,
                    line.test,
                    (line.result, line.said),
                );
            }
        }
        Ok(Self {
            known: Mutex::new(known),
            file: Some(Mutex::new(file)),
            sphere,
        })
    }

    /// Has a test been run, on Linux or with so many replicas?
    #[must_use]
    pub fn has(&self, replicas: u32, test: &str) -> bool {
        let known = self.known();
        let of_place = known.get(&replicas);
        of_place.is_some_and(|it| it.results.contains_key(test))
    }

    /// Does a test pass on Linux?
    #[must_use]
    pub fn passed(&self, test: &str) -> bool {
        let known = self.known();
        let on_linux = known.get(&LINUX);
        on_linux.is_some_and(|it| it.of(test).is_passed())
    }

    /// Adds what a test came to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&self, replicas: u32, test: &str, told: &Told) -> Result<()> {
        let result = told.of(test);
        let said = told.said.get(test).cloned().unwrap_or_default();
        if let Some(file) = &self.file {
            let line = Line {
                sphere: self.sphere,
                replicas,
                test: test.to_owned(),
                result,
                said: said.clone(),
            };
            let line = serde_json::to_string(&line)? + "\n";
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(line.as_bytes())?;
        }
        put(&mut self.known(), replicas, test.to_owned(), (result, said));
        Ok(())
    }

    /// What is known.
    #[must_use]
    pub fn into_known(self) -> ByReplicas {
        self.known
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, ByReplicas> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put(
    known: &mut ByReplicas,
    replicas: u32,
    test: String,
    (result, said): (told::Result, String),
) {
    let place = known.entry(replicas).or_default();
    place.results.insert(test.clone(), result);
    place.said.insert(test, said);
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
        let results = Results::open(&path, Sphere::System).unwrap();
        results.add(LINUX, "a01", &told).unwrap();
        results.add(2, "a01", &told).unwrap();
        drop(results);
        for (sphere, replicas, is_known) in [
            (Sphere::System, 2, true),
            (Sphere::System, 1, false),
            (Sphere::Process, 2, false),
        ] {
            let results = Results::open(&path, sphere).unwrap();
            assert!(results.has(LINUX, "a01") && !results.has(LINUX, "a02"));
            assert_eq!(results.has(replicas, "a01"), is_known);
            let native = &results.into_known()[&LINUX];
            assert!(native.of("a01").is_passed() && native.said["a01"].contains("TPASS"));
        }
        std::fs::write(&path, "no line\n").unwrap();
        assert!(Results::open(&path, Sphere::System).is_err());
    }
}
