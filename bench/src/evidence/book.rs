//! All pages of a folder of evidence, and which of them tells of what.
//!
//! `pages/NAME.md.in` becomes `docs/NAME.md`. Those at the top hold the goals at a glance, each
//! with a link to the page that tells of it; `bench/` and `faults/` have these pages. A goal that
//! no page tells of is an error where it is listed. A figure without a page is none.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::page::{Chosen, Page, directives, words};
use super::{Campaigns, Evidence, Goals, listed};

/// Folder of the texts, within that of the evidence.
const TEXTS: &str = "pages";
/// How their names end.
const ENDING: &str = ".md.in";

/// What was measured and counted, what is demanded of it, and the pages that tell of it.
#[derive(Debug, Default)]
pub struct Book {
    pub(super) evidence: Evidence,
    pub(super) goals: Goals,
    pub(super) campaigns: Campaigns,
    /// Texts by the names of their pages: `BENCH`, `bench/calls`.
    pub(super) texts: BTreeMap<String, String>,
}

impl Book {
    /// Reads a folder of evidence. The goals are those of this source tree.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or is not of its schema.
    pub fn read(folder: &Path) -> Result<Self> {
        Ok(Self {
            evidence: Evidence::read(folder)?,
            goals: Goals::read()?,
            campaigns: Campaigns::read(folder)?,
            texts: texts(&folder.join(TEXTS))?,
        })
    }

    /// The names of all pages.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }

    /// A page, rendered.
    ///
    /// # Errors
    ///
    /// If there is none of this name, a directive is unknown or has no data, or a text has a figure
    /// of its own.
    pub fn render(&self, name: &str) -> Result<String> {
        let text = self.texts.get(name).context("no such page")?;
        Page::of(self).render(text)
    }

    /// A link from a page at the top to the one that tells of some goals.
    pub(super) fn link_to_goals(&self, suite: &str, title: &str) -> Result<String> {
        self.link("goals", |words| {
            let chosen = words.first().map(|text| Chosen::parse(text));
            chosen.is_some_and(|it| it.suite == suite && it.takes(title))
        })
        .with_context(|| format!("no page tells of: {title}"))
    }

    /// The same for a group of campaigns.
    pub(super) fn link_to_campaigns(&self, group: &str) -> Result<String> {
        self.link("campaigns", |words| words.first() == Some(&group))
            .with_context(|| format!("no page tells of campaigns: {group}"))
    }

    fn link(&self, name: &str, tells: impl Fn(&[&str]) -> bool) -> Option<String> {
        let all = self.texts.iter();
        let mut pages = all.filter(|(_, text)| {
            let own = text.lines().flat_map(directives).map(words);
            own.into_iter()
                .any(|(own, words)| own == name && tells(&words))
        });
        let (page, _) = pages.next()?;
        let short = page.rsplit('/').next().unwrap_or(page);
        Some(format!("[{short}]({page}.md)"))
    }
}

/// Texts of a folder and of its folders, by their paths without ending.
fn texts(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut folders = vec![folder.to_path_buf()];
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        folders.push(entry?.path());
    }
    let mut texts = BTreeMap::new();
    for own in folders.iter().filter(|path| path.is_dir()) {
        for path in listed(own, "in")? {
            let text = std::fs::read_to_string(&path).context("a text")?;
            let name = path.strip_prefix(folder)?.display().to_string();
            let name = name.strip_suffix(ENDING).context("no name of a page")?;
            texts.insert(name.to_owned(), text);
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::Book;
    use crate::evidence::tests::file;
    use crate::evidence::{Campaigns, Evidence, FOLDER, Goals};

    const GOALS: &str = "[[row]]\nsuite = \"s\"\ntitle = \"calls: read\"\nof = \"value\"\n\
                         goals = [{ what = \"a\", run = \"n=2\", at_most = 5 }]\n\
                         [[row]]\nsuite = \"s\"\ntitle = \"start\"\nof = \"value\"\n\
                         goals = [{ what = \"b\", run = \"n=2\", at_most = 5 }]\n";

    const FLIPS: &str = "group = \"flips\"\n\
                         [[goal]]\ntitle = \"none\"\ncount = \"silent/faults\"\nat_most = 0\n\
                         [[campaign]]\nwhat = \"a\"\ncommit = \"c\"\ndate = \"2026-01-01\"\n\
                         machine = \"m\"\nload = \"l\"\ncommand = \"flip\"\n\
                         counts = { faults = 1000, silent = 0 }\n";

    /// A book of two suites' series in files of their own, and of one group of campaigns.
    fn book(texts: &[(&str, &str)]) -> Book {
        let mut files = [("a", 4.0), ("b", 6.0)].map(|it| file("s", "2026-01-01", &[it]));
        for (file, command) in files.iter_mut().zip(["measure a", "measure b"]) {
            file.command = command.to_owned();
        }
        let texts = texts
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()));
        Book {
            evidence: Evidence::of(files.to_vec()).unwrap(),
            goals: Goals::parse(GOALS).unwrap(),
            campaigns: Campaigns::of(&[FLIPS]).unwrap(),
            texts: texts.collect(),
        }
    }

    #[test]
    fn a_page_lists_only_the_sources_of_what_it_shows() {
        let page = "{{table s: X | value | n=2}}\n{{sources}}";
        let [a, b] = ["a", "b"].map(|what| page.replace('X', what));
        let flips = "{{campaigns flips | faults}}\n{{sources}}";
        let book = book(&[("d/a", &a), ("d/b", &b), ("d/c", flips)]);
        for (name, own) in [("d/a", "measure a"), ("d/b", "measure b"), ("d/c", "flip")] {
            let text = book.render(name).unwrap();
            let sources: Vec<&str> = text.lines().filter(|it| it.ends_with("` |")).collect();
            let [source] = sources[..] else {
                panic!("{text}")
            };
            assert!(
                source.starts_with("| 1 |") && source.contains(own),
                "{text}"
            );
        }
        assert!(book.render("d").is_err());
    }

    #[test]
    fn what_is_listed_at_a_glance_leads_to_the_page_that_tells_of_it() {
        let top = ("TOP", "{{glance}}\n\n{{fault-goals}}");
        let both = [
            ("d/calls", "{{goals s: calls}}"),
            ("d/rest", "{{goals s: start; x}}"),
        ];
        let faults = ("e/flips", "{{campaigns flips | faults}}");
        let text = book(&[top, both[0], both[1], faults])
            .render("TOP")
            .unwrap();
        for row in [
            "| calls: read: at most 5 | 4 ns | met |  | [calls](d/calls.md) |",
            "| start: at most 5 | 6 ns | **not met** | not known | [rest](d/rest.md) |",
            "| none | 0 of 1,000: 0 % [0, 0.37] | met |  | [flips](e/flips.md) |",
        ] {
            assert!(text.lines().any(|line| line == row), "{row} in {text}");
        }
        let told = |texts: &[(&str, &str)]| book(texts).render("TOP").unwrap_err();
        let lost = format!("{:#}", told(&[top, both[0], faults]));
        assert!(lost.ends_with("no page tells of: start"), "{lost}");
        let lost = format!("{:#}", told(&[top, both[0], both[1]]));
        assert!(
            lost.ends_with("no page tells of campaigns: flips"),
            "{lost}"
        );
    }

    #[test]
    fn every_page_of_this_tree_has_its_data_and_is_short() {
        let book = Book::read(std::path::Path::new(FOLDER)).unwrap();
        assert!(book.names().count() > 2);
        for name in book.names() {
            let page = book
                .render(name)
                .unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let lines = page.lines().count();
            assert!(lines <= 200, "{name} has {lines} lines");
        }
        for name in ["BENCH", "FAULTS"] {
            let page = book.render(name).unwrap();
            let prose = page.lines().filter(|line| !line.starts_with('|'));
            let words: usize = prose.map(|line| line.split_whitespace().count()).sum();
            assert!(words <= 1200, "{name} has {words} words beside its tables");
        }
    }
}
