//! Prints what came of the tests: each folder when it is done, and the page's tables.

use std::fmt::Write as _;

use super::plan::Plan;
use super::run::{Difference, Row};
use super::verdicts::Verdict;

/// What a difference that counts as a failure means for whoever reads it.
fn finding(difference: &Difference) -> String {
    let Difference { case, found, known } = difference;
    let found = listed(found);
    match known {
        None => format!("{case}: {found}, without an explanation"),
        Some(_) => format!("{case}: {found}, though an explanation says that it does not"),
    }
}

/// What a case came to by each number of replicas.
fn listed(found: &[Verdict]) -> String {
    let words: Vec<&str> = found.iter().map(|it| it.word()).collect();
    words.join(" | ")
}

/// One line for a group that is done, and one for each finding; with all remarks if wanted.
#[must_use]
pub fn progress(row: &Row, remarks: bool) -> String {
    let counts: Vec<String> = row.replicated.iter().map(usize::to_string).collect();
    let counts = counts.join(" | ");
    let mut text = format!("{:<16} {counts:>4} of {:>4} pass", row.group, row.native);
    for difference in row.differences.iter().filter(|it| it.is_finding()) {
        let _ = write!(text, "\n    {}", finding(difference));
    }
    for remark in row.remarks.iter().filter(|_| remarks) {
        let _ = write!(text, "\n{remark}");
    }
    text
}

/// How many cases pass with each number of replicas, a sentence each.
#[must_use]
pub fn headlines(replicas: &[u32], rows: &[Row]) -> Vec<String> {
    let native: usize = rows.iter().map(|it| it.native).sum();
    let each = replicas.iter().enumerate();
    each.map(|(at, n)| {
        let passed: usize = rows.iter().map(|it| it.replicated[at]).sum();
        format!("{passed} of {native} cases that pass on Linux pass in the machine with n = {n}.")
    })
    .collect()
}

/// The table of groups, and the lists of what differs and of what is not run.
#[must_use]
pub fn markdown(plan: &Plan, replicas: &[u32], rows: &[Row]) -> String {
    let columns: Vec<String> = replicas.iter().map(|it| format!("with n = {it}")).collect();
    let mut out = format!(
        "| tests | cases | pass on Linux | {} | explained |\n|---|{}\n",
        columns.join(" | "),
        "---:|".repeat(3 + columns.len()),
    );
    let mut all: Vec<usize> = vec![0; 3 + columns.len()];
    for row in rows {
        let explained = row.differences.iter().filter(|it| !it.is_finding());
        let mut counts = vec![row.cases, row.native];
        counts.extend(&row.replicated);
        counts.push(explained.count());
        let mark = if findings(row) > 0 { " **FAIL**" } else { "" };
        line(&mut out, &format!("{}{mark}", row.group), &counts);
        for (sum, count) in all.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    line(&mut out, "all", &all);
    out.push_str(&explained(rows, &columns));
    out.push_str("\n## Tests that are run nowhere\n\n");
    for unit in rows.iter().flat_map(|it| &it.unended) {
        let _ = writeln!(out, "* `{unit}`: does not end on Linux");
    }
    for skip in &plan.skips {
        let _ = writeln!(
            out,
            "* `{}`: {}",
            skip.units.join("`, `"),
            one_line(&skip.reason)
        );
    }
    out
}

fn line(out: &mut String, name: &str, counts: &[usize]) {
    let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
    let _ = writeln!(out, "| {name} | {} |", counts.join(" | "));
}

/// Differences that count as failures.
#[must_use]
pub fn findings(row: &Row) -> usize {
    row.differences.iter().filter(|it| it.is_finding()).count()
}

/// The explained differences, those with one reason together.
fn explained(rows: &[Row], columns: &[String]) -> String {
    let mut lines = Vec::new();
    for difference in rows.iter().flat_map(|row| &row.differences) {
        let Difference { case, found, known } = difference;
        if let Some(known) = known {
            let (standing, reason) = (known.standing.word(), one_line(&known.reason));
            let case = case.replace('|', "\\|");
            let line = format!("| `{case}` | {} | {reason} | {standing} |", listed(found));
            lines.push(((standing, reason), line));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    lines.sort();
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    format!(
        "\n## Cases that differ\n\n\
         *design*: it follows from how rcoe works. *gap*: it can be closed.\n\n\
         | case | {} | why | |\n|---|{}---|---|\n{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len()),
        lines.join("\n")
    )
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::plan::Known;
    use super::super::verdicts::Verdict;
    use super::*;
    use crate::cpython::plan::Standing;

    fn row(found: Verdict, explained: bool) -> Row {
        let known = Known {
            cases: vec!["a/b".to_owned()],
            varies: false,
            standing: Standing::Gap,
            reason: "so".to_owned(),
        };
        Row {
            group: "ash-a".to_owned(),
            cases: 9,
            native: 8,
            replicated: vec![7; 2],
            differences: vec![Difference {
                case: "a/b".to_owned(),
                found: vec![found; 2],
                known: explained.then_some(known),
            }],
            unended: vec!["a/c".to_owned()],
            remarks: vec!["a/b:\n| why".to_owned()],
        }
    }

    #[test]
    fn only_what_is_explained_rightly_is_no_finding() {
        for (found, explained, is_finding) in [
            (Verdict::Failed, false, true),
            (Verdict::Failed, true, false),
            (Verdict::Unfinished, true, false),
            (Verdict::Passed, true, true),
        ] {
            let row = row(found, explained);
            assert_eq!(findings(&row), usize::from(is_finding), "{found:?}");
        }
    }

    #[test]
    fn a_finding_is_named_and_marked() {
        let plan = Plan::load().unwrap();
        let bad = row(Verdict::Failed, false);
        let text = progress(&bad, false);
        assert!(
            text.contains("a/b: fails | fails, without an explanation"),
            "{text}"
        );
        assert!(!text.contains("why") && progress(&bad, true).contains("| why"));
        assert!(
            markdown(&plan, &[1, 2], &[bad]).contains("| ash-a **FAIL** | 9 | 8 | 7 | 7 | 0 |")
        );
        let rows = [row(Verdict::Failed, true)];
        let page = markdown(&plan, &[1, 2], &rows);
        assert!(page.contains("| ash-a | 9 | 8 | 7 | 7 | 1 |"), "{page}");
        assert!(
            page.contains("| `a/b` | fails | fails | so | gap |"),
            "{page}"
        );
        assert!(page.contains("`a/c`: does not end on Linux"), "{page}");
        let [_, last] = headlines(&[1, 2], &rows).try_into().unwrap();
        assert!(
            last.starts_with("7 of 8") && last.ends_with("n = 2."),
            "{last}"
        );
    }
}
