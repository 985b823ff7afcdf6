//! Counts of passed and failed checks, read from what test programs print.

use serde::{Deserialize, Serialize};

/// How many checks passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Counts {
    /// One check.
    pub(crate) const fn one(passed: bool) -> Self {
        Self {
            passed: passed as u64,
            failed: !passed as u64,
        }
    }

    /// Adds other counts.
    pub(crate) const fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// What a program that printed these counts and ended so is worth: a program that failed, or
    /// that ran nothing, never counts as passed.
    pub(crate) const fn judged(mut self, succeeded: bool) -> Self {
        let nothing_ran = self.passed + self.failed == 0;
        if self.failed == 0 && (!succeeded || nothing_ran) {
            self.failed = 1;
        }
        self
    }
}

/// Begins the closing line of each of cargo's test programs.
pub(crate) const CARGO: &str = "test result: ";
/// Begins the closing line of the compatibility matrix.
pub(crate) const COMPAT: &str = "compat: ";
/// Begins the closing line of busybox's tests.
pub(crate) const BUSYBOX: &str = "busybox: ";
/// Begins the closing line of CPython's tests.
pub(crate) const CPYTHON: &str = "cpython: ";
/// Begins the closing line of LTP's tests.
pub(crate) const LTP: &str = "ltp: ";
/// Begins the closing line of the bounds of instructions.
pub(crate) const INSTRUCTIONS: &str = "instructions: ";
/// Begins the closing line of the scenes of whole programs.
pub(crate) const PROGRAMS: &str = "programs: ";

/// The counts in a closing line that begins with `key`, either cargo's
/// (`test result: ok. 3 passed; 0 failed; …`) or ours (`compat: 3 passed, 0 failed`); nothing for
/// any other line.
pub(crate) fn parse(line: &str, key: &str) -> Option<Counts> {
    let rest = line.strip_prefix(key)?;
    let numbers = rest.split_once(". ").map_or(rest, |(_, numbers)| numbers);
    let mut parts = numbers.split([';', ',']).map(str::trim);
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Counts { passed, failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let cargo = "test result: ok. 17 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            parse(cargo, CARGO),
            Some(Counts {
                passed: 17,
                failed: 0
            })
        );
        let planted = "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured";
        assert_eq!(
            parse(planted, CARGO),
            Some(Counts {
                passed: 2,
                failed: 1
            })
        );
        let compat = "compat: 9 passed, 2 failed";
        assert_eq!(
            parse(compat, COMPAT),
            Some(Counts {
                passed: 9,
                failed: 2
            })
        );
    }

    #[test]
    fn other_lines_are_not() {
        for line in [
            "",
            "test a ... ok",
            "compat: all passed",
            "compat: 3 passed",
            "1 passed, 0 failed",
        ] {
            assert_eq!(parse(line, COMPAT), None, "{line}");
            assert_eq!(parse(line, CARGO), None, "{line}");
        }
        assert_eq!(parse("compat: 9 passed, 2 failed", CARGO), None);
    }

    #[test]
    fn a_failure_is_never_lost() {
        let some = Counts {
            passed: 3,
            failed: 0,
        };
        assert_eq!(some.judged(true), some);
        assert_eq!(
            some.judged(false),
            Counts {
                passed: 3,
                failed: 1
            }
        );
        assert_eq!(
            Counts::default().judged(true),
            Counts {
                passed: 0,
                failed: 1
            }
        );
        let failed = Counts {
            passed: 3,
            failed: 2,
        };
        assert_eq!(failed.judged(true), failed);
        assert_eq!(failed.judged(false), failed);
    }
}
