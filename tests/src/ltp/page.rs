//! Prints what came of the tests: findings, and the page's tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::plan::{Plan, Sphere};
use super::run::{Difference, Row};
use super::told::Result as Found;

/// Most names in one point of a list.
const READABLE: usize = 40;

/// What a difference that counts as a failure means for whoever reads it.
#[must_use]
pub fn finding(difference: &Difference) -> String {
    let Difference {
        test,
        native,
        found,
        known,
        ..
    } = difference;
    match known {
        None => format!(
            "{test}: {}; on Linux {native}; without an explanation",
            listed(found)
        ),
        Some(_) => format!("{test}: as on Linux, though an explanation says that it is not"),
    }
}

/// What a test came to by each number of replicas.
fn listed(found: &[Found]) -> String {
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    found.join(" | ")
}

/// Differences that count as failures.
pub fn findings(rows: &[Row]) -> impl Iterator<Item = &Difference> {
    let differences = rows.iter().flat_map(|row| &row.differences);
    differences.filter(|it| it.is_finding())
}

/// Counts of a call, or of all: those of a row without names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests.
    pub tests: usize,
    /// Of these, passed on Linux, and checks in them that did.
    pub native: [usize; 2],
    /// Of these, the same as replicas, by each number of them.
    pub replicated: Vec<[usize; 2]>,
}

impl Counts {
    fn add(&mut self, row: &Row) {
        self.tests += row.tests;
        add(&mut self.native, &row.native);
        let len = row.replicated.len().max(self.replicated.len());
        self.replicated.resize(len, [0; 2]);
        for (sum, counts) in self.replicated.iter_mut().zip(&row.replicated) {
            add(sum, counts);
        }
    }

    fn line(&self, out: &mut String, name: &str) {
        let [tests, checks] = [0, 1].map(|at| {
            let of_replicas = self.replicated.iter().map(|it| it[at]);
            let all = std::iter::once(self.native[at]).chain(of_replicas);
            all.map(|it| it.to_string()).collect::<Vec<_>>().join(" | ")
        });
        let _ = writeln!(out, "| {name} | {} | {tests} | {checks} |", self.tests);
    }
}

fn add(sums: &mut [usize; 2], counts: &[usize; 2]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// Sums of all calls.
#[must_use]
pub fn sums(rows: &[Row]) -> Counts {
    let mut all = Counts::default();
    for row in rows {
        all.add(row);
    }
    all
}

/// How many tests say the same with each number of replicas, a sentence each.
#[must_use]
pub fn headlines(replicas: &[u32], rows: &[Row]) -> Vec<String> {
    let Counts {
        native, replicated, ..
    } = sums(rows);
    let [native, _] = native;
    let each = replicas.iter().zip(replicated);
    each.map(|(n, [same, _])| {
        format!("{same} of {native} tests that pass on Linux say the same with n = {n}.")
    })
    .collect()
}

/// The table of calls, and the lists of what differs and of what says nothing.
#[must_use]
pub fn markdown(
    plan: &Plan,
    (sphere, replicas): (Sphere, &[u32]),
    rows: &[Row],
    unbuilt: &[String],
) -> String {
    let places = columns(sphere, replicas);
    let mut out = format!(
        "| call | tests | pass on Linux | the same {} | checks passed on Linux | {} |\n|---|{}\n",
        places.join(" | the same "),
        places.join(" | "),
        "---:|".repeat(3 + 2 * places.len()),
    );
    for row in rows {
        sums(std::slice::from_ref(row)).line(&mut out, &format!("`{}`", row.call));
    }
    sums(rows).line(&mut out, "all");
    out.push_str(&explained(rows, &places));
    out.push_str(&elsewhere(rows));
    out.push_str("\n## Tests that are run nowhere\n\n");
    list(&mut out, unbuilt, "not built here");
    for skip in &plan.skips {
        list(&mut out, &skip.tests, &skip.reason);
    }
    out.push_str("\n## Calls that are not tried\n\n");
    for absent in &plan.absents {
        list(&mut out, &absent.calls, &absent.reason);
    }
    out
}

/// Where tests ran, for the heads of columns: by the number of replicas, if there are several.
fn columns(sphere: Sphere, replicas: &[u32]) -> Vec<String> {
    match replicas {
        [_] => vec![sphere.place().to_owned()],
        several => several.iter().map(|it| format!("with n = {it}")).collect(),
    }
}

/// Names that have one reason, so many in a point of the list as one can read.
fn list(out: &mut String, names: &[String], reason: &str) {
    for names in names.chunks(READABLE) {
        let _ = writeln!(out, "* `{}`: {}", names.join("`, `"), one_line(reason));
    }
}

/// The differences, those with one reason together.
fn explained(rows: &[Row], places: &[String]) -> String {
    let mut lines = BTreeSet::new();
    for difference in rows.iter().flat_map(|row| &row.differences) {
        let Difference {
            test,
            native,
            found,
            known,
            ..
        } = difference;
        let (reason, standing) = match known {
            Some(known) => (one_line(&known.reason), known.standing.word()),
            None => ("**not explained**".to_owned(), ""),
        };
        let found = listed(found);
        let line = format!("| `{test}` | {native} | {found} | {reason} | {standing} |");
        lines.insert((standing, reason, line));
    }
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = lines.into_iter().map(|(.., line)| line).collect();
    format!(
        "\n## Tests that differ\n\n\
         *design*: it follows from how rcoe works. *gap*: it can be closed.\n\n\
         | test | on Linux | {} | why | |\n|---|---|{}---|---|\n{}\n",
        places.join(" | "),
        "---|".repeat(places.len()),
        lines.join("\n")
    )
}

/// Tests that do not pass on Linux, by what they come to there.
fn elsewhere(rows: &[Row]) -> String {
    let mut out = String::from("\n## Tests that do not pass on Linux here\n\n");
    for row in rows {
        for tests in row.elsewhere.chunks(READABLE / 4) {
            let tests = tests.iter();
            let tests = tests.map(|(name, found)| format!("`{name}` ({found})"));
            let _ = writeln!(out, "* {}", tests.collect::<Vec<_>>().join(", "));
        }
    }
    out
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::plan::Known;
    use super::*;
    use crate::cpython::plan::Standing;

    fn row(passed: usize, explained: bool) -> Row {
        let [native, found] = [2, passed].map(|passed| Found {
            passed,
            status: Some(0),
            ..Found::default()
        });
        let known = Known {
            tests: vec!["a01".to_owned()],
            varies: false,
            standing: Standing::Gap,
            reason: "so".to_owned(),
        };
        Row {
            call: "a".to_owned(),
            tests: 9,
            native: [8, 30],
            replicated: vec![[7, 29], [8, 30]],
            differences: vec![Difference {
                test: "a01".to_owned(),
                native,
                found: vec![found; 2],
                known: explained.then_some(known),
                said: String::new(),
            }],
            elsewhere: vec![("a02".to_owned(), Found::default())],
        }
    }

    #[test]
    fn only_what_is_explained_rightly_is_no_finding() {
        for (passed, explained, is_finding) in [(1, false, true), (1, true, false), (2, true, true)]
        {
            let rows = [row(passed, explained)];
            assert_eq!(findings(&rows).count(), usize::from(is_finding), "{passed}");
        }
    }

    #[test]
    fn the_page_has_counts_differences_and_what_says_nothing() {
        let plan = Plan::load(Sphere::System).unwrap();
        let rows = [row(1, true), row(1, false)];
        let page = markdown(&plan, (Sphere::System, &[1, 2]), &rows, &["b01".to_owned()]);
        for line in [
            "the same with n = 1 | the same with n = 2 | checks passed on Linux | with n = 1",
            "| `a` | 9 | 8 | 7 | 8 | 30 | 29 | 30 |",
            "| all | 18 | 16 | 14 | 16 | 60 | 58 | 60 |",
            "| `a01` | 2 passed | 1 passed | 1 passed | so | gap |",
            "| `a01` | 2 passed | 1 passed | 1 passed | **not explained** |  |",
            "* `a02` (did not end)",
            "* `b01`: not built here",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        let lines = headlines(&[1, 2], &rows);
        assert!(lines[1].starts_with("16 of 16") && lines[0].ends_with("n = 1."));
        assert!(finding(&rows[1].differences[0]).contains("a01: 1 passed | 1 passed; on"));
    }
}
