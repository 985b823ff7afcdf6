//! Runs LTP's system call tests as replicas; `cargo xtask ltp` is the usual way to call it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use rcoe_tests::busybox::run::find_busybox;
use rcoe_tests::ltp::page;
use rcoe_tests::ltp::plan::{Plan, Sphere};
use rcoe_tests::ltp::results::Results;
use rcoe_tests::ltp::run::{self, Settings};
use rcoe_tests::ltp::source::{Source, Test};

/// Builds and runs the system call tests of a source tree of LTP on Linux and as replicas, and
/// compares.
#[derive(Debug, Parser)]
struct Options {
    /// The source tree, in which the tests are built.
    #[arg(long, required_unless_present = "packages")]
    sources: Option<PathBuf>,
    /// Which of rcoe's spheres.
    #[arg(long, value_enum, default_value_t = Sphere::System)]
    sphere: Sphere,
    /// Replicas; several numbers are tried one after the other.
    #[arg(short, long, value_delimiter = ',', default_values_t = [2])]
    n: Vec<u32>,
    /// Machines, or programs as replicas, at once.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Only tests whose names begin with one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Longest time for a test, in seconds.
    #[arg(long, default_value_t = 60)]
    limit: u64,
    /// Results of earlier runs, which are not run again; those of this one are added.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Also print what tests that differ say as replicas.
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
    let plan = Plan::load(options.sphere)?;
    if options.packages {
        println!("{}", plan.packages.join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    let source = Source::new(
        options
            .sources
            .as_ref()
            .context("a source tree is needed")?,
    )?;
    let (tests, unbuilt) = prepare(&source, &plan, &options)?;
    let settings = Settings {
        sphere: options.sphere,
        replicas: options.n.clone(),
        at_once: options.at_once.max(1),
        limit: options.limit,
        busybox: find_busybox().context("busybox is not installed")?,
    };
    let results = match &options.results {
        Some(path) => Results::open(path, options.sphere)?,
        None => Results::new(options.sphere),
    };
    let tell = |line: &str| println!("{line}");
    let rows = run::all(&plan, &tests, &settings, results, &tell)?;
    for difference in page::findings(&rows) {
        println!("\n{}", page::finding(difference));
        if options.verbose {
            println!("{}", difference.said);
        }
    }
    if let Some(path) = &options.markdown {
        let version = source.version()?;
        let kind = (options.sphere, options.n.as_slice());
        let table = page::markdown(&plan, kind, &rows, &unbuilt);
        let headlines = page::headlines(&options.n, &rows).join("\n");
        let text = format!("LTP {version}. {headlines}\n\n{table}");
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    let failed = page::findings(&rows).count();
    let sums = page::sums(&rows);
    let same: usize = sums.replicated.iter().map(|it| it[0]).sum();
    println!("\n{}", page::headlines(&options.n, &rows).join("\n"));
    println!("ltp: {same} passed, {failed} failed");
    Ok(if failed == 0 && same > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Builds the tests: those that are wanted, and the names of those that did not build.
fn prepare(source: &Source, plan: &Plan, options: &Options) -> Result<(Vec<Test>, Vec<String>)> {
    let there = source.calls()?;
    let untold: Vec<_> = there.iter().filter(|it| !plan.tells_of(it)).collect();
    ensure!(
        untold.is_empty(),
        "the plan in `tests` does not tell of {untold:?}"
    );
    source.build(&plan.calls, |line| println!("{line}"))?;
    let mut found = source.find(&plan.calls)?;
    let wanted = |name: &str| {
        let mut parts = options.only.iter();
        options.only.is_empty() || parts.any(|part| name.starts_with(part.as_str()))
    };
    found
        .tests
        .retain(|it| wanted(&it.name) && !plan.skips(&it.name));
    Ok((found.tests, found.unbuilt))
}
