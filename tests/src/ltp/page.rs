//! Prints what came of the tests: findings, and the page's tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::plan::{Plan, Sphere};
use super::run::{Difference, Row};

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
        None => format!("{test}: {found}; on Linux {native}; without an explanation"),
        Some(_) => format!("{test}: as on Linux, though an explanation says that it is not"),
    }
}

/// Differences that count as failures.
pub fn findings(rows: &[Row]) -> impl Iterator<Item = &Difference> {
    let differences = rows.iter().flat_map(|row| &row.differences);
    differences.filter(|it| it.is_finding())
}

/// Sums of all calls: tests, those that pass on Linux, and those that say the same; and checks.
#[must_use]
pub fn sums(rows: &[Row]) -> [usize; 5] {
    let mut all = [0; 5];
    for row in rows {
        for (sum, count) in all.iter_mut().zip(counts(row)) {
            *sum += count;
        }
    }
    all
}

const fn counts(row: &Row) -> [usize; 5] {
    let ([tests, checks], [same, passed]) = (row.native, row.replicated);
    [row.tests, tests, same, checks, passed]
}

/// The table of calls, and the lists of what differs and of what says nothing.
#[must_use]
pub fn markdown(plan: &Plan, sphere: Sphere, rows: &[Row], unbuilt: &[String]) -> String {
    let place = sphere.place();
    let mut out = format!(
        "| call | tests | pass on Linux | the same {place} | checks passed on Linux | {place} |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        line(&mut out, &format!("`{}`", row.call), counts(row));
    }
    line(&mut out, "all", sums(rows));
    out.push_str(&explained(rows, place));
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

fn line(out: &mut String, name: &str, counts: [usize; 5]) {
    let counts = counts.map(|it| it.to_string());
    let _ = writeln!(out, "| {name} | {} |", counts.join(" | "));
}

/// Names that have one reason, so many in a point of the list as one can read.
fn list(out: &mut String, names: &[String], reason: &str) {
    for names in names.chunks(READABLE) {
        let _ = writeln!(out, "* `{}`: {}", names.join("`, `"), one_line(reason));
    }
}

/// The differences, those with one reason together.
fn explained(rows: &[Row], place: &str) -> String {
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
         | test | on Linux | {place} | why | |\n|---|---|---|---|---|\n{}\n",
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
    use super::super::told::Result as Found;
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
            replicated: [7, 29],
            differences: vec![Difference {
                test: "a01".to_owned(),
                native,
                found,
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
        let page = markdown(&plan, Sphere::System, &rows, &["b01".to_owned()]);
        for line in [
            "| `a` | 9 | 8 | 7 | 30 | 29 |",
            "| all | 18 | 16 | 14 | 60 | 58 |",
            "| `a01` | 2 passed | 1 passed | so | gap |",
            "| `a01` | 2 passed | 1 passed | **not explained** |  |",
            "* `a02` (did not end)",
            "* `b01`: not built here",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(finding(&rows[1].differences[0]).contains("a01: 1 passed; on Linux 2 passed"));
    }
}
