//! The entry of a campaign in its group's file of evidence.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Table, value};

use super::parts::Parts;
use super::plan::Campaign;
use crate::evidence::{Campaigns, listed};

/// How the command of each entry begins that a proof may replace.
const COMMAND: &str = "cargo xtask prove --only ";

/// Puts the sum of all parts into the file of the campaign's group, in place of an earlier one.
pub(super) fn put(
    evidence: &Path,
    campaign: &Campaign,
    parts: &Parts,
    made_of: [&str; 2],
) -> Result<()> {
    for path in listed(&evidence.join("faults"), "toml")? {
        let text = fs::read_to_string(&path)?;
        let document: DocumentMut = text.parse().with_context(|| path.display().to_string())?;
        if document.get("group").and_then(|it| it.as_str()) != Some(&campaign.group) {
            continue;
        }
        let text = with_entry(document, campaign, parts, made_of)?;
        Campaigns::check(&text)
            .with_context(|| format!("{}: {}", path.display(), campaign.name))?;
        return fs::write(&path, text).with_context(|| path.display().to_string());
    }
    anyhow::bail!("no file of evidence is of the group {}", campaign.group)
}

fn with_entry(
    mut document: DocumentMut,
    campaign: &Campaign,
    parts: &Parts,
    [commit, machine]: [&str; 2],
) -> Result<String> {
    let all = document
        .get_mut("campaign")
        .and_then(|it| it.as_array_of_tables_mut());
    let all = all.context("no campaigns")?;
    let command = format!("{COMMAND}{}", campaign.name);
    let names = counted(all);
    all.retain(|entry| entry.get("command").and_then(|it| it.as_str()) != Some(&command));
    let mut entry = Table::new();
    entry["what"] = value(&campaign.what);
    if let Some(n) = campaign.n {
        entry["n"] = value(i64::from(n));
    }
    let last = parts.all.last().context("no parts")?;
    entry["commit"] = value(commit);
    entry["date"] = value(&last.date);
    entry["machine"] = value(machine);
    entry["load"] = value(load(parts));
    entry["command"] = value(&command);
    entry["note"] = value(note(campaign, parts));
    let mut counts = InlineTable::new();
    for name in &last.counts.keys().cloned().collect::<BTreeSet<_>>() & &names {
        ensure!(
            !campaign.once || parts.len() == 1,
            "{} is to have a single part",
            campaign.name
        );
        counts.insert(&name, i64::try_from(parts.sum(&name))?.into());
    }
    entry["counts"] = value(counts);
    all.push(entry);
    Ok(document.to_string())
}

/// What the group's tables tell of.
fn counted(all: &ArrayOfTables) -> BTreeSet<String> {
    let counts = all
        .iter()
        .filter_map(|it| it.get("counts")?.as_inline_table());
    counts
        .flat_map(|counts| counts.iter().map(|(name, _)| name.to_owned()))
        .collect()
}

/// The least and the greatest load.
fn load(parts: &Parts) -> String {
    let all = parts.all.iter().flat_map(|part| part.load);
    let (low, high) = all.fold((f64::MAX, 0.0_f64), |(low, high), it| {
        (low.min(it), high.max(it))
    });
    format!("{low:.1} to {high:.1}")
}

/// How to make a part again.
fn note(campaign: &Campaign, parts: &Parts) -> String {
    let seeds: Vec<u64> = parts.all.iter().map(|part| part.seed).collect();
    let (first, last) = (seeds[0], seeds[seeds.len() - 1]);
    let seeds = match campaign.command.contains("{seed}") {
        true if first == last => format!("seed {first}"),
        true => format!("seeds {first} to {last} in steps of 1000"),
        false => "without seeds".into(),
    };
    let plural = if parts.len() == 1 { "" } else { "s" };
    format!(
        "{} part{plural} by `rcoe-faultlab {}`, {seeds}",
        parts.len(),
        campaign.command.replace("{seed}", "SEED")
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rcoe_faultlab::host;

    use super::put;
    use crate::prove::parts::{Part, Parts};
    use crate::prove::plan::Campaign;

    const GROUP: &str = "\
# Kept as it is.
group = \"flips\"

[[goal]]
title = \"none\"
count = \"silent/faults\"
at_most = 0

[[campaign]]
what = \"by hand\"
commit = \"a\"
date = \"2026-01-01\"
machine = \"m\"
load = \"l\"
command = \"rcoe-faultlab campaign\"
counts = { faults = 10, silent = 0 }
";

    fn campaign(group: &str) -> Campaign {
        Campaign {
            name: "flips-2".into(),
            group: group.into(),
            what: "md5sum".into(),
            n: Some(2),
            command: "campaign --seed {seed}".into(),
            count: "faults".into(),
            at_least: 100,
            once: false,
        }
    }

    fn add(parts: &mut Parts, seed: u64, counts: &[(&str, u64)]) {
        let counts = counts.iter().map(|(name, count)| ((*name).into(), *count));
        let part = Part {
            command: "campaign --seed {seed}".into(),
            seed,
            machine: host::machine(),
            date: "2026-02-02".into(),
            load: [0.25, 2.0],
            well: true,
            counts: counts.collect(),
        };
        parts.add(part).unwrap();
    }

    fn written(folder: &Path, group: &str, parts: &Parts) -> anyhow::Result<String> {
        put(folder, &campaign(group), parts, ["c0ffee", "a machine"])?;
        Ok(fs::read_to_string(folder.join("faults/01-flips.toml"))?)
    }

    #[test]
    fn the_sum_of_all_parts_replaces_the_entry_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("faults")).unwrap();
        fs::write(folder.path().join("faults/01-flips.toml"), GROUP).unwrap();
        let mut parts = Parts::open(folder.path(), "flips-2", "campaign --seed {seed}").unwrap();
        add(
            &mut parts,
            7,
            &[("faults", 60), ("silent", 0), ("other", 1)],
        );
        written(folder.path(), "flips", &parts).unwrap();
        add(
            &mut parts,
            1007,
            &[("faults", 40), ("silent", 1), ("other", 1)],
        );
        let text = written(folder.path(), "flips", &parts).unwrap();
        let (kept, entry) = text.split_at(GROUP.len());
        assert_eq!(kept, GROUP);
        assert_eq!(entry.matches("[[campaign]]").count(), 1, "{entry}");
        for line in [
            "n = 2",
            "commit = \"c0ffee\"",
            "date = \"2026-02-02\"",
            "load = \"0.2 to 2.0\"",
            "command = \"cargo xtask prove --only flips-2\"",
            "counts = { faults = 100, silent = 1 }",
        ] {
            assert!(entry.lines().any(|it| it == line), "{line} in {entry}");
        }
        assert!(entry.contains("2 parts by `rcoe-faultlab campaign --seed SEED`, seeds 7 to 1007"));
    }

    #[test]
    fn what_the_group_counts_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("faults")).unwrap();
        fs::write(folder.path().join("faults/01-flips.toml"), GROUP).unwrap();
        let mut parts = Parts::open(folder.path(), "flips-2", "campaign --seed {seed}").unwrap();
        add(&mut parts, 7, &[("faults", 60)]);
        assert!(written(folder.path(), "flips", &parts).is_err());
        assert!(written(folder.path(), "walks", &parts).is_err());
        let text = fs::read_to_string(folder.path().join("faults/01-flips.toml")).unwrap();
        assert_eq!(text, GROUP);
    }
}
