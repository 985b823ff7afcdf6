//! Prints what came of the modules: progress, and the page's tables.

use std::fmt::Write as _;

use super::plan::Plan;
use super::run::{Difference, Found, Row};

impl Found {
    /// The words for tables.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Failed => "fails",
            Self::Skipped => "skips itself",
            Self::Missing => "did not come to run",
            Self::Unfinished => "did not end",
            Self::LeftOut => "left out: hangs",
            Self::PassedLater => "passed at the second attempt",
            Self::Passed => "passed",
        }
    }
}

/// What a difference that counts as a failure means for whoever reads it.
fn finding(difference: &Difference) -> String {
    let Difference { case, found, known } = difference;
    match known {
        None => format!("{case}: {}, without an explanation", found.words()),
        Some(known) => {
            let (found, expected) = (found.words(), known.outcome.word());
            format!("{case}: {found}; by its explanation it {expected}")
        }
    }
}

/// One line for a finished module, and one for each finding.
#[must_use]
pub fn progress(done: usize, all: usize, row: &Row) -> String {
    let [plain, replicated] = row.took.map(|took| took.as_secs_f64());
    let mut line = format!(
        "[{done:>3}/{all}] {:<26} {:>4} of {:>4} pass  {plain:.1} s, {replicated:.1} s",
        row.module, row.replicated, row.native
    );
    if let Some(reason) = &row.unusable {
        let _ = write!(line, "\n          UNUSABLE {reason}");
    }
    let missing = |it: &&Difference| it.found == Found::Missing && it.known.is_none();
    let count = row.differences.iter().filter(missing).count();
    if count > 0 {
        let _ = write!(line, "\n          {count} cases did not come to run");
    }
    for difference in row.differences.iter().filter(|it| !missing(it)) {
        if difference.is_finding() {
            let _ = write!(line, "\n          {}", finding(difference));
        } else if difference.found == Found::PassedLater {
            let _ = write!(
                line,
                "\n          {}: {}",
                difference.case,
                Found::PassedLater.words()
            );
        }
    }
    line
}

/// The table of modules, and the lists of what differs.
#[must_use]
pub fn markdown(plan: &Plan, rows: &[Row]) -> String {
    let mut out = String::from(
        "| module | cases | pass natively | pass under rcoe | explained |\n\
         |---|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let Row {
            module,
            cases,
            native,
            replicated,
            differences,
            unusable,
            ..
        } = row;
        let known = differences
            .iter()
            .filter(|it| it.known.is_some() && !it.is_finding());
        let known = known.filter(|it| it.found != Found::Passed).count();
        let mark = if unusable.is_some() || row.findings() > 0 {
            " **FAIL**"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "| {module}{mark} | {cases} | {native} | {replicated} | {known} |"
        );
    }
    out.push_str(&explained(rows));
    out.push_str(&later(rows));
    out.push_str(&left_out(plan, rows));
    out
}

/// The explained differences, those with one reason together.
fn explained(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for row in rows {
        for difference in &row.differences {
            let Some(known) = &difference.known else {
                continue;
            };
            let (standing, module) = (known.standing.word(), &row.module);
            let (case, found) = (&difference.case, difference.found.words());
            let reason = one_line(&known.reason);
            let line = format!("| {module} | `{case}` | {found} | {reason} | {standing} |");
            lines.push(((standing, module, reason), line));
        }
    }
    lines.sort();
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    format!(
        "\n## Cases that differ\n\n\
         *design*: it follows from how rcoe works. *gap*: it can be closed.\n\n\
         | module | case | under rcoe | why | |\n|---|---|---|---|---|\n{}\n",
        lines.join("\n")
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// Cases that hang on time.
fn later(rows: &[Row]) -> String {
    let mut lines = String::new();
    for row in rows {
        let unsteady = row
            .differences
            .iter()
            .filter(|it| it.found == Found::PassedLater);
        for difference in unsteady {
            let _ = writeln!(lines, "* {}: `{}`", row.module, difference.case);
        }
    }
    if lines.is_empty() {
        return lines;
    }
    format!(
        "\n## Cases that passed at the second attempt\n\n\
         They failed once and then passed alone.\n\n{lines}"
    )
}

fn left_out(plan: &Plan, rows: &[Row]) -> String {
    let mut lines = String::new();
    let ran = |module: &str| rows.iter().any(|row| row.module == module);
    for skip in plan.skips.iter().filter(|skip| ran(&skip.module)) {
        let reason = one_line(&skip.reason);
        let _ = writeln!(lines, "* {}: `{}`: {reason}", skip.module, skip.pattern);
    }
    if lines.is_empty() {
        return lines;
    }
    format!("\n## Cases left out of both runs\n\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Expected, Known, Standing};
    use super::*;
    use std::time::Duration;

    fn difference(found: Found, outcome: Option<Expected>) -> Difference {
        let known = outcome.map(|outcome| Known {
            module: "test_x".to_owned(),
            cases: vec!["C.x".to_owned()],
            outcome,
            standing: Standing::Gap,
            reason: "so".to_owned(),
        });
        Difference {
            case: "C.x".to_owned(),
            found,
            known,
        }
    }

    fn row(difference: Difference) -> Row {
        Row {
            module: "test_x".to_owned(),
            cases: 9,
            native: 8,
            replicated: 7,
            differences: vec![difference],
            unusable: None,
            took: [Duration::ZERO; 2],
        }
    }

    #[test]
    fn only_what_is_explained_rightly_is_no_finding() {
        for (found, outcome, is_finding) in [
            (Found::Failed, None, true),
            (Found::Failed, Some(Expected::Fails), false),
            (Found::Failed, Some(Expected::Skips), true),
            (Found::Passed, Some(Expected::Fails), true),
            (Found::Passed, Some(Expected::Varies), false),
            (Found::Missing, Some(Expected::Fails), true),
            (Found::Unfinished, None, true),
            (Found::LeftOut, Some(Expected::Hangs), false),
            (Found::PassedLater, None, false),
        ] {
            let row = row(difference(found, outcome));
            assert_eq!(
                row.findings(),
                usize::from(is_finding),
                "{found:?} {outcome:?}"
            );
        }
    }

    #[test]
    fn a_finding_is_named_and_marked() {
        let plan = Plan::load().unwrap();
        let bad = row(difference(Found::Failed, None));
        assert!(progress(1, 2, &bad).contains("C.x: fails, without an explanation"));
        assert!(markdown(&plan, &[bad]).contains("| test_x **FAIL** | 9 | 8 | 7 | 0 |"));
        let good = row(difference(Found::Failed, Some(Expected::Fails)));
        let page = markdown(&plan, &[good]);
        assert!(page.contains("| test_x | 9 | 8 | 7 | 1 |"), "{page}");
        assert!(
            page.contains("| test_x | `C.x` | fails | so | gap |"),
            "{page}"
        );
    }
}
