//! The declarative list of programs: `tests/compat.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// Where programs named without a path are looked for; the user's own PATH does not matter.
const PROGRAM_FOLDERS: &[&str] = &["/usr/bin", "/bin", "/usr/games", "/usr/sbin"];

/// How much work each case does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Scale {
    /// Small inputs, for every change.
    Ci,
    /// Inputs that take about a second.
    Full,
}

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// Bytes of each input file.
    pub sizes: Sizes,
    /// All programs.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// Bytes of an input file by [`Scale`].
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// For [`Scale::Ci`].
    pub ci: usize,
    /// For [`Scale::Full`].
    pub full: usize,
}

impl Sizes {
    /// The size at this scale.
    #[must_use]
    pub fn at(self, scale: Scale) -> usize {
        match scale {
            Scale::Ci => self.ci,
            Scale::Full => self.full,
        }
    }
}

/// One program and what it is asked to do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique name, as in the table.
    pub name: String,
    /// The Debian package the program comes from.
    pub package: String,
    /// Further Debian packages it or its preparation needs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// How it is linked.
    #[serde(default)]
    pub link: Link,
    /// The language it is written in, or interprets.
    #[serde(default = "c_language")]
    pub language: String,
    /// The command; a program without a slash is looked up in the system's folders.
    pub run: Vec<String>,
    /// File in the directory to read standard input from.
    pub stdin: Option<String>,
    /// Generated input files; their content follows from the ending.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Input sizes that differ from the catalogue's.
    pub sizes: Option<Sizes>,
    /// Files with literal content.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Shell script run once, natively, in the directory before all runs.
    pub prepare: Option<String>,
    /// Expected exit status of the native run.
    #[serde(default)]
    pub status: i32,
}

/// How a program is linked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// With shared libraries.
    #[default]
    Dynamic,
    /// Without.
    Static,
}

impl Link {
    /// The word for tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Static => "static",
        }
    }
}

fn c_language() -> String {
    "C".to_owned()
}

impl Case {
    /// The command with the program's absolute path.
    ///
    /// # Errors
    /// If the program is not installed.
    pub fn command(&self) -> Result<Vec<String>> {
        let program = self.run.first().context("a case without a command")?;
        let path = if program.contains('/') {
            PathBuf::from(program)
        } else {
            look_up(program)?
        };
        ensure!(
            path.exists(),
            "{program} is not installed (Debian package {})",
            self.package
        );
        let mut command = self.run.clone();
        command[0] = path.display().to_string();
        Ok(command)
    }
}

fn look_up(program: &str) -> Result<PathBuf> {
    let candidates = PROGRAM_FOLDERS
        .iter()
        .map(|folder| Path::new(folder).join(program));
    let found = candidates.into_iter().find(|path| path.exists());
    found.with_context(|| format!("{program} is not installed"))
}

impl Catalogue {
    /// Parses and checks the list that stands beside this crate's manifest.
    ///
    /// # Errors
    /// If the file does not parse, or two cases have one name.
    pub fn load() -> Result<Self> {
        let text = include_str!("../compat.toml");
        let catalogue: Self = toml::from_str(text).context("tests/compat.toml")?;
        let mut names: Vec<&str> = catalogue.cases.iter().map(|case| &*case.name).collect();
        names.sort_unstable();
        let repeated = names.windows(2).find(|pair| pair[0] == pair[1]);
        ensure!(repeated.is_none(), "two cases are called {:?}", repeated);
        Ok(catalogue)
    }

    /// All Debian packages the cases need, sorted, each once.
    #[must_use]
    pub fn packages(&self) -> Vec<String> {
        let mut packages: Vec<String> = self
            .cases
            .iter()
            .flat_map(|case| case.needs.iter().chain([&case.package]))
            .cloned()
            .collect();
        packages.sort();
        packages.dedup();
        packages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_sound() {
        let catalogue = Catalogue::load().unwrap();
        for case in &catalogue.cases {
            for input in &case.inputs {
                assert!(
                    crate::data::generate(input, 500).is_ok(),
                    "{}: {input}",
                    case.name
                );
            }
            assert!(!case.run.is_empty(), "{} runs nothing", case.name);
        }
        assert!(!catalogue.packages().is_empty());
    }

    #[test]
    fn at_least_forty_programs_are_listed() {
        let catalogue = Catalogue::load().unwrap();
        let mut programs: Vec<&str> = catalogue.cases.iter().map(|case| &*case.run[0]).collect();
        programs.sort_unstable();
        programs.dedup();
        assert!(programs.len() >= 40, "{}", programs.len());
        assert!(catalogue.cases.iter().any(|case| case.link == Link::Static));
    }
}
