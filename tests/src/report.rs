//! Prints what came of the compatibility matrix: progress, a table, Markdown, JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cases::Case;
use crate::matrix::{Mode, Row};

/// Counts of cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cells identical with the native run.
    pub passed: usize,
    /// Cells that differ, and programs that could not be used.
    pub failed: usize,
}

/// Counts the cells of all rows; a rejected program counts as one failure.
#[must_use]
pub fn counts(rows: &[Row]) -> Counts {
    let mut counts = Counts::default();
    for row in rows {
        counts.failed += usize::from(row.rejected.is_some());
        let passed = row
            .cells
            .iter()
            .filter(|cell| cell.difference.is_none())
            .count();
        counts.passed += passed;
        counts.failed += row.cells.len() - passed;
    }
    counts
}

/// One line for a finished program.
#[must_use]
pub fn progress(done: usize, all: usize, case: &Case, row: &Row) -> String {
    let passed = row
        .cells
        .iter()
        .filter(|cell| cell.difference.is_none())
        .count();
    let spent: Duration = row.cells.iter().map(|cell| cell.took).sum();
    let name = &case.name;
    let mut line = match &row.rejected {
        Some(reason) => format!("[{done:>3}/{all}] {name:<22} REJECTED {reason}"),
        None => format!(
            "[{done:>3}/{all}] {name:<22} {passed}/{} identical  {:.1} s",
            row.cells.len(),
            spent.as_secs_f64()
        ),
    };
    for cell in &row.cells {
        if let Some(difference) = &cell.difference {
            let _ = write!(line, "\n          {}: {difference}", cell.mode.name());
        }
    }
    line
}

fn cell_mark(row: &Row, mode: Mode) -> &'static str {
    match row.cells.iter().find(|cell| cell.mode == mode) {
        None => "-",
        Some(cell) if cell.difference.is_none() => "ok",
        Some(_) => "FAIL",
    }
}

/// The rows as a Markdown table.
#[must_use]
pub fn markdown(cases: &[Case], rows: &[Row], modes: &[Mode]) -> String {
    let mut out = String::from("| program | Debian package | link | language |");
    let rule = "---|".repeat(modes.len());
    for mode in modes {
        let _ = write!(out, " {} |", mode.name());
    }
    let _ = writeln!(out, "\n|---|---|---|---|{rule}");
    for row in rows {
        let case = &cases[row.case];
        let (link, language) = (case.link.word(), &case.language);
        let _ = write!(
            out,
            "| {} | {} | {link} | {language} |",
            case.name, case.package
        );
        for mode in modes {
            let _ = write!(out, " {} |", cell_mark(row, *mode));
        }
        out.push('\n');
    }
    out
}

/// The rows as JSON.
#[must_use]
pub fn as_json(cases: &[Case], rows: &[Row]) -> Value {
    let row_json = |row: &Row| {
        let cells: Vec<Value> = row
            .cells
            .iter()
            .map(|cell| {
                json!({
                    "n": cell.mode.replicas,
                    "compare": cell.mode.compare,
                    "passed": cell.difference.is_none(),
                    "difference": cell.difference,
                    "seconds": cell.took.as_secs_f64(),
                })
            })
            .collect();
        json!({
            "name": cases[row.case].name,
            "package": cases[row.case].package,
            "rejected": row.rejected,
            "native_seconds": row.native.as_secs_f64(),
            "cells": cells,
        })
    };
    let counts = counts(rows);
    json!({
        "passed": counts.passed,
        "failed": counts.failed,
        "rows": rows.iter().map(row_json).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Cell;

    fn rows() -> Vec<Row> {
        let cell = |difference: Option<&str>| Cell {
            mode: Mode {
                replicas: 2,
                compare: "io",
            },
            difference: difference.map(str::to_owned),
            took: Duration::default(),
        };
        let row = |rejected: Option<&str>, cells| Row {
            case: 0,
            rejected: rejected.map(str::to_owned),
            cells,
            native: Duration::default(),
        };
        vec![
            row(None, vec![cell(None), cell(Some("x"))]),
            row(Some("y"), Vec::new()),
        ]
    }

    #[test]
    fn differing_cells_and_rejected_programs_count_as_failed() {
        assert_eq!(
            counts(&rows()),
            Counts {
                passed: 1,
                failed: 2
            }
        );
    }
}
