//! Runs the compatibility matrix; `cargo xtask compat` is the usual way to call it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use rcoe_tests::cases::{Case, Catalogue, Scale};
use rcoe_tests::matrix::{Mode, Row, Settings, run_case};
use rcoe_tests::report;

/// Runs unmodified Debian programs under every mode of rcoe and compares with native runs.
#[derive(Debug, Parser)]
struct Options {
    /// Size of the inputs.
    #[arg(long, value_enum, default_value = "ci")]
    scale: Scale,
    /// Only programs whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Programs run at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Longest time of one run, in seconds.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Print the results as JSON on standard output, and progress on standard error.
    #[arg(long)]
    json: bool,
    /// Also write the results as a Markdown table into this file.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Only print the Debian packages the programs come from.
    #[arg(long)]
    packages: bool,
    /// Run this command line, with {n} and {compare} replaced, in place of rcoe.
    #[arg(long, hide = true)]
    launcher: Option<String>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let catalogue = Catalogue::load()?;
    if options.packages {
        println!("{}", catalogue.packages().join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    let settings = settings(&options, &catalogue)?;
    let rows = run_all(&catalogue.cases, &options, &settings)?;
    let counts = report::counts(&rows);
    if let Some(path) = &options.markdown {
        let table = report::markdown(&catalogue.cases, &rows, &settings.modes);
        std::fs::write(path, table).with_context(|| path.display().to_string())?;
    }
    if options.json {
        println!("{:#}", report::as_json(&catalogue.cases, &rows));
    } else {
        print!(
            "\n{}",
            report::markdown(&catalogue.cases, &rows, &settings.modes)
        );
        println!(
            "\ncompat: {} passed, {} failed",
            counts.passed, counts.failed
        );
    }
    Ok(if counts.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn settings(options: &Options, catalogue: &Catalogue) -> Result<Settings> {
    let launcher = match &options.launcher {
        Some(words) => words.split_whitespace().map(str::to_owned).collect(),
        None => Settings::rcoe_launcher()?,
    };
    Ok(Settings {
        launcher,
        scale: options.scale,
        limit: Duration::from_secs(options.limit),
        sizes: catalogue.sizes,
        modes: Mode::all(),
    })
}

fn run_all(cases: &[Case], options: &Options, settings: &Settings) -> Result<Vec<Row>> {
    let root = tempfile::tempdir()?;
    let wanted = |case: &Case| {
        options
            .filter
            .as_ref()
            .is_none_or(|part| case.name.contains(part))
    };
    let chosen: Vec<usize> = (0..cases.len())
        .filter(|&index| wanted(&cases[index]))
        .collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        while let Some(&index) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = run_case(index, &cases[index], settings, root.path())
                .with_context(|| cases[index].name.clone())?;
            let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
            let line = report::progress(rows.len() + 1, chosen.len(), &cases[index], &row);
            if options.json {
                eprintln!("{line}")
            } else {
                println!("{line}")
            }
            rows.push(row);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker that ends"))
    })?;
    let mut rows: Vec<Row> = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|row| row.case);
    Ok(rows)
}
