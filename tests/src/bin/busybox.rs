//! Runs busybox's own tests in machines; `cargo xtask busybox` is the usual way to call it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use rcoe_tests::busybox::page;
use rcoe_tests::busybox::plan::Plan;
use rcoe_tests::busybox::results::Results;
use rcoe_tests::busybox::run::{self, Settings};
use rcoe_tests::busybox::tree::Tree;

/// Runs the tests of a source tree of busybox on Linux and in machines, and compares.
#[derive(Debug, Parser)]
struct Options {
    /// The source tree.
    #[arg(long, required_unless_present = "packages")]
    source: Option<PathBuf>,
    /// Replicas; several numbers are tried, and stand side by side.
    #[arg(short, long, value_delimiter = ',', default_values_t = [2])]
    n: Vec<u32>,
    /// Machines at once.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Results of earlier runs, which are not run again; those of this one are added.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Only tests whose names begin with one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Longest time without a word from the tests, in seconds.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Also print what tests that differ tell, and what rcoe tells.
    #[arg(long)]
    verbose: bool,
    /// Also write the results as Markdown tables into this file.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Only print the Debian packages that are needed.
    #[arg(long)]
    packages: bool,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let plan = Plan::load()?;
    if options.packages {
        println!("{}", plan.packages.join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    let source = options.source.context("a source tree is needed")?;
    let busybox = run::find_busybox().context("busybox is not installed")?;
    let tree = Tree::new(&source, &busybox, options.verbose)?;
    let settings = Settings {
        replicas: options.n.clone(),
        at_once: options.at_once.max(1),
        limit: Duration::from_secs(options.limit),
        only: options.only,
        busybox,
    };
    let results = match &options.results {
        Some(path) => Results::open(path)?,
        None => Results::default(),
    };
    let show = |row: &run::Row| println!("{}", page::progress(row, options.verbose));
    let rows = run::all(&plan, &tree, (&settings, &results), show)?;
    if let Some(path) = &options.markdown {
        let table = page::markdown(&plan, &options.n, &rows);
        let headlines = page::headlines(&options.n, &rows).join("\n");
        let table = format!("{headlines}\n\n{table}");
        std::fs::write(path, table).with_context(|| path.display().to_string())?;
    }
    let passed: usize = rows.iter().flat_map(|row| &row.replicated).sum();
    let failed: usize = rows.iter().map(page::findings).sum();
    println!("\n{}", page::headlines(&options.n, &rows).join("\n"));
    println!("busybox: {passed} passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
