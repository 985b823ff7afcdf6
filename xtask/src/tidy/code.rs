//! Rules about Rust code, on its syntax tree.

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use super::{House, Source, exempt};

/// Most lines of a function, with its signature and braces.
const FUNCTION_LINES: usize = 70;

pub(super) fn long_functions(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for source in house.rust() {
        let file = syn::parse_file(&source.content).with_context(|| source.path.clone())?;
        let mut functions = Functions(Vec::new());
        functions.visit_file(&file);
        for (name, first, lines) in functions.0 {
            let long = lines > FUNCTION_LINES;
            if long && !exempt(&house.exemptions.long_function, &source.path, Some(&name)) {
                findings.push(format!("{}:{first}: {name} has {lines} lines", source.path));
            }
        }
    }
    Ok(findings)
}

/// Name, first line and number of lines of every function.
struct Functions(Vec<(String, usize, usize)>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, end: proc_macro2::LineColumn) {
        let first = signature.span().start().line;
        self.0
            .push((signature.ident.to_string(), first, end.line + 1 - first));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, function.block.span().end());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, function.block.span().end());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.add(&function.sig, function.span().end());
        visit::visit_trait_item_fn(self, function);
    }
}

pub(super) fn missing_headers(house: &House) -> Result<Vec<String>> {
    // A module of unit tests says its purpose by its name.
    let bare = |source: &&Source| {
        !source.content.starts_with("//!") && !source.path.ends_with("/tests.rs")
    };
    let finding = |source: &Source| format!("{}: no //! at its head", source.path);
    Ok(house.rust().filter(bare).map(finding).collect())
}

fn says_unsafe(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "unsafe",
        TokenTree::Group(group) => says_unsafe(group.stream()),
        _ => false,
    })
}

pub(super) fn stray_unsafe(house: &House) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for source in house.rust() {
        let tokens = source
            .content
            .parse()
            .ok()
            .with_context(|| source.path.clone())?;
        if says_unsafe(tokens) && !exempt(&house.exemptions.unsafe_code, &source.path, None) {
            findings.push(format!("{}: unsafe code", source.path));
        }
    }
    Ok(findings)
}

pub(super) fn missing_forbid(house: &House) -> Result<Vec<String>> {
    let root_file = |source: &&Source| {
        let path = &source.path;
        path.ends_with("/src/lib.rs")
            || path.ends_with("/src/main.rs")
            || path.contains("/src/bin/")
    };
    let mut findings = Vec::new();
    for source in house.rust().filter(root_file) {
        let forbids = source.content.contains("#![forbid(unsafe_code)]");
        let exempt = exempt(&house.exemptions.unsafe_code, &source.path, None);
        if !forbids && !exempt {
            findings.push(format!("{}: no #![forbid(unsafe_code)]", source.path));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::super::house_of;
    use super::*;

    #[test]
    fn a_long_function_is_found_with_its_length() {
        let long = format!(
            "//! x\nfn short() {{}}\nfn long() {{\n{}}}\n",
            "let _ = 1;\n".repeat(69)
        );
        let findings = long_functions(&house_of(&[("a/src/x.rs", &long)])).unwrap();
        assert_eq!(findings, ["a/src/x.rs:3: long has 71 lines"]);
    }

    #[test]
    fn only_real_unsafe_code_counts() {
        let house = house_of(&[
            (
                "a/src/a.rs",
                "//! x\n// unsafe\nconst A: &str = \"unsafe\";",
            ),
            ("a/src/b.rs", "#![forbid(unsafe_code)]"),
            ("a/src/c.rs", "fn f() { if true { unsafe { g() } } }"),
        ]);
        assert_eq!(stray_unsafe(&house).unwrap(), ["a/src/c.rs: unsafe code"]);
    }

    #[test]
    fn headers_and_forbid_are_demanded() {
        let house = house_of(&[
            ("a/src/lib.rs", "fn f() {}"),
            ("a/src/x.rs", "//! Purpose.\n"),
        ]);
        assert_eq!(missing_headers(&house).unwrap().len(), 1);
        assert_eq!(missing_forbid(&house).unwrap().len(), 1);
    }
}
