//! Runs CPython's own tests as replicas; `cargo xtask cpython` is the usual way to call it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
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
    /// Only a sample of the short modules, another one for each seed.
    #[arg(long, value_name = "SEED")]
    sample: Option<u64>,
    /// Modules run at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
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
    let rows = run_all(&plan, &chosen(&plan, &options), &options)?;
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
    match (options.modules.is_empty(), options.sample) {
        (false, _) => options.modules.clone(),
        (true, Some(seed)) => plan.sample(seed),
        (true, None) => plan.modules.clone(),
    }
}

fn run_all(plan: &Plan, modules: &[String], options: &Options) -> Result<Vec<Row>> {
    let settings = Settings {
        replicas: options.n,
        limit: Duration::from_secs(options.limit),
    };
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = modules.get(index) else {
                return Ok(());
            };
            let row = module(plan, name, &settings).with_context(|| name.clone())?;
            let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
            println!("{}", page::progress(rows.len() + 1, modules.len(), &row));
            rows.push((index, row));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker that ends"))
    })?;
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(index, _)| *index);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}
