//! `rcoe-bench`: measures what replication costs.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use rcoe_bench::render::{Results, Suite, markdown};
use rcoe_bench::workshop::{Scale, Workshop};
use rcoe_bench::{
    births, calls, cpu, evidence, instructions, memory, prove, recovery, scrub, servers, service,
    signals, slices, startup, system, ycsb,
};
use rcoe_faultlab::host::{commit, machine};

const PROVE_EXAMPLES: &str = "\
Examples:
  cargo xtask prove --list                       how far everything is
  cargo xtask prove --minutes 480                a night; the same command goes on
  cargo xtask prove --only system-2,system-3     machines only

Parts and what the fault lab said of each are kept in target/prove/COMMIT; their sums go to
evidence/, from which cargo xtask docs renders the pages. Ends with 1 if something was found.";

/// Measures what replication costs, as ratios taken in one run.
#[derive(Debug, Parser)]
#[command(name = "rcoe-bench", version)]
struct Arguments {
    /// Few repetitions of little work: to see that everything works.
    #[arg(long)]
    quick: bool,
    /// Also write what was measured as evidence, a file for each suite, to this folder
    /// (evidence): from it `cargo xtask docs` renders pages.
    #[arg(long, value_name = "FOLDER", global = true)]
    evidence: Option<PathBuf>,
    /// Also write all measured values to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Print markdown to standard output (the default and only format; kept for scripts).
    #[arg(long)]
    md: bool,
    /// Suites to run: calls, cpu, startup, memory; births, which needs make; instructions, which
    /// single-steps and is exact on any machine; recovery, signals and slices, which take minutes;
    /// scrub, which does so, too, and needs redis-server; servers, which takes eight minutes
    /// (--quick: three) and needs redis-server, nginx and wrk; and ycsb, which needs a JDK and
    /// Maven with its registry besides.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "calls,cpu,startup,memory"
    )]
    only: Vec<String>,
    /// Fail if a call takes more instructions than its bound; with the suite instructions.
    #[arg(long)]
    check_bounds: bool,
    /// Write the bounds anew, from what the suite instructions counts.
    #[arg(long, conflicts_with = "check_bounds")]
    update_bounds: bool,
    /// Only tell where the instructions of one call go, by function; of this kind, as the table of
    /// bounds names them.
    #[arg(long, value_name = "KIND", conflicts_with_all = ["check_bounds", "update_bounds"])]
    profile: Option<String>,
    /// The table of bounds.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.tsv"))]
    bounds: PathBuf,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long, global = true)]
    rcoe: Option<PathBuf>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Flip bits in replicas of Redis while clients check every answer.
    #[command(
        after_help = "Needs what the suite ycsb needs. Ends with 1 if a client saw an error, a \
        wrong value or a wrong count, or if not all replicas were back at the end.\n\nExample:\n  \
        rcoe-bench service --minutes 30 --every 5 --plot redis.svg --json redis.json"
    )]
    Service(service::Order),
    /// Measure the system sphere, in instructions or in processor cycles.
    System(system::Order),
    /// Carry out the long campaigns and suites of a plan, and write them as evidence.
    #[command(after_help = PROVE_EXAMPLES)]
    Prove(prove::Order),
    /// Print a page that is rendered from the evidence of this source tree.
    Page {
        /// As in BENCH, or bench/calls.
        name: String,
    },
    /// Print the names of these pages.
    Pages,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rcoe-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// False if something that was checked was not right.
fn run(args: &Arguments) -> Result<bool> {
    let rcoe = match &args.rcoe {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("rcoe"),
    };
    if let Some(Action::Page { name }) = &args.action {
        let book = book(args)?;
        print!("{}", book.render(name).with_context(|| name.clone())?);
        return Ok(true);
    }
    if let Some(Action::Pages) = &args.action {
        book(args)?.names().for_each(|name| println!("{name}"));
        return Ok(true);
    }
    if let Some(Action::Prove(order)) = &args.action {
        return prove::run(order, args.evidence.as_deref());
    }
    if let Some(Action::System(order)) = &args.action {
        return machines(&rcoe, order, args.evidence.as_deref());
    }
    let workshop = Workshop::open(&rcoe)?;
    if let Some(Action::Service(order)) = &args.action {
        return serve(&workshop, order);
    }
    if let Some(kind) = &args.profile {
        print!("{}", instructions::profile(&workshop, kind)?);
        return Ok(true);
    }
    let scale = if args.quick {
        Scale::QUICK
    } else {
        Scale::FULL
    };
    let before = load();
    let goals = evidence::Goals::read()?;
    let suites = args.only.iter().map(|name| {
        eprintln!("measuring: {name}");
        suite(name, &workshop, scale, &goals)
    });
    let suites = suites.collect::<Result<Vec<_>>>()?;
    let cpus = std::thread::available_parallelism()?.get();
    let load = [before, load()];
    let results = Results {
        commit: commit(),
        machine: machine(),
        cpus,
        load,
        suites,
    };
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&results)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(folder) = &args.evidence {
        for (name, suite) in args.only.iter().zip(&results.suites) {
            let [before, after] = &results.load;
            keep(
                folder,
                name,
                [before, after],
                evidence::condensed(&suite.series),
            )?;
        }
    }
    print!("{}", markdown(&results));
    keep_bounds(args, &results)
}

/// Writes the evidence of one suite.
fn keep(
    folder: &Path,
    suite: &str,
    [before, after]: [&str; 2],
    series: Vec<evidence::Series>,
) -> Result<()> {
    let load = format!("{before} before, {after} after");
    evidence::File::fresh(suite, load, series)?.write(folder)
}

/// The pages, and what they are rendered from.
fn book(args: &Arguments) -> Result<evidence::Book> {
    let own = Path::new(evidence::FOLDER);
    evidence::Book::read(args.evidence.as_deref().unwrap_or(own))
}

/// Writes bounds, or holds what was counted against them; false if there is too much.
fn keep_bounds(args: &Arguments, results: &Results) -> Result<bool> {
    let name = "instructions";
    let suite = args.only.iter().position(|only| only == name);
    let counted = suite.map(|at| results.suites[at].series.as_slice());
    if !args.check_bounds && !args.update_bounds {
        return Ok(true);
    }
    let counted = counted.context("bounds are those of --only instructions")?;
    if args.update_bounds {
        instructions::Bounds::of(counted).write(&args.bounds)?;
        return Ok(true);
    }
    let verdict = instructions::Bounds::read(&args.bounds)?.judge(counted);
    for failure in &verdict.failures {
        println!("FAILED {failure}");
    }
    let failed = verdict.failures.len();
    println!("{name}: {} passed, {failed} failed", verdict.passed);
    Ok(failed == 0)
}

fn machines(rcoe: &Path, order: &system::Order, folder: Option<&Path>) -> Result<bool> {
    let before = load();
    let told = system::measure(rcoe, order)?;
    let after = load();
    println!(
        "Commit {}, {}; load average {before} before, {after} after.\n{}",
        commit(),
        machine(),
        told.text
    );
    if let Some(folder) = folder {
        keep(folder, "system", [&before, &after], told.series)?;
    }
    Ok(true)
}

fn serve(workshop: &Workshop, order: &service::Order) -> Result<bool> {
    let before = load();
    let outcome = service::run(workshop, order)?;
    if let Some(path) = &order.json {
        std::fs::write(path, serde_json::to_string_pretty(&outcome)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &order.plot {
        service::draw(path, &outcome)?;
    }
    let on = format!(
        "{}, commit {}, load {before} to {}",
        machine(),
        commit(),
        load()
    );
    print!("{}", service::markdown(order, &outcome, &on));
    Ok(outcome.is_right())
}

fn suite(name: &str, workshop: &Workshop, scale: Scale, goals: &evidence::Goals) -> Result<Suite> {
    let (title, series) = match name {
        "calls" => ("Cost of one system call", calls::measure(workshop, scale)?),
        "cpu" => ("CPU-bound programs", cpu::measure(workshop, scale)?),
        "startup" => ("Start-up", startup::measure(workshop, scale)?),
        "memory" => ("Memory", memory::measure(workshop, scale)?),
        "births" => ("Births", births::measure(workshop, scale)?),
        "ycsb" => ("Redis under YCSB", ycsb::measure(workshop, scale)?),
        "recovery" => ("Recovery", recovery::measure(workshop, scale)?),
        "signals" => (
            "Signals to a program that computes",
            signals::measure(workshop, scale)?,
        ),
        "slices" => (
            "Slices, beside none in place of native",
            slices::measure(workshop, scale)?,
        ),
        "scrub" => (
            "Scrubbing, beside a server without it in place of native",
            scrub::measure(workshop, scale)?,
        ),
        "instructions" => (
            "Instructions of one call",
            instructions::measure(workshop, scale)?,
        ),
        "servers" => ("Servers", servers::measure(workshop, scale)?),
        _ => bail!(
            "unknown suite '{name}'; known: calls, cpu, startup, memory, births, instructions, \
             recovery, scrub, servers, signals, slices, ycsb"
        ),
    };
    let goals = goals.judge(name, &evidence::condensed(&series));
    let table = match name {
        "instructions" => Some(instructions::table(&series)),
        "servers" => Some(servers::table(&series)),
        "ycsb" => Some(ycsb::table(&series)),
        _ => None,
    };
    Ok(Suite {
        title,
        series,
        goals,
        table,
    })
}

/// Load average of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
