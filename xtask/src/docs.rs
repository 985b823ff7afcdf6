//! Pages of documentation that are made from what they describe.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::count::Counts;
use crate::shell;

/// A page and what makes it.
type Page = (&'static str, fn() -> Result<String>);

const PAGES: &[Page] = &[
    ("docs/CLI.md", cli),
    ("docs/SYSCALLS.md", syscalls),
    ("docs/STYLE.md", style),
    ("docs/BENCH.md", || evidence("BENCH")),
    ("docs/FAULTS.md", || evidence("FAULTS")),
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
        let file = shell::root().join(path);
        let same = std::fs::read_to_string(&file).is_ok_and(|text| text == fresh);
        if !same && check {
            println!("docs: {path} is stale: run cargo xtask docs");
        } else if !same {
            std::fs::write(&file, fresh)?;
            println!("docs: wrote {path}");
        }
        counts.add(Counts::one(same || !check));
    }
    println!("docs: {} passed, {} failed", counts.passed, counts.failed);
    Ok(counts)
}

/// The help texts of the command.
fn cli() -> Result<String> {
    shell::build("release", &["rcoe"])?;
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

/// A page of figures, as the bench renders it from `evidence/`.
fn evidence(name: &str) -> Result<String> {
    shell::build("release", &["rcoe-bench"])?;
    let bench = Command::new(shell::built("rcoe-bench"));
    shell::output(shell::with(bench, &["page", name]))
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
    use super::unsafe_places;

    #[test]
    fn places_of_unsafe_code_are_those_of_the_list() {
        let rules = "[[unsafe_code]]\npath = \"a/\"\nreason = \"b\"\n";
        assert_eq!(unsafe_places(rules).unwrap(), "  * `a/`: b\n");
        assert!(unsafe_places("").is_err());
    }
}
