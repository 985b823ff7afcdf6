//! The plan of a proof: campaigns, each with the count that it has to reach, and suites.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// All of it, or what was chosen.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    #[serde(default)]
    pub campaign: Vec<Campaign>,
    #[serde(default)]
    pub suite: Vec<Suite>,
}

/// One campaign.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Campaign {
    pub name: String,
    /// Group of the evidence.
    pub group: String,
    /// What runs, or what is hit, as the entry in the group names it.
    pub what: String,
    /// Replicas, where that is a single number.
    pub n: Option<u32>,
    /// A part, as a command of the lab; `{seed}` is another number in each.
    pub command: String,
    /// Which count is to be reached.
    pub count: String,
    pub at_least: u64,
    /// It is a single part, because what it counts cannot be added up.
    #[serde(default)]
    pub once: bool,
}

/// A suite of the bench.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    pub name: String,
}

impl Plan {
    /// What a plan has of these, or all of it.
    pub(super) fn read(path: &Path, only: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text, only).with_context(|| path.display().to_string())
    }

    fn parse(text: &str, only: &[String]) -> Result<Self> {
        let mut plan: Self = toml::from_str(text)?;
        let campaigns = plan.campaign.iter().map(|it| &it.name);
        let all: Vec<&String> = campaigns
            .chain(plan.suite.iter().map(|it| &it.name))
            .collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        ensure!(distinct.len() == all.len(), "two of one name");
        for name in only {
            let known = || {
                all.iter()
                    .map(|it| it.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            ensure!(
                all.contains(&name),
                "nothing is called {name}; known: {}",
                known()
            );
        }
        if !only.is_empty() {
            plan.campaign.retain(|it| only.contains(&it.name));
            plan.suite.retain(|it| only.contains(&it.name));
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use crate::evidence::FOLDER;

    fn own() -> String {
        std::fs::read_to_string(format!("{FOLDER}/prove.toml")).unwrap()
    }

    #[test]
    fn what_was_chosen_is_left_and_a_slip_is_told() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&it| it.to_owned()).collect();
            Plan::parse(&own(), &only).map(|it| (it.campaign.len(), it.suite.len()))
        };
        assert_eq!(names(&["race", "calls"]).unwrap(), (1, 1));
        let (campaigns, suites) = names(&[]).unwrap();
        assert!(campaigns > 10 && suites > 5);
        let error = names(&["rase"]).unwrap_err().to_string();
        assert!(
            error.starts_with("nothing is called rase; known: flips-2, "),
            "{error}"
        );
    }

    #[test]
    fn a_campaign_of_several_parts_has_another_seed_in_each() {
        for campaign in Plan::parse(&own(), &[]).unwrap().campaign {
            let seedless = ["steady", "hours"]
                .iter()
                .any(|it| campaign.command.starts_with(it));
            let seeded = campaign.command.contains("--seed {seed}");
            assert!(seeded != seedless, "{}", campaign.name);
        }
    }

    #[test]
    fn two_of_one_name_are_refused() {
        let twice = "[[suite]]\nname = \"a\"\n[[suite]]\nname = \"a\"\n";
        assert!(Plan::parse(twice, &[]).is_err());
    }
}
