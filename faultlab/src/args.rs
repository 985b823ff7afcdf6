//! The command line, and what it means.

mod frames;
mod kills;
mod losses;
mod points;
mod ticks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use rcoe_faultlab::child::Setup;
use rcoe_faultlab::inject::When;
use rcoe_faultlab::journal::Campaign;
use rcoe_faultlab::plan::Space;
use rcoe_faultlab::program::{self, Program};
use rcoe_faultlab::target::Targets;
use rcoe_faultlab::{host, system};

pub(crate) use frames::FramesArgs;
pub(crate) use kills::{KillsArgs, ServiceArgs};
pub(crate) use losses::{SystemErrorsArgs, SystemServiceArgs};
pub(crate) use points::PointsArgs;

use crate::show::{self, ShowArgs};

const CAMPAIGN_EXAMPLES: &str = "\
Examples:
  rcoe-faultlab campaign -n 3 --count 300 --journal flips.ndjson
  rcoe-faultlab campaign -n 2 --program bzip2,sqlite3 --html flips.html
  rcoe-faultlab campaign -n 3 --tick 200ms --program computing-more --targets gpr,heap,stack";

const REPORT_EXAMPLES: &str = "\
Examples:
  rcoe-faultlab report flips.ndjson
  rcoe-faultlab report --html flips.html flips.ndjson kills.ndjson";

const POINTS_EXAMPLES: &str = "\
Examples:
  rcoe-faultlab points --program integer,python -n 2 --points 50
  rcoe-faultlab points --rounds 3 --journal points.ndjson";

/// Flips bits in running replicas and finds out what became of them.
///
/// Ctrl-C ends a campaign after its present run, and what was found until then is told; once more
/// ends it at once.
#[derive(Debug, Parser)]
#[command(name = "rcoe-faultlab", version)]
pub(crate) struct Arguments {
    /// Also write what was counted to FILE, as a JSON object with the names of evidence; of what is
    /// only told (inject, report) nothing is.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) counts: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Flip bits until one shows, and tell what came of it.
    #[command(after_help = show::EXAMPLES)]
    Show(ShowArgs),
    /// Carry out many injections and count the outcomes.
    #[command(after_help = CAMPAIGN_EXAMPLES)]
    Campaign(CampaignArgs),
    /// Carry out one injection and tell what happened.
    Inject(InjectArgs),
    /// Print the tables of finished or unfinished journals in markdown, or make a page of them.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Make many voted calls without any fault: nothing may be reported.
    Steady(SteadyArgs),
    /// Run the papers' data race with many seeds: all replicas must agree, and the values vary.
    Race(RaceArgs),
    /// Stop all replicas at points between calls and compare all of their state.
    #[command(after_help = POINTS_EXAMPLES)]
    Points(PointsArgs),
    /// Run programs with threads and children for some time: nothing may be reported.
    Hours(HoursArgs),
    /// Kill or stop replicas at random moments: no effect may be lost or doubled.
    Kills(KillsArgs),
    /// Serve clients while a fault comes every second: every answer right, and all replicas back.
    #[command(after_help = "Example:\n  rcoe-faultlab service --program redis --faults 1000")]
    Service(ServiceArgs),
    /// Make random system calls in a sandbox: nothing may hang, differ or fail in rcoe.
    Fuzz(FuzzArgs),
    /// Flip bits in machines of the system sphere: kernel, programs, registers.
    System(SystemArgs),
    /// Lose replicas of a machine in which Redis serves: every answer right, and all back.
    #[command(after_help = losses::EXAMPLES)]
    SystemService(SystemServiceArgs),
    /// Flip bits in a machine in which Redis serves, until so many errors were observed by its
    /// clients: kernel, drivers, TCP/IP stack, personality, Redis, registers.
    #[command(after_help = losses::ERRORS)]
    SystemErrors(SystemErrorsArgs),
    /// Send malformed frames to a machine that serves: nobody may differ or die, and its clients
    /// are served.
    #[command(after_help = "Example:\n  rcoe-faultlab frames -n 3 --count 100000")]
    Frames(FramesArgs),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual's pages, for packages.
    #[command(hide = true)]
    Manual {
        /// Where to.
        folder: PathBuf,
    },
}

/// The absolute path of the rcoe binary, by default that beside this program.
fn rcoe(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("rcoe"),
    };
    Ok(std::path::absolute(path)?)
}

/// What decides the meaning of an index.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Campaign seed; with the index it decides everything.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of replicas; 0 runs the programs bare.
    #[arg(short = 'n', long, default_value_t = 2)]
    pub(crate) replicas: usize,
    /// What rcoe compares: io, args or every.
    #[arg(long, default_value = "args")]
    pub(crate) compare: String,
    /// What rcoe does about a fault: mask or stop; its own default if left out.
    #[arg(long)]
    pub(crate) on_fault: Option<String>,
    /// CPU time after which replicas of a program that makes no call agree on their state, from
    /// 10ms to 1h, as in 200ms; not before its next call if left out. Needs -n 2 or more.
    #[arg(long, value_name = "TIME", value_parser = ticks::parse)]
    pub(crate) tick: Option<String>,
    /// Programs to hit: md5sum, bzip2, sha256, sha256sum, awk, sqlite3, python; with threads: pigz,
    /// mutex; with children: workers, pipeline, shell, make; with one effect after the other:
    /// effects; without a call for some seconds, for longer, or for half a second: computing,
    /// computing-more, computing-less.
    #[arg(long, default_value = "md5sum")]
    pub(crate) program: String,
    /// State to hit: gpr, xmm, text, data, heap, stack, mmap, agent, shared, or regs, mem; with
    /// `--when entry` and the program effects: argument, content.
    #[arg(long, default_value = "regs,mem")]
    pub(crate) targets: String,
    /// When to hit: user (while the replica runs its own instructions), return (at the end of a
    /// system call, when input is in one replica only), after (a few instructions later), entry
    /// (right before an effect of the primary), or any.
    #[arg(long, default_value = "user")]
    pub(crate) when: When,
    /// Bits to flip in each run, one after the other, with `--when entry`.
    #[arg(long, default_value_t = 1)]
    pub(crate) flips: u32,
    #[command(flatten)]
    pub(crate) rcoe: RcoeArgs,
}

/// How rcoe is started.
#[derive(Args, Debug)]
pub(crate) struct RcoeArgs {
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    pub(crate) rcoe: Option<PathBuf>,
    /// rcoe's timeout for a late replica.
    #[arg(long, default_value = "100ms")]
    pub(crate) timeout: String,
    /// Seconds after which a run counts as a hang and is ended.
    #[arg(long, default_value_t = 60)]
    pub(crate) deadline: u64,
}

#[derive(Args, Debug)]
pub(crate) struct CampaignArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Number of injections.
    #[arg(long, default_value_t = 300)]
    pub(crate) count: u64,
    /// First index.
    #[arg(long, default_value_t = 0)]
    pub(crate) start: u64,
    /// Only part I of N of the indices, as I/N with I from 0.
    #[arg(long, default_value = "0/1", value_parser = parse_shard)]
    pub(crate) shard: (u64, u64),
    /// Injections at a time.
    #[arg(long, default_value_t = 1)]
    pub(crate) jobs: u64,
    /// Where results are appended, one JSON line each.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Go on with an existing journal: indices it holds are left out.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Print a summary as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a page for browsers that stands alone: outcomes on a time line, cores, cases.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct InjectArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Index of the injection in the campaign.
    #[arg(long, default_value_t = 0)]
    pub(crate) index: u64,
    /// Attempt to begin with, as the journal names it.
    #[arg(long, default_value_t = 0)]
    pub(crate) attempt: u32,
    /// Print the journal line instead of words.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Journals; those of one campaign are joined.
    #[arg(required = true)]
    pub(crate) journals: Vec<PathBuf>,
    /// Write a page for browsers that stands alone instead.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct SteadyArgs {
    /// Number of voted calls, rounded up to whole runs.
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) calls: u64,
    /// Numbers of replicas, in turn.
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2,3")]
    pub(crate) replicas: Vec<usize>,
    /// Modes of comparison, in turn.
    #[arg(long, value_delimiter = ',', default_value = "args,io,every")]
    pub(crate) compare: Vec<String>,
    #[command(flatten)]
    pub(crate) common: RcoeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RaceArgs {
    /// Number of seeds, each run as two or three replicas, and as one if the seed decides.
    #[arg(long, default_value_t = 1000)]
    pub(crate) runs: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The threads make no call, and are preempted after rcoe's slices of this length.
    #[arg(long)]
    pub(crate) slice: Option<String>,
    #[command(flatten)]
    pub(crate) common: RcoeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct HoursArgs {
    /// For how many minutes.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) minutes: f64,
    /// Numbers of replicas, in turn.
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "2,3")]
    pub(crate) replicas: Vec<usize>,
    #[command(flatten)]
    pub(crate) common: RcoeArgs,
}

#[derive(Args, Debug)]
pub(crate) struct FuzzArgs {
    /// Number of calls.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) calls: u64,
    /// Calls in one run.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) per_run: u64,
    /// Seed of the first run; the next one has the next.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// First episode, as a finding names it.
    #[arg(long, default_value_t = 0)]
    pub(crate) episode: u64,
    /// Number of replicas; 0 runs the program plainly.
    #[arg(short = 'n', long, default_value_t = 2)]
    pub(crate) replicas: usize,
    /// What rcoe compares: io, args or every.
    #[arg(long, default_value = "args")]
    pub(crate) compare: String,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    pub(crate) rcoe: Option<PathBuf>,
    /// Seconds after which a run counts as a hang and is ended.
    #[arg(long, default_value_t = 600)]
    pub(crate) deadline: u64,
    /// Where the machine allows no sandbox, say so and end well.
    #[arg(long)]
    pub(crate) optional: bool,
}

impl FuzzArgs {
    pub(crate) fn setup(&self, folder: &Path) -> Result<Setup> {
        let common = RcoeArgs {
            rcoe: self.rcoe.clone(),
            timeout: "default".into(),
            deadline: self.deadline,
        };
        Ok(Setup {
            replicas: self.replicas,
            compare: self.compare.clone(),
            ..common.setup(folder)?
        })
    }
}

#[derive(Args, Debug)]
pub(crate) struct SystemArgs {
    /// The machine: x86_64 or aarch64.
    #[arg(long, default_value = "x86_64")]
    pub(crate) arch: String,
    /// Number of replicas, 1 to 4.
    #[arg(short = 'n', long, default_value_t = 2)]
    pub(crate) replicas: usize,
    /// What rcoe compares: io, args or every.
    #[arg(long, default_value = "args")]
    pub(crate) compare: String,
    /// How replicas are coupled: loose or close.
    #[arg(long, default_value = "loose", value_parser = ["loose", "close"])]
    pub(crate) coupling: String,
    /// Campaign seed; with the index it decides everything.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of machines.
    #[arg(long, default_value_t = 50)]
    pub(crate) count: u64,
    /// Flips in each machine, until an error shows.
    #[arg(long, default_value_t = 16)]
    pub(crate) flips: usize,
    /// Only this index, told as a story.
    #[arg(long)]
    pub(crate) index: Option<u64>,
    /// Machines at a time.
    #[arg(long, default_value_t = 1)]
    pub(crate) jobs: usize,
    /// Where results are appended, one JSON line each; indices it holds are left out.
    #[arg(long)]
    pub(crate) journal: Option<PathBuf>,
    /// Print the tables of these journals instead.
    #[arg(long, num_args = 1..)]
    pub(crate) report: Vec<PathBuf>,
    /// Write a page for browsers that stands alone, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// The rcoe binary; by default the one beside this program.
    #[arg(long)]
    pub(crate) rcoe: Option<PathBuf>,
    /// rcoe's timeout for a late replica, in the machine's time.
    #[arg(long, default_value = "50ms")]
    pub(crate) timeout: String,
    /// Instead of programs run this as a guest, and flip its registers and memory (aarch64).
    #[arg(long, value_name = "FILE")]
    pub(crate) guest: Option<PathBuf>,
    /// First files of Linux as a guest.
    #[arg(long, value_name = "FILE", requires = "guest")]
    pub(crate) initrd: Option<PathBuf>,
    /// Memory of each replica of a machine with a guest, in MiB.
    #[arg(long, default_value_t = 64)]
    pub(crate) memory: u64,
    /// Start the guest once, and have each machine go on from where it has printed LINE.
    #[arg(long, value_name = "LINE", requires = "guest")]
    pub(crate) from: Option<String>,
    /// Hit the guest's general registers only.
    #[arg(long, requires = "guest")]
    pub(crate) registers: bool,
    /// What the guest is told: its argument, or the words of Linux' command line.
    #[arg(last = true, requires = "guest")]
    pub(crate) words: Vec<String>,
    /// Seconds of CPU time after which a machine counts as a hang and is ended. One in which a
    /// kernel does nothing but access devices takes some twenty until its siblings' time is over.
    #[arg(long, default_value_t = 60)]
    pub(crate) deadline: u64,
}

impl SystemArgs {
    pub(crate) fn setup(&self) -> Result<system::Setup> {
        Ok(system::Setup {
            rcoe: rcoe(self.rcoe.as_deref())?,
            processor: system::Processor::of(&self.arch)?,
            replicas: self.replicas,
            compare: self.compare.clone(),
            coupling: self.coupling.clone(),
            timeout: self.timeout.clone(),
            guest: self.guest().map(|it| it.absolute()).transpose()?,
            kept: None,
            deadline: Duration::from_secs(self.deadline),
        })
    }

    fn guest(&self) -> Option<system::Guest> {
        let file = self.guest.clone()?;
        Some(system::Guest {
            file,
            initrd: self.initrd.clone(),
            words: self.words.clone(),
            memory: self.memory,
            from: self.from.clone(),
            registers: self.registers,
        })
    }

    pub(crate) fn header(&self) -> system::Header {
        system::Header {
            arch: self.arch.clone(),
            replicas: self.replicas,
            compare: self.compare.clone(),
            // Guests are coupled closely.
            coupling: match self.guest {
                Some(_) => "close".to_owned(),
                None => self.coupling.clone(),
            },
            timeout: self.timeout.clone(),
            guest: self.guest(),
            seed: self.seed,
            flips: self.flips,
            commit: host::commit(),
            machine: host::machine(),
        }
    }
}

fn parse_shard(text: &str) -> Result<(u64, u64), String> {
    let parsed = text
        .split_once('/')
        .and_then(|(part, parts)| Some((part.parse::<u64>().ok()?, parts.parse::<u64>().ok()?)));
    parsed
        .filter(|(part, parts)| part < parts)
        .ok_or_else(|| "expected I/N with I < N".to_owned())
}

impl RcoeArgs {
    /// Settings common to all runs; the number of replicas and the mode are still open.
    pub(crate) fn setup(&self, folder: &Path) -> Result<Setup> {
        Ok(Setup {
            rcoe: rcoe(self.rcoe.as_deref())?,
            replicas: 0,
            compare: "args".into(),
            on_fault: None,
            timeout: self.timeout.clone(),
            folder: folder.to_owned(),
            deadline: Duration::from_secs(self.deadline),
            seed: None,
            more: Vec::new(),
            held: false,
        })
    }
}

impl Common {
    pub(crate) fn setup(&self, folder: &Path) -> Result<Setup> {
        let setup = Setup {
            replicas: self.replicas,
            compare: self.compare.clone(),
            on_fault: self.on_fault.clone(),
            more: ticks::options(self.tick.as_deref(), self.replicas)?,
            ..self.rcoe.setup(folder)?
        };
        ensure!(
            self.replicas == 0 || setup.rcoe.exists(),
            "{} does not exist: build it or give --rcoe",
            setup.rcoe.display()
        );
        Ok(setup)
    }

    pub(crate) fn programs(&self) -> Result<Vec<Program>> {
        program::select(&self.program)
    }

    fn targets(&self) -> Result<Targets> {
        let targets: Targets = self.targets.parse().map_err(anyhow::Error::msg)?;
        let targets = if self.replicas == 0 {
            targets.without_agent()
        } else {
            targets
        };
        ensure!(!targets.is_empty(), "nothing to hit");
        let at_entry = self.when == When::Entry;
        ensure!(
            targets.are_of_effect(at_entry),
            "argument and content go with --when entry, and nothing else does"
        );
        ensure!(
            self.flips == 1 || at_entry,
            "several flips in a run go with --when entry"
        );
        Ok(targets)
    }

    pub(crate) fn space(&self) -> Result<Space> {
        Ok(Space {
            seed: self.seed,
            programs: self.programs().context("--program")?.len(),
            replicas: self.replicas.max(1),
            targets: self.targets()?,
            flips: self.flips,
        })
    }

    pub(crate) fn campaign(&self) -> Result<Campaign> {
        Ok(Campaign {
            replicas: self.replicas,
            compare: self.compare.clone(),
            on_fault: self.on_fault.clone().unwrap_or_else(|| "default".into()),
            timeout: self.rcoe.timeout.clone(),
            tick: self.tick.clone(),
            programs: self.program.clone(),
            targets: self.targets()?.to_string(),
            when: self.when,
            flips: self.flips,
            seed: self.seed,
        })
    }
}
