//! Lays out what the tests need: the same folder on Linux and in the machine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Where the two suites are, in a source tree and in the folder.
const SHELL: &str = "shell/ash_test";
const TOOLS: &str = "testsuite";
/// Programs that tests of the shell begin, compiled from the source tree.
const HELPERS: [&str; 3] = ["printenv", "recho", "zecho"];
/// busybox by the names by which tests look for it in `PATH`.
const NAMES: [&str; 5] = ["ash", "busybox", "gzip", "printf", "pwd"];
/// Features that have a number, as busybox configures itself; all others are taken to be there.
const NUMBERS: [(&str, &str); 2] = [("LAST_SUPPORTED_WCHAR", "767"), ("SUBST_WCHAR", "63")];
/// Features that the tests take to be left out, as they make output differ.
const ABSENT: [&str; 3] = ["UNICODE_USING_LOCALE", "UNICODE_PRESERVE_BROKEN", "STATIC"];
/// The script that runs the tests.
const DRIVER: &str = include_str!("driver.sh");

/// A folder with all that the tests need, in folders as in the source tree.
#[derive(Debug)]
pub struct Tree {
    folder: tempfile::TempDir,
    /// Units, by groups that fit into one machine.
    pub groups: Vec<Group>,
}

/// Units whose files are in one folder.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its folder, in the tree.
    pub folder: String,
    /// Its units.
    pub units: Vec<String>,
}

impl Tree {
    /// Lays out a folder for the tests of a source tree and a busybox; tests may tell more.
    ///
    /// # Errors
    /// If that is no such source tree, or a helper does not compile.
    pub fn new(source: &Path, busybox: &Path, verbose: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let top = folder.path();
        let (shell, tools) = (source.join(SHELL), source.join(TOOLS));
        let is_source = shell.is_dir() && tools.join("testing.sh").is_file();
        ensure!(is_source, "{}: no source tree of busybox", source.display());
        for (from, to) in [(&shell, "shell"), (&tools, TOOLS)] {
            copy(from, &top.join(to))?;
        }
        programs(&shell, busybox, &top.join("bin"))?;
        fs::write(top.join("driver.sh"), DRIVER)?;
        let more = if verbose { "export VERBOSE=1\n" } else { "" };
        fs::write(top.join("config"), config(top)? + more)?;
        fs::copy(top.join("config"), top.join(TOOLS).join(".config"))?;
        let mut groups = shell_groups(&top.join("shell"))?;
        groups.push(Group {
            folder: TOOLS.to_owned(),
            units: tool_units(&top.join(TOOLS))?,
        });
        Ok(Self { folder, groups })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Copies a folder with all that is in it.
///
/// # Errors
/// If that is not possible.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let failed = || from.display().to_string();
    for entry in fs::read_dir(from).with_context(failed)? {
        let entry = entry?;
        let (host, place) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&host, &place)?;
        } else {
            fs::copy(&host, &place).with_context(|| host.display().to_string())?;
        }
    }
    Ok(())
}

/// busybox by the names that the tests have for it, and their helpers.
fn programs(shell: &Path, busybox: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for name in NAMES {
        std::os::unix::fs::symlink(busybox, to.join(name))?;
    }
    for name in HELPERS {
        let source = shell.join(name).with_extension("c");
        let mut compile = Command::new("cc");
        compile
            .args(["-static", "-O1", "-w", "-o"])
            .arg(to.join(name));
        let status = compile.arg(source).status().context("cc")?;
        ensure!(status.success(), "{name}.c does not compile");
    }
    Ok(())
}

/// The configuration that tests look at: every feature that one names is there.
fn config(top: &Path) -> Result<String> {
    let mut names = BTreeSet::new();
    for path in files(top)? {
        let text = fs::read(path)?;
        let text = String::from_utf8_lossy(&text);
        let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        let named = words.filter_map(|it| it.strip_prefix("CONFIG_"));
        names.extend(named.map(str::to_owned));
        let asked = text
            .lines()
            .filter_map(|it| it.trim().strip_prefix("optional "));
        names.extend(
            asked
                .flat_map(str::split_whitespace)
                .filter(|it| is_name(it))
                .map(str::to_owned),
        );
    }
    names.retain(|name| !name.is_empty() && !ABSENT.contains(&name.as_str()));
    let mut text = String::new();
    for name in &names {
        let number = NUMBERS.iter().find(|(it, _)| it == name);
        let value = number.map_or("y", |(_, number)| number);
        writeln!(text, "export CONFIG_{name}={value}")?;
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    writeln!(text, "export OPTIONFLAGS=:{}:", all.join(":"))?;
    writeln!(text, "export SKIP_INTERNET_TESTS=y")?;
    Ok(text)
}

fn is_name(word: &str) -> bool {
    word.bytes()
        .all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == b'_')
}

/// All scripts of tests in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.metadata()?.len() < 1 << 18 {
            found.push(path);
        }
    }
    Ok(found)
}

/// Names in a folder, in order.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.map(|it| Ok(it?.file_name()));
    let entries: Result<Vec<_>> = entries.collect();
    let mut names: Vec<String> = entries?
        .into_iter()
        .filter_map(|it| it.into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// The folders of the shell's tests: each script that has the output that it should have.
fn shell_groups(shell: &Path) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for folder in names(shell)? {
        if !folder.starts_with("ash-") || !shell.join(&folder).is_dir() {
            continue;
        }
        let all = names(&shell.join(&folder))?;
        let tests = all.iter().filter_map(|it| it.strip_suffix(".tests"));
        let units = tests.filter(|it| all.contains(&format!("{it}.right")));
        groups.push(Group {
            units: units.map(|it| format!("{folder}/{it}")).collect(),
            folder: format!("shell/{folder}"),
        });
    }
    Ok(groups)
}

/// Scripts of many cases, and those that lie in the folder of a tool.
fn tool_units(tools: &Path) -> Result<Vec<String>> {
    let mut units = Vec::new();
    for name in names(tools)? {
        let path = tools.join(&name);
        if path.is_dir() && !name.contains('.') {
            units.extend(names(&path)?.into_iter().map(|it| format!("{name}/{it}")));
        } else if name.ends_with(".tests") {
            units.push(name);
        }
    }
    Ok(units)
}
