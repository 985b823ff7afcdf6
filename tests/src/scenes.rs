//! Whole programs in scenes: servers under load, build tools, shells, runtimes.
//!
//! A scene is a shell script of `tests/programs/`, listed in `tests/programs.toml`. It starts what
//! is to be replicated as `"${run[@]}" PROGRAM`, drives it (clients and checks run plainly), and
//! prints what must not depend on chance. Each cell of the table is one run under rcoe whose
//! standard output, exit status and folder `out` must equal those of the plain run; no process may
//! be left behind. Unlike in the compatibility matrix standard error is not compared, since servers
//! log there; what rcoe itself says is kept as a remark.
//!
//! Contract: two plain runs are equal, else the scene is rejected, for a comparison with it could
//! not fail for the right reason.
//!
//! Not covered: cost (the bench), faults (the fault lab).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::launch::{self, Ended, Outcome};
use crate::matrix::Mode;
use crate::rcoe;
use crate::snapshot::{Snapshot, content_difference};

/// Where programs are looked for beside the search path; what the scenes' prelude adds to it.
const FOLDERS: &[&str] = &[
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/go/bin",
];

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenes {
    /// All scenes.
    #[serde(rename = "scene")]
    pub all: Vec<Scene>,
}

/// One scene.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scene {
    /// Unique name; its script is `tests/programs/NAME.sh`.
    pub name: String,
    /// What is run, for the table.
    pub what: String,
    /// What must be equal, for the table.
    pub compared: String,
    /// Modes of comparison it is run in.
    #[serde(default = "default_modes")]
    pub modes: Vec<String>,
    /// Part of the quick subset.
    #[serde(default)]
    pub quick: bool,
    /// Why it cannot pass yet; it is then only run when named.
    pub pending: Option<String>,
    /// Longest time of one run, in seconds.
    #[serde(default = "default_limit")]
    pub limit: u64,
    /// The programs it needs, each with the Debian package that has it.
    pub tools: BTreeMap<String, String>,
}

fn default_modes() -> Vec<String> {
    vec!["args".to_owned()]
}

const fn default_limit() -> u64 {
    300
}

impl Scenes {
    /// Parses and checks the list.
    ///
    /// # Errors
    /// If it does not parse, a name comes twice, or a script is missing.
    pub fn load() -> Result<Self> {
        let scenes: Self =
            toml::from_str(include_str!("../programs.toml")).context("tests/programs.toml")?;
        let mut names = BTreeSet::new();
        for scene in &scenes.all {
            ensure!(names.insert(&scene.name), "{} comes twice", scene.name);
            ensure!(scene.script().exists(), "{} has no script", scene.name);
        }
        Ok(scenes)
    }

    /// The scenes with these names; without names all that are not pending.
    ///
    /// # Errors
    /// If there is no scene of a name.
    pub fn choose(&self, names: &[String], quick: bool) -> Result<Vec<&Scene>> {
        for name in names {
            let known = self.all.iter().any(|scene| scene.name == *name);
            ensure!(known, "no scene is called {name}");
        }
        let chosen = |scene: &&Scene| {
            if names.is_empty() {
                scene.pending.is_none() && (scene.quick || !quick)
            } else {
                names.contains(&scene.name)
            }
        };
        Ok(self.all.iter().filter(chosen).collect())
    }
}

impl Scene {
    fn script(&self) -> PathBuf {
        folder().join(format!("{}.sh", self.name))
    }

    /// Debian packages of those of its tools that are not there.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.tools.iter().filter(|(tool, _)| !is_there(tool));
        missing.map(|(_, package)| &**package)
    }
}

/// Where the scripts are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

fn is_there(tool: &str) -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.flatten().map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = FOLDERS
        .iter()
        .map(PathBuf::from)
        .chain(versions)
        .chain(std::env::split_paths(&path));
    folders.any(|folder| folder.join(tool).exists())
}

/// What came of one run under rcoe.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The mode.
    pub mode: Mode,
    /// The first difference, or nothing if the run was like the plain one.
    pub difference: Option<String>,
    /// Wall-clock time.
    pub took: Duration,
}

/// What came of one scene.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Why the scene could not be used, if so; then there are no cells.
    pub rejected: Option<String>,
    /// Wall-clock time of the plain run.
    pub plain: Duration,
    /// One cell for each number of replicas and mode.
    pub cells: Vec<Cell>,
    /// What rcoe said in any of the runs.
    pub remarks: BTreeSet<String>,
}

/// A run together with the files it left.
struct Observed {
    outcome: Outcome,
    files: Snapshot,
}

/// Runs a scene plainly and with so many replicas, below `root`. `twice`: the plain run is made
/// twice, to see whether it is always the same.
///
/// # Errors
/// If the test itself fails: the directory cannot be written, a process not started.
pub fn play(scene: &Scene, replicas: &[u32], twice: bool, root: &Path) -> Result<Row> {
    let plain = observe(scene, None, root)?;
    let mut row = Row {
        plain: plain.outcome.took,
        ..Row::default()
    };
    row.rejected = unfit(&plain.outcome);
    if row.rejected.is_none() && twice {
        let second = observe(scene, None, root)?;
        row.rejected =
            difference(&plain, &second).map(|text| format!("two plain runs differ: {text}"));
    }
    if row.rejected.is_some() {
        return Ok(row);
    }
    for mode in &scene.modes {
        for &replicas in replicas {
            let mode = Mode {
                replicas,
                compare: known_mode(mode)?,
            };
            let seen = observe(scene, Some(mode), root)?;
            row.remarks.extend(remarks(&seen.outcome));
            row.cells.push(Cell {
                mode,
                difference: difference(&plain, &seen),
                took: seen.outcome.took,
            });
        }
    }
    Ok(row)
}

fn known_mode(name: &str) -> Result<&'static str> {
    let known = ["io", "args", "every"]
        .into_iter()
        .find(|mode| *mode == name);
    known.with_context(|| format!("no mode of comparison is called {name}"))
}

/// Runs the script once, in a directory that has the same name each time: compilers write it into
/// what they make.
fn observe(scene: &Scene, mode: Option<Mode>, root: &Path) -> Result<Observed> {
    let directory = root.join(&scene.name);
    fs::create_dir(&directory)?;
    fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
    let launcher = match mode {
        None => String::new(),
        Some(Mode { replicas, compare }) => {
            let program = rcoe::binary()?;
            let program = program.display();
            format!("{program} run -n {replicas} --compare {compare} --")
        }
    };
    let mut argv = vec![
        "env".to_owned(),
        format!("RCOE_RUN={launcher}"),
        format!("SCENES={}", folder().display()),
        format!("CACHE={}", root.join("cache").display()),
    ];
    if scene.tools.contains_key("cargo") {
        argv.extend(toolchain());
    }
    argv.extend(["bash".to_owned(), scene.script().display().to_string()]);
    let limit = Duration::from_secs(scene.limit);
    let outcome = launch::run(&argv, &directory, None, limit)?;
    let out = directory.join("out");
    let files = if out.exists() {
        Snapshot::take(&out)?
    } else {
        Snapshot::default()
    };
    fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(Observed { outcome, files })
}

/// The toolchain that has built this program, and where it keeps what it has fetched.
fn toolchain() -> impl Iterator<Item = String> {
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".cargo"));
    let cargo = std::env::var_os("CARGO").map(|path| ("CARGO", PathBuf::from(path)));
    let fetched = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(home);
    let fetched = fetched.map(|path| ("CARGO_HOME", path));
    [cargo, fetched]
        .into_iter()
        .flatten()
        .map(|(name, path)| format!("{name}={}", path.display()))
}

/// Why a plain run cannot be compared with, if so.
fn unfit(outcome: &Outcome) -> Option<String> {
    if outcome.ended != Ended::Exit(0) {
        let errors = outcome.err();
        let line = errors.lines().next().unwrap_or_default();
        return Some(format!(
            "the plain run ended with {:?}: {line}",
            outcome.ended
        ));
    }
    outcome
        .stdout
        .is_empty()
        .then(|| "the plain run prints nothing".to_owned())
}

fn difference(plain: &Observed, seen: &Observed) -> Option<String> {
    let (a, b) = (&plain.outcome, &seen.outcome);
    if a.ended != b.ended {
        let errors = b.err();
        let lines: Vec<&str> = errors.lines().take(3).collect();
        return Some(format!("ended with {:?}: {}", b.ended, lines.join("; ")));
    }
    if b.survivors > 0 {
        return Some(format!("{} processes were left behind", b.survivors));
    }
    // One that was masked shows in nothing else.
    let fault = remarks(b)
        .into_iter()
        .find(|line| line.starts_with("rcoe: fault"));
    let output = content_difference(&a.stdout, &b.stdout);
    fault
        .or_else(|| output.map(|text| format!("standard output: {text}")))
        .or_else(|| plain.files.difference(&seen.files))
}

/// What rcoe has said on standard error, each thing once.
fn remarks(outcome: &Outcome) -> BTreeSet<String> {
    let errors = outcome.err();
    let lines = errors.lines().filter(|line| line.starts_with("rcoe: "));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(name: &str) -> Scene {
        Scenes::load()
            .unwrap()
            .all
            .into_iter()
            .find(|scene| scene.name == name)
            .unwrap()
    }

    #[test]
    fn scenes_are_listed_and_can_be_chosen() {
        let scenes = Scenes::load().unwrap();
        let all = scenes.choose(&[], false).unwrap().len();
        let quick = scenes.choose(&[], true).unwrap().len();
        assert!(0 < quick && quick < all);
        assert!(scenes.choose(&["no such".to_owned()], false).is_err());
        for scene in &scenes.all {
            assert!(scene.modes.iter().all(|mode| known_mode(mode).is_ok()));
            assert!(!scene.tools.is_empty(), "{}", scene.name);
        }
    }

    #[test]
    fn a_run_that_differs_is_told() {
        let outcome = |script: &str| {
            let argv = ["sh", "-c", script].map(str::to_owned);
            let outcome = launch::run(&argv, Path::new("/"), None, Duration::from_secs(60));
            Observed {
                outcome: outcome.unwrap(),
                files: Snapshot::default(),
            }
        };
        let plain = outcome("echo a");
        assert_eq!(difference(&plain, &outcome("echo a; echo b >&2")), None);
        let masked = "echo a; echo rcoe: fault: replica 1 >&2";
        for other in ["echo b", "echo a; exit 86", "echo a; sleep 1000 &", masked] {
            assert!(difference(&plain, &outcome(other)).is_some(), "{other}");
        }
        assert!(unfit(&outcome("exit 1").outcome).is_some());
        assert!(unfit(&outcome("true").outcome).is_some());
        let said = outcome("echo rcoe: warning >&2; echo other >&2").outcome;
        assert_eq!(
            remarks(&said).into_iter().collect::<Vec<_>>(),
            ["rcoe: warning"]
        );
    }

    #[test]
    fn packages_of_tools_that_are_there_are_not_asked_for() {
        let mut scene = scene("shell");
        assert!(!scene.missing().any(|package| package == "bash"));
        scene
            .tools
            .insert("no-such-tool".to_owned(), "some-package".to_owned());
        assert!(scene.missing().any(|package| package == "some-package"));
    }
}
