//! Runs CPython's own tests as replicas; `cargo xtask cpython` is the usual way to call it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use rcoe_tests::cpython::page;
use rcoe_tests::cpython::plan::Plan;
use rcoe_tests::cpython::run::{Row, Settings, module};

/// Runs modules of CPython's test suite natively and under rcoe, and compares case by case.
#[derive(Debug, Parser)]
struct Options {
    /// Modules to run; all of the plan if none is named.
    modules: Vec<String>,
    /// Replicas.
    #[arg(long, default_value_t = 2)]
    n: u32,
    /// Only the short modules that CI runs.
    #[arg(long)]
    quick: bool,
    /// Longest time of one native run, in seconds.
    #[arg(long, default_value_t = 300)]
    limit: u64,
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
    let settings = Settings {
        replicas: options.n,
        limit: Duration::from_secs(options.limit),
    };
    let rows = run_all(&plan, &chosen(&plan, &options), &settings)?;
    if let Some(path) = &options.markdown {
        let table = page::markdown(&plan, &rows);
        std::fs::write(path, table).with_context(|| path.display().to_string())?;
    }
    let passed: usize = rows.iter().map(|row| row.replicated).sum();
    let failed: usize = rows.iter().map(Row::findings).sum();
    println!("\ncpython: {passed} passed, {failed} failed");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn chosen(plan: &Plan, options: &Options) -> Vec<String> {
    match (options.modules.is_empty(), options.quick) {
        (false, _) => options.modules.clone(),
        (true, true) => plan.quick.clone(),
        (true, false) => plan.modules.clone(),
    }
}

fn run_all(plan: &Plan, modules: &[String], settings: &Settings) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (index, name) in modules.iter().enumerate() {
        let row = module(plan, name, settings).with_context(|| name.clone())?;
        println!("{}", page::progress(index + 1, modules.len(), &row));
        rows.push(row);
    }
    Ok(rows)
}
