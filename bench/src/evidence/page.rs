//! A page: a text with `{{directives}}`, each of which is replaced by what the evidence says.
//!
//! | directive | becomes |
//! |---|---|
//! | `{{glance}}` | a line for each row of goals |
//! | `{{goals SUITE}}` | a line for each goal of a suite |
//! | `{{table SUITE OF RUN RUN …}}` | what was measured, ways of running as columns |
//! | `{{counted SUITE RUN RUN …}}` | counts, beside them host calls (*h*) and looks in vain (*v*) |
//! | `{{figure SUITE WHAT RUN OF}}` | one median with its unit, within a text |
//! | `{{fault-goals}}` | a line for each goal of the campaigns |
//! | `{{campaigns GROUP COLUMN COLUMN …}}` | a line for each campaign |
//! | `{{faults GROUP COUNT}}` | a sum over a group, within a text |
//! | `{{sources}}` | where all that came from |
//!
//! Words of a directive are parted by bars. Whatever has no data is an error, and so is a measured
//! number that stands in the text itself, or in what the evidence says beside its numbers: why a
//! goal is not met, and what else to know of a source.

use std::cell::RefCell;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};

use super::campaigns::{Column, thousands};
use super::goals::{Goal, Row};
use super::number::{span, told};
use super::stray::stray;
use super::{Campaigns, Evidence, Found, Goals};
use crate::instructions::{HOST_CALLS, LOOKS};

/// Renders a text.
///
/// # Errors
///
/// If a directive is unknown or has no data, or the text has a figure of its own.
pub fn render(
    text: &str,
    evidence: &Evidence,
    goals: &Goals,
    campaigns: &Campaigns,
) -> Result<String> {
    goals.ensure_measured(evidence)?;
    ensure_words(evidence, goals, campaigns)?;
    let page = Page {
        evidence,
        goals,
        campaigns,
        sources: RefCell::default(),
    };
    let mut code = false;
    let mut out = String::new();
    for (at, line) in text.lines().enumerate() {
        code ^= line.starts_with("```");
        if !code && let Some(figure) = stray(line) {
            bail!("line {}: a figure without data: {figure}", at + 1);
        }
        out.push_str(
            &page
                .expand(line)
                .with_context(|| format!("line {}", at + 1))?,
        );
        out.push('\n');
    }
    Ok(out)
}

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

struct Page<'a> {
    evidence: &'a Evidence,
    goals: &'a Goals,
    campaigns: &'a Campaigns,
    /// Those of what was rendered so far; pages name them by their numbers.
    sources: RefCell<Vec<Source>>,
}

impl Page<'_> {
    /// A line with its directives replaced.
    fn expand(&self, line: &str) -> Result<String> {
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
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let words: Vec<&str> = rest.split('|').map(str::trim).collect();
        match (name, &words[..]) {
            ("glance", _) => self.glance(),
            ("goals", [suite]) => self.goals_of(suite),
            ("table", [suite, of, runs @ ..]) if !runs.is_empty() => self.table(suite, of, runs),
            ("counted", [suite, runs @ ..]) => self.counted(suite, runs),
            ("figure", &[suite, what, run, of]) => self.figure([suite, what, run], of),
            ("fault-goals", _) => self.fault_goals(),
            ("campaigns", [group, columns @ ..]) => self.campaigns_of(group, columns),
            ("faults", [group, count]) => Ok(thousands(self.campaigns.group(group)?.sum(count)?)),
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

    fn cite_file(&self, at: usize) -> usize {
        let file = &self.evidence.files[at];
        self.cite(Source {
            commit: file.commit.clone(),
            date: file.date.clone(),
            machine: file.machine.clone(),
            load: file.load.clone(),
            command: file.command.clone(),
            note: file.note.clone().unwrap_or_default(),
        })
    }

    fn glance(&self) -> Result<String> {
        let mut out = "| goal | measured | | why, or the least |\n|---|---|---|---|".to_owned();
        for row in &self.goals.row {
            write!(out, "\n{}", self.glance_row(row)?)?;
        }
        Ok(out)
    }

    fn glance_row(&self, row: &Row) -> Result<String> {
        let (mut measured, mut missed) = (Vec::new(), Vec::new());
        let mut unit = String::new();
        for goal in &row.goals {
            let key = [row.suite.as_str(), &goal.what, &goal.run];
            let Found { series, spread, .. } = self.evidence.find(key, &row.of)?;
            unit = series.unit_of(&row.of).to_owned();
            measured.push(told(spread.median));
            if !goal.is_met(spread) {
                missed.push(goal.name.as_str());
            }
        }
        let met = match missed.len() {
            0 => "met".to_owned(),
            some if some == row.goals.len() => "**not met**".to_owned(),
            _ => format!("**not met**: {}", missed.join(", ")),
        };
        let why = match (missed.is_empty(), row.why.as_str()) {
            (true, _) => String::new(),
            (false, "") => "not known".into(),
            (false, why) => self.expand(why)?,
        };
        let measured = format!("{} {unit}", measured.join(", "));
        Ok(format!(
            "| {} | {} | {met} | {why} |",
            in_words(row),
            measured.trim_end()
        ))
    }

    fn goals_of(&self, suite: &str) -> Result<String> {
        let mut out =
            "| goal | limit | measured | n | | source |\n|---|---|---|---|---|---|".to_owned();
        let own = self.goals.all().filter(|(row, _)| row.suite == suite);
        for (row, goal) in own {
            let key = [suite, &goal.what, &goal.run];
            let Found {
                file,
                series,
                spread,
            } = self.evidence.find(key, &row.of)?;
            let met = if goal.is_met(spread) {
                "met"
            } else {
                "**not met**"
            };
            let parted = if goal.name.is_empty() { "" } else { ": " };
            let name = format!("{}{parted}{}", row.title, goal.name);
            let measured = format!("{} {}", span(spread), series.unit_of(&row.of));
            let n = series.n.map_or("not kept".to_owned(), |n| n.to_string());
            write!(
                out,
                "\n| {name} | {} | {} | {n} | {met} | {} |",
                goal.limit(),
                measured.trim_end(),
                self.cite_file(file)
            )?;
        }
        Ok(out)
    }

    /// `SUITE` or `SUITE: beginning of what`.
    fn table(&self, suite: &str, of: &str, runs: &[&str]) -> Result<String> {
        let (suite, begin) = suite.split_once(": ").unwrap_or((suite, ""));
        let marks = "---|".repeat(runs.len() + 2);
        let mut out = format!("| | {} | source |\n|{marks}", runs.join(" | "));
        let mut rows = 0;
        for what in self.evidence.names(suite) {
            let found = |run: &&str| self.evidence.find([suite, what, run], of).ok();
            let row: Vec<Option<Found>> = runs.iter().map(found).collect();
            let told = row.iter().flatten().next();
            let Some(told) = told.filter(|_| what.starts_with(begin)) else {
                continue;
            };
            let cell = |found: &Option<Found>| found.map_or("-".to_owned(), |it| span(it.spread));
            let cells: Vec<String> = row.iter().map(cell).collect();
            let unit = match told.series.unit_of(of) {
                "" => String::new(),
                unit => format!(", {unit}"),
            };
            let mut sources: Vec<usize> = row.iter().flatten().map(|it| it.file).collect();
            sources.sort_unstable();
            sources.dedup();
            let sources = sources.iter().map(|file| self.cite_file(*file).to_string());
            let sources = sources.collect::<Vec<_>>().join(", ");
            write!(
                out,
                "\n| {what}{unit} | {} | {sources} |",
                cells.join(" | ")
            )?;
            rows += 1;
        }
        ensure!(rows > 0, "no data");
        Ok(out)
    }

    /// Instructions, with what was counted beside them in the same cell.
    fn counted(&self, suite: &str, runs: &[&str]) -> Result<String> {
        let beside = [(HOST_CALLS, 'h'), (LOOKS, 'v')];
        let marks = "---|".repeat(runs.len() + 2);
        let mut out = format!("| | {} | source |\n|{marks}", runs.join(" | "));
        let alone = |what: &&str| !beside.iter().any(|(prefix, _)| what.starts_with(prefix));
        for what in self.evidence.names(suite).into_iter().filter(alone) {
            let (mut cells, mut source) = (Vec::new(), 0);
            for run in runs {
                let found = self.evidence.find([suite, what, run], "value")?;
                source = self.cite_file(found.file);
                let mut cell = span(found.spread);
                for (prefix, letter) in beside {
                    let key = [suite, &format!("{prefix}{what}"), run];
                    let count = self.evidence.find(key, "value").ok();
                    let count = count.map_or(0.0, |count| count.spread.median);
                    if count > 0.0 || letter == 'h' {
                        write!(cell, ", {}{letter}", told(count))?;
                    }
                }
                cells.push(cell);
            }
            write!(out, "\n| {what} | {} | {source} |", cells.join(" | "))?;
        }
        Ok(out)
    }

    fn figure(&self, key: [&str; 3], of: &str) -> Result<String> {
        let Found { series, spread, .. } = self.evidence.find(key, of)?;
        let text = format!("{} {}", told(spread.median), series.unit_of(of));
        Ok(text.trim_end().to_owned())
    }

    fn fault_goals(&self) -> Result<String> {
        let mut out = "| goal | counted | | why |\n|---|---|---|---|".to_owned();
        for group in &self.campaigns.groups {
            for goal in &group.goal {
                let (measured, met) = group.judge(goal)?;
                let met = if met { "met" } else { "**not met**" };
                write!(
                    out,
                    "\n| {} | {measured} | {met} | {} |",
                    goal.title, goal.why
                )?;
            }
        }
        Ok(out)
    }

    fn campaigns_of(&self, group: &str, columns: &[&str]) -> Result<String> {
        let columns: Vec<Column> = columns.iter().map(|text| Column::parse(text)).collect();
        let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
        let marks = "---|".repeat(titles.len() + 3);
        let mut out = format!("| | replicas | {} | source |\n|{marks}", titles.join(" | "));
        let all = self.campaigns.group(group)?.campaign.iter();
        for campaign in all.filter(|campaign| !campaign.earlier) {
            let cells: Vec<String> = columns.iter().map(|column| column.cell(campaign)).collect();
            let source = self.cite(Source {
                commit: campaign.commit.clone(),
                date: campaign.date.clone(),
                machine: campaign.machine.clone(),
                load: campaign.load.clone(),
                command: campaign.command.clone(),
                note: campaign.note.clone().unwrap_or_default(),
            });
            let n = campaign.n.map_or(String::new(), |n| n.to_string());
            let baseline = if campaign.baseline {
                " (a baseline)"
            } else {
                ""
            };
            write!(
                out,
                "\n| {}{baseline} | {n} | {} | {source} |",
                campaign.what,
                cells.join(" | ")
            )?;
        }
        Ok(out)
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

/// A row's title and its limits.
fn in_words(row: &Row) -> String {
    let limit = row.goals.first().map(Goal::limit);
    let alike = row.goals.iter().all(|goal| Some(goal.limit()) == limit);
    let names: Vec<&str> = row.goals.iter().map(|goal| goal.name.as_str()).collect();
    match names[..] {
        [""] => format!("{}: {}", row.title, limit.unwrap_or_default()),
        _ if alike => {
            format!(
                "{} ({}): {}",
                row.title,
                names.join(", "),
                limit.unwrap_or_default()
            )
        }
        _ => {
            let each = row
                .goals
                .iter()
                .map(|goal| format!("{} {}", goal.name, goal.limit()));
            format!("{}: {}", row.title, each.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::evidence::tests::file;
    use crate::evidence::{Campaigns, Evidence, Goals};

    fn rendered(text: &str) -> anyhow::Result<String> {
        let goals = "[[row]]\nsuite = \"s\"\ntitle = \"calls\"\nof = \"value\"\n\
                     why = \"of {{figure s | b | n=2 | value}}\"\n\
                     goals = [{ name = \"a\", what = \"a\", run = \"n=2\", at_most = 5 },\n\
                     { name = \"b\", what = \"b\", run = \"n=2\", at_most = 5 }]\n";
        let evidence = Evidence::of(vec![file("s", "2026-01-01", &[("a", 4.0), ("b", 6.0)])])?;
        render(
            text,
            &evidence,
            &Goals::parse(goals)?,
            &Campaigns::default(),
        )
    }

    #[test]
    fn directives_become_what_was_measured() {
        let text = rendered("{{glance}}").unwrap();
        let row = "| calls (a, b): at most 5 | 4, 6 ns | **not met**: b | of 6 ns |";
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
        let (goals, campaigns) = (Goals::default(), Campaigns::default());
        let text = render("{{counted s | n=2}}", &evidence, &goals, &campaigns).unwrap();
        assert!(text.ends_with("\n| a | 21, 1h, 2v | 1 |\n"), "{text}");
    }

    #[test]
    fn words_of_the_evidence_have_no_figures() {
        let evidence = Evidence::of(vec![file("s", "2026-01-01", &[("a", 4.0)])]).unwrap();
        let row = "[[row]]\nsuite = \"s\"\ntitle = \"t\"\nof = \"value\"\nwhy = \"it took 5 s\"\n\
                   goals = [{ what = \"a\", run = \"n=2\", at_most = 5 }]\n";
        let (goals, none) = (Goals::parse(row).unwrap(), Campaigns::default());
        assert!(render("", &evidence, &goals, &none).is_err());
        let goals = Goals::parse(&row.replace("5 s", "long")).unwrap();
        assert!(render("", &evidence, &goals, &none).is_ok());
        let mut noted = file("s", "2026-01-01", &[("a", 4.0)]);
        noted.note = Some("of 3 minutes".to_owned());
        let evidence = Evidence::of(vec![noted]).unwrap();
        assert!(render("", &evidence, &goals, &none).is_err());
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
