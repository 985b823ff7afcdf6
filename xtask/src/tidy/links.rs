//! Rules about the documentation's links.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{House, Source};

fn page<'a>(house: &'a House, path: &str) -> Result<&'a Source> {
    let found = house.sources.iter().find(|source| source.path == path);
    found.with_context(|| format!("{path} is missing"))
}

/// Top-level folders that the map (a table with one line for each) omits, or names in vain.
pub(super) fn unmapped_folders(house: &House) -> Result<Vec<String>> {
    let folder = |source: &Source| source.path.split_once('/').map(|(top, _)| top.to_owned());
    let real: BTreeSet<String> = house
        .sources
        .iter()
        .filter_map(folder)
        .filter(|name| !name.starts_with('.'))
        .collect();
    let readme = page(house, "README.md")?;
    let row = |line: &str| {
        let name = line.strip_prefix("| [`")?.split_once("/`](")?.0;
        Some(name.to_owned())
    };
    let mapped: BTreeSet<String> = readme.content.lines().filter_map(row).collect();
    let missing = real
        .difference(&mapped)
        .map(|name| format!("README.md: no line for {name}/"));
    let extra = mapped
        .difference(&real)
        .map(|name| format!("README.md: there is no {name}/"));
    Ok(missing.chain(extra).collect())
}

/// Link targets of a page: what stands in `](…)`.
fn targets(source: &Source) -> Vec<&str> {
    let parts = source.content.split("](").skip(1);
    parts
        .filter_map(|part| part.split_once(')'))
        .map(|(target, _)| target)
        .collect()
}

/// A relative target of a page as path from the top folder.
fn path_from(source: &Source, file: &str) -> String {
    let folder = Path::new(&source.path).parent().unwrap_or(Path::new(""));
    let mut path = folder.to_path_buf();
    for part in Path::new(file).components() {
        match part {
            std::path::Component::ParentDir => drop(path.pop()),
            std::path::Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path.display().to_string()
}

/// A page's relative link targets as paths from the top folder, without fragments.
fn resolved(source: &Source) -> Vec<String> {
    let relative = targets(source)
        .into_iter()
        .filter(|target| !target.contains("://") && !target.starts_with('#'));
    relative
        .map(|target| path_from(source, target.split('#').next().unwrap_or_default()))
        .collect()
}

/// Pages that lead on to those of a folder of their own.
const LEADING: [&str; 2] = ["docs/BENCH.md", "docs/FAULTS.md"];

pub(super) fn orphans(house: &House) -> Result<Vec<String>> {
    let mut linked = Vec::new();
    for path in ["README.md", "docs/ARCHITECTURE.md"] {
        linked.extend(resolved(page(house, path)?));
    }
    let parts = house.sources.iter();
    let parts = parts.filter(|source| {
        let path = source.path.as_str();
        path.starts_with("docs/architecture/") || LEADING.contains(&path)
    });
    linked.extend(parts.flat_map(resolved));
    let is_page = |source: &&Source| {
        source.path.starts_with("docs/") && source.is_markdown() && !linked.contains(&source.path)
    };
    let finding = |source: &Source| {
        let path = &source.path;
        format!("{path}: neither README nor ARCHITECTURE nor BENCH nor FAULTS")
    };
    Ok(house.sources.iter().filter(is_page).map(finding).collect())
}

pub(super) fn broken(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for source in house.sources.iter().filter(|source| source.is_markdown()) {
        for target in resolved(source) {
            if !house.root.join(&target).exists() {
                findings.push(format!("{}: no such file: {target}", source.path));
            }
        }
    }
    Ok(findings)
}

/// Headings of a page as the anchors that links name them by.
fn anchors(page: &Source) -> BTreeSet<String> {
    let letter = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let anchor = |heading: &str| {
        let bare: String = heading.to_lowercase().chars().filter(letter).collect();
        bare.trim().replace(' ', "-")
    };
    let mut code = false;
    let mut all = BTreeSet::new();
    for line in page.content.lines() {
        code ^= line.starts_with("```");
        if !code && line.starts_with('#') {
            all.insert(anchor(line.trim_start_matches('#')));
        }
    }
    all
}

/// Links to headings that are not there.
pub(super) fn broken_anchors(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for source in house.sources.iter().filter(|source| source.is_markdown()) {
        for target in targets(source) {
            let Some((file, anchor)) = target.split_once('#') else {
                continue;
            };
            let path = if file.is_empty() {
                source.path.clone()
            } else {
                path_from(source, file)
            };
            let page = house.sources.iter().find(|page| page.path == path);
            let page = page.filter(|page| page.is_markdown());
            if page.is_some_and(|page| !anchors(page).contains(anchor)) {
                findings.push(format!("{}: no such heading: {target}", source.path));
            }
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::super::house_of;
    use super::*;

    #[test]
    fn anchors_are_those_of_headings() {
        let house = house_of(&[
            (
                "a.md",
                "# The `write` call\n[x](#the-write-call) [y](b.md#gone) [z](b.md#one)\n",
            ),
            ("b.md", "## One\n```\n# gone\n```\n"),
        ]);
        let findings = broken_anchors(&house).unwrap();
        assert_eq!(findings, ["a.md: no such heading: b.md#gone"]);
    }

    #[test]
    fn the_map_must_be_exact() {
        let readme = "| [`core/`](core/) | x |\n| [`gone/`](gone/) | x |\n";
        let house = house_of(&[("README.md", readme), ("core/a", ""), ("sim/a", "")]);
        let findings = unmapped_folders(&house).unwrap();
        assert_eq!(
            findings,
            [
                "README.md: no line for sim/",
                "README.md: there is no gone/"
            ]
        );
    }

    #[test]
    fn orphans_and_broken_links_are_found() {
        let house = house_of(&[
            (
                "README.md",
                "[a](docs/ARCHITECTURE.md#x) [b](https://example.org) [c](#here)",
            ),
            ("docs/ARCHITECTURE.md", "[a](../Cargo.toml) [b](nowhere.md)"),
            ("docs/LOST.md", "[a](bench/b.md)"),
            ("docs/BENCH.md", "[a](bench/a.md)"),
            ("docs/bench/a.md", ""),
            ("docs/bench/b.md", ""),
        ]);
        let lost = orphans(&house).unwrap();
        let found = |path| lost.iter().any(|text| text.starts_with(path));
        assert_eq!(lost.len(), 3);
        assert!(
            ["docs/LOST", "docs/BENCH", "docs/bench/b"]
                .into_iter()
                .all(found)
        );
        assert!(
            broken(&house)
                .unwrap()
                .iter()
                .any(|text| text.ends_with("docs/nowhere.md"))
        );
    }
}
