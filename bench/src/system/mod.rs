//! What replication costs the system sphere, in instructions or in processor cycles.
//!
//! The unreplicated system (n = 1) is the base, and ratios to it are the result: the machine is an
//! emulated one. Single calls are measured as the difference of a long and a short run. A clock
//! that counts instructions gives exact figures, which say nothing of caches and real
//! inter-processor interrupts; the host's clock gives a median and a spread.

mod compiled;
mod coupling;
mod guest;
mod hosted;
mod latency;
mod machine;
mod operations;
mod returning;
mod service;

use std::fmt::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::evidence::{Series, spread_of};
use crate::sample::Spread;
use machine::{Bench, Run};

pub use machine::{Arch, Clock};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Order {
    /// Repetitions of what is measured by the host's clock.
    #[arg(long, default_value_t = 7)]
    pub repetitions: usize,
    /// Parts: computing, calls, seldom (interrupts, and removals of replicas), copy (memory), and
    /// return (of a replica with much memory; counted, whatever the clocks); and, by name only,
    /// coupling and rounds (close against loose, counted), hosted (rounds by the host's clock),
    /// points (at which all of memory is compared), compiled and compiled-points (the same by the
    /// compiler's count), latency (of faults and interrupts, close against loose, counted), guest
    /// (rounds in Linux as a guest, counted, which needs the files that the environment names),
    /// service (Redis and its client in one machine, counted, which needs redis-server, redis-tools
    /// and busybox), start (of Redis in the machine, by the host's clock, which needs redis-server)
    /// and ycsb (Redis under YCSB, which needs redis-server, a JDK and Maven with its registry).
    #[arg(
        long = "part",
        value_delimiter = ',',
        default_value = "computing,calls,seldom,copy,return"
    )]
    pub parts: Vec<String>,
    /// Clocks by which calls, interrupts, removals and bandwidth are measured. A thread of the host
    /// for each core (multi) is worth something where nothing else runs.
    #[arg(
        long = "clock",
        value_delimiter = ',',
        default_value = "counted,single"
    )]
    pub clocks: Vec<Clock>,
    /// The machine.
    #[arg(long, default_value = "x86_64")]
    pub arch: Arch,
    /// Of ycsb: records.
    #[arg(long, default_value_t = service::USUAL)]
    pub records: u64,
    /// Of ycsb: operations of each workload, and a twentieth of them of E.
    #[arg(long, default_value_t = service::USUAL)]
    pub operations: u64,
    /// Of ycsb: how replicas are compared.
    #[arg(long, value_delimiter = ',', default_value = "io,args,every")]
    pub modes: Vec<String>,
    /// Of ycsb: workloads, in this order after one load.
    #[arg(long, value_delimiter = ',', default_value = "A,B,C,F,D,E")]
    pub workloads: Vec<String>,
    /// Of ycsb: numbers of replicas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    pub replicas: Vec<usize>,
}

const PARTS: [&str; 16] = [
    "computing",
    "calls",
    "seldom",
    "copy",
    "return",
    "coupling",
    "rounds",
    "hosted",
    "points",
    "compiled",
    "compiled-points",
    "latency",
    "guest",
    "service",
    "start",
    "ycsb",
];

const NS: [usize; 3] = [1, 2, 3];
const MODES: [&str; 3] = ["io", "args", "every"];
/// Longer than any run: no tick disturbs.
const SELDOM: &str = "1s";
const USUAL: &str = "10ms";

/// Values of one thing for n = 1, 2, 3, by repetition.
type Row = [Vec<f64>; 3];

/// What was measured: tables in markdown, and the same as evidence.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The tables.
    pub text: String,
    /// The figures.
    pub series: Vec<Series>,
    /// The clock of what comes next.
    clock: Option<Clock>,
    /// The machine, if it is not the usual one, as series name it.
    machine: &'static str,
    /// What a clock that counts instructions counts there.
    counted: &'static str,
}

impl fmt::Write for Told {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.write_str(text)
    }
}

impl Told {
    /// Notes a row, each number of replicas as a series, with its multiple of the first.
    fn note(&mut self, what: &str, compare: &str, row: &Row) {
        let (unit, clock) = match self.clock {
            None | Some(Clock::Counted) => (self.counted, ""),
            Some(Clock::Host) => ("cycles", ", all cores on one thread"),
            Some(Clock::Threads) => ("cycles", ", a thread for each core"),
        };
        let compare = match compare {
            "" => String::new(),
            compare => format!(", {compare}"),
        };
        for (replicas, values) in NS.into_iter().zip(row).filter(|(_, it)| !it.is_empty()) {
            let ratios: Vec<f64> = values
                .iter()
                .zip(&row[0])
                .map(|(own, one)| own / one)
                .collect();
            self.series.push(Series {
                what: format!("{what}{compare}{clock}{}", self.machine),
                run: format!("n={replicas}"),
                unit: unit.to_owned(),
                n: Some(values.len()),
                value: spread_of(values),
                over: None,
                ratio: spread_of(&ratios).filter(|_| replicas > 1),
                share: None,
            });
        }
    }
}

/// All tables.
///
/// # Errors
/// If a part is unknown, or a machine does not run.
pub fn measure(rcoe: &Path, order: &Order) -> Result<Told> {
    for part in &order.parts {
        ensure!(
            PARTS.contains(&part.as_str()),
            "unknown part '{part}'; known: {}",
            PARTS.join(", ")
        );
    }
    let wants = |part: &str| order.parts.iter().any(|wanted| wanted == part);
    let bench = Bench::new(rcoe, order.arch);
    let mut out = Told {
        machine: order.arch.in_names(),
        counted: order.arch.counted(),
        ..Told::default()
    };
    if wants("computing") {
        eprintln!("measuring: programs that compute");
        computing(&bench, &mut out)?;
    }
    if wants("return") {
        eprintln!("measuring: the return of replicas with much memory");
        returning::measure(&bench, &mut out)?;
    }
    coupled(&bench, &wants, &mut out)?;
    if wants("hosted") {
        eprintln!("measuring: rounds by the host's clock");
        hosted::measure(&bench, order.repetitions, &mut out)?;
    }
    if wants("service") {
        eprintln!("measuring: Redis with its client in one machine");
        operations::measure(&bench, &mut out)?;
    }
    if wants("start") {
        eprintln!("measuring: the start of Redis in a machine");
        service::start(rcoe, order, &mut out)?;
    }
    if wants("ycsb") {
        eprintln!("measuring: Redis under YCSB");
        service::measure(rcoe, order, &mut out)?;
    }
    for &clock in &order.clocks {
        out.clock = Some(clock);
        let repetitions = match clock {
            Clock::Counted => 1,
            Clock::Host | Clock::Threads => order.repetitions,
        };
        if wants("calls") || wants("seldom") {
            eprintln!("measuring: {}", title(clock, repetitions));
            let _ = writeln!(out, "\n### {}\n", title(clock, repetitions));
            head(&mut out);
        }
        if wants("calls") {
            calls(&bench, clock, repetitions, &mut out)?;
        }
        if wants("seldom") {
            seldom(&bench, clock, repetitions, &mut out)?;
        }
    }
    if wants("copy") {
        eprintln!("measuring: copying memory");
        copying(&bench, order, &mut out)?;
    }
    Ok(out)
}

/// The parts about closely coupled replicas.
fn coupled(bench: &Bench, wants: &dyn Fn(&str) -> bool, out: &mut Told) -> Result<()> {
    type Part = fn(&Bench, &mut Told) -> Result<()>;
    let coupled: [(&str, &str, Part); 7] = [
        ("coupling", "close coupling", coupling::measure),
        (
            "rounds",
            "rounds of closely coupled replicas",
            coupling::tables,
        ),
        (
            "points",
            "points at which all of memory is compared",
            coupling::verify,
        ),
        (
            "compiled",
            "replicas whose programs count themselves",
            compiled::measure,
        ),
        (
            "compiled-points",
            "points of such, at which all of memory is compared",
            compiled::verify,
        ),
        (
            "latency",
            "how soon faults are noticed and interrupts performed",
            latency::measure,
        ),
        ("guest", "Linux as a guest", guest::measure),
    ];
    for (part, what, measure) in coupled {
        if wants(part) {
            eprintln!("measuring: {what}");
            measure(bench, out)?;
        }
    }
    Ok(())
}

fn title(clock: Clock, repetitions: usize) -> String {
    let spread = format!("median (10 % to 90 %) of {repetitions}");
    match clock {
        Clock::Counted => "Instructions, exact".to_owned(),
        Clock::Host => format!("Cycles of the host, all cores on one thread, {spread}"),
        Clock::Threads => format!("Cycles of the host, a thread for each core, {spread}"),
    }
}

fn head(out: &mut Told) {
    let _ = writeln!(
        out,
        "| what | compare | n = 1 | n = 2 | n = 3 | 2 : 1 | 3 : 1 |\n|---|---|---|---|---|---|---|"
    );
}

fn cell(values: &[f64]) -> String {
    let Spread { low, median, high } = Spread::of(values);
    match values.len() {
        0 => "-".to_owned(),
        1 => format!("{median:.0}"),
        _ => format!("{median:.0} ({low:.0} to {high:.0})"),
    }
}

fn row(out: &mut Told, what: &str, compare: &str, row: &Row, digits: usize) {
    out.note(what, compare, row);
    let ratio = |values: &[f64]| {
        if values.is_empty() || row[0].is_empty() {
            return "-".to_owned();
        }
        let base = Spread::of(&row[0]).median;
        format!("{:.digits$}", Spread::of(values).median / base)
    };
    let [one, two, three] = row.each_ref().map(|values| cell(values));
    let (second, third) = (ratio(&row[1]), ratio(&row[2]));
    let _ = writeln!(
        out,
        "| {what} | {compare} | {one} | {two} | {three} | {second} | {third} |"
    );
}

/// Each repetition goes through these numbers of replicas; but where each core is a thread of the
/// host, only through those that have a CPU each: those that wait spin.
fn collect(
    clock: Clock,
    repetitions: usize,
    among: &[usize],
    mut measure: impl FnMut(usize) -> Result<f64>,
) -> Result<Row> {
    let cpus = std::thread::available_parallelism()?.get();
    let mut row = Row::default();
    for repetition in 0..repetitions {
        for at in 0..NS.len() {
            let at = (at + repetition) % NS.len();
            let replicas = NS[at];
            if among.contains(&replicas) && (clock != Clock::Threads || replicas <= cpus) {
                row[at].push(measure(replicas)?);
            }
        }
    }
    Ok(row)
}

/// `pingpong`'s argument for messages of no words, and as much for each word.
const A_WORD: u64 = 1_000_000_000;

/// Null call, call and reply, and what a rendezvous adds to a null call. Messages of 0 and of 10
/// words are those of seL4'16, table I, which tells of one way and of cycles.
fn calls(bench: &Bench, clock: Clock, repetitions: usize, out: &mut Told) -> Result<()> {
    let mut null: Vec<Row> = Vec::new();
    for (what, program, rounds) in [
        ("null system call", "null", [1_000, 5_000]),
        ("IPC call and reply", "pingpong", [500, 2_500]),
        (
            "IPC call of 0 words, empty reply",
            "pingpong",
            [A_WORD + 500, A_WORD + 2_500],
        ),
        (
            "IPC call of 10 words, empty reply",
            "pingpong",
            [11 * A_WORD + 500, 11 * A_WORD + 2_500],
        ),
    ] {
        for compare in MODES {
            let figures = collect(clock, repetitions, &NS, |replicas| {
                let run = Run {
                    replicas,
                    compare,
                    clock,
                    tick: SELDOM,
                    words: "",
                };
                bench.per_round(run, program, rounds)
            })?;
            row(out, what, compare, &figures, 2);
            if program == "null" {
                null.push(figures);
            }
        }
    }
    let mut met = Row::default();
    for (at, met) in met.iter_mut().enumerate() {
        let pairs = null[2][at].iter().zip(&null[1][at]);
        *met = pairs.map(|(every, args)| every - args).collect();
    }
    row(out, "rendezvous (every less args)", "", &met, 2);
    Ok(())
}

/// Interrupts, and the removal of replicas: elapsed cycles, as the primary's kernel counts them.
fn seldom(bench: &Bench, clock: Clock, repetitions: usize, out: &mut Told) -> Result<()> {
    let run = |replicas, compare, words| Run {
        replicas,
        compare,
        clock,
        tick: USUAL,
        words,
    };
    for compare in MODES {
        let figures = collect(clock, repetitions, &NS, |replicas| {
            let told = bench.run(run(replicas, compare, ""), "sleep", 100)?;
            told.interrupt.context("no interrupt was counted")
        })?;
        row(out, "interrupt to driver (elapsed)", compare, &figures, 2);
    }
    for (what, words) in [
        ("removal of a follower (elapsed)", "probe=astray victim=2"),
        ("removal of the primary (elapsed)", "probe=astray victim=0"),
    ] {
        let figures = collect(clock, repetitions, &[3], |replicas| {
            let told = bench.run(run(replicas, "args", words), "float", 1_000)?;
            told.removal.context("no removal was counted")
        })?;
        row(out, what, "args", &figures, 2);
    }
    Ok(())
}

fn computing(bench: &Bench, out: &mut Told) -> Result<()> {
    let _ = writeln!(out, "\n### Programs that compute, instructions a round\n");
    head(out);
    for (program, rounds) in [("float", [200, 400]), ("hash", [2, 6]), ("copy", [2, 6])] {
        let figures = collect(Clock::Counted, 1, &NS, |replicas| {
            let run = Run {
                replicas,
                compare: "args",
                clock: Clock::Counted,
                tick: USUAL,
                words: "",
            };
            bench.per_round(run, program, rounds)
        })?;
        row(out, program, "args", &figures, 4);
    }
    Ok(())
}

/// What remains to each replica of the bandwidth of copying memory, as a share of that of n = 1 in
/// the same repetition (DSN'19, table V; EDCC'15, figure 4). Where cores take turns on one thread,
/// that is while it is a replica's turn.
fn copying(bench: &Bench, order: &Order, out: &mut Told) -> Result<()> {
    let _ = writeln!(
        out,
        "\n### Copying memory: share of the bandwidth of n = 1\n\n\
         | clock | n = 2 | n = 3 |\n|---|---|---|"
    );
    for &clock in &order.clocks {
        let repetitions = match clock {
            Clock::Counted => 1,
            Clock::Host | Clock::Threads => order.repetitions,
        };
        let figures = collect(clock, repetitions, &NS, |replicas| {
            let run = Run {
                replicas,
                compare: "args",
                clock,
                tick: USUAL,
                words: "",
            };
            bench.per_round(run, "copy", [4, 24])
        })?;
        let share = |values: &[f64]| {
            if values.is_empty() {
                return "no CPU for each".to_owned();
            }
            let shares = values.iter().zip(&figures[0]);
            let shares: Vec<f64> = shares.map(|(own, one)| 100.0 * one / own).collect();
            format!("{} %", cell(&shares))
        };
        let (two, three) = (share(&figures[1]), share(&figures[2]));
        let what = title(clock, repetitions);
        let _ = writeln!(out, "| {what} | {two} | {three} |");
    }
    Ok(())
}
