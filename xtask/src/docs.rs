//! Pages of documentation that are made from what they describe.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::Counts;
use crate::shell;

/// A page and what makes it.
type Page = (&'static str, fn() -> Result<String>);

/// Folders with pages of figures only.
const FIGURES: [&str; 2] = ["docs/bench", "docs/faults"];

const PAGES: &[Page] = &[
    ("docs/CLI.md", cli),
    ("docs/SYSCALLS.md", syscalls),
    ("docs/STYLE.md", style),
];

/// Commands whose help is shown.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["run"],
    &["doctor"],
    &["top"],
    &["cores"],
    &["cores", "clear"],
    &["cores", "export"],
    &["explain"],
];

/// Writes every page, or with `check` only tells which ones are stale.
pub(crate) fn run(check: bool) -> Result<Counts> {
    let mut counts = Counts::default();
    for (path, make) in PAGES {
        let fresh = make().with_context(|| (*path).to_owned())?;
        counts.add(Counts::one(keep(&shell::root(), path, &fresh, check)?));
    }
    let figures = figures()?;
    for (path, fresh) in &figures {
        counts.add(Counts::one(keep(&shell::root(), path, fresh, check)?));
    }
    for path in left_over(&shell::root(), &figures)? {
        println!("docs: {path} is made from nothing: delete it");
        counts.add(Counts::one(false));
    }
    println!("docs: {} passed, {} failed", counts.passed, counts.failed);
    Ok(counts)
}

/// The help texts of the command.
fn cli() -> Result<String> {
    shell::build_commands(&["rcoe"])?;
    let mut page = String::from("# The command line\n\nMade by `cargo xtask docs`.\n");
    for words in COMMANDS {
        let mut command = Command::new(shell::built("rcoe"));
        command.args(*words).arg("--help");
        let help = shell::output(command)?;
        let name = [&["rcoe"], *words].concat().join(" ");
        let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    }
    Ok(page)
}

/// The table of system calls, as its crate prints it.
fn syscalls() -> Result<String> {
    shell::output(shell::cargo([
        "run",
        "--release",
        "--quiet",
        "-p",
        "rcoe-linux-syscalls",
        "--example",
        "syscalls-md",
    ]))
}

/// Writes a page that is stale, or with `check` only tells it; false if it is stale still.
fn keep(root: &Path, path: &str, fresh: &str, check: bool) -> Result<bool> {
    let file = root.join(path);
    let same = std::fs::read_to_string(&file).is_ok_and(|text| text == fresh);
    if !same && check {
        println!("docs: {path} is stale: run cargo xtask docs");
    } else if !same {
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        std::fs::write(&file, fresh)?;
        println!("docs: wrote {path}");
    }
    Ok(same || !check)
}

/// All pages of figures by their paths, as the bench renders them from `evidence/`.
fn figures() -> Result<BTreeMap<String, String>> {
    shell::build_commands(&["rcoe-bench"])?;
    let bench = |words: &[&str]| {
        let command = Command::new(shell::built("rcoe-bench"));
        shell::output(shell::with(command, words))
    };
    let mut pages = BTreeMap::new();
    for name in bench(&["pages"])?.lines() {
        pages.insert(format!("docs/{name}.md"), bench(&["page", name])?);
    }
    Ok(pages)
}

/// What lies among the pages of figures and is none of them any more.
fn left_over(root: &Path, pages: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in FIGURES {
        let listing = std::fs::read_dir(root.join(folder));
        for entry in listing.with_context(|| folder.to_owned())? {
            let path = format!("{folder}/{}", entry?.file_name().display());
            found.extend((!pages.contains_key(&path)).then_some(path));
        }
    }
    Ok(found)
}

/// The page on style, with a sentence on unsafe code by the list that tidy holds the tree against:
/// code elsewhere is a finding, and so is an entry that nothing needs.
fn style() -> Result<String> {
    const BEGIN: &str = "* **Unsafe code**";
    let page = std::fs::read_to_string(shell::root().join("docs/STYLE.md"))?;
    let (before, rest) = page.split_once(BEGIN).context("no point on unsafe code")?;
    let (_, after) = rest.split_once("\n* ").context("nothing behind it")?;
    let rules = std::fs::read_to_string(shell::root().join("xtask/tidy.toml"))?;
    let places = unsafe_places(&rules)?;
    Ok(format!(
        "{before}{BEGIN} stays in these places; every block says why it is sound, and every other \
         crate\n  forbids it:\n{places}* {after}"
    ))
}

/// The folders and files of the list, each with its reason.
fn unsafe_places(rules: &str) -> Result<String> {
    let rules: toml::Table = rules.parse()?;
    let list = rules.get("unsafe_code").and_then(toml::Value::as_array);
    let mut places = String::new();
    for entry in list.context("no list of unsafe code")? {
        let word = |name| entry.get(name).and_then(toml::Value::as_str);
        let path = word("path").context("no path")?;
        let reason = word("reason").context("no reason")?;
        let _ = writeln!(places, "  * `{path}`: {reason}");
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FIGURES, keep, left_over, unsafe_places};

    #[test]
    fn a_stale_page_is_told_or_written_and_one_that_nothing_makes_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(!keep(root, "docs/bench/a.md", "new", true).unwrap());
        assert!(!root.join("docs").exists());
        for folder in FIGURES {
            assert!(keep(root, &format!("{folder}/a.md"), "new", false).unwrap());
        }
        assert!(keep(root, "docs/bench/a.md", "new", true).unwrap());
        assert!(!keep(root, "docs/bench/a.md", "newer", true).unwrap());
        assert_eq!(
            fs::read_to_string(root.join("docs/bench/a.md")).unwrap(),
            "new"
        );
        let pages = [("docs/bench/a.md".to_owned(), String::new())];
        assert_eq!(
            left_over(root, &pages.into()).unwrap(),
            ["docs/faults/a.md"]
        );
    }

    #[test]
    fn places_of_unsafe_code_are_those_of_the_list() {
        let rules = "[[unsafe_code]]\npath = \"a/\"\nreason = \"b\"\n";
        assert_eq!(unsafe_places(rules).unwrap(), "  * `a/`: b\n");
        assert!(unsafe_places("").is_err());
    }
}
