//! The command line as written, before it is checked against this machine.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use rcoe_core::Compare;
use rcoe_supervisor::{Clock, MetricsAddress, SUSPECT_AFTER, ScrubRate, Slice, parse_core_list};
use rcoe_system::{Carried, DiskFile, Publish};

use crate::top::WebAddress;

const RUN_EXAMPLES: &str = "\
Examples:
  rcoe run -- md5sum big.iso                two or three replicas, output voted
  rcoe run -n 2 --cores 0,1 -- ./server     detect and stop, on CPUs 0 and 1
  rcoe run -n 3 --events log.json -- make   mask single faults, tell what happened
  rcoe run --sphere system -n 3 -- hash     a whole system three times over, in QEMU
  rcoe run --sphere system --publish 8007:7 -- echo
                                            a server in it, at port 8007 of the loopback
  rcoe run --sphere system --outgoing -- busybox wget -O - http://10.0.2.2:8000/
                                            a client in it, of a server of the host
  rcoe run --sphere system --file data.txt -- busybox sort data.txt
                                            a program of Linux in it, with a file
  rcoe run --sphere system --file /bin/busybox:/bin/sh --file job.sh:/job.sh -- busybox sh /job.sh
                                            a script, with a shell for the scripts that it runs
  rcoe run --sphere system --disk data.img --file in.sql -- sqlite3 /disk/db '.read in.sql'
                                            files that outlive the machine
  rcoe run --sphere system --arch aarch64 --guest system.elf
                                            an operating system in it, as a guest
  rcoe run --sphere system --arch aarch64 --guest vmlinuz --initrd files.cpio -- console=ttyAMA0
                                            Linux as a guest
  rcoe run --metrics 9464 -- ./server       let Prometheus look at it (127.0.0.1:9464)
  rcoe run --core-on-fault . -- ./server    leave core files of replicas that differ

Exit status: the program's own; 86 after a detected fault that could not be masked;
125 if rcoe itself failed; 126 if PROGRAM cannot be executed; 127 if it is not found.
A program killed by a signal kills rcoe by the same signal.";

const TOP_EXAMPLES: &str = "\
Examples:
  rcoe top                  the only job, each second; all jobs if there are several
  rcoe top 4711             the job of this rcoe, or the one that this replica belongs to
  rcoe top --all --once     a line for each job
  rcoe top 4711 --json      everything there is, for scripts
  rcoe top --web 8080       the same in a browser: http://127.0.0.1:8080/

Jobs of this user are found by their sockets in $XDG_RUNTIME_DIR/rcoe, or without that variable in
rcoe-UID of the folder for temporary files. Each also answers others:
curl --unix-socket SOCKET http://rcoe/status (or /metrics).

The page of --web is live, loads nothing from elsewhere and changes nothing. Without --web-public
it is served to this machine only; every user of the machine can read it. From elsewhere:
ssh -L 8080:127.0.0.1:8080 MACHINE, then http://127.0.0.1:8080/.

Lag is what a replica is behind the first of its siblings: rendezvous, and bytes of results that it
has yet to take. A follower that waits for the primary shows no lag.";

const CORES_EXAMPLES: &str = "\
Examples:
  rcoe cores                     which cores were at fault, and how often
  rcoe cores --json | jq '.cores[] | select(.suspect)'
  rcoe cores clear 3             core 3 has been mended: forget its faults
  rcoe cores export --csv        every fault, for a spreadsheet

A core is suspect after three faults of its own within 90 days (--suspect-after). rcoe run then
places replicas elsewhere, as long as there are enough other cores. Of two replicas that differ
nobody knows which is wrong: that counts half for the core of each. A replica that was killed or
stopped from outside counts for none.

The ledger is $XDG_STATE_HOME/rcoe/cores.ndjson; without that variable it is
~/.local/state/rcoe/cores.ndjson.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  rcoe run --events e.ndjson -- ./server    tells in e.ndjson what happens
  rcoe explain e.ndjson                     which replica differed, where, and what to do
  rcoe explain --json e.ndjson | jq '.faults[].replicas[].place'

Lines of source come from debug information (-g) in the program, or in a separate file: below
DIR/.build-id by its build id, or by the name that the program gives beside it, in .debug there, or
below DIR. A program that was built anew since the run is not asked.";

/// Runs ordinary software as redundant replicas: a bit flipped in one of them is caught before
/// wrong output leaves the machine, and masked where there are three or more.
#[derive(Debug, Parser)]
#[command(name = "rcoe", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program as replicas that check each other
    #[command(
        override_usage = "rcoe run [OPTIONS] -- PROGRAM [ARGS]...",
        after_help = RUN_EXAMPLES
    )]
    Run(Box<RunArgs>),
    /// Tell what this machine offers and what follows from it
    Doctor(DoctorArgs),
    /// Show running jobs: replicas, cores, lag, votes and faults
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Show the ledger of cores: which were at fault, and which are avoided
    #[command(args_conflicts_with_subcommands = true, after_help = CORES_EXAMPLES)]
    Cores(CoresArgs),
    /// Explain from an events file what happened: which replica differed, and at which line
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual's pages, for packages
    #[command(hide = true)]
    Manual {
        /// Where to
        folder: PathBuf,
    },
}

/// Arguments of `rcoe doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `rcoe top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Process id of rcoe, or of one of its replicas [default: the only job, else all]
    #[arg(conflicts_with = "all")]
    pub(crate) pid: Option<u32>,
    /// Show all jobs, one line each
    #[arg(long)]
    pub(crate) all: bool,
    /// Show once and end, as when standard output is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one JSON snapshot: an object for PID, else a list
    #[arg(long)]
    pub(crate) json: bool,
    /// Serve a page for browsers at ADDRESS:PORT, or at a PORT of the loopback; 0 takes a free one
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["all", "once", "json"])]
    pub(crate) web: Option<WebAddress>,
    /// Let --web serve whoever reaches an address that is not of the loopback, without a password
    #[arg(long, requires = "web")]
    pub(crate) web_public: bool,
}

/// Arguments of `rcoe explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The file that rcoe run --events wrote
    pub(crate) events: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Where separate debug files lie
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/debug")]
    pub(crate) debug_dir: PathBuf,
}

/// Arguments of `rcoe cores`.
#[derive(Debug, Args)]
pub(crate) struct CoresArgs {
    /// What to do instead of showing the table.
    #[command(subcommand)]
    pub(crate) action: Option<CoresAction>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Faults after which a core is suspect; 0 suspects none
    #[arg(long, value_name = "FAULTS", default_value_t = SUSPECT_AFTER)]
    pub(crate) suspect_after: u32,
}

/// What can be done with the ledger of cores.
#[derive(Debug, Subcommand)]
pub(crate) enum CoresAction {
    /// Forget the faults of a core, or of all; what was written stays in the file
    Clear {
        /// The core [default: all]
        core: Option<u32>,
    },
    /// Print every entry of the ledger, one JSON object a line
    Export {
        /// Print faults as comma-separated values
        #[arg(long)]
        csv: bool,
    },
}

/// Arguments of `rcoe run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Number of replicas, 1 to 8 (1 intercepts without checking) [default: 3 where three CPUs are
    /// allowed, else 2]
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_replicas)]
    pub(crate) replicas: Option<usize>,
    /// What is replicated
    #[arg(long, value_enum, value_name = "SPHERE", default_value = "process")]
    pub(crate) sphere: SphereArg,
    /// What is compared, and when
    #[arg(long, value_enum, default_value = "args")]
    pub(crate) compare: CompareArg,
    /// How the program reads clocks
    #[arg(long, value_enum, default_value = "vdso")]
    pub(crate) clock: ClockArg,
    /// Whether what is written to TCP connections may leave a little later, for many writes at once
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) defer: DeferArg,
    /// CPU time after which a thread that makes no system call gives way to one that is ready, like
    /// 10ms; signals then reach programs that compute. `auto`: 10ms, and longer where agreeing on
    /// the end would take much of that. `off`: both wait for the next system call
    #[arg(long, value_name = "TIME", default_value = "auto", value_parser = parse_slice)]
    pub(crate) slice: SliceArg,
    /// What a detected fault leads to [default: mask with three or more replicas, else stop]
    #[arg(long, value_enum, value_name = "ACTION")]
    pub(crate) on_fault: Option<OnFault>,
    /// Do not replace a lost replica by a copy of another
    #[arg(long)]
    pub(crate) no_reintegrate: bool,
    /// Have replicas compare so many MiB of their memory a second, and repair the one that differs;
    /// needs three replicas; `off` or 0 for none [default: 1 where faults are masked]
    #[arg(long, value_name = "MIB", value_parser = parse_scrub)]
    pub(crate) scrub: Option<Scrubbing>,
    /// CPUs to use, like 0,2-3 [default: all allowed]
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub(crate) cores: Option<CoreList>,
    /// CPU time a replica may be late before it counts as lost, like 500ms, 2s or 1m
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Write what happens to FILE, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Write a core file of each replica that is there at a fault into the folder DIR, for gdb; the
    /// replicas wait meanwhile
    #[arg(long, value_name = "DIR")]
    pub(crate) core_on_fault: Option<PathBuf>,
    /// Wait for gdb at a PORT of the loopback before the program's first instruction; 0 takes a
    /// free one. All replicas stop alike; `monitor rcoe` tells what differs
    #[arg(long, value_name = "PORT")]
    pub(crate) gdb: Option<u16>,
    /// Serve metrics for Prometheus at ADDRESS:PORT, at a PORT of the loopback, or at unix:PATH
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<MetricsAddress>,
    /// Who tells systemd (NOTIFY_SOCKET) that the service is ready
    #[arg(long, value_enum, value_name = "WHO", default_value = "rcoe")]
    pub(crate) notify: NotifyArg,
    /// Do not let rcoe top find this run
    #[arg(long)]
    pub(crate) no_status: bool,
    /// Faults after which the ledger suspects a core and it is avoided; 0 suspects none
    #[arg(long, value_name = "FAULTS", default_value_t = SUSPECT_AFTER)]
    pub(crate) suspect_after: u32,
    /// Neither read nor write the ledger of cores, as for experiments with faults, nor what runs
    /// have found in the code of programs (`rcoe/finds` below $XDG_CACHE_HOME or ~/.cache)
    #[arg(long)]
    pub(crate) no_ledger: bool,
    /// Print counters to standard error at the end
    #[arg(long)]
    pub(crate) stats: bool,
    /// End the run at an unsupported system call instead of returning ENOSYS to the program
    #[arg(long)]
    pub(crate) strict: bool,
    /// Process sphere: CPU time after which replicas of a program that computes without a voted
    /// call agree on its whole state, from 10ms to 1h, like 1s; bounds how late a corrupted loop is
    /// noticed; `off`: not before its next call. System sphere: time between the ticks that preempt
    /// programs and bound detection latency, from 100us to 1s [default: off; 10ms with --sphere
    /// system]
    #[arg(long, value_name = "TIME", value_parser = parse_tick)]
    pub(crate) tick: Option<TickArg>,
    /// Process sphere, with --tick: how replicas that compute know where they are, so that two that
    /// have passed each other know that they differ: `milestones`, also by how often they have come
    /// to the place in a loop at which they compared last, where a jump stays in their code;
    /// `counter`, instead by the processor's counter of branches; refused where rcoe doctor finds
    /// no exact one; `states`, by their states alone, for programs that read their own code.
    /// `visits:ADDRESS` counts how often the instruction there is executed, for tests [default:
    /// milestones]
    #[arg(long, value_name = "HOW", value_parser = parse_places)]
    pub(crate) places: Option<PlacesArg>,
    /// System sphere: whether the emulated cores take turns on one thread of the host or have one
    /// each [default: single; counted with --coupling close]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) core_threads: Option<CoreThreads>,
    /// System sphere: where replicas are preempted and take interrupts
    #[arg(long, value_enum, value_name = "HOW", default_value = "loose")]
    pub(crate) coupling: CouplingArg,
    /// System sphere, with --coupling close: what stops a replica that is behind at the instruction
    /// of the others [default: counter; breakpoint with --count-by compiler]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) stop_by: Option<StopBy>,
    /// System sphere, with --coupling close: what counts how far a program has come [default:
    /// machine]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) count_by: Option<CountBy>,
    /// System sphere: what executes the machine's instructions
    #[arg(long, value_enum, value_name = "HOW", default_value = "tcg")]
    pub(crate) accel: AccelArg,
    /// System sphere: the machine
    #[arg(long, value_enum, value_name = "ARCH", default_value = "x86_64")]
    pub(crate) arch: ArchArg,
    /// System sphere: memory of each replica, like 64M or 1G [default: what the programs need, at
    /// least 32M]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<u64>,
    /// System sphere: keep the machine's memory in FILE, new or empty, where a fault injector
    /// can reach it
    #[arg(long, value_name = "FILE")]
    pub(crate) memory_file: Option<PathBuf>,
    /// System sphere: wait for a debugger or fault injector at this unix socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) debugger: Option<PathBuf>,
    /// System sphere: let a fault injector reach the emulator's own monitor at this unix socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) monitor: Option<PathBuf>,
    /// System sphere: the machine does not begin, but goes on from a state that comes by --monitor
    #[arg(long, requires = "monitor")]
    pub(crate) restored: bool,
    /// System sphere: give the machine a network, and offer its TCP port GUEST at port HOST of the
    /// host: at the loopback, unless another IPv4 address is named. With /udp a port for datagrams,
    /// whose answers need --outgoing. Can be given more than once
    #[arg(long, value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    pub(crate) publish: Vec<Publish>,
    /// System sphere: give the machine a network, and let its programs make TCP connections and
    /// send datagrams by UDP through it: to the host, which is 10.0.2.2 there, and by the host to
    /// others, whose names they find as the host does. Without it nothing leads out of the machine
    #[arg(long)]
    pub(crate) outgoing: bool,
    /// System sphere: which network card the machine has [default: rtl8139]
    #[arg(long, value_enum, value_name = "CARD")]
    pub(crate) nic: Option<NicArg>,
    /// System sphere: let a fault injector send frames to the machine's network card by the unix
    /// socket `wire-in` in FOLDER, and hear all frames by `wire-out`. Each frame comes behind its
    /// length, four bytes, the highest first
    #[arg(long, value_name = "FOLDER")]
    pub(crate) wire: Option<PathBuf>,
    /// System sphere: a file that a program of Linux, which runs in the root folder, finds
    /// at GUEST or by the same name, or a folder with all files in it. Dynamic programs have their
    /// libraries without. What the program writes to
    /// files is gone with the machine, but for those of --disk. Can be given more than once
    #[arg(long, value_name = "HOST[:GUEST]")]
    pub(crate) file: Vec<Carried>,
    /// System sphere: a file that a program of Linux has as its standard input; `-` is that of this
    /// command, which is read to its end before the machine starts. Without this option it has the
    /// file to which this command's is redirected, or what comes by this command's pipe or terminal
    /// while it runs
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// System sphere: a file that is the disk of the machine, on which a program of Linux has the
    /// files of FOLDER (/disk), and finds them in the next run. What it asks to be kept (fsync) is
    /// on the disk before it goes on, and the rest 5 seconds later at the latest. A file that is
    /// new or empty becomes a disk of 256 MiB, of which the half is for files
    #[arg(long, value_name = "FILE[:FOLDER]")]
    pub(crate) disk: Option<DiskFile>,
    /// System sphere, aarch64: instead of PROGRAM run an operating system as a guest, on a virtual
    /// processor: an ELF executable for memory at 0x40000000, where it finds a serial line (PL011)
    /// at 0x9000000, whose output is the output, an interrupt controller (GICv2) at 0x8000000, and
    /// firmware (PSCI). ARGS is one number, for its first register. Or an image of Linux (arm64's
    /// Image), which is told all that by a device tree; ARGS are its command line. Replicas are
    /// coupled closely
    #[arg(long, value_name = "FILE")]
    pub(crate) guest: Option<PathBuf>,
    /// System sphere, aarch64: the first files of Linux as a guest (an archive of cpio), whose
    /// kernel --guest names
    #[arg(long, value_name = "FILE", requires = "guest")]
    pub(crate) initrd: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required_unless_present = "guest", trailing_var_arg = true)]
    #[arg(value_names = ["PROGRAM", "ARGS"])]
    pub(crate) command: Vec<OsString>,
}

/// `--sphere`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SphereArg {
    /// A Linux program
    Process,
    /// A whole system in QEMU: microkernel, drivers and PROGRAM, which is hello, hash, float, copy,
    /// clock, crash, device, echo, fill, foreign, grow, large, ledger, long, loops, null, pingpong,
    /// pipeline, race, racing, rounds, sieve or sleep, on x86_64 also hpet, or an ELF file made for
    /// it, or a program of Linux for the machine's processor: by its path, or found as a shell does
    System,
}

/// `--arch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArchArg {
    /// A PC, QEMU's q35
    #[value(name = "x86_64")]
    X86_64,
    /// QEMU's virt with AArch64
    Aarch64,
}

/// `--accel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelArg {
    /// The emulator
    Tcg,
    /// The host's processor, by its kernel; needs --core-threads multi, and a machine of the
    /// host's kind
    Kvm,
}

/// `--nic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NicArg {
    /// An RTL8139, which finds frames by its registers
    Rtl8139,
    /// A virtio network device, which finds them by descriptors in memory
    Virtio,
}

/// `--coupling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CouplingArg {
    /// At one event of the trace, for programs that are free of races
    Loose,
    /// At one instruction, for any
    Close,
}

/// `--stop-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StopBy {
    /// The counter of instructions, behind the very one; on x86_64 that of branches, and a
    /// breakpoint behind the last
    Counter,
    /// A breakpoint, before which the counter comes a little too early, as real ones do
    Breakpoint,
}

/// `--count-by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CountBy {
    /// The processor; on x86_64 a plugin of the emulator, as emulated processors cannot
    Machine,
    /// The program itself, by code that its build puts before each branch: cargo xtask counted
    /// builds it, and those of the image are built so, too
    Compiler,
}

/// `--core-threads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CoreThreads {
    /// In turns
    Single,
    /// One each; needs a CPU of the host for each replica
    Multi,
    /// In turns, with a clock that counts instructions, so that cycles do not depend on the host
    Counted,
}

/// `--slice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceArg(pub(crate) Slice);

/// The shortest slice of `--slice auto`.
const AUTO: Slice = Slice::Least(Duration::from_millis(10));

/// `--tick`: `None` where replicas of the process sphere do not meet while they compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TickArg(pub(crate) Option<Duration>);

impl TickArg {
    /// What it is in the process sphere.
    pub(crate) fn of_process(self) -> Result<Option<Duration>, String> {
        let bounds = Duration::from_millis(10)..=Duration::from_secs(3600);
        match self.0 {
            Some(tick) if !bounds.contains(&tick) => Err(
                "--tick must be from 10ms to 1h, or off: a point takes some milliseconds".into(),
            ),
            tick => Ok(tick),
        }
    }

    /// What it is in the system sphere, where timers have to count it, and a processor to get work
    /// done in it.
    pub(crate) fn of_system(self) -> Result<Duration, String> {
        let bounds = Duration::from_micros(100)..=Duration::from_secs(1);
        self.0
            .filter(|tick| bounds.contains(tick))
            .ok_or_else(|| "--tick must be from 100us to 1s with --sphere system".into())
    }
}

/// `--defer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeferArg {
    /// After a millisecond or two at most, and before anything that could tell
    On,
    /// All replicas meet before each write
    Off,
}

/// `--clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockArg {
    /// By functions that it finds in its memory, as without rcoe
    Vdso,
    /// By system calls only
    Calls,
}

impl From<ClockArg> for Clock {
    fn from(arg: ClockArg) -> Self {
        match arg {
            ClockArg::Vdso => Self::Vdso,
            ClockArg::Calls => Self::Calls,
        }
    }
}

/// `--compare`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareArg {
    /// Only what leaves the program
    Io,
    /// Also every system call and its arguments
    Args,
    /// As args, with a vote at every system call
    Every,
}

impl From<CompareArg> for Compare {
    fn from(arg: CompareArg) -> Self {
        match arg {
            CompareArg::Io => Self::Io,
            CompareArg::Args => Self::Args,
            CompareArg::Every => Self::Every,
        }
    }
}

/// `--notify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NotifyArg {
    /// rcoe, once the replicas run, and it feeds the watchdog; the program does not see the socket
    Rcoe,
    /// The program itself; the unit then needs NotifyAccess=all
    Program,
}

/// `--on-fault`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFault {
    /// Remove the faulty replica and go on
    Mask,
    /// Stop all replicas
    Stop,
}

/// CPU numbers in the order given (a type of its own, because clap takes a `Vec` for repetition).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreList(pub(crate) Vec<u32>);

fn parse_cores(text: &str) -> Result<CoreList, String> {
    parse_core_list(text).map(CoreList)
}

fn parse_replicas(text: &str) -> Result<usize, String> {
    let most = rcoe_supervisor::MAX_REPLICAS;
    match text.parse() {
        Ok(0) => Err(
            "at least one replica must run; use -n 2 to detect faults, -n 3 to mask them".into(),
        ),
        Ok(number) if number <= most => Ok(number),
        Ok(_) => Err(format!("at most {most} replicas can run")),
        Err(_) => Err(format!("expected a number from 1 to {most}")),
    }
}

/// Whether memory is compared though nothing else makes replicas do so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scrubbing {
    /// It is not.
    Off,
    /// So fast.
    At(ScrubRate),
}

/// Megabytes.
fn parse_memory(text: &str) -> Result<u64, String> {
    let number = |digits: &str| digits.parse().ok();
    let size = match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((digits, "M")) => number(digits),
        Some((digits, "G")) => number(digits).and_then(|size: u64| size.checked_mul(1024)),
        _ => None,
    };
    let size = size.filter(|size| (1..=1 << 20).contains(size));
    size.ok_or_else(|| "a size in megabytes or gigabytes, like 64M or 1G".to_owned())
}

fn parse_scrub(text: &str) -> Result<Scrubbing, String> {
    if text == "off" || text == "0" {
        return Ok(Scrubbing::Off);
    }
    let mib = text.parse().ok().and_then(ScrubRate::mib);
    let rate = mib.ok_or("`off`, or a whole number of MiB a second, from 1 to 4096")?;
    Ok(Scrubbing::At(rate))
}

/// A time like `500ms`, `2s` or `1m`: a positive number and a unit.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" if number == "0" => return Err("must be longer than nothing".into()),
        "" => return Err("the unit is missing; write 2s, 500ms or 1m".into()),
        _ => return Err(format!("unknown unit '{unit}'; use us, ms, s, m or h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("'{number}' is no number"))?;
    match Duration::try_from_secs_f64(number * scale) {
        Ok(time) if time.is_zero() => Err("must be longer than nothing".into()),
        Ok(time) if time <= Duration::from_secs(86_400) => Ok(time),
        _ => Err("must be at most 24h".into()),
    }
}

/// How replicas know where they are between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacesArg {
    States,
    Milestones,
    Counter,
    Visits(u64),
}

fn parse_places(text: &str) -> Result<PlacesArg, String> {
    match text {
        "states" => Ok(PlacesArg::States),
        "milestones" => Ok(PlacesArg::Milestones),
        "counter" => Ok(PlacesArg::Counter),
        _ => {
            let address = text.strip_prefix("visits:0x");
            let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let wrong = "--places is milestones, states, counter, or visits:0xADDRESS";
            address.map(PlacesArg::Visits).ok_or_else(|| wrong.into())
        }
    }
}

/// A time between ticks, or `off`. Each sphere has its own bounds ([`TickArg`]).
fn parse_tick(text: &str) -> Result<TickArg, String> {
    match text {
        "off" => Ok(TickArg(None)),
        _ => parse_duration(text).map(|time| TickArg(Some(time))),
    }
}

/// A slice, `auto`, or `off`. A shorter one would be over before another thread has begun.
fn parse_slice(text: &str) -> Result<SliceArg, String> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(10);
    match text {
        "off" => return Ok(SliceArg(Slice::Off)),
        "auto" => return Ok(SliceArg(AUTO)),
        _ => {}
    }
    let time = parse_duration(text)?;
    match bounds.contains(&time) {
        true => Ok(SliceArg(Slice::Always(time))),
        false => Err("must be from 1ms to 10s, auto, or off".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_table_of_arguments_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn slices_have_bounds_and_can_be_off() {
        assert_eq!(parse_slice("off"), Ok(SliceArg(Slice::Off)));
        assert_eq!(parse_slice("auto"), Ok(SliceArg(AUTO)));
        let ten = Slice::Always(Duration::from_millis(10));
        assert_eq!(parse_slice("10ms"), Ok(SliceArg(ten)));
        for text in ["0", "0ms", "999us", "11s", "on", "10"] {
            assert!(parse_slice(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_parse() {
        for (text, millis) in [("500ms", 500), ("2s", 2_000), ("1m", 60_000), ("0.5s", 500)] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        assert_eq!(parse_duration("7us"), Ok(Duration::from_micros(7)));
        for text in [
            "",
            "2",
            "s",
            "2x",
            "-1s",
            "0s",
            "1.2.3s",
            "25h",
            "2 s",
            "99999999999999999999h",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ticks_are_what_a_machine_can_do() {
        let system = |text: &str| parse_tick(text)?.of_system();
        assert_eq!(system("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(system("1s"), Ok(Duration::from_secs(1)));
        for text in ["0", "0.5us", "99us", "1001ms", "24h", "off"] {
            assert!(system(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ticks_of_programs_have_bounds_and_can_be_off() {
        let process = |text: &str| parse_tick(text)?.of_process();
        assert_eq!(process("off"), Ok(None));
        assert_eq!(process("10ms"), Ok(Some(Duration::from_millis(10))));
        assert_eq!(process("1h"), Ok(Some(Duration::from_secs(3600))));
        let none = process("0").unwrap_err();
        assert!(none.contains("longer than nothing"), "{none}");
        for text in ["0", "9ms", "61m", "on", "10"] {
            assert!(process(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_of_replicas_are_bounded() {
        assert_eq!(parse_replicas("8"), Ok(8));
        for text in ["0", "9", "99", "-1", "two", ""] {
            assert!(parse_replicas(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_programs_options_are_its_own() {
        let cli = Cli::try_parse_from(["rcoe", "run", "-n", "2", "--", "ls", "-n", "--help"]);
        let Ok(Cli {
            command: Command::Run(run),
        }) = cli
        else {
            panic!("must parse")
        };
        assert_eq!(run.replicas, Some(2));
        assert_eq!(run.command, ["ls", "-n", "--help"]);
        let cli = Cli::try_parse_from(["rcoe", "run", "ls", "-n", "--"]);
        let Ok(Cli {
            command: Command::Run(run),
        }) = cli
        else {
            panic!("must parse")
        };
        assert_eq!(run.command, ["ls", "-n", "--"]);
        let cli = Cli::try_parse_from(["rcoe", "run", "-n2", "--", "ls"]);
        let Ok(Cli {
            command: Command::Run(run),
        }) = cli
        else {
            panic!("must parse")
        };
        assert_eq!(run.replicas, Some(2));
        assert!(Cli::try_parse_from(["rcoe", "run", "--no-such-option", "ls"]).is_err());
    }
}
