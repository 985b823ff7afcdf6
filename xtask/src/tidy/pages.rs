//! Rules about pages: short paragraphs, and on those that tell how rcoe works, files that exist.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{House, Source};

/// Where the pages lie that tell how rcoe works.
const FOLDER: &str = "docs/architecture/";
/// Most words of a paragraph.
const WORDS: usize = 100;
/// Sentences between a mechanism's idea and its invariant.
const SENTENCES: std::ops::RangeInclusive<usize> = 3..=6;

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
            let point = is_point(line);
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

/// A point of a list begins with a star, or with digits and a full stop.
fn is_point(line: &str) -> bool {
    let line = line.trim_start();
    let behind = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("* ") || (behind != line && behind.starts_with(". "))
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

/// Where a rendered page lists the commits that its figures are of.
const SOURCES: &str = "# Where the figures come from";

/// Commits that a text names: which build was measured is for the evidence to say.
pub(super) fn commits_in_prose(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for page in house.sources.iter().filter(|source| source.is_markdown()) {
        let mut code = false;
        let told = page.content.lines().take_while(|line| *line != SOURCES);
        for (at, line) in told.enumerate() {
            code ^= line.starts_with("```");
            let words = line.split(|c: char| !c.is_alphanumeric());
            let hash = words.filter(|_| !code).find(|word| is_hash(word));
            findings.extend(hash.map(|hash| format!("{}:{}: {hash}", page.path, at + 1)));
        }
    }
    Ok(findings)
}

/// Seven digits of a commit, as git shortens it. One without letters is taken for a number.
fn is_hash(word: &str) -> bool {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let (digit, letter) = (
        word.contains(|c: char| c.is_ascii_digit()),
        word.contains(char::is_alphabetic),
    );
    word.len() == 7 && word.chars().all(hex) && digit && letter
}

/// What belongs to a mechanism, each as the beginning of a paragraph.
const PARTS: [(&str, &str); 3] = [
    ("*Idea: ", "idea"),
    ("**Invariant:**", "invariant"),
    ("**Files:**", "files"),
];

/// Sections that tell of a mechanism, and not in its form: idea, sentences, invariant, files.
pub(super) fn formless_sections(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for page in pages(house) {
        for section in sections(&page.content) {
            let place = format!("{}:{}: {}", page.path, section.line, section.title);
            findings.extend(section.faults().map(|fault| format!("{place}: {fault}")));
        }
    }
    Ok(findings)
}

/// A heading and what is below it, without code and tables.
struct Section<'a> {
    line: usize,
    title: &'a str,
    lines: Vec<&'a str>,
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let (mut all, mut code) = (Vec::<Section>::new(), false);
    for (at, text) in text.lines().enumerate() {
        let fence = text.starts_with("```");
        code ^= fence;
        if fence || code || text.starts_with('|') {
            continue;
        }
        match text.trim_start_matches('#') {
            title if title != text => all.push(Section {
                line: at + 1,
                title: title.trim(),
                lines: Vec::new(),
            }),
            _ => all
                .iter_mut()
                .last()
                .into_iter()
                .for_each(|it| it.lines.push(text)),
        }
    }
    all
}

impl Section<'_> {
    fn has(&self, part: &str) -> bool {
        self.lines.iter().any(|line| line.starts_with(part))
    }

    /// What is missing, or too much. A section with no part of a mechanism is about something else.
    fn faults(&self) -> impl Iterator<Item = String> {
        let is_mechanism = PARTS.iter().any(|(begin, _)| self.has(begin));
        let missing = PARTS.iter().filter(|(begin, _)| !self.has(begin));
        let missing = missing.map(|(_, name)| format!("no {name}"));
        let sentences = self.sentences();
        let wrong = (!SENTENCES.contains(&sentences)).then(|| format!("{sentences} sentences"));
        let all: Vec<String> = missing.chain(wrong).collect();
        all.into_iter().filter(move |_| is_mechanism)
    }

    /// Sentences behind the paragraph of the idea and before the invariant. A sentence ends with a
    /// word at whose end is `.`, `!` or `?`, whatever closes behind it; the number of a list point
    /// ends none.
    fn sentences(&self) -> usize {
        let idea = self
            .lines
            .iter()
            .skip_while(|line| !line.starts_with(PARTS[0].0));
        let told = idea.skip_while(|line| !line.is_empty());
        let told = told.take_while(|line| !PARTS[1..].iter().any(|it| line.starts_with(it.0)));
        let words = told.flat_map(|line| line.split_whitespace());
        let ends = |word: &&str| {
            let bare = word.trim_end_matches([')', '`', '*', '"', ']']);
            let number = bare
                .trim_end_matches('.')
                .chars()
                .all(|c| c.is_ascii_digit());
            bare.ends_with(['.', '!', '?']) && !number
        };
        words.filter(ends).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::house_of;
    use super::{commits_in_prose, formless_sections, long_paragraphs, missing_files};

    #[test]
    fn commits_stand_in_the_table_of_sources_alone() {
        let table = "\n# Where the figures come from\n\n| 1 | 2dabda0 |\n";
        let text = format!("At `2dabda0`, effaced 1234567.\n```\n2dabda0\n```\n{table}");
        let found = commits_in_prose(&house_of(&[("docs/a.md", &text)])).unwrap();
        assert_eq!(found, ["docs/a.md:1: 2dabda0"]);
    }

    fn formless(text: &str) -> Vec<String> {
        formless_sections(&house_of(&[("docs/architecture/a.md", text)])).unwrap()
    }

    #[test]
    fn a_mechanism_has_three_to_six_sentences() {
        let told = |sentences: &str| {
            formless(&format!(
                "# A\n\nText.\n\n## B\n\n*Idea: i.*\n\n{sentences}\n\n\
                 **Invariant:** v.\n\n**Files:** f.\n"
            ))
        };
        let place = "docs/architecture/a.md:5: B";
        assert_eq!(told("One. Two."), [format!("{place}: 2 sentences")]);
        assert!(told("One (a.b).\nTwo?\n\n1. Three, `x.`\n").is_empty());
        assert!(told("1. 2. a. b! c.\n```\nd. e. f. g.\n```\n| h. |").is_empty());
        assert_eq!(
            told(&"A word. ".repeat(7)),
            [format!("{place}: 7 sentences")]
        );
    }

    #[test]
    fn a_mechanism_has_all_its_parts() {
        let found = formless("## A\n\n*Idea: i.*\n\nA. B. C.\n\n## B\n\nNothing of it.\n");
        let place = "docs/architecture/a.md:1: A";
        assert_eq!(
            found,
            [
                format!("{place}: no invariant"),
                format!("{place}: no files")
            ]
        );
        let found = formless("## A\n\nText.\n\n**Files:** f.\n");
        let all = ["no idea", "no invariant", "0 sentences"];
        assert_eq!(found, all.map(|fault| format!("{place}: {fault}")));
    }

    #[test]
    fn a_paragraph_has_at_most_a_hundred_words() {
        let (short, long) = ("word ".repeat(100), "word ".repeat(101));
        let text = format!("# x\n{short}\n\n* {short}\n{long}\n\n```text\n{long}\n```\n|{long}|\n");
        let house = house_of(&[("docs/a.md", &text), ("README.md", &short), ("b.rs", &long)]);
        let findings = long_paragraphs(&house).unwrap();
        assert_eq!(findings, ["docs/a.md:4: 202 words"]);
    }

    #[test]
    fn a_line_that_begins_with_a_number_begins_no_paragraph() {
        let (some, more) = ("word ".repeat(60), "word ".repeat(40));
        let found = |text: &str| long_paragraphs(&house_of(&[("a.md", text)])).unwrap();
        assert_eq!(
            found(&format!("{some}\n64 KiB {more}\n")),
            ["a.md:1: 102 words"]
        );
        assert!(found(&format!("{some}\n64. {more}\n  2. {some}\n")).is_empty());
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
