//! The house rules, checked: a ratchet, because every exemption is listed with its reason in
//! `xtask/tidy.toml`, and an exemption that nothing needs any more is itself a finding.

mod code;
mod commits;
mod floors;
mod layers;
mod links;
mod pages;
mod text;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::count::Counts;
use crate::failures::{self, Failure, Tail};
use crate::shell;

/// `xtask/tidy.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exemptions {
    #[serde(default)]
    unsafe_code: Vec<Exemption>,
    #[serde(default)]
    long_file: Vec<Exemption>,
    #[serde(default)]
    long_function: Vec<Exemption>,
    #[serde(default)]
    machine_path: Vec<Exemption>,
    #[serde(default)]
    call_number: Vec<Exemption>,
    layers: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    floors: BTreeMap<String, floors::Floors>,
}

/// One thing that is allowed, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exemption {
    /// File, or folder with a slash at its end.
    path: String,
    /// Name of the function, where the rule is about functions.
    name: Option<String>,
    /// Why.
    reason: String,
    #[serde(skip)]
    used: RefCell<bool>,
}

impl Exemption {
    fn covers(&self, path: &str, name: Option<&str>) -> bool {
        let path_fits = if self.path.ends_with('/') {
            path.starts_with(&self.path)
        } else {
            path == self.path
        };
        let covers = path_fits && self.name.as_deref() == name;
        *self.used.borrow_mut() |= covers;
        covers
    }
}

fn exempt(list: &[Exemption], path: &str, name: Option<&str>) -> bool {
    list.iter().any(|exemption| exemption.covers(path, name))
}

/// One text file of the repository.
struct Source {
    /// Path from the top folder.
    path: String,
    content: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// The repository as the rules see it.
struct House {
    root: PathBuf,
    sources: Vec<Source>,
    exemptions: Exemptions,
}

impl House {
    fn open() -> Result<Self> {
        let root = shell::root();
        let sources = sources(&root)?;
        let text = std::fs::read_to_string(root.join("xtask/tidy.toml"))?;
        let exemptions = toml::from_str(&text).context("xtask/tidy.toml")?;
        Ok(Self {
            root,
            sources,
            exemptions,
        })
    }

    fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_rust())
    }
}

/// Every text file that is in the repository or about to be.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut command = Command::new("git");
    command.current_dir(root);
    command.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let list = shell::output(command)?;
    let read = |path: &str| {
        let content = std::fs::read_to_string(root.join(path)).ok()?;
        Some(Source {
            path: path.to_owned(),
            content,
        })
    };
    Ok(list
        .lines()
        .filter(|path| *path != "Cargo.lock")
        .filter_map(read)
        .collect())
}

/// A rule: what it demands, and what breaks it.
type Rule = (&'static str, fn(&House) -> Result<Vec<String>>);

const RULES: &[Rule] = &[
    ("functions have at most 70 lines", code::long_functions),
    ("files have at most 800 lines", text::long_files),
    ("lines of code have at most 100 columns", text::wide_lines),
    (
        "every Rust file begins with its purpose",
        code::missing_headers,
    ),
    ("unsafe code stays where it is allowed", code::stray_unsafe),
    ("crates without unsafe code forbid it", code::missing_forbid),
    ("open ends carry a reason", text::open_ends),
    ("no path of one machine", text::machine_paths),
    (
        "the agent asks the table of calls, not their numbers or names",
        text::call_numbers,
    ),
    (
        "crates depend only on lower ones",
        layers::wrong_dependencies,
    ),
    (
        "modules use only those on lower floors",
        floors::upward_arrows,
    ),
    (
        "the README names every top-level folder",
        links::unmapped_folders,
    ),
    ("every page in docs is linked", links::orphans),
    ("relative links resolve", links::broken),
    ("links name headings that are there", links::broken_anchors),
    ("paragraphs have at most 100 words", pages::long_paragraphs),
    ("files named on architecture exist", pages::missing_files),
    ("no text names a commit", pages::commits_in_prose),
    ("evidence names commits of the history", commits::unknown),
    (
        "a mechanism has an idea, 3 to 6 sentences, an invariant and files",
        pages::formless_sections,
    ),
    ("every exemption is needed", unused_exemptions),
];

/// Checks all rules and prints what breaks them.
pub(crate) fn run() -> Result<Counts> {
    let house = House::open()?;
    let mut counts = Counts::default();
    for (demand, check) in RULES {
        let findings = check(&house)?;
        counts.add(Counts::one(findings.is_empty()));
        if !findings.is_empty() {
            println!("tidy: {demand}:");
            findings.iter().for_each(|finding| println!("  {finding}"));
            failures::keep(Failure::new(*demand, Tail::of(&findings.join("\n"))));
        }
    }
    text::report_soft_limit(&house);
    println!("tidy: {} passed, {} failed", counts.passed, counts.failed);
    Ok(counts)
}

fn unused_exemptions(house: &House) -> Result<Vec<String>> {
    let Exemptions {
        unsafe_code,
        long_file,
        long_function,
        machine_path,
        call_number,
        ..
    } = &house.exemptions;
    let lists = [
        unsafe_code,
        long_file,
        long_function,
        machine_path,
        call_number,
    ];
    let all = lists.into_iter().flatten();
    let (mut findings, mut bare) = (Vec::new(), Vec::new());
    for exemption in all {
        if !*exemption.used.borrow() {
            findings.push(format!(
                "xtask/tidy.toml: {} needs no exemption",
                exemption.path
            ));
        }
        if exemption.reason.trim().is_empty() {
            bare.push(format!(
                "xtask/tidy.toml: {} gives no reason",
                exemption.path
            ));
        }
    }
    findings.append(&mut bare);
    Ok(findings)
}

#[cfg(test)]
fn house_of(files: &[(&str, &str)]) -> House {
    let source = |&(path, content): &(&str, &str)| Source {
        path: path.into(),
        content: content.into(),
    };
    House {
        root: PathBuf::from("."),
        sources: files.iter().map(source).collect(),
        exemptions: Exemptions::default(),
    }
}
