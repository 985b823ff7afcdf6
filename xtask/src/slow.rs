//! Which tests took longest, told by when their lines came.
//!
//! The test harness does not say how long a test takes. But it starts tests in the order of their
//! names, as many at once as it has threads, and the next one whenever one ends: so the order of
//! names and the moments of ends tell when each began.
//!
//! Not covered: tests whose lines are not lines of their own, such as those of documentation.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::shell;

/// Tests that are told.
const TOLD: usize = 10;

/// The slowest of each run of test programs since they were last asked for.
static SLOWEST: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// The slowest tests of all programs that ran since this was last asked, in no order.
pub(crate) fn take() -> Vec<(Duration, String)> {
    std::mem::take(&mut *SLOWEST.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Prints the slowest of these, each with the stage it belongs to, slowest first.
pub(crate) fn tell(mut tests: Vec<(Duration, String, &str)>) {
    tests.sort_unstable_by(|a, b| b.cmp(a));
    println!("\nthe slowest tests:");
    for (took, name, stage) in tests.iter().take(TOLD) {
        println!("{:>7.1} s  {name} ({stage})", took.as_secs_f64());
    }
}

/// Watches the lines of test programs, one after the other.
pub(crate) struct Watch {
    threads: usize,
    /// When the present program began.
    begun: Instant,
    /// Its tests, in the order of their ends.
    ended: Vec<(String, Instant)>,
    /// How long each test of earlier programs took.
    taken: Vec<(Duration, String)>,
}

impl Watch {
    /// Watches programs with so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads,
            begun: Instant::now(),
            ended: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// With as many threads as the harness has if nobody says otherwise.
    pub(crate) fn of_this_machine() -> Self {
        let wished = std::env::var("RUST_TEST_THREADS").ok();
        let wished = wished.and_then(|text| text.parse().ok());
        Self::new(wished.unwrap_or_else(shell::cores))
    }

    /// A line came now.
    pub(crate) fn line(&mut self, line: &str, now: Instant) {
        if line.starts_with("running ") {
            self.begun = now;
            self.ended.clear();
        } else if line.starts_with("test result: ") {
            self.settle();
        } else if let Some(name) = ended(line) {
            self.ended.push((name.to_owned(), now));
        }
    }

    /// The program is over: finds out when each of its tests began.
    fn settle(&mut self) {
        let mut names: Vec<String> = self.ended.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        let mut waiting = names.into_iter();
        let first = waiting.by_ref().take(self.threads);
        let mut begun: HashMap<String, Instant> = first.map(|name| (name, self.begun)).collect();
        for (name, end) in self.ended.drain(..) {
            // One that is not in order began at some unknown moment.
            if let Some(start) = begun.remove(&name) {
                self.taken.push((end - start, name));
            }
            begun.extend(waiting.next().map(|next| (next, end)));
        }
    }

    /// Takes over what another one, of a program beside, has seen.
    pub(crate) fn join(&mut self, other: Self) {
        self.taken.extend(other.taken);
    }

    /// The slowest tests, slowest first.
    pub(crate) fn slowest(mut self) -> Vec<(Duration, String)> {
        self.taken.sort_unstable_by(|a, b| b.cmp(a));
        self.taken.truncate(TOLD);
        self.taken
    }

    /// Keeps them until somebody [takes](take) them.
    pub(crate) fn keep(self) {
        let mut all = SLOWEST.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(self.slowest());
    }
}

/// The test that a line says has ended.
fn ended(line: &str) -> Option<&str> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let is_result = ["ok", "FAILED", "ignored"]
        .iter()
        .any(|it| result.starts_with(it));
    (is_result && !name.contains(' ')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lines that come after so many seconds tell.
    fn slowest(threads: usize, lines: &[(u64, &str)]) -> Vec<(u64, String)> {
        let mut watch = Watch::new(threads);
        let zero = Instant::now();
        for (seconds, line) in lines {
            watch.line(line, zero + Duration::from_secs(*seconds));
        }
        let told = watch.slowest().into_iter();
        told.map(|(took, name)| (took.as_secs(), name)).collect()
    }

    #[test]
    fn each_test_begins_when_one_before_it_ends() {
        let lines = [
            (5, "running 4 tests"),
            (7, "test b ... ok"),
            (8, "some words of a program"),
            (10, "test c ... FAILED"),
            (11, "test d ... ignored, why"),
            (35, "test a ... ok"),
            (35, "test result: FAILED. 2 passed; 1 failed; 1 ignored"),
            (50, "running 1 test"),
            (60, "test x::y ... ok"),
            (60, "test result: ok. 1 passed; 0 failed"),
        ];
        let told = [(30, "a"), (10, "x::y"), (3, "c"), (2, "b"), (1, "d")];
        let told = told.map(|(took, name)| (took, name.to_owned()));
        assert_eq!(slowest(2, &lines), told);
    }

    #[test]
    fn only_the_slowest_are_told() {
        let names: Vec<String> = (0..15).map(|at| format!("test t{at:02} ... ok")).collect();
        let mut lines = vec![(0, "running 15 tests")];
        let mut end = 0;
        for (took, name) in names.iter().enumerate() {
            end += took as u64;
            lines.push((end, name));
        }
        lines.push((end, "test result: ok."));
        let told = slowest(1, &lines);
        assert_eq!(told.len(), TOLD);
        assert_eq!(told[0], (14, "t14".to_owned()));
        assert_eq!(told[9], (5, "t05".to_owned()));
    }

    #[test]
    fn what_is_out_of_order_is_not_told() {
        let lines = [
            (0, "running 2 tests"),
            (1, "test b ... ok"),
            (3, "test a ... ok"),
            (3, "test result: ok."),
        ];
        assert_eq!(slowest(1, &lines), [(3, "a".to_owned())]);
    }

    #[test]
    fn lines_that_tell_of_no_end_are_passed_over() {
        for line in ["", "test a ... ", "test a has been running", "a ... ok"] {
            assert_eq!(ended(line), None, "{line}");
        }
        assert_eq!(ended("test src/lib.rs - it (line 3) ... ok"), None);
    }
}
