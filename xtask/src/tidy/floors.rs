//! The modules of a crate stand on floors: each uses only those on floors below its own.
//!
//! A circle of modules can only be understood, tested and changed as a whole. Where there still are
//! arrows upwards, `xtask/tidy.toml` counts them, as files of one module that name another one, and
//! the counts only get smaller.
//!
//! Not covered: arrows within a module, and code that only tests have.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use syn::visit::{self, Visit};

use super::{House, Source};

/// The floors of one crate.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Floors {
    /// Modules, the lowest first.
    order: Vec<String>,
    /// How many files of a module name one that stands higher, by `"low > high"`.
    #[serde(default)]
    up: BTreeMap<String, usize>,
}

pub(super) fn upward_arrows(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (folder, floors) in &house.exemptions.floors {
        let (arrows, unplaced) = arrows(house, folder, floors)?;
        let unplaced = unplaced.iter();
        findings.extend(unplaced.map(|module| format!("{folder}: {module} stands on no floor")));
        let known = floors.up.keys().chain(arrows.keys());
        for arrow in known.collect::<BTreeSet<_>>() {
            let files = arrows.get(arrow).map(Vec::as_slice).unwrap_or_default();
            let allowed = floors.up.get(arrow).copied().unwrap_or_default();
            if files.len() != allowed {
                let count = files.len();
                findings.push(format!(
                    "{folder}: {arrow}: {count} files, xtask/tidy.toml has {allowed}: {}",
                    files.join(", ")
                ));
            }
        }
    }
    Ok(findings)
}

/// Files with an arrow upwards, by the arrow, and modules that have no floor.
type Found = (BTreeMap<String, Vec<String>>, BTreeSet<String>);

fn arrows(house: &House, folder: &str, floors: &Floors) -> Result<Found> {
    let floor = |module: &str| floors.order.iter().position(|it| it == module);
    let (mut arrows, mut unplaced) = Found::default();
    for source in house.rust() {
        let Some(module) = module_of(source, folder) else {
            continue;
        };
        let Some(own) = floor(module) else {
            unplaced.insert(module.to_owned());
            continue;
        };
        let file = syn::parse_file(&source.content).with_context(|| source.path.clone())?;
        let mut named = Named::default();
        named.visit_file(&file);
        // What the crate's root itself defines has no floor.
        let higher = named.0.iter().filter(|it| floor(it) > Some(own));
        for other in higher {
            let files: &mut Vec<String> = arrows.entry(format!("{module} > {other}")).or_default();
            files.push(source.path[folder.len() + 1..].to_owned());
        }
    }
    Ok((arrows, unplaced))
}

/// The module of the crate that a file belongs to; none for the crate's root.
fn module_of<'a>(source: &'a Source, folder: &str) -> Option<&'a str> {
    let path = source.path.strip_prefix(folder)?.strip_prefix('/')?;
    let first = path.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(module, "lib" | "main")).then_some(module)
}

/// First words of the paths from the crate's root.
#[derive(Default)]
struct Named(BTreeSet<String>);

impl Named {
    fn add(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => drop(self.0.insert(path.ident.to_string())),
            syn::UseTree::Name(name) => drop(self.0.insert(name.ident.to_string())),
            syn::UseTree::Rename(name) => drop(self.0.insert(name.ident.to_string())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|it| self.add(it)),
            syn::UseTree::Glob(_) => (),
        }
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    let test = |it: &syn::Attribute| {
        let tokens = it.meta.require_list().map(|list| list.tokens.to_string());
        it.path().is_ident("cfg") && tokens.is_ok_and(|it| it == "test")
    };
    attributes.iter().any(test)
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if let syn::UseTree::Path(path) = &item.tree
            && path.ident == "crate"
            && !is_test(&item.attrs)
        {
            self.add(&path.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut words = path.segments.iter().map(|it| it.ident.to_string());
        if words.next().is_some_and(|it| it == "crate") {
            self.0.extend(words.next());
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::house_of;
    use super::*;

    fn findings(floors: &str, files: &[(&str, &str)]) -> Vec<String> {
        let mut house = house_of(files);
        house.exemptions.floors = toml::from_str(floors).unwrap();
        upward_arrows(&house).unwrap()
    }

    const LOW: &str = "use crate::{high::A, low};\nfn f() { crate::high::g(); }\n";

    #[test]
    fn an_arrow_upwards_is_found_and_counted_by_files() {
        let files = [
            ("a/src/low.rs", LOW),
            ("a/src/high/b.rs", "use crate::low;"),
        ];
        let floors = "['a/src']\norder = ['low', 'high']\n";
        let found = findings(floors, &files);
        assert!(found[0].contains("low > high: 1 files, xtask/tidy.toml has 0: low.rs"));
        let counted = format!("{floors}up = {{ 'low > high' = 1 }}");
        assert_eq!(findings(&counted, &files), [""; 0]);
        let too_many = format!("{floors}up = {{ 'low > high' = 2 }}");
        assert_eq!(findings(&too_many, &files).len(), 1);
    }

    #[test]
    fn tests_may_use_what_they_want_but_every_module_has_a_floor() {
        let test = "#[cfg(test)]\nmod tests { use crate::high; }\n";
        let files = [("a/src/low.rs", test), ("a/src/new.rs", "")];
        let found = findings("['a/src']\norder = ['low', 'high']\n", &files);
        assert_eq!(found, ["a/src: new stands on no floor"]);
    }
}
