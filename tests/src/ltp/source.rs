//! Builds the tests of a source tree of LTP, in that tree, and finds them there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The list of tests, and the folders that they are in, one for a call.
const LIST: &str = "runtest/syscalls";
const CALLS: &str = "testcases/kernel/syscalls";
/// What is there once it was configured.
const CONFIGURED: &str = "include/mk/config.mk";
/// How it is configured: what runs in the machine brings all with it.
const CONFIGURE: [&str; 5] = [
    "./configure",
    "LDFLAGS=-static -s",
    "CFLAGS=-O1 -g0",
    "--without-numa",
    "--without-tirpc",
];

/// A source tree.
#[derive(Debug)]
pub struct Source {
    top: PathBuf,
}

/// A test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// What is to be run.
    pub command: String,
    /// The folder that it is in.
    pub call: String,
    /// Its program, and the others of that folder, but for those of other tests.
    pub programs: Vec<PathBuf>,
}

/// What is in the folders of some calls.
#[derive(Debug, Default)]
pub struct Found {
    /// Tests that can be run.
    pub tests: Vec<Test>,
    /// Names of those whose program was not built.
    pub unbuilt: Vec<String>,
}

impl Source {
    /// A source tree of LTP.
    ///
    /// # Errors
    /// If it is none.
    pub fn new(top: &Path) -> Result<Self> {
        let top = top.to_owned();
        let is_source = top.join(LIST).is_file() && top.join(CALLS).is_dir();
        ensure!(is_source, "{}: no source tree of LTP", top.display());
        Ok(Self { top })
    }

    /// The version.
    ///
    /// # Errors
    /// If the tree does not say which.
    pub fn version(&self) -> Result<String> {
        let text = fs::read_to_string(self.top.join("VERSION")).context("VERSION")?;
        Ok(text.trim().to_owned())
    }

    /// Builds the tests in these folders. What does not build is found out by [`Self::find`].
    ///
    /// # Errors
    /// If the tree cannot be configured, or its library does not build.
    pub fn build(&self, calls: &[String], mut tell: impl FnMut(&str)) -> Result<()> {
        if !self.top.join(CONFIGURED).is_file() {
            tell("configuring");
            for words in [&["make", "autotools"][..], &CONFIGURE] {
                self.make(words)?;
            }
        }
        tell("building the library");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = format!("-j{cores}");
        self.make(&["make", &jobs, "-C", "lib"])?;
        for (at, call) in calls.iter().enumerate() {
            tell(&format!("building {call} ({} of {})", at + 1, calls.len()));
            let folder = format!("{CALLS}/{call}");
            // One program that does not build is no reason to leave out the others.
            self.run(&["make", &jobs, "-k", "-C", &folder])?;
        }
        Ok(())
    }

    fn make(&self, words: &[&str]) -> Result<()> {
        let (succeeded, said) = self.run(words)?;
        ensure!(succeeded, "{words:?} failed:\n{said}");
        Ok(())
    }

    /// Runs a command in the tree; whether it succeeded, and the errors that it told.
    fn run(&self, words: &[&str]) -> Result<(bool, String)> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.top);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let output = command.output().with_context(|| format!("{words:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.success(), said))
    }

    /// Folders of tests.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn calls(&self) -> Result<BTreeSet<String>> {
        let entries = fs::read_dir(self.top.join(CALLS))?;
        let folders = entries.filter_map(std::result::Result::ok);
        let folders = folders.filter(|it| it.path().is_dir());
        Ok(folders
            .filter_map(|it| it.file_name().into_string().ok())
            .collect())
    }

    /// The tests in the folders of these calls, in the order of LTP's list.
    ///
    /// # Errors
    /// If the list or a folder cannot be read.
    pub fn find(&self, calls: &[String]) -> Result<Found> {
        let (mut built, mut known) = (BTreeMap::new(), BTreeSet::new());
        for call in calls {
            files(&self.top.join(CALLS).join(call), &mut |path: PathBuf| {
                let name = path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                if path.extension().is_some_and(|it| it == "c") {
                    known.insert(name);
                } else if is_program(&path) {
                    built.insert(name, (call.clone(), path));
                }
            })?;
        }
        let list = fs::read_to_string(self.top.join(LIST)).context(LIST)?;
        let lines: Vec<_> = list.lines().filter_map(entry).collect();
        let of_tests: BTreeSet<&str> = lines.iter().map(|(_, program, _)| *program).collect();
        let mut found = Found::default();
        for (name, program, command) in &lines {
            let Some((call, path)) = built.get(*program) else {
                let source = program.trim_end_matches("_64").trim_end_matches("_16");
                if known.contains(source) {
                    found.unbuilt.push((*name).to_owned());
                }
                continue;
            };
            let helpers = built
                .iter()
                .filter(|(name, (of, _))| of == call && !of_tests.contains(name.as_str()));
            let helpers = helpers.map(|(_, (_, path))| path);
            found.tests.push(Test {
                name: (*name).to_owned(),
                command: (*command).to_owned(),
                call: call.clone(),
                programs: std::iter::once(path).chain(helpers).cloned().collect(),
            });
        }
        Ok(found)
    }
}

/// Name, program and command of a line of the list.
fn entry(line: &str) -> Option<(&str, &str, &str)> {
    let line = line.trim();
    let (name, command) = line.split_once(char::is_whitespace)?;
    let command = command.trim();
    let program = command.split_whitespace().next()?;
    (!line.starts_with('#')).then_some((name, program, command))
}

/// All files in a folder, and in those inside it.
fn files(folder: &Path, each: &mut impl FnMut(PathBuf)) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, each)?;
        } else {
            each(path);
        }
    }
    Ok(())
}

/// Is this a program, not a script?
fn is_program(path: &Path) -> bool {
    let may_run = path
        .metadata()
        .is_ok_and(|it| it.permissions().mode() & 0o111 != 0);
    may_run && path.extension().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of two folders: of one call a test with a helper, of another one that is not built.
    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let list = "#DESCRIPTION:calls\n\na01 a01\na01_b a01 -i 2\nb01_64 b01_64\nz01 z01\n";
        let files = [
            (LIST, list, 0o644),
            ("VERSION", "20260130\n", 0o644),
            (&format!("{CALLS}/a/a01.c"), "", 0o644),
            (&format!("{CALLS}/a/a01"), "", 0o755),
            (&format!("{CALLS}/a/child"), "", 0o755),
            (&format!("{CALLS}/a/run.sh"), "", 0o755),
            (&format!("{CALLS}/b/b01.c"), "", 0o644),
        ];
        for (name, text, mode) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        folder
    }

    #[test]
    fn tests_are_found_with_their_helpers_and_what_was_not_built_is_named() {
        let folder = tree();
        let source = Source::new(folder.path()).unwrap();
        assert_eq!(source.version().unwrap(), "20260130");
        let calls: Vec<String> = source.calls().unwrap().into_iter().collect();
        assert_eq!(calls, ["a", "b"]);
        let found = source.find(&calls).unwrap();
        assert_eq!(found.unbuilt, ["b01_64"]);
        let commands: Vec<&str> = found.tests.iter().map(|it| it.command.as_str()).collect();
        assert_eq!(commands, ["a01", "a01 -i 2"]);
        for test in &found.tests {
            let mut names = test.programs.iter().map(|it| it.file_name().unwrap());
            assert!(names.by_ref().eq(["a01", "child"]), "{test:?}");
        }
    }

    #[test]
    fn what_is_no_tree_of_ltp_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Source::new(folder.path()).is_err());
    }
}
