//! Which modules are run, and which cases are known to differ: `tests/cpython.toml`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// Modules of a sample.
const SAMPLE: usize = 9;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Debian packages of the interpreter and of its tests.
    pub packages: Vec<String>,
    /// The interpreter.
    pub interpreter: String,
    /// Modules of which CI runs a sample: short ones whose result does not hang on time.
    pub quick: Vec<String>,
    /// All modules.
    pub modules: Vec<String>,
    /// Cases that are not run at all.
    #[serde(default, rename = "skip")]
    pub skips: Vec<Skip>,
    /// Cases that pass natively and not under rcoe.
    #[serde(default, rename = "differs")]
    pub known: Vec<Known>,
}

/// A case that cannot be run natively either.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// The module it belongs to.
    pub module: String,
    /// A pattern for its name, as the suite's option `-i` takes it.
    pub pattern: String,
    /// Why it is left out.
    pub reason: String,
}

/// Cases that are known to differ, for one reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The module they belong to.
    pub module: String,
    /// Names without the `test.` and the module in front.
    pub cases: Vec<String>,
    /// What they come to under rcoe.
    pub outcome: Expected,
    /// Whether the difference is to stay.
    pub standing: Standing,
    /// Why they differ.
    pub reason: String,
}

/// What a case that differs comes to under rcoe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    /// It fails, always.
    Fails,
    /// It finds something missing and skips itself.
    Skips,
    /// It does not end, and so is not run under rcoe.
    Hangs,
    /// It passes at times.
    Varies,
}

impl Expected {
    /// The word for tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Skips => "skips itself",
            Self::Hangs => "hangs",
            Self::Varies => "fails at times",
        }
    }
}

/// Whether a difference is to stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// It follows from the design.
    Design,
    /// A gap that can be closed.
    Gap,
}

impl Standing {
    /// The word for tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Design => "design",
            Self::Gap => "gap",
        }
    }
}

impl Plan {
    /// Reads the file that belongs to this crate.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn load() -> Result<Self> {
        Self::parse(include_str!("../../cpython.toml")).context("tests/cpython.toml")
    }

    fn parse(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<()> {
        for module in &self.quick {
            ensure!(self.modules.contains(module), "{module} is quick only");
        }
        let skips = self.skips.iter().map(|skip| (&skip.module, &skip.reason));
        let known = self
            .known
            .iter()
            .map(|known| (&known.module, &known.reason));
        for (module, reason) in skips.chain(known) {
            ensure!(self.modules.contains(module), "{module} is not a module");
            ensure!(!reason.trim().is_empty(), "{module}: no reason is given");
        }
        for known in &self.known {
            for case in &known.cases {
                let times = self
                    .known_of(&known.module)
                    .filter(|(name, _)| name == case);
                ensure!(times.count() == 1, "{case} is listed twice");
            }
        }
        Ok(())
    }

    /// Some of the short modules, the same ones for the same seed.
    #[must_use]
    pub fn sample(&self, seed: u64) -> Vec<String> {
        let mut modules = self.quick.clone();
        modules.sort_by_cached_key(|name| {
            let mut hasher = DefaultHasher::new();
            (seed, name).hash(&mut hasher);
            hasher.finish()
        });
        modules.truncate(SAMPLE);
        modules
    }

    /// The known differences of a module: name and explanation of each case.
    pub fn known_of(&self, module: &str) -> impl Iterator<Item = (&str, &Known)> {
        let all = self
            .known
            .iter()
            .filter(move |known| known.module == module);
        all.flat_map(|known| known.cases.iter().map(move |case| (case.as_str(), known)))
    }

    /// Patterns of the cases that are left out of this module's runs.
    pub fn skips_of(&self, module: &str) -> impl Iterator<Item = &str> {
        let all = self.skips.iter().filter(move |skip| skip.module == module);
        all.map(|skip| skip.pattern.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "packages = []\ninterpreter = \"p\"\nquick = [\"a\"]\nmodules = [\"a\"]\n";

    fn known(module: &str, case: &str, reason: &str) -> String {
        format!(
            "[[differs]]\nmodule = \"{module}\"\ncases = [\"{case}\"]\noutcome = \"fails\"\n\
             standing = \"gap\"\nreason = \"{reason}\"\n"
        )
    }

    #[test]
    fn the_file_is_well_formed() {
        Plan::load().unwrap();
    }

    #[test]
    fn samples_differ_by_their_seeds_and_go_through_all_that_is_short() {
        let plan = Plan::load().unwrap();
        assert_eq!(plan.sample(7), plan.sample(7));
        let all: std::collections::BTreeSet<_> =
            (0..100).flat_map(|seed| plan.sample(seed)).collect();
        assert_eq!(all.len(), plan.quick.len());
    }

    #[test]
    fn every_difference_has_one_explanation() {
        let parse = |more: &str| Plan::parse(&format!("{HEAD}{more}"));
        let good = known("a", "C.x", "because");
        let plan = parse(&good).unwrap();
        assert_eq!(plan.known_of("a").count(), 1);
        assert_eq!(plan.known_of("b").count(), 0);
        assert!(parse(&known("a", "C.x", " ")).is_err());
        assert!(parse(&known("b", "C.x", "because")).is_err());
        assert!(parse(&format!("{good}{good}")).is_err());
    }
}
