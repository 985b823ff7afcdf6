//! A page: a text with `{{directives}}`, each of which is replaced by what the evidence says.
//!
//! | directive | becomes |
//! |---|---|
//! | `{{glance}}` | a line for each row of goals, with the page that tells of it |
//! | `{{goals CHOSEN}}` | a line for each goal of a suite |
//! | `{{table CHOSEN OF RUN RUN …}}` | what was measured, ways of running as columns |
//! | `{{counted SUITE RUN RUN …}}` | counts, beside them host calls (*h*) and looks in vain (*v*) |
//! | `{{figure SUITE WHAT RUN OF}}` | one median with its unit, within a text |
//! | `{{fault-goals}}` | the same for goals of the campaigns |
//! | `{{campaigns GROUP COLUMN COLUMN …}}` | a line for each campaign |
//! | `{{faults GROUP COUNT}}` | a sum over a group, or the share of one, within a text |
//! | `{{sources}}` | where all that came from |
//!
//! Words of a directive are parted by bars. `CHOSEN` is a suite, or one with beginnings of what it
//! measured, or of titles of its goals: `SUITE: BEGINNING; BEGINNING`. Whatever has no data is an
//! error, and so is a measured number that stands in the text itself, or in what the evidence says
//! beside its numbers: why a goal is not met, and what else to know of a source.

use std::cell::RefCell;

use anyhow::{Context, Result, bail, ensure};

use super::campaigns::Campaign;
use super::stray::stray;
use super::{Book, Campaigns, Evidence, Goals};

/// Refuses a measured number among the words of the evidence.
fn ensure_words(evidence: &Evidence, goals: &Goals, campaigns: &Campaigns) -> Result<()> {
    let groups = &campaigns.groups;
    let rows = goals.row.iter().map(|row| &row.why);
    let whys = groups
        .iter()
        .flat_map(|group| &group.goal)
        .map(|goal| &goal.why);
    let all = groups.iter().flat_map(|group| &group.campaign);
    let notes = all.filter_map(|campaign| campaign.note.as_ref());
    let files = evidence.files.iter().filter_map(|file| file.note.as_ref());
    let stray = |text: &String| stray(text).map(|figure| format!("{figure}, in: {text}"));
    let found: Vec<String> = rows
        .chain(whys)
        .chain(notes)
        .chain(files)
        .filter_map(stray)
        .collect();
    ensure!(
        found.is_empty(),
        "figures without data:\n{}",
        found.join("\n")
    );
    Ok(())
}

/// Where figures come from.
#[derive(Clone, Debug, PartialEq)]
struct Source {
    commit: String,
    date: String,
    machine: String,
    load: String,
    command: String,
    note: String,
}

/// What of a suite a directive shows: `SUITE` all, `SUITE: BEGINNING; BEGINNING` by names.
pub(super) struct Chosen<'a> {
    pub(super) suite: &'a str,
    begins: Vec<&'a str>,
}

impl<'a> Chosen<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let (suite, begins) = text.split_once(": ").unwrap_or((text, ""));
        let begins = begins.split(';').map(str::trim).collect();
        Self { suite, begins }
    }

    pub(super) fn takes(&self, name: &str) -> bool {
        self.begins.iter().any(|begin| name.starts_with(begin))
    }
}

/// The directives of a line.
pub(super) fn directives(line: &str) -> Vec<&str> {
    let parts = line.split("{{").skip(1);
    parts
        .filter_map(|part| part.split_once("}}"))
        .map(|(directive, _)| directive)
        .collect()
}

/// A directive's name, and its words.
pub(super) fn words(directive: &str) -> (&str, Vec<&str>) {
    let (name, rest) = directive.split_once(' ').unwrap_or((directive, ""));
    (name, rest.split('|').map(str::trim).collect())
}

pub(super) struct Page<'a> {
    pub(super) book: &'a Book,
    /// Those of what was rendered so far; pages name them by their numbers.
    sources: RefCell<Vec<Source>>,
}

impl<'a> Page<'a> {
    pub(super) fn of(book: &'a Book) -> Self {
        Self {
            book,
            sources: RefCell::default(),
        }
    }

    /// A text with its directives replaced.
    pub(super) fn render(&self, text: &str) -> Result<String> {
        let Book {
            evidence,
            goals,
            campaigns,
            ..
        } = self.book;
        goals.ensure_measured(evidence)?;
        ensure_words(evidence, goals, campaigns)?;
        let mut code = false;
        let mut out = String::new();
        for (at, line) in text.lines().enumerate() {
            code ^= line.starts_with("```");
            let place = || format!("line {}", at + 1);
            if !code && let Some(figure) = stray(line) {
                bail!("{}: a figure without data: {figure}", place());
            }
            out.push_str(&self.expand(line).with_context(place)?);
            out.push('\n');
        }
        Ok(out)
    }

    /// A line with its directives replaced.
    pub(super) fn expand(&self, line: &str) -> Result<String> {
        let mut out = String::new();
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("{{") {
            let (directive, after) = after.split_once("}}").context("a directive has no end")?;
            out.push_str(before);
            out.push_str(
                &self
                    .directive(directive)
                    .with_context(|| directive.to_owned())?,
            );
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn directive(&self, text: &str) -> Result<String> {
        let (name, words) = words(text);
        match (name, &words[..]) {
            ("glance", _) => self.glance(),
            ("goals", [chosen]) => self.goals_of(chosen),
            ("table", [chosen, of, runs @ ..]) if !runs.is_empty() => self.table(chosen, of, runs),
            ("counted", [suite, runs @ ..]) => self.counted(suite, runs),
            ("figure", &[suite, what, run, of]) => self.figure([suite, what, run], of),
            ("fault-goals", _) => self.fault_goals(),
            ("campaigns", [group, columns @ ..]) => self.campaigns_of(group, columns),
            ("faults", [group, count]) => self.book.campaigns.group(group)?.total(count),
            ("sources", _) => Ok(self.list_sources()),
            _ => bail!("unknown directive"),
        }
    }

    /// The number of a source.
    fn cite(&self, source: Source) -> usize {
        let mut known = self.sources.borrow_mut();
        if let Some(at) = known.iter().position(|known| *known == source) {
            return at + 1;
        }
        known.push(source);
        known.len()
    }

    pub(super) fn cite_file(&self, at: usize) -> usize {
        let file = &self.book.evidence.files[at];
        self.cite(Source {
            commit: file.commit.clone(),
            date: file.date.clone(),
            machine: file.machine.clone(),
            load: file.load.clone(),
            command: file.command.clone(),
            note: file.note.clone().unwrap_or_default(),
        })
    }

    pub(super) fn cite_campaign(&self, campaign: &Campaign) -> usize {
        self.cite(Source {
            commit: campaign.commit.clone(),
            date: campaign.date.clone(),
            machine: campaign.machine.clone(),
            load: campaign.load.clone(),
            command: campaign.command.clone(),
            note: campaign.note.clone().unwrap_or_default(),
        })
    }

    fn list_sources(&self) -> String {
        let mut out = "| source | commit | date | machine | load | command, and what else to know \
                       |\n|---|---|---|---|---|---|"
            .to_owned();
        for (at, source) in self.sources.borrow().iter().enumerate() {
            let Source {
                commit,
                date,
                machine,
                load,
                command,
                note,
            } = source;
            let note = if note.is_empty() {
                String::new()
            } else {
                format!(". {note}")
            };
            let row = format!("{commit} | {date} | {machine} | {load} | `{command}`{note}");
            out.push_str(&format!("\n| {} | {row} |", at + 1));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::evidence::tests::file;
    use crate::evidence::{Book, Evidence, Goals};

    fn rendered(text: &str) -> anyhow::Result<String> {
        let goals = "[[row]]\nsuite = \"s\"\ntitle = \"calls\"\nof = \"value\"\n\
                     why = \"of {{figure s | b | n=2 | value}}\"\n\
                     goals = [{ name = \"a\", what = \"a\", run = \"n=2\", at_most = 5 },\n\
                     { name = \"b\", what = \"b\", run = \"n=2\", at_most = 5 }]\n";
        let evidence = Evidence::of(vec![file("s", "2026-01-01", &[("a", 4.0), ("b", 6.0)])])?;
        let goals = Goals::parse(goals)?;
        book(evidence, goals, &format!("{text}\n")).render("P")
    }

    /// A book of one page, beside which another one tells of all goals.
    fn book(evidence: Evidence, goals: Goals, text: &str) -> Book {
        let texts = [("P", text), ("d/goals", "{{goals s}}")];
        let texts = texts.map(|(name, text)| (name.to_owned(), text.to_owned()));
        Book {
            evidence,
            goals,
            texts: texts.into(),
            ..Book::default()
        }
    }

    #[test]
    fn directives_become_what_was_measured() {
        let text = rendered("{{glance}}").unwrap();
        let row = "| calls (a, b): at most 5 | 4, 6 ns | **not met**: b | of 6 ns | \
                   [goals](d/goals.md) |";
        assert!(text.ends_with(&format!("\n{row}\n")), "{text}");
        let text = rendered("{{goals s}}\n{{sources}}").unwrap();
        assert!(
            text.contains("| calls: a | at most 5 | 4 ns | 3 | met | 1 |"),
            "{text}"
        );
        assert!(
            text.contains("\n| 1 | x | 2026-01-01 | x | x | `x` |"),
            "{text}"
        );
        let text = rendered("{{table s: b | value | n=2 | n=3}}").unwrap();
        assert!(text.ends_with("\n| b, ns | 6 | - | 1 |\n"), "{text}");
        assert_eq!(
            rendered("It is {{figure s | a | n=2 | value}}.").unwrap(),
            "It is 4 ns.\n"
        );
    }

    #[test]
    fn what_is_counted_beside_stands_in_the_same_cell() {
        let all = [
            ("a", 21.0),
            ("host calls of a", 1.0),
            ("looks in vain of a", 2.0),
        ];
        let evidence = Evidence::of(vec![file("s", "2026-01-01", &all)]).unwrap();
        let book = book(evidence, Goals::default(), "{{counted s | n=2}}");
        let text = book.render("P").unwrap();
        assert!(text.ends_with("\n| a | 21, 1h, 2v | 1 |\n"), "{text}");
    }

    #[test]
    fn words_of_the_evidence_have_no_figures() {
        let evidence = Evidence::of(vec![file("s", "2026-01-01", &[("a", 4.0)])]).unwrap();
        let row = "[[row]]\nsuite = \"s\"\ntitle = \"t\"\nof = \"value\"\nwhy = \"it took 5 s\"\n\
                   goals = [{ what = \"a\", run = \"n=2\", at_most = 5 }]\n";
        let rendered = |evidence, row: &str| {
            let goals = Goals::parse(row).unwrap();
            book(evidence, goals, "").render("P")
        };
        assert!(rendered(evidence.clone(), row).is_err());
        let row = row.replace("5 s", "long");
        assert!(rendered(evidence, &row).is_ok());
        let mut noted = file("s", "2026-01-01", &[("a", 4.0)]);
        noted.note = Some("of 3 minutes".to_owned());
        let evidence = Evidence::of(vec![noted]).unwrap();
        assert!(rendered(evidence, &row).is_err());
    }

    #[test]
    fn what_has_no_data_is_an_error() {
        for text in [
            "{{figure s | c | n=2 | value}}",
            "{{figure s | a | n=2 | ratio}}",
            "{{table t | value | n=2}}",
            "{{campaigns flips | faults}}",
            "{{unknown}}",
            "It took 5 ms.",
        ] {
            assert!(rendered(text).is_err(), "{text}");
        }
    }
}
