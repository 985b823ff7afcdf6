//! Which calls are tried, and which tests are known to differ: `tests/ltp.toml` for the system
//! sphere, `tests/ltp-process.toml` for the process sphere.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cpython::plan::Standing;

/// Which of rcoe's spheres runs the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sphere {
    /// Replicas of processes on Linux.
    Process,
    /// Replicas of a machine's system.
    System,
}

impl Sphere {
    /// Where the tests run that are compared with those on Linux.
    #[must_use]
    pub const fn place(self) -> &'static str {
        match self {
            Self::Process => "as replicas",
            Self::System => "in the machine",
        }
    }
}

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Debian packages that are needed.
    pub packages: Vec<String>,
    /// Folders of LTP whose tests are run: one for a call, or for functions of the C library.
    pub calls: Vec<String>,
    /// Folders whose tests are not run.
    #[serde(default, rename = "absent")]
    pub absents: Vec<Absent>,
    /// Tests that are run nowhere.
    #[serde(default, rename = "skip")]
    pub skips: Vec<Skip>,
    /// Tests that pass on Linux and say something else as replicas.
    #[serde(default, rename = "differs")]
    pub known: Vec<Known>,
}

/// Folders whose tests are not run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// Their names.
    pub calls: Vec<String>,
    /// Why they are left out.
    pub reason: String,
}

/// Tests that are not run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Their names.
    pub tests: Vec<String>,
    /// Why they are left out.
    pub reason: String,
}

/// Tests that are known to differ, for one reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Their names.
    pub tests: Vec<String>,
    /// Do they say the same at times?
    #[serde(default)]
    pub varies: bool,
    /// Whether the difference is to stay.
    pub standing: Standing,
    /// Why they differ.
    pub reason: String,
}

impl Plan {
    /// Reads the file of this crate that is for a sphere.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn load(sphere: Sphere) -> Result<Self> {
        let (text, name) = match sphere {
            Sphere::Process => (include_str!("../../ltp-process.toml"), "ltp-process.toml"),
            Sphere::System => (include_str!("../../ltp.toml"), "ltp.toml"),
        };
        Self::parse(text).with_context(|| format!("tests/{name}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)?;
        let absents = plan.absents.iter().map(|it| (&it.calls, &it.reason));
        let skips = plan.skips.iter().map(|it| (&it.tests, &it.reason));
        let known = plan.known.iter().map(|it| (&it.tests, &it.reason));
        for (names, reason) in absents.clone().chain(skips.clone()).chain(known.clone()) {
            ensure!(!reason.trim().is_empty(), "{names:?}: no reason is given");
        }
        once(
            plan.calls
                .iter()
                .chain(absents.flat_map(|(names, _)| names)),
        )?;
        once(skips.chain(known).flat_map(|(names, _)| names))?;
        Ok(plan)
    }

    /// Is a test left out?
    #[must_use]
    pub fn skips(&self, test: &str) -> bool {
        self.skips
            .iter()
            .any(|it| it.tests.iter().any(|name| name == test))
    }

    /// Is it said of a folder whether its tests are run?
    #[must_use]
    pub fn tells_of(&self, call: &str) -> bool {
        let absent = self.absents.iter().flat_map(|it| &it.calls);
        self.calls.iter().chain(absent).any(|name| name == call)
    }

    /// The explanation of a test that differs.
    #[must_use]
    pub fn known(&self, test: &str) -> Option<&Known> {
        let mut all = self.known.iter();
        all.find(|it| it.tests.iter().any(|name| name == test))
    }
}

fn once<'a>(names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        ensure!(seen.insert(name), "{name} is listed twice");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_well_formed() {
        for sphere in [Sphere::Process, Sphere::System] {
            Plan::load(sphere).unwrap();
        }
    }

    #[test]
    fn every_name_stands_in_one_place_with_a_reason() {
        let parse = |more: &str| Plan::parse(&format!("packages = []\ncalls = [\"a\"]\n{more}"));
        let known = |reason: &str| {
            format!("[[differs]]\ntests = [\"a01\"]\nstanding = \"gap\"\nreason = \"{reason}\"\n")
        };
        let good = known("because");
        let plan = parse(&good).unwrap();
        assert!(plan.known("a01").is_some() && plan.known("a02").is_none());
        assert!(parse(&known(" ")).is_err());
        assert!(parse(&format!("{good}{good}")).is_err());
        let skip = "[[skip]]\ntests = [\"a01\"]\nreason = \"so\"\n";
        assert!(parse(skip).unwrap().skips("a01") && !plan.skips("a01"));
        assert!(parse(&format!("{good}{skip}")).is_err());
        let absent = |call: &str| format!("[[absent]]\ncalls = [\"{call}\"]\nreason = \"so\"\n");
        let plan = parse(&absent("b")).unwrap();
        assert!(plan.tells_of("a") && plan.tells_of("b") && !plan.tells_of("c"));
        assert!(parse(&absent("a")).is_err());
    }
}
