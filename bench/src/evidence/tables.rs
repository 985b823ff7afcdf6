//! The tables and figures of a page.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::Found;
use super::campaigns::Column;
use super::goals::{Goal, Row};
use super::number::{span, told};
use super::page::{Chosen, Page};
use crate::instructions::{HOST_CALLS, LOOKS};

impl Page<'_> {
    pub(super) fn glance(&self) -> Result<String> {
        let mut out =
            "| goal | measured | | why, or the least | details |\n|---|---|---|---|---|".to_owned();
        for row in &self.book.goals.row {
            write!(out, "\n{}", self.glance_row(row)?)?;
        }
        Ok(out)
    }

    fn glance_row(&self, row: &Row) -> Result<String> {
        let (mut measured, mut missed) = (Vec::new(), Vec::new());
        let mut unit = String::new();
        for goal in &row.goals {
            let key = [row.suite.as_str(), &goal.what, &goal.run];
            let Found { series, spread, .. } = self.book.evidence.find(key, &row.of)?;
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
            "| {} | {} | {met} | {why} | {} |",
            in_words(row),
            measured.trim_end(),
            self.book.link_to_goals(&row.suite, &row.title)?
        ))
    }

    pub(super) fn goals_of(&self, chosen: &str) -> Result<String> {
        let mut out =
            "| goal | limit | measured | n | | source |\n|---|---|---|---|---|---|".to_owned();
        let chosen = Chosen::parse(chosen);
        let all = self.book.goals.all();
        let own = all.filter(|(row, _)| row.suite == chosen.suite && chosen.takes(&row.title));
        let mut rows = 0;
        for (row, goal) in own {
            rows += 1;
            let key = [chosen.suite, &goal.what, &goal.run];
            let Found {
                file,
                series,
                spread,
            } = self.book.evidence.find(key, &row.of)?;
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
        ensure!(rows > 0, "no goals");
        Ok(out)
    }

    pub(super) fn table(&self, chosen: &str, of: &str, runs: &[&str]) -> Result<String> {
        let chosen = Chosen::parse(chosen);
        let suite = chosen.suite;
        let marks = "---|".repeat(runs.len() + 2);
        let mut out = format!("| | {} | source |\n|{marks}", runs.join(" | "));
        let mut rows = 0;
        for what in self.book.evidence.names(suite) {
            let found = |run: &&str| self.book.evidence.find([suite, what, run], of).ok();
            let row: Vec<Option<Found>> = runs.iter().map(found).collect();
            let told = row.iter().flatten().next();
            let Some(told) = told.filter(|_| chosen.takes(what)) else {
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
    pub(super) fn counted(&self, suite: &str, runs: &[&str]) -> Result<String> {
        let beside = [(HOST_CALLS, 'h'), (LOOKS, 'v')];
        let marks = "---|".repeat(runs.len() + 2);
        let mut out = format!("| | {} | source |\n|{marks}", runs.join(" | "));
        let alone = |what: &&str| !beside.iter().any(|(prefix, _)| what.starts_with(prefix));
        for what in self.book.evidence.names(suite).into_iter().filter(alone) {
            let (mut cells, mut source) = (Vec::new(), 0);
            for run in runs {
                let found = self.book.evidence.find([suite, what, run], "value")?;
                source = self.cite_file(found.file);
                let mut cell = span(found.spread);
                for (prefix, letter) in beside {
                    let key = [suite, &format!("{prefix}{what}"), run];
                    let count = self.book.evidence.find(key, "value").ok();
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

    pub(super) fn figure(&self, key: [&str; 3], of: &str) -> Result<String> {
        let Found { series, spread, .. } = self.book.evidence.find(key, of)?;
        let text = format!("{} {}", told(spread.median), series.unit_of(of));
        Ok(text.trim_end().to_owned())
    }

    pub(super) fn fault_goals(&self) -> Result<String> {
        let mut out = "| goal | counted | | why | details |\n|---|---|---|---|---|".to_owned();
        for group in &self.book.campaigns.groups {
            for goal in &group.goal {
                let (measured, met) = group.judge(goal)?;
                let met = if met { "met" } else { "**not met**" };
                let details = self.book.link_to_campaigns(&group.group)?;
                write!(
                    out,
                    "\n| {} | {measured} | {met} | {} | {details} |",
                    goal.title, goal.why
                )?;
            }
        }
        Ok(out)
    }

    pub(super) fn campaigns_of(&self, group: &str, columns: &[&str]) -> Result<String> {
        let columns: Vec<Column> = columns.iter().map(|text| Column::parse(text)).collect();
        let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
        let marks = "---|".repeat(titles.len() + 3);
        let mut out = format!("| | replicas | {} | source |\n|{marks}", titles.join(" | "));
        let all = self.book.campaigns.group(group)?.campaign.iter();
        for campaign in all.filter(|campaign| !campaign.earlier) {
            let cells: Vec<String> = columns.iter().map(|column| column.cell(campaign)).collect();
            let source = self.cite_campaign(campaign);
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
