//! What parts of the tests came to, kept as they end ([`crate::kept`]).

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::verdicts::Told;
use crate::kept::Kept;

/// The number of replicas that stands for Linux.
pub const LINUX: u32 = 0;

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    /// Replicas, or [`LINUX`].
    replicas: u32,
    units: Vec<String>,
    told: Told,
}

/// What parts of the tests came to: units that were run one after the other in one place.
#[derive(Debug, Default)]
pub struct Results {
    parts: Mutex<Vec<Part>>,
    kept: Kept,
}

impl Results {
    /// Those of a file, to which more are added.
    ///
    /// # Errors
    /// If it cannot be read or written, or has other lines.
    pub fn open(path: &Path) -> Result<Self> {
        let (kept, parts) = Kept::open(path)?;
        let parts = Mutex::new(parts);
        Ok(Self { parts, kept })
    }

    /// What these units came to in such a place; `run` tells it if it is not known.
    ///
    /// # Errors
    /// If `run` fails, or the file cannot be written.
    pub fn of(
        &self,
        replicas: u32,
        units: &[String],
        run: impl FnOnce() -> Result<Told>,
    ) -> Result<Told> {
        let is_it = |it: &&Part| it.replicas == replicas && it.units == units;
        let known = self.parts().iter().find(is_it).map(|it| it.told.clone());
        if let Some(told) = known {
            return Ok(told);
        }
        let told = run()?;
        let part = Part {
            replicas,
            units: units.to_vec(),
            told: told.clone(),
        };
        let mut parts = self.parts();
        self.kept.add(&part)?;
        parts.push(part);
        Ok(told)
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdicts::Verdict;
    use super::*;

    #[test]
    fn what_was_run_is_known_later_for_as_many_replicas() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let units = ["a.tests".to_owned()];
        let run = || {
            let mut told = Told::default();
            told.read("@ begin a.tests\n@ pass a: one\n@ end a.tests\n");
            Ok(told)
        };
        let results = Results::open(&path).unwrap();
        results.of(2, &units, run).unwrap();
        drop(results);
        let results = Results::open(&path).unwrap();
        let none = || anyhow::bail!("run again");
        let told = results.of(2, &units, none).unwrap();
        assert_eq!(told.verdict("a: one"), Verdict::Passed);
        assert!(results.of(1, &units, none).is_err());
        assert!(results.of(2, &[], none).is_err());
        std::fs::write(&path, "no line\n").unwrap();
        assert!(Results::open(&path).is_err());
    }
}
