//! Runs the tests on Linux and in machines, and compares.
//!
//! A run that ends within a test, or gets no further, is begun again behind it.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::plan::{Known, Plan};
use super::results::{LINUX, Results};
use super::tree::{self, Tree};
use super::verdicts::{Told, Verdict};
use crate::{launch, system};

/// Where the folder is in a machine.
const TOP: &str = "/b";
/// Programs that tests call by their path; on Linux these are the system's own.
const IN_BIN: [&str; 6] = ["date", "echo", "false", "ls", "sh", "true"];
/// Units that are run in one machine at most: what they leave behind has to fit in.
const UNITS: usize = 40;
/// How often it is looked at whether a run goes on.
const LOOK: Duration = Duration::from_millis(50);

/// How tests are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Numbers of replicas, each of which is tried.
    pub replicas: Vec<u32>,
    /// Machines at once.
    pub at_once: usize,
    /// Longest time without a word.
    pub limit: Duration,
    /// Only units whose names begin with one of these, if there are any.
    pub only: Vec<String>,
    /// The busybox.
    pub busybox: PathBuf,
}

/// A case that passed on Linux and not in the machine, or is said not to.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its name.
    pub case: String,
    /// What it came to in the machine, by each number of replicas.
    pub found: Vec<Verdict>,
    /// The explanation in the plan, if there is one.
    pub known: Option<Known>,
}

impl Difference {
    /// Does it say that something is wrong with rcoe, or with the plan?
    #[must_use]
    pub fn is_finding(&self) -> bool {
        match &self.known {
            None => true,
            Some(known) => self.found.contains(&Verdict::Passed) && !known.varies,
        }
    }
}

/// What came of a folder of the shell's tests, or of the tests of the tools.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub group: String,
    /// Cases on Linux.
    pub cases: usize,
    /// Of these, passed.
    pub native: usize,
    /// Of these, passed in the machine, by each number of replicas.
    pub replicated: Vec<usize>,
    /// All others.
    pub differences: Vec<Difference>,
    /// Units that did not end on Linux.
    pub unended: Vec<String>,
    /// What people may want to read: of units that differ, and what rcoe said.
    pub remarks: Vec<String>,
}

/// How tests are run and where what comes of them goes.
struct Runs<'a> {
    tree: &'a Tree,
    settings: &'a Settings,
    results: &'a Results,
}

/// What units came to by the number of replicas, and what rcoe said.
type Machines = (BTreeMap<u32, Told>, Vec<String>);

/// Runs all groups both ways, but for what is known; each row is shown when it is there.
///
/// # Errors
/// If a folder cannot be written, or a process not started.
pub fn all(
    plan: &Plan,
    tree: &Tree,
    (settings, results): (&Settings, &Results),
    mut show: impl FnMut(&Row),
) -> Result<Vec<Row>> {
    let runs = Runs {
        tree,
        settings,
        results,
    };
    let mut rows = Vec::new();
    for group in &tree.groups {
        let wanted = |unit: &&String| {
            let mut parts = settings.only.iter();
            let named = settings.only.is_empty() || parts.any(|part| unit.starts_with(part));
            named && plan.skips(unit).is_none()
        };
        let units: Vec<String> = group.units.iter().filter(wanted).cloned().collect();
        if units.is_empty() {
            continue;
        }
        let mut row = runs.one_group(plan, &group.folder, &units)?;
        row.group = group.folder.trim_start_matches("shell/").to_owned();
        show(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// What a case came to on Linux and with each number of replicas.
fn compare(plan: &Plan, native: &Told, (machines, mut remarks): Machines, replicas: &[u32]) -> Row {
    let mut differences = Vec::new();
    let (mut passed, mut replicated) = (0, vec![0; replicas.len()]);
    for (case, (unit, verdict)) in &native.cases {
        if *verdict != Verdict::Passed {
            continue;
        }
        passed += 1;
        let told = || replicas.iter().map(|it| machines.get(it));
        let of = |it: Option<&Told>| it.map_or(Verdict::Unfinished, |it| it.verdict(case));
        let found: Vec<Verdict> = told().map(of).collect();
        for (sum, verdict) in replicated.iter_mut().zip(&found) {
            *sum += usize::from(*verdict == Verdict::Passed);
        }
        let known = plan.known(case);
        if found.iter().all(|it| *it == Verdict::Passed) && known.is_none() {
            continue;
        }
        let said = told().flatten().filter_map(|it| it.remarks.get(unit));
        let said = said.filter(|_| known.is_none());
        for remark in said.map(|it| format!("{unit}:\n{it}")) {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        differences.push(Difference {
            case: case.clone(),
            found,
            known: known.cloned(),
        });
    }
    Row {
        group: String::new(),
        cases: native.cases.len(),
        native: passed,
        replicated,
        differences,
        unended: Vec::new(),
        remarks,
    }
}

impl Runs<'_> {
    fn one_group(&self, plan: &Plan, folder: &str, units: &[String]) -> Result<Row> {
        let on_linux = || self.on_linux(units);
        let mut native = self.results.of(LINUX, units, on_linux)?;
        // What does not end on Linux says nothing of the machine.
        native.keep_ended();
        let found = self.in_machines(folder, &native.ended)?;
        let unended = units.iter().filter(|it| !native.ended.contains(it));
        let unended = unended.cloned().collect();
        let row = compare(plan, &native, found, &self.settings.replicas);
        Ok(Row { unended, ..row })
    }

    /// Runs units with each number of replicas, some machines at once.
    fn in_machines(&self, folder: &str, units: &[String]) -> Result<Machines> {
        let numbers = self.settings.replicas.iter();
        let parts = numbers.flat_map(|n| units.chunks(UNITS).map(move |units| (*n, units)));
        let queue: Mutex<VecDeque<_>> = Mutex::new(parts.collect());
        let found = Mutex::new(Ok(Machines::default()));
        std::thread::scope(|scope| {
            for _ in 0..self.settings.at_once {
                scope.spawn(|| {
                    // The lock is held to take a part, not while it is run.
                    let next = || lock(&queue).pop_front();
                    while let Some((replicas, units)) = next() {
                        let mut said = Vec::new();
                        let run = || self.in_machine(folder, replicas, units, &mut said);
                        let told = self.results.of(replicas, units, run);
                        add(&mut lock(&found), replicas, told, said);
                    }
                });
            }
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs units as a process.
    fn on_linux(&self, units: &[String]) -> Result<Told> {
        let folder = tempfile::tempdir()?;
        tree::copy(self.tree.path(), folder.path())?;
        let top = folder.path().display().to_string();
        let busybox = self.settings.busybox.display().to_string();
        let driver = format!("{top}/driver.sh");
        let argv = [busybox, "sh".to_owned(), driver, top];
        let list = folder.path().join("list");
        again_and_again(units, |rest| {
            fs::write(&list, rest.join("\n"))?;
            let running = launch::start(&argv, folder.path(), None)?;
            finish(running, self.settings.limit).map(|(output, _)| output)
        })
    }

    /// Runs units of a folder with so many replicas; adds what rcoe said.
    fn in_machine(
        &self,
        folder: &str,
        replicas: u32,
        units: &[String],
        said: &mut Vec<String>,
    ) -> Result<Told> {
        let scene = tempfile::tempdir()?;
        let list = scene.path().join("list");
        let argv = self.words(folder, replicas, &list);
        again_and_again(units, |rest| {
            fs::write(&list, rest.join("\n"))?;
            let running = launch::start(&argv, scene.path(), None)?;
            let (output, errors) = finish(running, self.settings.limit)?;
            let errors = errors.lines().map(str::to_owned);
            let errors: Vec<_> = errors.filter(|it| !said.contains(it)).collect();
            said.extend(errors);
            Ok(output)
        })
    }

    /// The command that runs the units of a list.
    fn words(&self, folder: &str, replicas: u32, list: &Path) -> Vec<String> {
        let busybox = self.settings.busybox.display().to_string();
        let program = |name: &str| format!("{busybox}:/bin/{name}");
        let mut files: Vec<String> = IN_BIN.map(program).into();
        for name in ["bin", "driver.sh", "config", folder] {
            let path = self.tree.path().join(name);
            files.push(format!("{}:{TOP}/{name}", path.display()));
        }
        files.push(format!("{}:{TOP}/list", list.display()));
        files.extend(["/etc/passwd", "/etc/group"].map(str::to_owned));
        let replicas = replicas.to_string();
        let mut options = vec!["-n", &replicas, "--memory", "192M"];
        options.extend(files.iter().flat_map(|it| ["--file", it]));
        let driver = format!("{TOP}/driver.sh");
        system::words(&options, &[&busybox, "sh", &driver, TOP])
    }
}

/// Adds what a part came to.
fn add(found: &mut Result<Machines>, replicas: u32, told: Result<Told>, said: Vec<String>) {
    match (found, told) {
        (Ok((machines, remarks)), Ok(told)) => {
            machines.entry(replicas).or_default().join(told);
            let fresh = said.into_iter().filter(|it| !remarks.contains(it));
            let fresh: Vec<String> = fresh.collect();
            remarks.extend(fresh);
        }
        (found, Err(error)) => *found = Err(error),
        (Err(_), Ok(_)) => {}
    }
}

fn lock<T>(it: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs units until all have ended or were given up.
fn again_and_again(
    units: &[String],
    mut run: impl FnMut(&[String]) -> Result<String>,
) -> Result<Told> {
    let (mut told, mut rest) = (Told::default(), units);
    while !rest.is_empty() {
        let output = run(rest)?;
        let unfinished = told.read(&output);
        let done = rest.iter().filter(|it| told.ended.contains(it)).count();
        // One that never began is given up too, or this would have no end.
        let given_up = unfinished.or_else(|| rest.get(done).cloned());
        if let Some(unit) = &given_up {
            told.add(unit, unit, Verdict::Unfinished);
            let text = format!("| the run ended in it: {}\n", tail(&output));
            told.remarks
                .entry(unit.clone())
                .or_default()
                .push_str(&text);
        }
        rest = rest
            .get(done + usize::from(given_up.is_some())..)
            .unwrap_or(&[]);
    }
    Ok(told)
}

fn tail(output: &str) -> &str {
    output.trim_end().lines().next_back().unwrap_or("")
}

/// Waits for the end of a run, or until it says nothing for that long: its output and errors.
pub(crate) fn finish(running: launch::Running, limit: Duration) -> Result<(String, String)> {
    let (mut len, mut since) = (0, Instant::now());
    while !running.has_ended() {
        let now = running.stdout_so_far()?.len();
        if now != len {
            (len, since) = (now, Instant::now());
        }
        if since.elapsed() > limit {
            break;
        }
        std::thread::sleep(LOOK);
    }
    let outcome = running.finish(Duration::ZERO)?;
    Ok((outcome.out(), outcome.err()))
}

/// The busybox that a shell finds.
#[must_use]
pub fn find_busybox() -> Option<PathBuf> {
    let mut folders = ["/usr/bin", "/bin"].map(Path::new).into_iter();
    folders.find_map(|it| {
        let path = it.join("busybox");
        path.is_file().then_some(path)
    })
}
