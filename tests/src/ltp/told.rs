//! Reads what the script that runs the tests tells, and what tests say of themselves.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a test says of its checks, and how it ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Result {
    /// Checks that passed.
    pub passed: usize,
    /// Checks that failed.
    pub failed: usize,
    /// Times it could not go on.
    pub broken: usize,
    /// Checks that it left out, as what they need is not there.
    pub skipped: usize,
    /// Its status; none if it did not end.
    pub status: Option<u8>,
}

impl Result {
    /// Did all pass that were made, and was any?
    #[must_use]
    pub const fn is_passed(&self) -> bool {
        self.passed > 0 && self.failed == 0 && self.broken == 0 && self.status.is_some()
    }

    fn add(&mut self, line: &str) {
        for word in line.split(|it: char| !it.is_ascii_uppercase()) {
            match word {
                "TPASS" => self.passed += 1,
                "TFAIL" => self.failed += 1,
                "TBROK" => self.broken += 1,
                "TCONF" => self.skipped += 1,
                _ => continue,
            }
            return;
        }
    }
}

impl fmt::Display for Result {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.passed, "passed"),
            (self.failed, "failed"),
            (self.broken, "broken"),
            (self.skipped, "left out"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let mut parts: Vec<String> = counts
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        match self.status {
            None => parts.push("did not end".to_owned()),
            Some(status) if parts.is_empty() => parts.push(format!("ended with status {status}")),
            Some(_) => {}
        }
        to.write_str(&parts.join(", "))
    }
}

/// What is known of a run so far.
#[derive(Debug, Default)]
pub struct Told {
    /// Tests that began, and what they came to.
    pub results: BTreeMap<String, Result>,
    /// What they said.
    pub said: BTreeMap<String, String>,
}

impl Told {
    /// Adds what a run told; the test that it did not come out of.
    pub fn read(&mut self, output: &str) -> Option<String> {
        let mut current: Option<String> = None;
        for line in output.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match (words.as_slice(), &current) {
                (["@", "begin", name], _) => {
                    self.results.insert((*name).to_owned(), Result::default());
                    current = Some((*name).to_owned());
                }
                (["@", "end", name, status], Some(own)) if name == own => {
                    self.result(name).status = status.parse().ok();
                    current = None;
                }
                (_, Some(own)) => self.add(&own.clone(), line),
                _ => {}
            }
        }
        current
    }

    fn result(&mut self, name: &str) -> &mut Result {
        self.results.entry(name.to_owned()).or_default()
    }

    fn add(&mut self, name: &str, line: &str) {
        self.result(name).add(line);
        let text = self.said.entry(name.to_owned()).or_default();
        text.push_str(line);
        text.push('\n');
    }

    /// What a test came to; one that was not reached did not end.
    #[must_use]
    pub fn of(&self, name: &str) -> Result {
        self.results.get(name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted_and_the_unfinished_test_is_known() {
        let mut told = Told::default();
        let unfinished = told.read(
            "noise TPASS\n@ begin read01\na.c:1: TPASS: read() TFAIL\nread01  2  TPASS  :  old\n\
             a.c:2: TINFO: TPASSED\na.c:3: TCONF: no\n\n@ end read01 32\n\
             @ begin b02\na.c:3: TFAIL: no\nb.c:3: TBROK: no\n@ end b02 3\n@ begin c\nTPASS",
        );
        assert_eq!(unfinished.as_deref(), Some("c"));
        let read = told.of("read01");
        let counts = (read.passed, read.failed, read.skipped, read.status);
        assert_eq!(counts, (2, 0, 1, Some(32)));
        assert!(read.is_passed() && !told.of("b02").is_passed() && !told.of("c").is_passed());
        assert_eq!(read.to_string(), "2 passed, 1 left out");
        assert_eq!(told.of("b02").to_string(), "1 failed, 1 broken");
        assert_eq!(told.of("c").to_string(), "1 passed, did not end");
        assert_eq!(told.of("d").to_string(), "did not end");
        assert!(told.said["b02"].contains("b.c:3"));
    }
}
