//! What the suite says of its cases: the report for machines it writes at its end, and, for a run
//! that did not come so far, the last case it had begun.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use roxmltree::{Document, Node};

/// What a case came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It decided not to run.
    Skipped,
    /// It failed, or could not be run.
    Failed,
}

/// What every case of a module came to, by name.
pub type Verdicts = BTreeMap<String, Verdict>;

/// Reads a report of `module`. A case that stands in it several times passed if it always did.
///
/// # Errors
/// If it is not such a report.
pub fn read(module: &str, text: &str) -> Result<Verdicts> {
    let document = Document::parse(text).context("the suite's report")?;
    let mut verdicts = Verdicts::new();
    let cases = document
        .descendants()
        .filter(|it| it.has_tag_name("testcase"));
    for case in cases {
        let name = case.attribute("name").context("a case without a name")?;
        let verdict = verdict(&case);
        verdicts
            .entry(short(module, name).to_owned())
            .and_modify(|old| *old = worse(*old, verdict))
            .or_insert(verdict);
    }
    Ok(verdicts)
}

fn verdict(case: &Node) -> Verdict {
    let has = |tag| case.children().any(|child| child.has_tag_name(tag));
    if has("failure") || has("error") {
        Verdict::Failed
    } else if has("skipped") || case.attribute("result") == Some("skipped") {
        Verdict::Skipped
    } else {
        Verdict::Passed
    }
}

fn worse(one: Verdict, other: Verdict) -> Verdict {
    let rank = |verdict| match verdict {
        Verdict::Passed => 0,
        Verdict::Skipped => 1,
        Verdict::Failed => 2,
    };
    if rank(one) < rank(other) { other } else { one }
}

/// A case's name without its module's.
#[must_use]
pub fn short<'a>(module: &str, name: &'a str) -> &'a str {
    let own = name.strip_prefix("test.").unwrap_or(name);
    own.strip_prefix(module)
        .and_then(|rest| rest.strip_prefix('.'))
        .unwrap_or(own)
}

/// The case that had begun last and not ended, from the suite's output with `-v`.
#[must_use]
pub fn unfinished(module: &str, output: &str) -> Option<String> {
    let mut current = None;
    for line in output.lines() {
        if let Some(name) = begun(line) {
            current = Some(short(module, name).to_owned());
        }
        if ended(line) {
            current = None;
        }
    }
    current
}

/// The full name in `test_x (test.module.Class.test_x) ...`.
fn begun(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once(" (")?;
    let (full, _) = rest.split_once(')')?;
    full.ends_with(&format!(".{name}")).then_some(full)
}

fn ended(line: &str) -> bool {
    let result = line.rsplit_once("... ").map_or(line, |(_, result)| result);
    matches!(result, "ok" | "FAIL" | "ERROR" | "expected failure") || result.starts_with("skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = "<testsuites><testsuite>\
            <testcase name='test.test_x.C.a' result='completed'/>\
            <testcase name='test.test_x.C.b'><failure>no</failure></testcase>\
            <testcase name='test.test_x.C.c'><error/></testcase>\
            <testcase name='test.test_x.C.d'><skipped>why</skipped></testcase>\
            <testcase name='doc'/><testcase name='doc'><failure/></testcase><testcase name='doc'/>\
            </testsuite></testsuites>";
        let verdicts = read("test_x", text).unwrap();
        let of = |name: &str| verdicts[name];
        assert_eq!((of("C.a"), of("C.b")), (Verdict::Passed, Verdict::Failed));
        assert_eq!((of("C.c"), of("C.d")), (Verdict::Failed, Verdict::Skipped));
        assert_eq!(of("doc"), Verdict::Failed);
        assert!(read("test_x", "<testsuites>").is_err());
    }

    #[test]
    fn the_last_case_begun_is_found() {
        let output = "test_a (test.test_x.C.test_a) ... ok\n\
            test_b (test.test_x.C.test_b)\nSays what it does. ... rcoe: warning: so\nok\n\
            test_c (test.test_x.D.test_c) ... some output\n";
        assert_eq!(unfinished("test_x", output), Some("D.test_c".to_owned()));
        let done = format!("{output}skipped 'not here'\n");
        assert_eq!(unfinished("test_x", &done), None);
    }
}
