//! Runs the tests on Linux and in machines, and compares.
//!
//! A run that ends within a test, or gets no further, is begun again behind it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::plan::{Known, Plan};
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
    /// Replicas.
    pub replicas: u32,
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
    /// What it came to in the machine.
    pub found: Verdict,
    /// The explanation in the plan, if there is one.
    pub known: Option<Known>,
}

impl Difference {
    /// Does it say that something is wrong with rcoe, or with the plan?
    #[must_use]
    pub fn is_finding(&self) -> bool {
        match &self.known {
            None => true,
            Some(known) => self.found == Verdict::Passed && !known.varies,
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
    /// Of these, passed in the machine.
    pub replicated: usize,
    /// All others.
    pub differences: Vec<Difference>,
    /// What people may want to read: of units that differ, and what rcoe said.
    pub remarks: Vec<String>,
}

/// Runs all groups both ways; each row is shown when it is there.
///
/// # Errors
/// If a folder cannot be written, or a process not started.
pub fn all(
    plan: &Plan,
    tree: &Tree,
    settings: &Settings,
    mut show: impl FnMut(&Row),
) -> Result<Vec<Row>> {
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
        let mut row = one_group(plan, tree, settings, (&group.folder, &units))?;
        row.group = group.folder.trim_start_matches("shell/").to_owned();
        show(&row);
        rows.push(row);
    }
    Ok(rows)
}

fn one_group(
    plan: &Plan,
    tree: &Tree,
    settings: &Settings,
    (folder, units): (&str, &[String]),
) -> Result<Row> {
    let mut native = Told::default();
    on_linux(tree, settings, units, &mut native)?;
    // What does not end on Linux says nothing of the machine.
    native.keep_ended();
    let units = &native.ended;
    let mut told = Told::default();
    let mut remarks = Vec::new();
    for units in units.chunks(UNITS) {
        let said = in_machines(tree, settings, (folder, units), &mut told)?;
        remarks.extend(said);
    }
    Ok(compare(plan, &native, &told, remarks))
}

/// What a case came to both ways.
fn compare(plan: &Plan, native: &Told, told: &Told, mut remarks: Vec<String>) -> Row {
    let mut differences = Vec::new();
    let (mut passed, mut replicated) = (0, 0);
    for (case, (unit, verdict)) in &native.cases {
        if *verdict != Verdict::Passed {
            continue;
        }
        passed += 1;
        let (found, known) = (told.verdict(case), plan.known(case));
        replicated += usize::from(found == Verdict::Passed);
        if found == Verdict::Passed && known.is_none() {
            continue;
        }
        let remark = told.remarks.get(unit).filter(|_| known.is_none());
        let remark = remark.map(|it| format!("{unit}:\n{it}"));
        remarks.extend(remark.filter(|it| !remarks.contains(it)));
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
        remarks,
    }
}

/// Runs units as a process.
fn on_linux(tree: &Tree, settings: &Settings, units: &[String], told: &mut Told) -> Result<()> {
    let folder = tempfile::tempdir()?;
    tree::copy(tree.path(), folder.path())?;
    let top = folder.path().display().to_string();
    let busybox = settings.busybox.display().to_string();
    let driver = format!("{top}/driver.sh");
    let argv = [busybox, "sh".to_owned(), driver, top];
    let list = folder.path().join("list");
    again_and_again(units, told, |rest| {
        fs::write(&list, rest.join("\n"))?;
        let running = launch::start(&argv, folder.path(), None)?;
        finish(running, settings.limit).map(|(output, _)| output)
    })
}

/// Runs units of a folder in machines; what rcoe said.
fn in_machines(
    tree: &Tree,
    settings: &Settings,
    (folder, units): (&str, &[String]),
    told: &mut Told,
) -> Result<Vec<String>> {
    let scene = tempfile::tempdir()?;
    let list = scene.path().join("list");
    let replicas = settings.replicas.to_string();
    let program = |name: &str| format!("{}:/bin/{name}", settings.busybox.display());
    let mut files: Vec<String> = IN_BIN.map(program).into();
    for name in ["bin", "driver.sh", "config", folder] {
        files.push(format!("{}:{TOP}/{name}", tree.path().join(name).display()));
    }
    files.push(format!("{}:{TOP}/list", list.display()));
    files.extend(["/etc/passwd", "/etc/group"].map(str::to_owned));
    let mut options = vec!["-n", &replicas, "--memory", "192M"];
    options.extend(files.iter().flat_map(|it| ["--file", it]));
    let busybox = settings.busybox.display().to_string();
    let driver = format!("{TOP}/driver.sh");
    let argv = system::words(&options, &[&busybox, "sh", &driver, TOP]);
    let mut said = Vec::new();
    again_and_again(units, told, |rest| {
        fs::write(&list, rest.join("\n"))?;
        let running = launch::start(&argv, scene.path(), None)?;
        let (output, errors) = finish(running, settings.limit)?;
        let errors = errors.lines().map(str::to_owned);
        let errors: Vec<_> = errors.filter(|it| !said.contains(it)).collect();
        said.extend(errors);
        Ok(output)
    })?;
    Ok(said)
}

/// Runs units until all have ended or were given up.
fn again_and_again(
    units: &[String],
    told: &mut Told,
    mut run: impl FnMut(&[String]) -> Result<String>,
) -> Result<()> {
    let mut rest = units;
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
    Ok(())
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
