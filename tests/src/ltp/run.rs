//! Runs the tests on Linux and as replicas, and compares.
//!
//! A run that ends within a test, or gets no further, is begun again behind it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::places::{self, Place};
use super::plan::{Known, Plan, Sphere};
use super::results::{ByReplicas, LINUX, Results};
use super::source::Test;
use super::told::{Result as Found, Told};
use crate::busybox::run::finish;
use crate::launch;

/// Tests that are run in one machine at most: their programs have to fit in.
const TESTS: usize = 24;
/// How much longer than a test a run may be without a word.
const GRACE: Duration = Duration::from_secs(45);

/// How tests are run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which of rcoe's spheres.
    pub sphere: Sphere,
    /// Numbers of replicas, each of which is tried.
    pub replicas: Vec<u32>,
    /// Machines, or programs as replicas, at once.
    pub at_once: usize,
    /// Longest time for a test, in seconds.
    pub limit: u64,
    /// The busybox.
    pub busybox: PathBuf,
}

/// A test that passes on Linux and says something else as replicas, or is said to.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its name.
    pub test: String,
    /// What it came to on Linux.
    pub native: Found,
    /// What it came to as replicas, by each number of them.
    pub found: Vec<Found>,
    /// The explanation in the plan, if there is one.
    pub known: Option<Known>,
    /// What it said as replicas, of each number of them.
    pub said: String,
}

impl Difference {
    /// Does it say that something is wrong with rcoe, or with the plan?
    #[must_use]
    pub fn is_finding(&self) -> bool {
        match &self.known {
            None => true,
            Some(known) => self.found.contains(&self.native) && !known.varies,
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
    /// Of these, as replicas, by each number of them; tests, if they say the same in all.
    pub replicated: Vec<[usize; 2]>,
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
    let rest = runs.rest(LINUX, tests);
    tell(&format!("{} tests on Linux", rest.len()));
    runs.on_linux(&rest)?;
    for replicas in &settings.replicas {
        let rest = runs.rest(*replicas, tests);
        let count = rest.len();
        tell(&format!(
            "{count} tests that pass there, replicas: {replicas}"
        ));
        runs.as_replicas(*replicas, &rest)?;
    }
    let known = results.into_known();
    let mut rows: Vec<Row> = Vec::new();
    for test in tests {
        let at = rows.iter().position(|it| it.call == test.call);
        let at = at.unwrap_or_else(|| {
            rows.push(Row {
                call: test.call.clone(),
                replicated: vec![[0; 2]; settings.replicas.len()],
                ..Row::default()
            });
            rows.len() - 1
        });
        compare(plan, test, (&known, &settings.replicas), &mut rows[at]);
    }
    Ok(rows)
}

/// Adds what a test came to on Linux and with each number of replicas.
fn compare(plan: &Plan, test: &Test, (told, replicas): (&ByReplicas, &[u32]), row: &mut Row) {
    let name = &test.name;
    let of = |place: &u32| told.get(place).map(|it| it.of(name)).unwrap_or_default();
    let (on_linux, found) = (of(&LINUX), replicas.iter().map(of).collect::<Vec<_>>());
    row.tests += 1;
    if !on_linux.is_passed() {
        row.elsewhere.push((name.clone(), on_linux));
        return;
    }
    row.native[0] += 1;
    row.native[1] += on_linux.passed;
    for (sum, found) in row.replicated.iter_mut().zip(&found) {
        sum[0] += usize::from(*found == on_linux);
        sum[1] += found.passed.min(on_linux.passed);
    }
    let known = plan.known(name);
    if known.is_none() && found.iter().all(|it| *it == on_linux) {
        return;
    }
    let said = replicas
        .iter()
        .filter_map(|it| told.get(it)?.said.get(name));
    row.differences.push(Difference {
        test: name.clone(),
        native: on_linux,
        found,
        known: known.cloned(),
        said: said.cloned().collect(),
    });
}

fn patience(settings: &Settings) -> Duration {
    Duration::from_secs(settings.limit) + GRACE
}

impl<F: Fn(&str) + Sync> Runs<'_, F> {
    /// The tests that are to be run: on Linux, or as replicas those that pass there.
    fn rest(&self, replicas: u32, tests: &[Test]) -> Vec<Test> {
        let is_wanted = |it: &Test| replicas == LINUX || self.results.passed(&it.name);
        let all = tests.iter();
        let all = all.filter(|it| !self.results.has(replicas, &it.name) && is_wanted(it));
        all.cloned().collect()
    }

    /// Runs tests as processes.
    fn on_linux(&self, tests: &[Test]) -> Result<()> {
        self.run(LINUX, &places::on_linux(self.settings, tests)?, tests)
    }

    /// Runs tests as replicas, some of these at once.
    fn as_replicas(&self, replicas: u32, tests: &[Test]) -> Result<()> {
        let queue: Mutex<VecDeque<&[Test]>> = Mutex::new(tests.chunks(TESTS).collect());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.settings.at_once {
                scope.spawn(|| {
                    // The lock is held to take a part, not while it is run.
                    let next = || lock(&queue).pop_front();
                    while let Some(tests) = next() {
                        let place = places::of_sphere(self.settings, replicas, tests);
                        let done = place.and_then(|place| self.run(replicas, &place, tests));
                        if let Err(error) = done {
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

    /// Runs tests in a place, and behind a test that ended it again.
    fn run(&self, replicas: u32, place: &Place, tests: &[Test]) -> Result<()> {
        self.again_and_again(replicas, tests, |rest| {
            place.set_list(rest)?;
            let running = launch::start(&place.argv, place.folder(), None)?;
            let (output, errors) = finish(running, patience(self.settings))?;
            for line in errors.lines().filter(|it| !it.trim().is_empty()) {
                (self.tell)(&format!("| {line}"));
            }
            Ok(output)
        })
    }

    /// Runs tests until all have ended or were given up.
    fn again_and_again(
        &self,
        replicas: u32,
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
                self.results.add(replicas, &test.name, &told)?;
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
            sphere: Sphere::System,
            replicas: vec![1],
            at_once: 1,
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
        let (settings, results) = (settings(), Results::new(Sphere::System));
        let runs = Runs {
            settings: &settings,
            results: &results,
            tell: &|_: &str| {},
        };
        let mut lists = Vec::new();
        let run = |rest: &[Test]| {
            lists.push(rest.iter().map(|it| it.name.clone()).collect::<Vec<_>>());
            Ok(if rest.len() == 3 {
                "@ begin a01\nTPASS\n@ end a01 0\n@ begin a02\nTPASS".to_owned()
            } else {
                String::new()
            })
        };
        runs.again_and_again(LINUX, &tests, run).unwrap();
        assert!(runs.rest(LINUX, &tests).is_empty());
        assert_eq!(runs.rest(1, &tests), tests[..1]);
        let told = &results.into_known()[&LINUX];
        assert_eq!(lists, [vec!["a01", "a02", "a03"], vec!["a03"]]);
        assert!(told.of("a01").is_passed());
        assert_eq!(told.of("a02").to_string(), "1 passed, did not end");
        assert_eq!(told.of("a03").to_string(), "did not end");
    }

    #[test]
    fn only_tests_that_pass_on_linux_and_say_the_same_count() {
        let plan = Plan::load(Sphere::System).unwrap();
        let mut told = ByReplicas::new();
        let texts = [
            "@ begin a01\nTPASS\nTPASS\n@ end a01 0\n@ begin a02\nTCONF\n@ end a02 32\n",
            "@ begin a01\nTPASS\nTFAIL\n@ end a01 1\n@ begin a02\nTPASS\n@ end a02 0\n",
        ];
        for (place, text) in [LINUX, 1, 2]
            .into_iter()
            .zip([texts[0], texts[1], texts[0]])
        {
            told.entry(place).or_default().read(text);
        }
        let row = |replicas: &[u32]| {
            let mut row = Row {
                replicated: vec![[0; 2]; replicas.len()],
                ..Row::default()
            };
            for name in ["a01", "a02"] {
                compare(&plan, &test(name), (&told, replicas), &mut row);
            }
            row
        };
        let both = row(&[1, 2]);
        assert_eq!((both.tests, both.native), (2, [1, 2]));
        assert_eq!(both.replicated, [[0, 1], [1, 2]]);
        assert_eq!(both.elsewhere[0].0, "a02");
        assert!(both.differences[0].is_finding());
        let same = row(&[2]);
        assert!(same.differences.is_empty() && same.replicated == [[1, 2]]);
        // What was not run says nothing, which is not the same.
        assert_eq!(row(&[3]).replicated, [[0, 0]]);
    }
}
