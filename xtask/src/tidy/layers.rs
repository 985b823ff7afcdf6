//! Dependencies between the workspace's crates point one way: core at the bottom, cli at the top.

use anyhow::{Context as _, Result};
use toml::{Table, Value};

use super::House;

pub(super) fn wrong_dependencies(house: &House) -> Result<Vec<String>> {
    let layers = &house.exemptions.layers;
    let mut findings = Vec::new();
    for source in house
        .sources
        .iter()
        .filter(|source| source.path.ends_with("/Cargo.toml"))
    {
        let manifest: Table = source
            .content
            .parse()
            .with_context(|| source.path.clone())?;
        let name = manifest["package"]["name"].as_str().unwrap_or_default();
        let Some(allowed) = layers.get(name) else {
            findings.push(format!(
                "{}: {name} has no layer in xtask/tidy.toml",
                source.path
            ));
            continue;
        };
        for found in dependencies(&manifest) {
            if layers.contains_key(found) && !allowed.iter().any(|item| item == found) {
                findings.push(format!(
                    "{}: {name} must not depend on {found}",
                    source.path
                ));
            }
        }
    }
    findings.extend(cycle(house));
    Ok(findings)
}

/// Names of all dependencies of a manifest, of whatever kind.
fn dependencies(manifest: &Table) -> Vec<&str> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = kinds
        .iter()
        .filter_map(|kind| manifest.get(*kind).and_then(Value::as_table));
    tables
        .flat_map(|table| table.keys().map(String::as_str))
        .collect()
}

/// A crate of the table that reaches itself, if there is one.
fn cycle(house: &House) -> Option<String> {
    let layers = &house.exemptions.layers;
    layers.keys().find_map(|start| {
        let mut open: Vec<&String> = layers[start].iter().collect();
        let mut seen = Vec::new();
        while let Some(next) = open.pop() {
            if next == start {
                return Some(format!("xtask/tidy.toml: {start} depends on itself"));
            }
            if !seen.contains(&next) {
                seen.push(next);
                open.extend(layers.get(next).into_iter().flatten());
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::house_of;
    use super::*;

    fn findings(layers: &str, manifest: &str) -> Vec<String> {
        let mut house = house_of(&[("a/Cargo.toml", manifest)]);
        house.exemptions.layers = toml::from_str(layers).unwrap();
        wrong_dependencies(&house).unwrap()
    }

    #[test]
    fn a_dependency_upwards_is_found() {
        let manifest = "[package]\nname = 'low'\n[dependencies]\nhigh = {}\nother = '1'\n";
        assert_eq!(findings("low = ['high']\nhigh = []", manifest), [""; 0]);
        let wrong = findings("low = []\nhigh = ['low']", manifest);
        assert_eq!(wrong, ["a/Cargo.toml: low must not depend on high"]);
    }

    #[test]
    fn an_unknown_crate_and_a_cycle_are_found() {
        let manifest = "[package]\nname = 'low'\n";
        assert!(findings("x = []", manifest)[0].contains("no layer"));
        assert!(findings("low = ['x']\nx = ['low']", manifest)[0].contains("itself"));
    }
}
