//! What tests came to, kept as they end ([`crate::kept`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::plan::Sphere;
use super::told::{self, Told};
use crate::kept::Kept;

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
    kept: Kept,
    sphere: Sphere,
}

impl Results {
    /// Those of this run alone.
    #[must_use]
    pub fn new(sphere: Sphere) -> Self {
        Self {
            known: Mutex::default(),
            kept: Kept::default(),
            sphere,
        }
    }

    /// Those of a file, to which more are added.
    ///
    /// # Errors
    /// If it cannot be read or written, or has other lines.
    pub fn open(path: &Path, sphere: Sphere) -> Result<Self> {
        let (kept, lines) = Kept::open::<Line>(path)?;
        let mut known = ByReplicas::new();
        for line in lines {
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
            kept,
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
        self.kept.add(&Line {
            sphere: self.sphere,
            replicas,
            test: test.to_owned(),
            result,
            said: said.clone(),
        })?;
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
