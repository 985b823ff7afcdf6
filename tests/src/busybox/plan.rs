//! What is not run, and which cases are known to differ: `tests/busybox.toml`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cpython::plan::Standing;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Debian packages that are needed.
    pub packages: Vec<String>,
    /// Units that are run nowhere.
    #[serde(default, rename = "skip")]
    pub skips: Vec<Skip>,
    /// Cases that pass on Linux and not in the machine.
    #[serde(default, rename = "differs")]
    pub known: Vec<Known>,
}

/// Units that are not run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Their names, or a folder of them that ends with a slash.
    pub units: Vec<String>,
    /// Why they are left out.
    pub reason: String,
}

/// Cases that are known to differ, for one reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Their names.
    pub cases: Vec<String>,
    /// Do they pass at times?
    #[serde(default)]
    pub varies: bool,
    /// Whether the difference is to stay.
    pub standing: Standing,
    /// Why they differ.
    pub reason: String,
}

impl Plan {
    /// Reads the file that belongs to this crate.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn load() -> Result<Self> {
        Self::parse(include_str!("../../busybox.toml")).context("tests/busybox.toml")
    }

    fn parse(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)?;
        let skips = plan.skips.iter().map(|it| (&it.units, &it.reason));
        let known = plan.known.iter().map(|it| (&it.cases, &it.reason));
        for (names, reason) in skips.chain(known) {
            ensure!(!reason.trim().is_empty(), "{names:?}: no reason is given");
        }
        let mut cases = BTreeSet::new();
        for case in plan.known.iter().flat_map(|it| &it.cases) {
            ensure!(cases.insert(case), "{case} is listed twice");
        }
        Ok(plan)
    }

    /// Why a unit is left out, if it is.
    #[must_use]
    pub fn skips(&self, unit: &str) -> Option<&Skip> {
        let means = |name: &String| name == unit || name.ends_with('/') && unit.starts_with(name);
        self.skips.iter().find(|it| it.units.iter().any(means))
    }

    /// The explanation of a case that differs.
    #[must_use]
    pub fn known(&self, case: &str) -> Option<&Known> {
        let mut all = self.known.iter();
        all.find(|it| it.cases.iter().any(|name| name == case))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_well_formed() {
        Plan::load().unwrap();
    }

    #[test]
    fn every_difference_has_one_explanation() {
        let parse = |more: &str| Plan::parse(&format!("packages = []\n{more}"));
        let known = |reason: &str| {
            format!("[[differs]]\ncases = [\"a/b\"]\nstanding = \"gap\"\nreason = \"{reason}\"\n")
        };
        let good = known("because");
        let plan = parse(&good).unwrap();
        assert!(plan.known("a/b").is_some() && plan.known("a").is_none());
        assert!(parse(&known(" ")).is_err());
        assert!(parse(&format!("{good}{good}")).is_err());
        let skip = "[[skip]]\nunits = [\"w/\", \"x.tests\"]\nreason = \"so\"\n";
        let plan = parse(skip).unwrap();
        for (unit, skipped) in [("w/a", true), ("x.tests", true), ("x", false), ("w", false)] {
            assert_eq!(plan.skips(unit).is_some(), skipped, "{unit}");
        }
    }
}
