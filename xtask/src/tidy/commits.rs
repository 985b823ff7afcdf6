//! The rule that evidence names commits which everybody has: whoever doubts a figure can then build
//! what was measured. A branch that was put on top of others is gone, and so is a working copy with
//! edits.
//!
//! Contract: a commit is the beginning of the hash of one that HEAD comes from, or `none` for what
//! others have published. Without all of the history nothing can be said, and that is told.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{House, Source};

/// What stands in place of a commit where there is none: figures of papers.
const NONE: &str = "none";
/// Fewest digits that name a commit.
const DIGITS: usize = 7;

/// Commits of evidence that are not in the history.
pub(super) fn unknown(house: &House) -> Result<Vec<String>> {
    match history(&house.root) {
        Ok(history) => strangers(house, &history),
        Err(why) => {
            println!("tidy: commits of evidence are not looked up: {why}");
            Ok(Vec::new())
        }
    }
}

fn strangers(house: &House, history: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for source in &house.sources {
        let all = named(source).with_context(|| source.path.clone())?;
        let lost = all.iter().filter(|commit| !is_known(commit, history));
        let lost: BTreeSet<&String> = lost.collect();
        findings.extend(lost.iter().map(|it| format!("{}: {it}", source.path)));
    }
    Ok(findings)
}

fn is_known(commit: &str, history: &BTreeSet<String>) -> bool {
    let next = history.range(commit.to_owned()..).next();
    let found = next.is_some_and(|hash| hash.starts_with(commit));
    commit == NONE || (commit.len() >= DIGITS && found)
}

/// The commits that a file of evidence names; of any other file none.
fn named(source: &Source) -> Result<Vec<String>> {
    let content = source.content.as_str();
    let all = match source.path.split('/').collect::<Vec<_>>()[..] {
        ["evidence", "cost", name] if name.ends_with(".json") => {
            vec![serde_json::from_str::<serde_json::Value>(content)?["commit"].to_owned()]
        }
        ["evidence", "faults", name] if name.ends_with(".toml") => {
            let group: serde_json::Value = toml::from_str(content)?;
            let campaigns = group["campaign"].as_array().context("no campaign")?;
            campaigns.iter().map(|it| it["commit"].clone()).collect()
        }
        _ => Vec::new(),
    };
    let text = |commit: &serde_json::Value| commit.as_str().map(str::to_owned);
    all.iter().map(|it| text(it).context("no commit")).collect()
}

/// All commits that HEAD comes from, or why they cannot be told.
fn history(root: &Path) -> Result<BTreeSet<String>, &'static str> {
    let git = |words: &[&str]| {
        let done = Command::new("git").args(words).current_dir(root).output();
        let done = done.ok().filter(|done| done.status.success());
        done.map(|done| String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let shallow = git(&["rev-parse", "--is-shallow-repository"]).ok_or("git says nothing")?;
    if shallow.trim() != "false" {
        return Err("this clone is shallow");
    }
    let list = git(&["rev-list", "HEAD"]).ok_or("git lists no commits")?;
    Ok(list.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::super::house_of;
    use super::{DIGITS, history, unknown};

    /// Runs git, with a name for who commits.
    fn git(folder: &Path, words: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(folder).args(["-c", "user.name=a"]);
        git.args(["-c", "user.email=a@b"]).args(words);
        assert!(git.output().unwrap().status.success(), "{words:?}");
    }

    /// A repository of two commits, the later one on another branch than HEAD; their hashes.
    fn repository(folder: &Path) -> [String; 2] {
        git(folder, &["init", "--quiet"]);
        let head = || history(folder).unwrap();
        git(folder, &["commit", "--quiet", "--allow-empty", "-m", "a"]);
        let first = head();
        git(folder, &["checkout", "--quiet", "-b", "other"]);
        git(folder, &["commit", "--quiet", "--allow-empty", "-m", "b"]);
        let both = head();
        git(folder, &["checkout", "--quiet", "-"]);
        assert_eq!(head(), first);
        let second = both.difference(&first).next().unwrap();
        [first.first().unwrap(), second].map(|hash| hash[..DIGITS].to_owned())
    }

    #[test]
    fn commits_of_evidence_are_those_that_head_comes_from() {
        let folder = tempfile::tempdir().unwrap();
        let [known, lost] = repository(folder.path());
        let json = |commit: &str| format!("{{\"suite\": \"s\", \"commit\": \"{commit}\"}}");
        let (good, gone) = (json(&known), json(&lost));
        let toml: String = [
            &known,
            "none",
            &format!("{known}-dirty"),
            "not kept",
            "",
            &lost,
        ]
        .map(|commit| format!("[[campaign]]\ncommit = \"{commit}\"\n"))
        .concat();
        let mut house = house_of(&[
            ("evidence/cost/a.json", &good),
            ("evidence/cost/b.json", &gone),
            ("evidence/faults/c.toml", &toml),
            ("evidence/goals.toml", "commit"),
        ]);
        house.root = folder.path().to_path_buf();
        let mut expected = vec![format!("evidence/cost/b.json: {lost}")];
        let mut others = ["", "not kept", &format!("{known}-dirty"), &lost].map(str::to_owned);
        others.sort();
        expected.extend(others.map(|it| format!("evidence/faults/c.toml: {it}")));
        assert_eq!(unknown(&house).unwrap(), expected);
        house.sources[0].content = "{}".to_owned();
        assert!(unknown(&house).is_err());
    }

    #[test]
    fn without_the_whole_history_nothing_is_said() {
        let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(history(copy.path()), Err("git says nothing"));
        repository(folder.path());
        git(folder.path(), &["commit", "--allow-empty", "-m", "c"]);
        let source = format!("file://{}", folder.path().display());
        git(
            copy.path(),
            &["clone", "--quiet", "--depth", "1", &source, "."],
        );
        assert_eq!(history(copy.path()), Err("this clone is shallow"));
        let mut house = house_of(&[("evidence/cost/a.json", "{\"commit\": \"x\"}")]);
        house.root = copy.path().to_path_buf();
        assert!(unknown(&house).unwrap().is_empty());
    }
}
