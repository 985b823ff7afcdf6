//! `cargo xtask test`: all checks, none skipped because another failed.
//!
//! Stages come in groups, one after the other; those of a group need nothing of each other, and run
//! [beside one another](part).

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::count::{self, Counts};
use crate::failures::{self, Failure, Tail};
use crate::part::{self, Came};
use crate::{
    cargo_tests, compat, cpython, dist, docs, image, packages, programs, prove, shell, slow, tidy,
    users,
};

/// Which stages to run.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Choice {
    /// Only these stages.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Not these stages.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
    /// One stage, as a part of a longer run: what came of it is told by the last line.
    #[arg(long, hide = true, conflicts_with_all = ["only", "skip"])]
    part: Option<String>,
}

impl Choice {
    fn wants(&self, name: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|item| item == name);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

/// A stage: its name and what it does.
type Stage = (&'static str, fn() -> Result<Counts>);

/// All stages, in groups; in each, those that take longest come first.
const GROUPS: &[&[Stage]] = &[
    &[("packages", install)],
    &[
        ("build", build),
        ("clippy", clippy),
        ("tidy", tidy::run),
        ("fmt", fmt),
    ],
    &[("unit", unit_tests)],
    &[("aarch64", aarch64)],
    &[
        ("faults", faults),
        ("model", model),
        ("dist", dist::check),
        ("programs", whole_programs),
        ("compat", compat_matrix),
        ("cpython", || cpython::sample(&seed()?)),
        ("users", users::run),
        ("docs", || docs::run(true)),
        ("instructions", instructions),
    ],
];

/// All stages.
fn stages() -> impl Iterator<Item = &'static Stage> {
    GROUPS.iter().copied().flatten()
}

/// Seeds of the protocol's simulation, from one on that follows from the commit.
const SEEDS: &str = "5000";

/// Features of the simulation, and the suites that need them; the others are of the unit stage.
const FEATURES: [(&str, &[&str]); 2] = [
    ("rcoe-sim/planted", &["planted"]),
    ("rcoe-sim/shuttle", &["schedules", "coupled_schedules"]),
];

/// What the fault lab runs beside the programs of the matrix; debugger, compiler, browser and the
/// other processor's library of the tests.
const LAB_PACKAGES: [&str; 6] = [
    "pigz",
    "make",
    "gdb",
    "musl-tools",
    "chromium",
    "libc6-dev-arm64-cross",
];

/// Fault campaigns of CI size. Those with seeds are another sample for each commit; of those with
/// ticks, which are few, always the same one is taken.
const CAMPAIGNS: &[&str] = &[
    "campaign --seed {seed} -n 2 --count 150",
    "campaign --seed {seed} -n 2 --count 60 --program bzip2,sqlite3",
    "campaign --seed {seed} -n 3 --count 100",
    "campaign --seed {seed} -n 2 --count 30 --program pigz,mutex",
    "campaign --seed {seed} -n 2 --count 40 --program workers,pipeline,shell,make",
    "campaign --seed {seed} -n 3 --count 30 --program mutex,workers,shell",
    "campaign --seed {seed} -n 2 --count 60 --when after --targets gpr --program effects,workers",
    concat!(
        "campaign --seed 13 -n 2 --count 4 --tick 100ms --program computing-less ",
        "--targets gpr,heap --deadline 600"
    ),
    concat!(
        "campaign --seed 13 -n 3 --count 4 --tick 100ms --program computing-less ",
        "--targets gpr,heap --deadline 600"
    ),
    "system --seed {seed} -n 2 --count 12",
    "system --seed {seed} -n 3 --count 12",
    "steady --calls 300000",
    "race --seed {seed} --runs 20",
    "hours --minutes 0.2",
    "kills --seed {seed} --count 210 --per-run 30",
    "kills --seed {seed} --stop --count 28 --per-run 4",
    "fuzz --seed {seed} --calls 12000 --per-run 6000 --optional",
    "fuzz --seed {seed} -n 3 --calls 12000 --per-run 6000 --optional",
    "service --seed {seed} --faults 8 --kinds kill,stop --every 0.1",
    "system-service --seed {seed} --faults 3 --kinds stop --every 0.1",
    "system-errors --seed {seed} -n 2 --errors 2 --bound 0.2",
    "system-errors --seed {seed} -n 3 --errors 4 --bound 0.2",
    "system-errors --seed {seed} -n 2 --transfer --machines 1 --flips 20 --bound 0.1",
    "frames --seed {seed} --count 4000",
];

/// A stage and what came of it.
type Finished = (&'static str, Came);

/// Runs the chosen stages; the last line is `N passed, M failed`.
pub(crate) fn run(choice: &Choice) -> Result<bool> {
    for name in choice.only.iter().chain(&choice.skip).chain(&choice.part) {
        anyhow::ensure!(
            stages().any(|stage| stage.0 == name),
            "no stage is called {name}"
        );
    }
    if let Some(name) = &choice.part {
        let stage = stages().find(|stage| stage.0 == name);
        let came = perform(stage.context("a stage")?);
        part::tell(&came)?;
        return Ok(came.counts.failed == 0);
    }
    let chosen = |group: &&'static [Stage]| -> Vec<&'static Stage> {
        group.iter().filter(|stage| choice.wants(stage.0)).collect()
    };
    let groups: Vec<_> = GROUPS
        .iter()
        .map(chosen)
        .filter(|it| !it.is_empty())
        .collect();
    let mut finished: Vec<Finished> = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let names: Vec<&str> = group.iter().map(|stage| stage.0).collect();
        println!("== {}/{} {}", index + 1, groups.len(), names.join(" "));
        let came = perform_all(group, &names)?;
        finished.extend(names.into_iter().zip(came));
    }
    tell_slowest(&finished);
    for (name, came) in &finished {
        failures::tell(name, &came.failures);
    }
    Ok(summarise(&finished))
}

/// Carries out one stage in this process.
fn perform((name, perform): &Stage) -> Came {
    let started = Instant::now();
    let counts = perform().unwrap_or_else(|error| {
        println!("{name}: {error:#}");
        failures::keep(Failure::new(*name, Tail::of(&format!("{error:#}"))));
        Counts::one(false)
    });
    Came {
        counts,
        took: started.elapsed(),
        slowest: slow::take(),
        failures: failures::take(),
    }
}

/// Carries out the stages of a group; one that is alone says at once what it says.
fn perform_all(group: &[&'static Stage], names: &[&'static str]) -> Result<Vec<Came>> {
    if let [stage] = group {
        return Ok(vec![perform(stage)]);
    }
    let own = std::env::current_exe()?;
    part::run(names, shell::cores(), |name| {
        let mut command = Command::new(&own);
        command.args(["test", "--part", name]);
        command
    })
}

fn tell_slowest(finished: &[Finished]) {
    let of_stage = |(name, came): &Finished| {
        let (tests, name) = (came.slowest.clone(), *name);
        tests
            .into_iter()
            .map(move |(took, test)| (took, test, name))
    };
    let tests: Vec<_> = finished.iter().flat_map(of_stage).collect();
    if !tests.is_empty() {
        slow::tell(tests);
    }
}

fn summarise(finished: &[Finished]) -> bool {
    println!(
        "\n{:<12} {:>8} {:>8} {:>9}",
        "stage", "passed", "failed", "seconds"
    );
    let mut total = Counts::default();
    for (name, came) in finished {
        let Counts { passed, failed } = came.counts;
        let seconds = came.took.as_secs_f64();
        println!("{name:<12} {passed:>8} {failed:>8} {seconds:>9.1}");
        total.add(came.counts);
    }
    let total = total.judged(true);
    println!("\n{} passed, {} failed", total.passed, total.failed);
    total.failed == 0
}

fn install() -> Result<Counts> {
    let lab = LAB_PACKAGES.map(str::to_owned).to_vec();
    // Tests of the unit stage use programs of the scenes too.
    let scenes = programs::packages(&["--quick"])?;
    packages::ensure(&[compat::packages()?, cpython::packages()?, scenes, lab].concat())?;
    image::prepare()?;
    Ok(Counts::one(true))
}

fn fmt() -> Result<Counts> {
    failures::check("fmt", &shell::cargo(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<Counts> {
    // With shuttle's atomics the protocol and its simulation are other crates.
    let parts: [&[&str]; 2] = [
        &["--workspace"],
        &[
            "-p",
            "rcoe-core",
            "-p",
            "rcoe-sim",
            "--features",
            "rcoe-sim/shuttle",
        ],
    ];
    let mut counts = Counts::default();
    for part in parts {
        let command = shell::with(shell::cargo(["clippy", "--all-targets", "--quiet"]), part);
        let command = shell::with(command, &["--", "-Dwarnings"]);
        counts.add(failures::check("clippy", &command)?);
    }
    counts.add(Counts::one(image::clippy()?));
    Ok(counts)
}

/// What is built to run: the others are tests and tools, which the test profile builds.
const PROGRAMS: [&str; 3] = ["rcoe", "rcoe-faultlab", "rcoe-bench"];

/// The simulation of the protocol. One with other features takes its place, so that no other stage
/// than that of the model may start it.
const SIMULATION: &str = "rcoe-sim";

/// Builds them, the simulation and the system image.
pub(crate) fn build() -> Result<Counts> {
    shell::build_commands(&[&PROGRAMS[..], &[SIMULATION]].concat())?;
    let mut counts = Counts::one(true);
    counts.add(Counts::one(image::run()?));
    Ok(counts)
}

/// What runs the tests of the workspace, on what the build stage has built.
pub(crate) fn tests() -> Command {
    let mut command = shell::cargo(["test", "--workspace", "--no-fail-fast"]);
    command.env("RCOE_BIN", shell::built("rcoe"));
    command.env("RCOE_SYSTEM_IMAGE", image::folder());
    command
}

/// The same, but of suites of the system sphere, on the processor that is not usual.
pub(crate) fn tests_of_aarch64() -> Command {
    let suites = SUITES.map(|suite| ["--test", suite]);
    let mut command = shell::with(tests(), &suites.concat());
    command.env("RCOE_TEST_ARCH", "aarch64");
    command
}

/// All `#[test]`s of the workspace, then those of its documentation; end-to-end ones use the
/// release binary.
fn unit_tests() -> Result<Counts> {
    let tests = sampled(tests)?;
    cargo_tests::run_beside(&tests, Some(shell::with(tests(), &["--doc"])))
}

/// The same command with the sample of this commit, which is told.
fn sampled(make: fn() -> Command) -> Result<impl Fn() -> Command> {
    let seed = seed()?;
    println!("RCOE_SAMPLE={seed}");
    Ok(move || {
        let mut command = make();
        command.env("RCOE_SAMPLE", &seed);
        command
    })
}

/// Suites of the system sphere that name no processor, once more for the one that is not usual.
const SUITES: [&str; 8] = [
    "system",
    "system_c",
    "system_copies",
    "system_devices",
    "system_faults",
    "system_ipc",
    "system_network",
    "system_shared",
];

fn aarch64() -> Result<Counts> {
    cargo_tests::run_beside(sampled(tests_of_aarch64)?, None)
}

/// The protocol alone: seeded simulation, planted bugs, and schedules of the real atomics.
fn model() -> Result<Counts> {
    shell::build_commands(&[SIMULATION])?;
    let (seed, mut counts) = (seed()?, Counts::default());
    for kind in [
        "",
        "--reduced",
        "--deferred",
        "--reading",
        "--coupled",
        "--amid",
    ] {
        let told = format!("rcoe-sim {kind} --seed {seed} --count {SEEDS}");
        println!("{told}");
        let seeds = Command::new(shell::built(SIMULATION));
        let kind: Vec<&str> = kind.split_whitespace().collect();
        let seeds = shell::with(shell::with(seeds, &kind), &["--seed", &seed]);
        let seeds = shell::with(seeds, &["--count", SEEDS]);
        counts.add(failures::check(&told, &seeds)?);
    }
    for (feature, suites) in FEATURES {
        let tests = || shell::cargo(["test", "--release", "--workspace", "--no-fail-fast"]);
        let suites: Vec<&str> = suites.iter().flat_map(|suite| ["--test", suite]).collect();
        counts.add(cargo_tests::run(|| {
            shell::with(shell::with(tests(), &["--features", feature]), &suites)
        })?);
    }
    Ok(counts)
}

fn compat_matrix() -> Result<Counts> {
    let mut counts = Counts::default();
    let words = ["--scale", "ci", "--jobs", &shell::cores().to_string()];
    let succeeded = compat::matrix(&words, &mut counts)?;
    Ok(counts.judged(succeeded))
}

/// The quick scenes of whole programs, as two or three replicas.
fn whole_programs() -> Result<Counts> {
    let mut counts = Counts::default();
    let n = if seed()?.parse::<u64>()? % 2 == 0 {
        "2"
    } else {
        "3"
    };
    println!("rcoe-programs --quick --n {n}");
    let succeeded = programs::play(&["--quick", "--n", n], &mut counts)?;
    Ok(counts.judged(succeeded))
}

/// Instructions and host calls of single calls, against their bounds.
fn instructions() -> Result<Counts> {
    shell::build_commands(&PROGRAMS)?;
    let mut counts = Counts::default();
    let words = ["--quick", "--only", "instructions", "--check-bounds"];
    let command = shell::with(Command::new(shell::built("rcoe-bench")), &words);
    let succeeded = shell::stream(command, |line| {
        if let Some(found) = count::parse(line, count::INSTRUCTIONS) {
            counts.add(found);
        }
    })?;
    Ok(counts.judged(succeeded))
}

/// What chooses the sample of a commit: the beginning of its hash, so that each commit is tried
/// with others and a failure comes again with the seed that was printed.
pub(crate) fn seed() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=7", "HEAD"])
        .current_dir(shell::root());
    let Ok(hash) = shell::output(git) else {
        println!("no commit is known here: the sample is that of seed 1");
        return Ok("1".to_owned());
    };
    let digits = hash.trim().get(..7).context("no hash")?;
    Ok(u64::from_str_radix(digits, 16)?.to_string())
}

/// Fault campaigns: each must end without a single uncontrolled outcome. Few are rare rather than
/// impossible (`docs/FAULTS.md` has their rates), and a sample of this size cannot judge a rate: a
/// campaign with such an outcome is carried out once more, with the next seed unless its seed is a
/// fixed one, and told as flaky if all is well then.
fn faults() -> Result<Counts> {
    shell::build_commands(&PROGRAMS)?;
    let lab = shell::built("rcoe-faultlab");
    let mut counts = Counts::default();
    let seed: u64 = seed()?.parse()?;
    for line in CAMPAIGNS {
        let words = |seed: u64| line.replace("{seed}", &seed.to_string());
        let command = |seed| {
            let words = words(seed);
            let words = words.split(' ').collect::<Vec<_>>();
            shell::with(Command::new(&lab), &words)
        };
        let told = format!("rcoe-faultlab {}", words(seed));
        println!("{told}");
        let tries = [seed, seed + 1].map(command);
        counts.add(failures::check_twice(&told, tries)?);
    }
    counts.add(prove::check()?);
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn finished(counts: Counts) -> Finished {
        let came = Came {
            counts,
            took: Duration::default(),
            slowest: Vec::new(),
            failures: Vec::new(),
        };
        ("planted", came)
    }

    #[test]
    fn a_planted_failure_fails_the_whole() {
        let (good, wrong) = (Counts::one(true), Counts::one(false));
        assert!(summarise(&[finished(good)]));
        assert!(!summarise(&[finished(good), finished(wrong)]));
        assert!(!summarise(&[]));
    }

    #[test]
    fn stages_can_be_chosen() {
        let only = Choice {
            only: vec!["fmt".to_owned()],
            ..Choice::default()
        };
        assert!(only.wants("fmt") && !only.wants("tidy"));
        let skip = Choice {
            skip: vec!["fmt".to_owned()],
            ..Choice::default()
        };
        assert!(!skip.wants("fmt") && skip.wants("tidy"));
        let typo = Choice {
            only: vec!["typo".to_owned()],
            ..Choice::default()
        };
        assert!(run(&typo).is_err());
        let typo = Choice {
            part: Some("typo".to_owned()),
            ..Choice::default()
        };
        assert!(run(&typo).is_err());
    }

    #[test]
    fn each_stage_is_in_one_group() {
        let mut names: Vec<&str> = stages().map(|stage| stage.0).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
