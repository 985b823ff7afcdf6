//! Rules about pages: short paragraphs, and on those that tell how rcoe works, files that exist.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{House, Source};

/// Where the pages lie that tell how rcoe works.
const FOLDER: &str = "docs/architecture/";
/// Most words of a paragraph.
const WORDS: usize = 100;

fn pages(house: &House) -> impl Iterator<Item = &Source> {
    let own = house.sources.iter();
    own.filter(|source| source.path.starts_with(FOLDER) && source.is_markdown())
}

/// Paragraphs that are too long. A point of a list is a paragraph; code and tables are none.
pub(super) fn long_paragraphs(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let all = house.sources.iter().filter(|source| source.is_markdown());
    for page in all {
        let (mut words, mut begin, mut code) = (0, 0, false);
        for (at, line) in page.content.lines().chain([""]).enumerate() {
            code ^= line.starts_with("```");
            let point = line.trim_start().starts_with("* ")
                || line.starts_with(|c: char| c.is_ascii_digit());
            let ends = line.is_empty() || code;
            let ends = ends || line.starts_with(['|', '#']) || point;
            if ends && words > WORDS {
                findings.push(format!("{}:{}: {words} words", page.path, begin + 1));
            }
            if ends {
                (words, begin) = (0, at);
            }
            if !code && !line.starts_with(['|', '#']) {
                words += line.split_whitespace().count();
            }
        }
    }
    Ok(findings)
}

/// Paths in backticks that lead nowhere.
pub(super) fn missing_files(house: &House) -> Result<Vec<String>> {
    let top = |path: &str| path.split_once('/').map(|(top, _)| top.to_owned());
    let folders: BTreeSet<String> = house
        .sources
        .iter()
        .filter_map(|it| top(&it.path))
        .collect();
    let mut findings = Vec::new();
    for page in pages(house) {
        let spans = page.content.split('`').skip(1).step_by(2);
        let is_path = |span: &&str| {
            top(span).is_some_and(|top| folders.contains(&top)) && !span.contains([' ', '\n'])
        };
        for path in spans.filter(is_path) {
            let there = |source: &Source| {
                let rest = source.path.strip_prefix(path.trim_end_matches('/'));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if !house.sources.iter().any(there) {
                findings.push(format!("{}: no such file: {path}", page.path));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::super::house_of;
    use super::{long_paragraphs, missing_files};

    #[test]
    fn a_paragraph_has_at_most_a_hundred_words() {
        let (short, long) = ("word ".repeat(100), "word ".repeat(101));
        let text = format!("# x\n{short}\n\n* {short}\n{long}\n\n```text\n{long}\n```\n|{long}|\n");
        let house = house_of(&[("docs/a.md", &text), ("README.md", &short), ("b.rs", &long)]);
        let findings = long_paragraphs(&house).unwrap();
        assert_eq!(findings, ["docs/a.md:4: 202 words"]);
    }

    #[test]
    fn paths_must_lead_somewhere() {
        let text = "`core/src/a.rs` `core/src/` `core/src/b.rs` `core/a b` `x/y`";
        let house = house_of(&[("docs/architecture/a.md", text), ("core/src/a.rs", "")]);
        let findings = missing_files(&house).unwrap();
        assert_eq!(
            findings,
            ["docs/architecture/a.md: no such file: core/src/b.rs"]
        );
    }
}
