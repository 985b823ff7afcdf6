//! Runs the tests on Linux and in machines, and compares.
//!
//! A run that ends within a test, or gets no further, is begun again behind it.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::plan::{Known, Plan};
use super::results::Results;
use super::source::Test;
use super::told::{Result as Found, Told};
use crate::busybox::run::finish;
use crate::{launch, system};

/// Where the folder is in a machine.
const TOP: &str = "/l";
/// The script that runs the tests.
const DRIVER: &str = include_str!("driver.sh");
/// What the script calls, and what tests call by its path: busybox, in the machine.
const TOOLS: [&str; 5] = ["chmod", "mkdir", "rm", "sh", "timeout"];
const IN_BIN: [&str; 7] = ["cat", "echo", "false", "ls", "sh", "sleep", "true"];
/// Files of the host's that tests look at.
const IN_ETC: [&str; 2] = ["/etc/passwd", "/etc/group"];
/// Tests that are run in one machine at most: their programs have to fit in.
const TESTS: usize = 24;
/// Memory of a machine.
const MEMORY: &str = "192M";
/// How much longer than a test a run may be without a word.
const GRACE: Duration = Duration::from_secs(45);
/// Tests run as the superuser, as they do in the machine, and must do no harm to anybody.
const APART: [&str; 8] = [
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount",
    "--uts",
    "--ipc",
    "--mount-proc",
];
/// Files are in memory, as they are in the machine. Its words: the folder, and what is to run.
const IN_MEMORY: &str = "mount -t tmpfs tmpfs \"$0/tmp\" && exec \"$@\"";

/// How tests are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Replicas.
    pub replicas: u32,
    /// Machines at once.
    pub machines: usize,
    /// Longest time for a test, in seconds.
    pub limit: u64,
    /// The busybox.
    pub busybox: PathBuf,
}

/// A test that passes on Linux and says something else in the machine, or is said to.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its name.
    pub test: String,
    /// What it came to on Linux.
    pub native: Found,
    /// What it came to in the machine.
    pub found: Found,
    /// The explanation in the plan, if there is one.
    pub known: Option<Known>,
    /// What it said in the machine.
    pub said: String,
}

impl Difference {
    /// Does it say that something is wrong with rcoe, or with the plan?
    #[must_use]
    pub fn is_finding(&self) -> bool {
        match &self.known {
            None => true,
            Some(known) => self.found == self.native && !known.varies,
        }
    }
}

/// What came of the tests of a call.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The call.
    pub call: String,
    /// Its tests.
    pub tests: usize,
    /// Of these, passed on Linux, and checks in them that did.
    pub native: [usize; 2],
    /// Of these, in the machine; tests, if they say the same in all.
    pub replicated: [usize; 2],
    /// All others that pass on Linux.
    pub differences: Vec<Difference>,
    /// Those that do not pass on Linux, and what they came to there.
    pub elsewhere: Vec<(String, Found)>,
}

/// How tests are run and where what comes of them goes.
struct Runs<'a, F> {
    settings: &'a Settings,
    results: &'a Results,
    tell: &'a F,
}

/// Runs all tests both ways, but for those whose results are known.
///
/// # Errors
/// If a folder cannot be written, or a process not started.
pub fn all(
    plan: &Plan,
    tests: &[Test],
    settings: &Settings,
    results: Results,
    tell: &(impl Fn(&str) + Sync),
) -> Result<Vec<Row>> {
    let runs = Runs {
        settings,
        results: &results,
        tell,
    };
    let rest = runs.rest(true, tests);
    tell(&format!("{} tests on Linux", rest.len()));
    runs.on_linux(&rest)?;
    let rest = runs.rest(false, tests);
    tell(&format!(
        "{} tests that pass there, in machines",
        rest.len()
    ));
    runs.in_machines(&rest)?;
    let both = results.into_both();
    let mut rows: Vec<Row> = Vec::new();
    for test in tests {
        let at = rows.iter().position(|it| it.call == test.call);
        let at = at.unwrap_or_else(|| {
            rows.push(Row {
                call: test.call.clone(),
                ..Row::default()
            });
            rows.len() - 1
        });
        compare(plan, test, both.each_ref(), &mut rows[at]);
    }
    Ok(rows)
}

/// Adds what a test came to both ways.
fn compare(plan: &Plan, test: &Test, [native, told]: [&Told; 2], row: &mut Row) {
    let [on_linux, found] = [native.of(&test.name), told.of(&test.name)];
    row.tests += 1;
    if !on_linux.is_passed() {
        row.elsewhere.push((test.name.clone(), on_linux));
        return;
    }
    let same = found == on_linux;
    row.native[0] += 1;
    row.native[1] += on_linux.passed;
    row.replicated[0] += usize::from(same);
    row.replicated[1] += found.passed.min(on_linux.passed);
    let known = plan.known(&test.name);
    if same && known.is_none() {
        return;
    }
    row.differences.push(Difference {
        test: test.name.clone(),
        native: on_linux,
        found,
        known: known.cloned(),
        said: told.said.get(&test.name).cloned().unwrap_or_default(),
    });
}

/// Lets everybody into a folder: tests of rights become other users.
fn open_to_all(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(
        folder,
        fs::Permissions::from_mode(0o755),
    )?)
}

fn patience(settings: &Settings) -> Duration {
    Duration::from_secs(settings.limit) + GRACE
}

/// The list for the script.
fn list(tests: &[Test]) -> String {
    let lines = tests
        .iter()
        .map(|it| format!("{} {}\n", it.name, it.command));
    lines.collect()
}

/// The programs of tests, each once.
fn programs(tests: &[Test]) -> Vec<&PathBuf> {
    let mut programs: Vec<&PathBuf> = tests.iter().flat_map(|it| &it.programs).collect();
    programs.sort();
    programs.dedup();
    programs
}

impl<F: Fn(&str) + Sync> Runs<'_, F> {
    /// The tests that are to be run: on Linux, or in machines those that pass there.
    fn rest(&self, on_linux: bool, tests: &[Test]) -> Vec<Test> {
        let all = tests.iter().filter(|it| {
            !self.results.has(on_linux, &it.name) && (on_linux || self.results.passed(&it.name))
        });
        all.cloned().collect()
    }

    /// Runs tests as processes.
    fn on_linux(&self, tests: &[Test]) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let top = folder.path();
        let bin = top.join("testcases/bin");
        fs::create_dir_all(&bin)?;
        fs::create_dir_all(top.join("tmp"))?;
        fs::write(top.join("driver.sh"), DRIVER)?;
        for path in programs(tests) {
            fs::copy(path, bin.join(path.file_name().unwrap_or_default()))?;
        }
        for name in TOOLS {
            std::os::unix::fs::symlink(&self.settings.busybox, bin.join(name))?;
        }
        open_to_all(top)?;
        let busybox = self.settings.busybox.display().to_string();
        let [driver, top_name] = [&top.join("driver.sh"), top].map(|it| it.display().to_string());
        let limit = self.settings.limit.to_string();
        let mounts = ["sh", "-c", IN_MEMORY, &top_name];
        let words = [&busybox, "sh", &driver, &top_name, &limit];
        let words = APART.iter().chain(&mounts).chain(&words);
        let argv: Vec<String> = words.map(|&it| it.to_owned()).collect();
        self.again_and_again(true, tests, |rest| {
            fs::write(top.join("list"), list(rest))?;
            let running = launch::start(&argv, top, None)?;
            finish(running, patience(self.settings)).map(|(output, _)| output)
        })
    }

    /// Runs tests in machines, some of these at once.
    fn in_machines(&self, tests: &[Test]) -> Result<()> {
        let queue: Mutex<VecDeque<&[Test]>> = Mutex::new(tests.chunks(TESTS).collect());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.settings.machines {
                scope.spawn(|| {
                    // The lock is held to take a part, not while it is run.
                    let next = || lock(&queue).pop_front();
                    while let Some(tests) = next() {
                        if let Err(error) = self.in_one_machine(tests) {
                            *lock(&failed) = Some(error);
                        }
                    }
                });
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Runs tests in one machine, and in another one behind a test that ended it.
    fn in_one_machine(&self, tests: &[Test]) -> Result<()> {
        let settings = self.settings;
        let scene = tempfile::tempdir()?;
        let top = scene.path();
        fs::write(top.join("driver.sh"), DRIVER)?;
        let busybox = settings.busybox.display().to_string();
        let at = |path: &Path, place: &str| format!("{}:{place}", path.display());
        let mut files: Vec<String> = IN_ETC.map(str::to_owned).into();
        files.extend(IN_BIN.map(|it| at(&settings.busybox, &format!("/bin/{it}"))));
        files.extend(TOOLS.map(|it| at(&settings.busybox, &format!("{TOP}/testcases/bin/{it}"))));
        for name in ["driver.sh", "list"] {
            files.push(at(&top.join(name), &format!("{TOP}/{name}")));
        }
        for path in programs(tests) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            files.push(at(path, &format!("{TOP}/testcases/bin/{name}")));
        }
        let (replicas, limit) = (settings.replicas.to_string(), settings.limit.to_string());
        let mut options = vec!["-n", &replicas, "--memory", MEMORY];
        options.extend(files.iter().flat_map(|it| ["--file", it]));
        let driver = format!("{TOP}/driver.sh");
        let argv = system::words(&options, &[&busybox, "sh", &driver, TOP, &limit]);
        self.again_and_again(false, tests, |rest| {
            fs::write(top.join("list"), list(rest))?;
            let running = launch::start(&argv, top, None)?;
            let (output, errors) = finish(running, patience(settings))?;
            for line in errors.lines().filter(|it| !it.trim().is_empty()) {
                (self.tell)(&format!("| {line}"));
            }
            Ok(output)
        })
    }

    /// Runs tests until all have ended or were given up.
    fn again_and_again(
        &self,
        on_linux: bool,
        tests: &[Test],
        mut run: impl FnMut(&[Test]) -> Result<String>,
    ) -> Result<()> {
        let mut rest = tests;
        while !rest.is_empty() {
            let mut told = Told::default();
            told.read(&run(rest)?);
            let has_ended = |it: &&Test| told.of(&it.name).status.is_some();
            let done = rest.iter().take_while(has_ended).count();
            // One that never began is given up too, or this would have no end.
            for test in rest.iter().take(done + 1) {
                self.results.add(on_linux, &test.name, &told)?;
                (self.tell)(&format!("{}: {}", test.name, told.of(&test.name)));
            }
            rest = rest.get(done + 1..).unwrap_or(&[]);
        }
        Ok(())
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            replicas: 1,
            machines: 1,
            limit: 1,
            busybox: PathBuf::new(),
        }
    }

    fn test(name: &str) -> Test {
        Test {
            name: name.to_owned(),
            command: name.to_owned(),
            call: name.trim_end_matches(char::is_numeric).to_owned(),
            programs: Vec::new(),
        }
    }

    #[test]
    fn a_run_that_ends_within_a_test_goes_on_behind_it() {
        let tests = ["a01", "a02", "a03"].map(test);
        let (settings, results) = (settings(), Results::new(1));
        let runs = Runs {
            settings: &settings,
            results: &results,
            tell: &|_: &str| {},
        };
        let mut lists = Vec::new();
        let run = |rest: &[Test]| {
            lists.push(list(rest));
            Ok(if rest.len() == 3 {
                "@ begin a01\nTPASS\n@ end a01 0\n@ begin a02\nTPASS".to_owned()
            } else {
                String::new()
            })
        };
        runs.again_and_again(true, &tests, run).unwrap();
        assert!(runs.rest(true, &tests).is_empty());
        assert_eq!(runs.rest(false, &tests), tests[..1]);
        let [told, _] = results.into_both();
        assert_eq!(lists, ["a01 a01\na02 a02\na03 a03\n", "a03 a03\n"]);
        assert!(told.of("a01").is_passed());
        assert_eq!(told.of("a02").to_string(), "1 passed, did not end");
        assert_eq!(told.of("a03").to_string(), "did not end");
    }

    #[test]
    fn only_tests_that_pass_on_linux_and_say_the_same_count() {
        let plan = Plan::load().unwrap();
        let mut both = [Told::default(), Told::default()];
        both[0].read("@ begin a01\nTPASS\nTPASS\n@ end a01 0\n@ begin a02\nTCONF\n@ end a02 32\n");
        both[1].read("@ begin a01\nTPASS\nTFAIL\n@ end a01 1\n@ begin a02\nTPASS\n@ end a02 0\n");
        let mut row = Row::default();
        for name in ["a01", "a02"] {
            compare(&plan, &test(name), both.each_ref(), &mut row);
        }
        assert_eq!((row.tests, row.native, row.replicated), (2, [1, 2], [0, 1]));
        assert_eq!(row.elsewhere[0].0, "a02");
        assert!(row.differences[0].is_finding());
        let [native, _] = &both;
        let mut row = Row::default();
        compare(&plan, &test("a01"), [native, native], &mut row);
        assert!(row.differences.is_empty() && row.replicated == [1, 2]);
    }
}
