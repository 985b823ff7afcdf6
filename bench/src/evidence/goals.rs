//! The project's goals for cost (`evidence/goals.toml`), each held against its series.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::number::{span, told};
use super::{Evidence, FOLDER, Series, Spread};

/// A goal, what was measured for it, and whether it is met.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The goal in words.
    pub goal: String,
    /// What was measured.
    pub measured: String,
    /// Whether the median reaches the goal.
    pub met: bool,
}

/// All goals, in the order in which they are told.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goals {
    pub(super) row: Vec<Row>,
}

/// Goals of a kind, told together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// The suite that measures them.
    pub suite: String,
    /// What they are about.
    pub title: String,
    /// Which figure they limit: `value`, `over`, `ratio` or `share`.
    pub of: String,
    /// Where they are not met: why, or the least that it could be.
    #[serde(default)]
    pub why: String,
    pub goals: Vec<Goal>,
}

/// A limit of the median of one series.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    /// In a word or two; empty where the row has one goal only.
    #[serde(default)]
    pub name: String,
    pub what: String,
    pub run: String,
    #[serde(default)]
    pub at_most: Option<f64>,
    #[serde(default)]
    pub at_least: Option<f64>,
}

impl Goal {
    pub(super) fn is_met(&self, spread: Spread) -> bool {
        self.at_most.is_none_or(|most| spread.median <= most)
            && self.at_least.is_none_or(|least| spread.median >= least)
    }

    /// The limit in words.
    pub(super) fn limit(&self) -> String {
        match (self.at_most, self.at_least) {
            (Some(most), _) => format!("at most {}", told(most)),
            (_, Some(least)) => format!("at least {}", told(least)),
            _ => String::new(),
        }
    }
}

impl Goals {
    /// Those of this source tree.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a goal limits nothing.
    pub fn read() -> Result<Self> {
        let path = std::path::Path::new(FOLDER).join("goals.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::parse(&text)
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let goals: Self = toml::from_str(text).context("goals.toml")?;
        for (row, goal) in goals.all() {
            let one = goal.at_most.is_some() != goal.at_least.is_some();
            ensure!(one, "{}: {}: one limit is wanted", row.title, goal.name);
        }
        Ok(goals)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Row, &Goal)> {
        self.row
            .iter()
            .flat_map(|row| row.goals.iter().map(move |goal| (row, goal)))
    }

    /// Holds what one run of a suite measured against its goals. A goal whose series is not there
    /// is not met.
    #[must_use]
    pub fn judge(&self, suite: &str, series: &[Series]) -> Vec<Judgement> {
        let own = self.all().filter(|(row, _)| row.suite == suite);
        own.map(|(row, goal)| judge(row, goal, series)).collect()
    }

    /// Goals whose series no file has.
    ///
    /// # Errors
    ///
    /// If there is one.
    pub(super) fn ensure_measured(&self, evidence: &Evidence) -> Result<()> {
        for (row, goal) in self.all() {
            evidence.find([&row.suite, &goal.what, &goal.run], &row.of)?;
        }
        Ok(())
    }
}

fn judge(row: &Row, goal: &Goal, series: &[Series]) -> Judgement {
    let found = series
        .iter()
        .find(|it| it.what == goal.what && it.run == goal.run);
    let spread = found.and_then(|it| it.figure(&row.of));
    let unit = found.map_or("", |it| it.unit_of(&row.of));
    let Row { title, of, .. } = row;
    let missing = || format!("no series: {}, {}, {of}", goal.what, goal.run);
    let name = if goal.name.is_empty() { "" } else { ": " };
    let goal_text = format!("{title}{name}{}: {} {unit}", goal.name, goal.limit());
    Judgement {
        goal: goal_text.trim_end().to_owned(),
        measured: spread.map_or_else(missing, span),
        met: spread.is_some_and(|spread| goal.is_met(spread)),
    }
}

#[cfg(test)]
mod tests {
    use super::Goals;
    use crate::evidence::tests::file;
    use crate::evidence::{Evidence, FOLDER};

    const TEXT: &str = r#"
        [[row]]
        suite = "s"
        title = "calls"
        of = "value"
        goals = [
          { name = "a", what = "a", run = "n=2", at_most = 5 },
          { name = "b", what = "b", run = "n=2", at_least = 5 },
          { name = "c", what = "c", run = "n=2", at_least = 5 },
        ]
    "#;

    #[test]
    fn a_goal_without_its_series_is_not_met() {
        let goals = Goals::parse(TEXT).unwrap();
        let file = file("s", "2026-01-01", &[("a", 5.0), ("b", 4.0)]);
        let judged = goals.judge("s", &file.series);
        let met: Vec<bool> = judged.iter().map(|it| it.met).collect();
        assert_eq!(met, [true, false, false]);
        assert_eq!(judged[0].goal, "calls: a: at most 5 ns");
        assert_eq!(judged[2].measured, "no series: c, n=2, value");
        assert!(goals.judge("t", &file.series).is_empty());
        let evidence = Evidence::of(vec![file]).unwrap();
        let error = goals.ensure_measured(&evidence).unwrap_err();
        assert_eq!(error.to_string(), "no data: s: c, n=2: value");
    }

    #[test]
    fn a_goal_has_one_limit() {
        let none = TEXT.replacen("at_most = 5", "at_most = 5, at_least = 1", 1);
        assert!(Goals::parse(&none).is_err());
    }

    #[test]
    fn every_goal_has_its_series() {
        let evidence = Evidence::read(std::path::Path::new(FOLDER)).unwrap();
        Goals::read().unwrap().ensure_measured(&evidence).unwrap();
    }
}
