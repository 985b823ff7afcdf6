//! Reads what the script that runs the tests tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a case came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is as it should be.
    Passed,
    /// It is not.
    Failed,
    /// It left itself out.
    Skipped,
    /// The run ended in it, or had to be stopped.
    Unfinished,
}

impl Verdict {
    /// The word for tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passes",
            Self::Failed => "fails",
            Self::Skipped => "skips itself",
            Self::Unfinished => "did not end",
        }
    }
}

/// What is known of a run so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Told {
    /// Cases, each with its unit and what it came to.
    pub cases: BTreeMap<String, (String, Verdict)>,
    /// Units that ended.
    pub ended: Vec<String>,
    /// What people may want to read of a unit.
    pub remarks: BTreeMap<String, String>,
}

impl Told {
    /// Adds what a run told; the unit that it did not come out of.
    pub fn read(&mut self, output: &str) -> Option<String> {
        let mut current: Option<String> = None;
        for line in output.lines() {
            let told = line.strip_prefix("@ ").and_then(|it| it.split_once(' '));
            match (told, &current) {
                (Some(("begin", unit)), _) => current = Some(unit.to_owned()),
                (Some(("end", unit)), Some(own)) if unit == own => {
                    self.ended.push(unit.to_owned());
                    current = None;
                }
                (Some((word, case)), Some(own)) => match verdict(word) {
                    Some(verdict) => self.add(&own.clone(), case, verdict),
                    None => self.remark(&own.clone(), line),
                },
                (None, Some(own)) => self.remark(&own.clone(), line),
                _ => {}
            }
        }
        current
    }

    /// Adds what a run of other units told.
    pub fn join(&mut self, other: Self) {
        self.cases.extend(other.cases);
        self.ended.extend(other.ended);
        self.remarks.extend(other.remarks);
    }

    /// Forgets cases of units that did not end.
    pub fn keep_ended(&mut self) {
        let ended = &self.ended;
        self.cases.retain(|_, (unit, _)| ended.contains(unit));
    }

    /// Adds a case. Of cases of one name the second has a number.
    pub fn add(&mut self, unit: &str, case: &str, verdict: Verdict) {
        let mut name = case.to_owned();
        let mut number = 1;
        while self.cases.contains_key(&name) {
            number += 1;
            name = format!("{case} ({number})");
        }
        self.cases.insert(name, (unit.to_owned(), verdict));
    }

    fn remark(&mut self, unit: &str, line: &str) {
        let text = self.remarks.entry(unit.to_owned()).or_default();
        text.push_str(line);
        text.push('\n');
    }

    /// What a case came to; one that was not reached did not end.
    #[must_use]
    pub fn verdict(&self, case: &str) -> Verdict {
        let found = self.cases.get(case);
        found.map_or(Verdict::Unfinished, |(_, verdict)| *verdict)
    }
}

fn verdict(word: &str) -> Option<Verdict> {
    match word {
        "pass" => Some(Verdict::Passed),
        "fail" => Some(Verdict::Failed),
        "skip" => Some(Verdict::Skipped),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_told_apart_and_the_unfinished_unit_is_known() {
        let mut told = Told::default();
        let unfinished = told.read(
            "noise\n@ begin a.tests\n@ pass a: one\n@ fail a: one\n| why\n@ skip a: two\n\
             @ end a.tests\n@ begin b/c\n@ odd line\n",
        );
        assert_eq!(unfinished.as_deref(), Some("b/c"));
        assert_eq!(told.ended, ["a.tests"]);
        for (case, verdict) in [
            ("a: one", Verdict::Passed),
            ("a: one (2)", Verdict::Failed),
            ("a: two", Verdict::Skipped),
            ("b/c", Verdict::Unfinished),
        ] {
            assert_eq!(told.verdict(case), verdict, "{case}");
        }
        told.add("b/c", "b/c", Verdict::Passed);
        told.keep_ended();
        assert_eq!(
            (told.cases.len(), told.verdict("b/c")),
            (3, Verdict::Unfinished)
        );
        assert_eq!(told.remarks["a.tests"], "| why\n");
        assert!(told.remarks["b/c"].contains("odd"));
        let mut both = Told::default();
        both.read("@ begin c\n@ pass c\n@ end c\n");
        both.join(told);
        assert_eq!(
            (both.cases.len(), both.ended.as_slice()),
            (4, &["c", "a.tests"].map(str::to_owned)[..])
        );
    }
}
