//! `rcoe-faultlab`: injection campaigns on the command line.
#![forbid(unsafe_code)]

mod args;
mod package;
mod show;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rcoe_faultlab::campaign::{self, Lab, Range, WorkFolder};
use rcoe_faultlab::counted::Counted;
use rcoe_faultlab::fuzz;
use rcoe_faultlab::host::{commit, machine};
use rcoe_faultlab::hours;
use rcoe_faultlab::html;
use rcoe_faultlab::interrupt;
use rcoe_faultlab::journal::{self, Header, Journal, Record};
use rcoe_faultlab::kills;
use rcoe_faultlab::points;
use rcoe_faultlab::race::{self, Values};
use rcoe_faultlab::report::{self, Tally};
use rcoe_faultlab::steady::{CHUNK, Chunk};
use rcoe_faultlab::system::service::errors;
use rcoe_faultlab::system::{self, frames, service};

use crate::args::{
    Action, Arguments, CampaignArgs, Common, FramesArgs, FuzzArgs, HoursArgs, InjectArgs,
    PointsArgs, RaceArgs, RcoeArgs, SteadyArgs, SystemArgs, SystemErrorsArgs, SystemServiceArgs,
};

/// Whether all was as it should be, and what was counted.
type Done = (bool, Option<Counted>);

fn main() -> ExitCode {
    let Arguments { counts, action } = Arguments::parse();
    let done = perform(action).and_then(|(well, counted)| {
        if let (Some(path), Some(counted)) = (counts, counted) {
            counted.write(&path)?;
        }
        Ok(well)
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rcoe-faultlab: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn perform(action: Action) -> Result<Done> {
    match action {
        Action::Show(args) => show::run(&args).map(uncounted),
        Action::Campaign(args) => run_campaign(&args),
        Action::Inject(args) => run_one(&args).map(uncounted),
        Action::Report(args) => run_report(&args.journals, args.html.as_deref()).map(uncounted),
        Action::Steady(args) => run_steady(&args),
        Action::Race(args) => run_race(&args),
        Action::Points(args) => run_points(&args),
        Action::Hours(args) => run_hours(&args),
        Action::Kills(args) => {
            let runs = run_kills(args.campaign(), args.count, &args.common, args.output())?;
            Ok((
                runs.wrong() == 0,
                Some(Counted::of_kills(&runs.runs, false)),
            ))
        }
        Action::Service(args) => {
            let runs = run_kills(args.campaign(), args.faults, &args.common(), args.output())?;
            Ok((runs.wrong() == 0, Some(Counted::of_kills(&runs.runs, true))))
        }
        Action::Fuzz(args) => run_fuzz(&args),
        Action::System(args) => run_system(&args),
        Action::SystemService(args) => run_system_service(&args),
        Action::SystemErrors(args) => run_system_errors(&args),
        Action::Frames(args) => run_frames(&args),
        Action::Completions { shell } => package::completions(shell).map(uncounted),
        Action::Manual { folder } => package::manual(&folder).map(uncounted),
    }
}

/// Of what is told and not counted.
const fn uncounted(well: bool) -> Done {
    (well, None)
}

/// True if no run ended as a protected one never may.
fn run_campaign(args: &CampaignArgs) -> Result<Done> {
    args.html.as_deref().map(html::try_out).transpose()?;
    let folder = WorkFolder::create()?;
    let header = header(&args.common)?;
    interrupt::listen()?;
    let path = args
        .journal
        .clone()
        .unwrap_or_else(|| folder.path().join("journal.ndjson"));
    let journal = Mutex::new(Journal::open(&path, &header, args.resume)?);
    let lab = prepare(&args.common, &folder)?;
    let range = Range {
        start: args.start,
        count: args.count,
        shard: args.shard,
    };
    let bar = progress(range.indices().count() as u64, "injections");
    let told = Mutex::new(Instant::now());
    let tell = |_: &Record, journal: &Journal| {
        bar.set_position(journal.records().len() as u64);
        bar.set_message(Tally::of(journal.records()).line());
        let mut told = told.lock().expect("telling does not panic");
        if bar.is_hidden() && told.elapsed() > Duration::from_secs(30) {
            *told = Instant::now();
            let line = Tally::of(journal.records()).line();
            eprintln!("{} injections: {line}", journal.records().len());
        }
    };
    campaign::run(&lab, range, args.jobs, &journal, &tell)?;
    bar.finish_and_clear();
    let journal = journal
        .into_inner()
        .expect("no thread panicked holding the journal");
    let tally = Tally::of(journal.records());
    if args.json {
        println!("{}", summary(&header, &tally)?);
    } else {
        print!("{}", report::markdown(&header, journal.records()));
    }
    if let Some(path) = &args.html {
        let mut page = html::Report::default();
        page.add(&header, journal.records());
        page.write(path)?;
    }
    let left: usize = journal
        .records()
        .iter()
        .map(|record| record.leftovers)
        .sum();
    let well = args.common.replicas < 2 || (tally.uncontrolled() == 0 && left == 0);
    Ok((well, Some(Counted::of_campaign(journal.records()))))
}

fn summary(header: &Header, tally: &Tally) -> Result<String> {
    Ok(serde_json::to_string(&serde_json::json!({
        "header": header,
        "applied": tally.applied(),
        "errors": tally.errors(),
        "uncontrolled": tally.uncontrolled(),
        "outcomes": tally.line(),
    }))?)
}

fn run_one(args: &InjectArgs) -> Result<bool> {
    let common = &args.common;
    let folder = WorkFolder::create()?;
    let lab = prepare(common, &folder)?;
    let record = lab.inject(args.index, args.attempt, 0)?;
    if args.json {
        println!("{}", serde_json::to_string(&record)?);
    } else {
        show::tell(common.replicas, &record);
    }
    Ok(common.replicas < 2 || !record.verdict.is_uncontrolled())
}

fn run_report(journals: &[PathBuf], page: Option<&Path>) -> Result<bool> {
    let mut groups: Vec<(Header, Vec<Record>)> = Vec::new();
    let mut kills: Vec<(kills::Header, kills::Runs)> = Vec::new();
    for path in journals {
        if let Some((header, more)) = kills::Runs::load(path)? {
            match kills
                .iter_mut()
                .find(|(old, _)| old.campaign == header.campaign)
            {
                Some((_, all)) => all.runs.extend(more.runs),
                None => kills.push((header, more)),
            }
            continue;
        }
        let (header, records) = journal::load(path)?;
        match groups
            .iter_mut()
            .find(|(other, _)| other.campaign == header.campaign)
        {
            Some((_, all)) => all.extend(records),
            None => groups.push((header, records)),
        }
    }
    if let Some(path) = page {
        let mut page = html::Report::default();
        kills
            .iter()
            .for_each(|(header, runs)| page.add_kills(header, runs));
        groups
            .iter()
            .for_each(|(header, records)| page.add(header, records));
        return page.write(path).map(|()| true);
    }
    for (header, runs) in &kills {
        println!("{}", kills::markdown(header, runs));
    }
    for (header, records) in &groups {
        println!("{}", report::markdown(header, records));
    }
    Ok(true)
}

fn run_steady(args: &SteadyArgs) -> Result<Done> {
    let folder = WorkFolder::create()?;
    let setup = args.common.setup(folder.path())?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
    interrupt::listen()?;
    let bar = progress(args.calls, "voted calls");
    let started = Instant::now();
    let mut calls = 0;
    for number in 0.. {
        if calls >= args.calls || interrupt::is_due() {
            break;
        }
        Chunk::number(number, &args.replicas, &args.compare).run(&setup)?;
        calls += CHUNK;
        bar.set_position(calls);
    }
    bar.finish_and_clear();
    println!(
        "{calls} voted calls without a fault in {:.0} s: 0 alarms \
         (n {:?}, compare {}, commit {}, {})",
        started.elapsed().as_secs_f64(),
        args.replicas,
        args.compare.join(" "),
        commit(),
        machine()
    );
    let counts = [("runs", calls), ("alarms", 0), ("unfinished", 0)];
    Ok((true, Some(Counted::of(counts))))
}

/// True if the replicas always agree and the values vary.
fn run_race(args: &RaceArgs) -> Result<Done> {
    let folder = WorkFolder::create()?;
    let setup = args.common.setup(folder.path())?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
    interrupt::listen()?;
    let bar = progress(args.runs, "races");
    let mut values = Values::default();
    let seeds = args.seed..args.seed + args.runs;
    for seed in seeds.take_while(|_| !interrupt::is_due()) {
        values.add(race::run(&setup, seed, args.slice.as_deref())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    println!(
        "{} races without a divergence, alike in all replicas: {} (commit {}, {})",
        bar.position(),
        values.describe(),
        commit(),
        machine()
    );
    if !values.vary() {
        println!("the race does not vary: this proves nothing");
    }
    Ok((values.vary(), Some(Counted::of_races(&values))))
}

/// True if the replicas were in one state wherever they agreed that they were.
fn run_points(args: &PointsArgs) -> Result<Done> {
    let folder = WorkFolder::create()?;
    let setup = args.setup(folder.path())?;
    points::programs::prepare(folder.path())?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
    let header = args.header();
    let mut journal = points::report::Journal::open(args.journal.as_deref(), &header, args.resume)?;
    let done = journal.done();
    let cases = args.cases()?;
    interrupt::listen()?;
    let bar = progress(cases.len() as u64, "runs");
    let left = cases.iter().filter(|case| !done.contains(&case.index));
    for case in left.take_while(|_| !interrupt::is_due()) {
        let record = points::verify::run(&setup, case)?;
        if !record.wrong.is_empty() {
            let line = format!(
                "{}, n = {}: {}",
                record.program, record.replicas, record.wrong
            );
            bar.suspend(|| eprintln!("run {}, {line}", record.index));
        }
        journal.add(record)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let totals = points::report::Totals::of(&journal.records);
    if args.json {
        println!("{}", serde_json::to_string(&totals)?);
    } else {
        print!("{}", points::report::markdown(&header, &journal.records));
    }
    let well = totals.wrong == 0 && totals.verified > 0;
    Ok((well, Some(Counted::of_points(&totals))))
}

/// True if nothing was reported.
fn run_hours(args: &HoursArgs) -> Result<Done> {
    let folder = WorkFolder::create()?;
    let setup = args.common.setup(folder.path())?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
    interrupt::listen()?;
    let length = Duration::from_secs_f64(args.minutes * 60.0);
    let mut told = 0;
    let hours = hours::run(&setup, &args.replicas, length, |hours| {
        for alarm in &hours.alarms[told..] {
            println!("{alarm}");
        }
        told = hours.alarms.len();
    })?;
    println!(
        "{} runs, {:.2} hours as replicas without a fault: {} alarms (n {:?}, commit {}, {})",
        hours.runs,
        hours.time.as_secs_f64() / 3600.0,
        hours.alarms.len(),
        args.replicas,
        commit(),
        machine()
    );
    let well = hours.alarms.is_empty();
    Ok((well, Some(Counted::of_hours(&hours))))
}

/// A campaign of kills that has found so much is not worth going on with.
const ENOUGH_WRONG: usize = 100;

/// Harms replicas until it is enough, and tells what came of it.
fn run_kills(
    campaign: kills::Campaign,
    count: u64,
    common: &RcoeArgs,
    (journal, json): (Option<&PathBuf>, bool),
) -> Result<kills::Runs> {
    let folder = WorkFolder::create()?;
    let setup = common.setup(folder.path())?;
    kills::prepare(folder.path())?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
    interrupt::listen()?;
    let mut runs = kills::Runs::open(journal.map(PathBuf::as_path), &campaign)?;
    let bar = progress(count, "faults");
    let mut told = Instant::now();
    let due = interrupt::is_due;
    while runs.kills() < count && runs.wrong() < ENOUGH_WRONG && !due() {
        let index = runs.next();
        let keep = journal.map(|journal| journal.with_extension(format!("run-{index}")));
        let run = campaign.run(&setup, (index, count - runs.kills()), keep.as_deref())?;
        if !run.wrong.is_empty() {
            bar.suspend(|| eprintln!("run {}, {}: {}", run.index, run.workload.name(), run.wrong));
        }
        runs.add(run)?;
        bar.set_position(runs.kills());
        bar.set_message(format!("{} runs wrong", runs.wrong()));
        if bar.is_hidden() && told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            eprintln!("{} faults: {} runs wrong", runs.kills(), runs.wrong());
        }
    }
    bar.finish_and_clear();
    if json {
        println!("{}", serde_json::to_string(&runs.runs)?);
    } else {
        println!("{}", kills::markdown(&kills::Header::new(&campaign), &runs));
    }
    Ok(runs)
}

/// True if every run came to its end.
fn run_fuzz(args: &FuzzArgs) -> Result<Done> {
    let folder = WorkFolder::create()?;
    let setup = args.setup(folder.path())?;
    fuzz::prepare(folder.path())?;
    if let Err(error) = fuzz::probe(folder.path()) {
        if args.optional {
            println!("no system calls were made by chance: {error:#}");
            return Ok(uncounted(true));
        }
        return Err(error);
    }
    interrupt::listen()?;
    let bar = progress(args.calls, "calls");
    let (mut calls, mut seed) = (0, args.seed);
    let mut runs = Vec::new();
    while calls < args.calls && !interrupt::is_due() {
        let count = args.per_run.max(1).min(args.calls - calls);
        let run = fuzz::run(&setup, seed, count, args.episode)?;
        match &run.wrong {
            None => bar.suspend(|| eprintln!("seed {seed}: {}", run.last)),
            Some(what) => bar.suspend(|| println!("seed {seed}, episode {}: {what}", run.last)),
        }
        calls += count;
        runs.push(run);
        seed += 1;
        bar.set_position(calls);
    }
    bar.finish_and_clear();
    let made: u64 = runs.iter().map(|run| run.made).sum();
    let wrong = runs.iter().filter(|run| run.wrong.is_some()).count();
    println!(
        "{calls} random system calls ({made} in episodes that came to their end), n {}: {wrong} of \
         {} runs wrong (from seed {}, commit {}, {})",
        args.replicas,
        seed - args.seed,
        args.seed,
        commit(),
        machine()
    );
    Ok((wrong == 0, Some(Counted::of_calls(&runs))))
}

/// True if no protected run ended as it never may.
fn run_system(args: &SystemArgs) -> Result<Done> {
    args.html.as_deref().map(html::try_out).transpose()?;
    let mut page = html::Report::default();
    let write = |page: &html::Report| args.html.iter().try_for_each(|path| page.write(path));
    for path in &args.report {
        let (header, records) = system::load(path)?;
        println!("{}", system::markdown(&header, &records));
        page.add_system(&header, &records);
    }
    if !args.report.is_empty() {
        return write(&page).map(|()| uncounted(true));
    }
    let folder = system::Folder::create()?;
    interrupt::listen()?;
    let lab = system::Lab::prepare(args.setup()?, args.seed, args.flips, folder.path())?;
    if let Some(index) = args.index {
        let record = lab.inject(index)?;
        println!("{}", system::describe(&record));
        let well = args.replicas < 2 || !record.verdict.is_uncontrolled();
        return Ok(uncounted(well));
    }
    let own = folder.path().join("journal.ndjson");
    let path = args.journal.as_ref().unwrap_or(&own);
    let header = args.header();
    let journal = Mutex::new(system::Journal::open(path, &header)?);
    lab.run(args.count, args.jobs, &journal)?;
    let journal = journal.into_inner().expect("no thread panicked");
    print!("{}", system::markdown(&header, journal.records()));
    page.add_system(&header, journal.records());
    write(&page)?;
    let wrong = |record: &system::Record| record.verdict.is_uncontrolled();
    let well = args.replicas < 2 || !journal.records().iter().any(wrong);
    Ok((well, Some(Counted::of_machines(journal.records()))))
}

/// True if every answer was right, no connection broke, and all replicas were back each time.
fn run_system_service(args: &SystemServiceArgs) -> Result<Done> {
    let folder = system::Folder::create()?;
    let (header, setup) = (args.header(), args.setup(folder.path())?);
    interrupt::listen()?;
    let runs = service::run(&header.campaign, &setup, args.faults, |run| {
        let verdict = if run.wrong.is_empty() {
            "right"
        } else {
            &run.wrong
        };
        eprintln!(
            "machine {}, {} faults: {verdict}",
            run.index,
            run.faults.len()
        );
    })?;
    if args.json {
        println!("{}", serde_json::json!({"header": header, "runs": runs}));
    } else {
        print!("{}", service::markdown(&header, &runs));
    }
    let well = runs.iter().all(|run| run.wrong.is_empty());
    Ok((well, Some(Counted::of_losses(&runs))))
}

/// True if no error was uncontrolled.
fn run_system_errors(args: &SystemErrorsArgs) -> Result<Done> {
    let folder = system::Folder::create()?;
    let (header, setup) = (args.header(), args.setup(folder.path())?);
    header.campaign.check()?;
    let own = folder.path().join("journal.ndjson");
    let path = args.journal.as_ref().unwrap_or(&own);
    let mut journal = errors::Journal::open(path, &header)?;
    interrupt::listen()?;
    let bar = progress(args.errors as u64, "errors");
    header
        .campaign
        .run(&setup, args.most(), &mut journal, |all| {
            bar.set_position(all.errors() as u64);
        })?;
    bar.finish_and_clear();
    let runs = journal.runs();
    if args.json {
        println!("{}", serde_json::json!({"header": header, "runs": runs}));
    } else {
        print!("{}", errors::markdown(&header, runs));
    }
    let mut flips = runs.iter().flat_map(|run| &run.flips);
    let well = !flips.any(|it| it.verdict.is_uncontrolled() || it.verdict.is_unreturned());
    Ok((well, Some(Counted::of_errors(runs))))
}

/// True if the machine served on, and nobody differed or was lost.
fn run_frames(args: &FramesArgs) -> Result<Done> {
    let folder = system::Folder::create()?;
    interrupt::listen()?;
    let bar = progress(args.count, "frames");
    let setup = args.setup(folder.path())?;
    let run = frames::run(&args.campaign(), &setup, |sent| bar.set_position(sent))?;
    bar.finish_and_clear();
    println!(
        "{} malformed frames, {} of them or so answered, {} answers to the client meanwhile: {} \
         (n {}, seed {}, commit {}, {})",
        run.frames,
        run.replies,
        run.answers,
        if run.wrong.is_empty() {
            "all well"
        } else {
            &run.wrong
        },
        args.replicas,
        args.seed,
        commit(),
        machine()
    );
    Ok((run.wrong.is_empty(), Some(Counted::of_frames(&run))))
}

fn prepare(common: &Common, folder: &WorkFolder) -> Result<Lab> {
    Lab::prepare(
        common.setup(folder.path())?,
        &common.programs()?,
        common.space()?,
        common.when,
    )
}

fn header(common: &Common) -> Result<Header> {
    Ok(Header {
        journal: 1,
        campaign: common.campaign()?,
        commit: commit(),
        machine: machine(),
    })
}

/// A bar on a terminal; elsewhere nothing is drawn.
fn progress(length: u64, unit: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{per_sec}}, ETA {{eta}}; {{msg}}");
    let style =
        ProgressStyle::with_template(&style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
