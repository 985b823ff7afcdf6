//! Bounds of what was counted, kept in one table file: no cell grows unnoticed.
//!
//! A row is the kind of call, the number of replicas, the most instructions and the most host calls
//! of one iteration, in columns that tabs separate. Bounds are two in a hundred above what was
//! counted when they were written; host calls have no such room. A cell without a row, and a row
//! without a cell, is a failure too. Of a clock read the host's vDSO is a part. It
//! is not the same on all hosts, so its bound is wider; and it begins anew whenever the host sets
//! its clock meanwhile, which stepping makes likely, so the least counts there and not the median.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{CELLS, HOST_CALLS, REPLICAS, spread};
use crate::sample::Series;

/// Begins every table.
const HEAD: &str = "# Most instructions and host calls of one iteration; written by\n\
                    # cargo xtask bench --only instructions --update-bounds\n\
                    # kind\treplicas\tinstructions\thost calls\n";

/// What a bound adds to what was counted.
const ROOM: f64 = 1.02;
/// The same where the host's vDSO is counted, too.
const ROOM_OF_VDSO: f64 = 1.5;

/// One row.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    kind: String,
    replicas: usize,
    instructions: f64,
    host_calls: f64,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounds(Vec<Row>);

/// What came of holding counts against bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Cells within their bounds.
    pub passed: usize,
    /// What is wrong, a line each.
    pub failures: Vec<String>,
}

impl Bounds {
    /// Reads a table.
    ///
    /// # Errors
    ///
    /// If there is no such file or it is not a table.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        let rows = text.lines().filter(|line| !line.starts_with('#')).map(row);
        let rows = rows.collect::<Option<Vec<_>>>();
        Ok(Self(rows.with_context(|| {
            format!("{} is not a table of bounds", path.display())
        })?))
    }

    /// Bounds for what was counted, with some room.
    #[must_use]
    pub fn of(series: &[Series]) -> Self {
        let mut rows = counted(series);
        for row in &mut rows {
            let vdso = has_vdso(&row.kind);
            let room = if vdso { ROOM_OF_VDSO } else { ROOM };
            row.instructions = (row.instructions * room).ceil();
        }
        Self(rows)
    }

    /// Writes the table.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::from(HEAD);
        for row in &self.0 {
            let (kind, replicas, host_calls) = (&row.kind, row.replicas, row.host_calls);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{kind}\t{replicas}\t{:.0}\t{host_calls:.0}",
                row.instructions
            );
        }
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Holds what was counted against the table.
    #[must_use]
    pub fn judge(&self, series: &[Series]) -> Verdict {
        let mut verdict = Verdict::default();
        let counted = counted(series);
        for row in &counted {
            let name = format!("{}, n={}", row.kind, row.replicas);
            let bound = self.0.iter().find(|bound| bound.is_for(row));
            match bound {
                None => verdict.failures.push(format!("{name}: no bound")),
                Some(bound) if row.exceeds(bound) => verdict.failures.push(format!(
                    "{name}: {:.0} instructions and {:.0} host calls; bounds {:.0} and {:.0}",
                    row.instructions, row.host_calls, bound.instructions, bound.host_calls
                )),
                Some(_) => verdict.passed += 1,
            }
        }
        for bound in &self.0 {
            if !counted.iter().any(|row| bound.is_for(row)) {
                let name = format!("{}, n={}", bound.kind, bound.replicas);
                verdict.failures.push(format!("{name}: not counted"));
            }
        }
        verdict
    }
}

impl Row {
    fn is_for(&self, other: &Self) -> bool {
        self.kind == other.kind && self.replicas == other.replicas
    }

    fn exceeds(&self, bound: &Self) -> bool {
        self.instructions > bound.instructions || self.host_calls > bound.host_calls
    }
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split('\t');
    let row = Row {
        kind: words.next()?.to_owned(),
        replicas: words.next()?.parse().ok()?,
        instructions: words.next()?.parse().ok()?,
        host_calls: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(row)
}

/// Whether the host's vDSO is part of what is counted.
fn has_vdso(kind: &str) -> bool {
    kind == "clock"
}

/// The medians of all cells that have bounds; of one with the host's vDSO the least.
fn counted(series: &[Series]) -> Vec<Row> {
    let mut rows = Vec::new();
    for cell in &CELLS {
        for replicas in REPLICAS {
            let at = |prefix| spread(series, prefix, cell.what, replicas);
            if let (Some([median, least, _]), Some([host_calls, ..])) = (at(""), at(HOST_CALLS)) {
                let vdso = has_vdso(cell.kind);
                let instructions = if vdso { least } else { median };
                rows.push(Row {
                    kind: cell.kind.to_owned(),
                    replicas,
                    instructions,
                    host_calls,
                });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::{CELLS, HOST_CALLS, REPLICAS};
    use super::Bounds;
    use crate::configuration::protected;
    use crate::sample::{Collector, Series};

    /// Every cell takes so many instructions and host calls.
    fn all(instructions: f64, host_calls: f64) -> Vec<Series> {
        let mut collector = Collector::default();
        for cell in &CELLS {
            for replicas in REPLICAS {
                let configuration = protected(replicas, "args");
                collector.add(cell.what, configuration, "", instructions);
                let what = format!("{HOST_CALLS}{}", cell.what);
                collector.add(&what, configuration, "", host_calls);
            }
        }
        collector.finish()
    }

    /// Cells of the table.
    const fn cells() -> usize {
        CELLS.len() * REPLICAS.len()
    }

    #[test]
    fn growth_fails_and_noise_does_not() {
        let bounds = Bounds::of(&all(1000.0, 2.0));
        let verdict = bounds.judge(&all(1020.0, 2.0));
        let cells = cells();
        assert_eq!((verdict.passed, verdict.failures.len()), (cells, 0));
        // Of a clock read the host's vDSO is a part.
        let without = cells - REPLICAS.len();
        let grown = [
            (1021.0, 2.0, without),
            (1501.0, 2.0, cells),
            (1000.0, 3.0, cells),
        ];
        for (instructions, host_calls, failures) in grown {
            let verdict = bounds.judge(&all(instructions, host_calls));
            assert_eq!(verdict.failures.len(), failures);
        }
    }

    #[test]
    fn a_vdso_that_began_anew_is_no_growth() {
        let bounds = Bounds::of(&all(1000.0, 2.0));
        let mut counts = all(1000.0, 2.0);
        for series in &mut counts {
            if !series.what.starts_with(HOST_CALLS) {
                series.values.extend([9000.0, 9000.0]);
            }
        }
        assert_eq!(
            bounds.judge(&counts).failures.len(),
            cells() - REPLICAS.len()
        );
    }

    #[test]
    fn cells_and_rows_belong_together() {
        let counts = all(1000.0, 2.0);
        let bounds = Bounds::of(&counts);
        assert_eq!(bounds.judge(&counts[2..]).failures.len(), 1);
        assert_eq!(Bounds::default().judge(&counts).failures.len(), cells());
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("rcoe-bounds-{}", std::process::id()));
        let bounds = Bounds::of(&all(123.0, 1.0));
        bounds.write(&path).expect("a file");
        let read = Bounds::read(&path).expect("a table");
        std::fs::remove_file(&path).expect("the file");
        assert_eq!(read, bounds);
    }
}
