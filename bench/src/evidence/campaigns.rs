//! Campaigns of faults (`evidence/faults/*.toml`): what was done, and how often it ended how.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rcoe_faultlab::stats::clopper_pearson;
use serde::Deserialize;

/// All campaigns, by group.
#[derive(Clone, Debug, Default)]
pub struct Campaigns {
    pub(super) groups: Vec<Group>,
}

/// Campaigns of one kind, and the goals for them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    /// As pages name it.
    pub group: String,
    #[serde(default)]
    pub goal: Vec<Goal>,
    pub campaign: Vec<Campaign>,
}

/// At most so many ends of some kinds, over all campaigns of the group that are judged.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    pub title: String,
    /// What is counted, as columns of tables name it: `a+b/c`.
    pub count: String,
    pub at_most: u64,
    #[serde(default)]
    pub why: String,
}

/// One campaign.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Campaign {
    /// What ran, or what was hit.
    pub what: String,
    /// Replicas, where that is a single number.
    pub n: Option<u32>,
    pub commit: String,
    pub date: String,
    pub machine: String,
    pub load: String,
    pub command: String,
    #[serde(default)]
    pub note: Option<String>,
    /// Made with a build that lacks what the others have: not told, and no goal is held against it.
    #[serde(default)]
    pub earlier: bool,
    /// Told to show what the others are worth; no goal is held against it.
    #[serde(default)]
    pub baseline: bool,
    pub counts: BTreeMap<String, u64>,
}

impl Campaigns {
    /// Reads all groups of a folder of evidence.
    ///
    /// # Errors
    ///
    /// If one is not of the schema, or lacks what its goals count.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut groups = Vec::new();
        for path in super::listed(&folder.join("faults"), "toml")? {
            let text = std::fs::read_to_string(&path)?;
            groups.push(Group::parse(&text).with_context(|| path.display().to_string())?);
        }
        Ok(Self { groups })
    }

    #[cfg(test)]
    pub(super) fn of(texts: &[&str]) -> Result<Self> {
        let groups = texts.iter().map(|text| Group::parse(text));
        let groups = groups.collect::<Result<_>>()?;
        Ok(Self { groups })
    }

    /// Whether a text is the file of a group.
    ///
    /// # Errors
    ///
    /// If it is not of the schema, or lacks what its goals count.
    pub(crate) fn check(text: &str) -> Result<()> {
        Group::parse(text).map(drop)
    }

    pub(super) fn group(&self, name: &str) -> Result<&Group> {
        let found = self.groups.iter().find(|group| group.group == name);
        found.with_context(|| format!("no data: faults of {name}"))
    }
}

impl Group {
    fn parse(text: &str) -> Result<Self> {
        let group: Self = toml::from_str(text)?;
        for goal in &group.goal {
            group.judge(goal)?;
        }
        Ok(group)
    }

    /// What was counted for a goal, in words, and whether it is met.
    pub(super) fn judge(&self, goal: &Goal) -> Result<(String, bool)> {
        let [events, trials] = self.share(&goal.count)?;
        Ok((proportion(events, trials), events <= goal.at_most))
    }

    /// Sums over all campaigns that are judged: how many, and of how many.
    fn share(&self, count: &str) -> Result<[u64; 2]> {
        let column = Column::parse(count);
        let mut sums = [0; 2];
        for campaign in self.judged() {
            let own = column.counts(campaign);
            let missing = || format!("no data: {}: {}: {count}", self.group, campaign.what);
            for (sum, own) in sums.iter_mut().zip(own.with_context(missing)?) {
                *sum += own;
            }
        }
        ensure!(sums[1] > 0, "no data: {}: {count}", self.group);
        Ok(sums)
    }

    fn judged(&self) -> impl Iterator<Item = &Campaign> {
        let own = self.campaign.iter();
        own.filter(|campaign| !campaign.earlier && !campaign.baseline)
    }

    /// A sum over all campaigns that are judged and have this count, or the share `a+b/c` of one
    /// that all of them have.
    pub(super) fn total(&self, count: &str) -> Result<String> {
        if count.contains('/') {
            let [events, trials] = self.share(count)?;
            return Ok(proportion(events, trials));
        }
        let own = self.judged().filter_map(|it| it.counts.get(count));
        let sum: u64 = own.sum();
        ensure!(sum > 0, "no data: {}: {count}", self.group);
        Ok(thousands(sum))
    }
}

/// What a column of a table shows: `title=a+b/c`, a count, or the share of a sum.
pub(super) struct Column<'a> {
    pub title: &'a str,
    parts: Vec<&'a str>,
    of: Option<&'a str>,
}

impl<'a> Column<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let (title, spec) = text.split_once('=').unwrap_or((text, text));
        let (sum, of) = match spec.split_once('/') {
            Some((sum, of)) => (sum, Some(of.trim())),
            None => (spec, None),
        };
        Self {
            title: title.trim(),
            parts: sum.split('+').map(str::trim).collect(),
            of,
        }
    }

    /// The sum and what it is a share of (zero if of nothing), if all were counted.
    fn counts(&self, campaign: &Campaign) -> Option<[u64; 2]> {
        let count = |name: &str| campaign.counts.get(name).copied();
        let sum = self
            .parts
            .iter()
            .map(|part| count(part))
            .sum::<Option<u64>>()?;
        Some([sum, self.of.map_or(Some(0), count)?])
    }

    pub(super) fn cell(&self, campaign: &Campaign) -> String {
        match self.counts(campaign) {
            None => "-".into(),
            Some([sum, _]) if self.of.is_none() => thousands(sum),
            Some([sum, trials]) => proportion(sum, trials),
        }
    }
}

/// Events, and their share with its exact 95 % interval.
fn proportion(events: u64, trials: u64) -> String {
    if trials == 0 || events > trials {
        return thousands(events);
    }
    let share = clopper_pearson(events, trials);
    let percent = |share: f64| match 100.0 * share {
        whole if whole >= 1.0 => format!("{whole:.1}"),
        0.0 => "0".into(),
        part if part < 0.01 => format!("{part:.4}"),
        part => format!("{part:.2}"),
    };
    let [value, low, high] = [share.value, share.low, share.high].map(percent);
    let (events, trials) = (thousands(events), thousands(trials));
    format!("{events} of {trials}: {value} % [{low}, {high}]")
}

/// A count with commas.
pub(super) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Column, Group, thousands};

    const TEXT: &str = r#"
        group = "flips"
        [[goal]]
        title = "none"
        count = "silent+hung/faults"
        at_most = 0
        [[campaign]]
        what = "a"
        commit = "c"
        date = "2026-01-01"
        machine = "m"
        load = "l"
        command = "d"
        counts = { faults = 1000, silent = 0, hung = 0 }
        [[campaign]]
        what = "b"
        earlier = true
        commit = "c"
        date = "2026-01-01"
        machine = "m"
        load = "l"
        command = "d"
        counts = { faults = 10, silent = 1 }
    "#;

    #[test]
    fn goals_are_held_against_the_present_build() {
        let group: Group = toml::from_str(TEXT).unwrap();
        let (measured, met) = group.judge(&group.goal[0]).unwrap();
        assert_eq!(
            (measured.as_str(), met),
            ("0 of 1,000: 0 % [0, 0.37]", true)
        );
        let all: Group = toml::from_str(&TEXT.replace("earlier = true", "")).unwrap();
        let error = all.judge(&all.goal[0]).unwrap_err();
        assert!(
            error.to_string().starts_with("no data: flips: b"),
            "{error}"
        );
    }

    #[test]
    fn totals_are_sums_and_shares_of_what_is_judged() {
        let group: Group = toml::from_str(TEXT).unwrap();
        assert_eq!(group.total("faults").unwrap(), "1,000");
        assert_eq!(
            group.total("silent+hung/faults").unwrap(),
            "0 of 1,000: 0 % [0, 0.37]"
        );
        assert!(group.total("silent").is_err());
        assert!(group.total("silent/runs").is_err());
    }

    #[test]
    fn columns_are_sums_and_shares() {
        let group: Group = toml::from_str(TEXT).unwrap();
        let cell = |spec, at: usize| Column::parse(spec).cell(&group.campaign[at]);
        assert_eq!(cell("lost=silent+hung", 0), "0");
        assert_eq!(cell("lost=silent+hung", 1), "-");
        assert_eq!(cell("silent/faults", 1), "1 of 10: 10.0 % [0.25, 44.5]");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
