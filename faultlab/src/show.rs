//! `show` and `inject`: what became of a flip, as a story; for who sees this for the first time.
//!
//! Most flips hit what nobody reads again. `show` goes on until one is noticed, or ends otherwise
//! than it may.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use rcoe_faultlab::campaign::WorkFolder;
use rcoe_faultlab::inject::When;
use rcoe_faultlab::journal::Record;
use rcoe_faultlab::report;
use rcoe_faultlab::system::{self, Processor};
use rcoe_faultlab::taxonomy::Verdict;

use crate::args::{Common, RcoeArgs};

pub(crate) const EXAMPLES: &str = "\
Examples:
  rcoe-faultlab show                          a bit in one of three replicas of sha256sum
  rcoe-faultlab show -n 2                     two replicas: noticed, and stopped
  rcoe-faultlab show --sphere system          a bit in one of three kernels, in QEMU
  rcoe-faultlab show --sphere both            both
  rcoe-faultlab show --program python --targets heap";

/// Where bits are flipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sphere {
    /// In a Linux program
    Process,
    /// In a machine of kernels, drivers and programs; needs QEMU
    System,
    /// In one after the other
    Both,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Where bits are flipped.
    #[arg(long, value_enum, default_value = "process")]
    sphere: Sphere,
    /// Number of replicas: 2 notice and stop, 3 and more mask.
    #[arg(short = 'n', long, default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(2..=4))]
    replicas: u64,
    /// Seed: which bits, and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most runs until a flip shows.
    #[arg(long, default_value_t = 200)]
    tries: u64,
    /// Process sphere: what runs, as campaign names it.
    #[arg(long, default_value = "sha256sum")]
    program: String,
    /// Process sphere: state to hit, as campaign names it.
    #[arg(long, default_value = "regs")]
    targets: String,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    rcoe: Option<PathBuf>,
}

/// Flips in one machine at most.
const FLIPS: usize = 16;
/// A machine that is shown may take so much CPU time.
const DEADLINE: Duration = Duration::from_secs(60);

/// Flips bits, run after run, until one shows. True if it came out as promised.
pub(crate) fn run(args: &ShowArgs) -> Result<bool> {
    let n = args.replicas;
    let mut well = true;
    if args.sphere != Sphere::System {
        let program = &args.program;
        println!("flipping a bit in one of {n} replicas of {program}, until it shows");
        well &= conclude(n, &process(args)?);
    }
    if args.sphere != Sphere::Process {
        println!("flipping bits in one of {n} kernels and its programs, until one shows");
        well &= conclude(n, &machine(args)?);
    }
    Ok(well)
}

/// Says what it means. True if that was promised.
fn conclude(replicas: u64, verdict: &Verdict) -> bool {
    let meaning = match (verdict, replicas) {
        (Verdict::Corrected(_), _) => {
            "masked: the other replicas went on, and all came out as in a plain run".to_owned()
        }
        (Verdict::FailStop(_), 2) => {
            "stopped, before anything wrong came out; with -n 3 it would be masked".to_owned()
        }
        (Verdict::FailStop(_), n) => {
            format!("stopped, before anything wrong came out; as a rule {n} replicas mask")
        }
        _ => "NOT as promised".to_owned(),
    };
    println!("\n{meaning}\n");
    !verdict.is_uncontrolled()
}

fn process(args: &ShowArgs) -> Result<Verdict> {
    let common = Common {
        seed: args.seed,
        replicas: usize::try_from(args.replicas)?,
        compare: "args".into(),
        tick: None,
        on_fault: None,
        program: args.program.clone(),
        targets: args.targets.clone(),
        when: When::User,
        flips: 1,
        rcoe: RcoeArgs {
            rcoe: args.rcoe.clone(),
            timeout: "100ms".into(),
            deadline: DEADLINE.as_secs(),
        },
    };
    let folder = WorkFolder::create()?;
    let lab = crate::prepare(&common, &folder)?;
    for index in 0..args.tries {
        let record = lab.inject(index, 0, 0)?;
        if shows(&record.verdict) {
            println!();
            tell(common.replicas, &record);
            return Ok(record.verdict);
        }
        let hit = record
            .hit
            .as_ref()
            .map_or_else(|| "nothing".into(), report::describe);
        println!("{:>4}  {hit}: nobody read it again", index + 1);
    }
    bail!("none of {} flips showed: try --tries or --seed", args.tries)
}

fn machine(args: &ShowArgs) -> Result<Verdict> {
    let rcoe = match &args.rcoe {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("rcoe"),
    };
    let setup = system::Setup {
        rcoe: std::path::absolute(rcoe)?,
        processor: Processor::of(&Processor::usual())?,
        replicas: usize::try_from(args.replicas)?,
        compare: "args".into(),
        coupling: "loose".into(),
        timeout: "50ms".into(),
        guest: None,
        kept: None,
        deadline: DEADLINE,
    };
    let folder = system::Folder::create()?;
    let lab = system::Lab::prepare(setup, args.seed, FLIPS, folder.path())?;
    for index in 0..args.tries {
        let record = lab.inject(index)?;
        if shows(&record.verdict) {
            println!();
            tell_machine(args.replicas, &record);
            return Ok(record.verdict);
        }
        let (flips, name) = (record.hits.len(), &record.name);
        println!(
            "{:>4}  {flips} bits of a machine that runs {name}: nobody read them again",
            index + 1
        );
    }
    bail!(
        "none of {} machines showed a flip: try --tries or --seed",
        args.tries
    )
}

/// Whether a flip was noticed, or did what it may not.
const fn shows(verdict: &Verdict) -> bool {
    !matches!(verdict, Verdict::Masked | Verdict::NotApplied)
}

/// One injection, a key and what is to be told of it in each line.
pub(crate) fn tell(replicas: usize, record: &Record) {
    let whom = match replicas {
        0 => "the bare program".to_owned(),
        n => format!("replica {} of {n}", record.plan.replica),
    };
    println!("program   {} ({whom})", record.name);
    match &record.hit {
        Some(hit) => println!("flipped   {}", report::describe(hit)),
        None => println!("flipped   nothing"),
    }
    let exit = record
        .exit
        .map_or_else(|| "killed at the deadline".to_owned(), |e| format!("{e:?}"));
    println!("outcome   {} (exit: {exit})", record.verdict.label());
    if !record.detail.is_empty() {
        println!("rcoe says {}", record.detail);
    }
    println!(
        "time      {:.1} ms from the flip to the end",
        record.after_us as f64 / 1000.0
    );
    if !record.evidence.is_empty() {
        println!("evidence  {}", record.evidence);
    }
}

/// The same of a machine. What shows is charged to the last flip.
fn tell_machine(replicas: u64, record: &system::Record) {
    let hit = record.hits.last().map_or_else(
        || "nothing".to_owned(),
        |hit| {
            format!(
                "bit {} of {} {} ({:#x} -> {:#x}) at ip {:#x}",
                hit.bit, hit.target, hit.place, hit.before, hit.after, hit.ip
            )
        },
    );
    println!(
        "program   {} (replica {} of {replicas} kernels)",
        record.name, record.victim
    );
    println!("flipped   {hit}");
    println!(
        "before    {} bits that nobody read again",
        record.hits.len().saturating_sub(1)
    );
    println!("outcome   {}", record.verdict.label());
    if !record.detail.is_empty() {
        println!("rcoe says {}", record.detail);
    }
    println!(
        "time      {:.1} s for the machine",
        record.wall_us as f64 / 1e6
    );
}
