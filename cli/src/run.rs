//! `rcoe run`: from arguments to a validated run, and from its outcome to an exit status.

use std::env;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use rcoe_linux_sys::host::die_by_signal;
use rcoe_supervisor::{
    Ending, Ledger, NotifySettings, Observer as _, Outcome, Program, RunError, ScrubRate, Settings,
    allowed_cores, assign_cores, avoid, check_folder, choose_cores, finds_file, jobs_folder, run,
};

use crate::args::{DeferArg, NotifyArg, OnFault, RunArgs, Scrubbing};
use crate::cores::suspected;
use crate::points::Points;
use crate::reporter::Reporter;

/// Runs the program and ends as it did.
///
/// # Errors
///
/// [`RunError`] if it could not be run.
pub(crate) fn execute(args: RunArgs) -> Result<ExitCode, RunError> {
    let (settings, warnings) = validate(&args)?;
    let mut reporter = Reporter::new(args.events.as_deref(), args.metrics.as_ref())?;
    for text in warnings {
        reporter.warning(&text);
    }
    let (outcome, stats) = run(&settings, &mut reporter)?;
    if args.stats {
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(anstream::stderr(), "{stats}");
    }
    if let Outcome::Ended(Ending::Signal(signal)) = outcome {
        drop(reporter);
        die_by_signal(signal);
    }
    Ok(outcome.status().into())
}

/// Variable that holds the seed of a run to be repeated.
const SEED: &str = "RCOE_THREAD_SEED";

/// The seed of the threads' slices: another one each time, unless the user asks for one.
fn thread_seed() -> Result<u64, RunError> {
    match env::var(SEED) {
        Ok(text) => text
            .parse()
            .map_err(|error| RunError::Setting(format!("{SEED}={text}: {error}"))),
        Err(_) => Ok(RandomState::new().hash_one(0_u8)),
    }
}

/// What systemd has told us about whom to tell.
fn notify(who: NotifyArg) -> Option<NotifySettings> {
    let socket = env::var_os("NOTIFY_SOCKET").filter(|_| who == NotifyArg::Rcoe)?;
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let period = number("WATCHDOG_USEC").filter(|&period| ours && period > 0);
    Some(NotifySettings {
        socket,
        watchdog: period.map(Duration::from_micros),
    })
}

/// Where faults are charged, and the cores suspected so far. Trouble with the ledger is a warning
/// and never stops a run.
fn consult_ledger(args: &RunArgs, warnings: &mut Vec<String>) -> (Option<Ledger>, Vec<u32>) {
    if args.no_ledger {
        return (None, Vec::new());
    }
    let Some(ledger) = Ledger::of_user(|name| env::var_os(name)) else {
        return (None, Vec::new());
    };
    let suspects = suspected(&ledger, args.suspect_after).unwrap_or_else(|error| {
        warnings.push(error);
        Vec::new()
    });
    (Some(ledger), suspects)
}

/// At what rate memory is scrubbed.
fn scrub(args: &RunArgs, replicas: usize, mask: bool) -> Result<Option<ScrubRate>, RunError> {
    let rate = match args.scrub {
        Some(Scrubbing::At(rate)) => Some(rate),
        Some(Scrubbing::Off) => None,
        // What is repaired cannot be looked at.
        None if args.gdb.is_some() => None,
        None => mask.then_some(ScrubRate::DEFAULT),
    };
    if rate.is_some() && replicas < 3 {
        let why = "--scrub needs at least three replicas to know whose memory is right; use -n 3";
        return Err(RunError::Setting(why.into()));
    }
    Ok(rate)
}

/// Checks the arguments against the machine and the file system; also tells what the user should
/// know before the start.
fn validate(args: &RunArgs) -> Result<(Settings, Vec<String>), RunError> {
    let allowed = allowed_cores()?;
    let wanted = args.cores.as_ref().map(|list| list.0.as_slice());
    let cores = choose_cores(wanted, &allowed)
        .map_err(|why| RunError::Setting(format!("--cores: {why}")))?;
    let replicas = args
        .replicas
        .unwrap_or(if cores.len() >= 3 { 3 } else { 2 });
    if args.on_fault == Some(OnFault::Mask) && replicas < 3 {
        let why = "--on-fault mask needs at least three replicas to know who is faulty; use -n 3";
        return Err(RunError::Setting(why.into()));
    }
    let mask = replicas >= 3 && args.on_fault != Some(OnFault::Stop);
    let points = Points::of(args, replicas)?;
    let scrub = scrub(args, replicas, mask)?;
    if let Some(folder) = &args.core_on_fault {
        let why = |error| format!("--core-on-fault {}: {error}", folder.display());
        check_folder(folder).map_err(|error| RunError::Setting(why(error)))?;
    }
    let program = Program::resolve(&args.command, env::var_os("PATH").as_deref())?;
    let mut warnings: Vec<String> = points.warning.into_iter().collect();
    let (ledger, suspects) = consult_ledger(args, &mut warnings);
    let assigned = assign_cores(replicas, &avoid(replicas, &cores, &suspects));
    let (used, avoided): (Vec<u32>, Vec<u32>) = suspects
        .into_iter()
        .filter(|core| cores.contains(core))
        .partition(|core| assigned.contains(core));
    for core in used {
        warnings.push(format!(
            "core {core} is suspect and is used all the same: there are too few others \
             (see rcoe cores)"
        ));
    }
    let settings = Settings {
        program,
        compare: args.compare.into(),
        clock: args.clock.into(),
        mask,
        reintegrate: !args.no_reintegrate && args.gdb.is_none(),
        scrub,
        strict: args.strict,
        defer: args.defer == DeferArg::On,
        slice: points.slice,
        tick: points.tick,
        places: points.places,
        timeout: args.timeout,
        seed: thread_seed()?,
        cores: assigned,
        allowed: cores,
        suspect_after: args.suspect_after,
        avoided,
        finds: finds_file(|name| env::var_os(name)).filter(|_| !args.no_ledger),
        ledger,
        notify: notify(args.notify),
        metrics: args.metrics.clone(),
        events: args.events.is_some(),
        dumps: args.core_on_fault.clone(),
        gdb: args.gdb,
        jobs: (!args.no_status).then(|| jobs_folder(|name| env::var_os(name))),
    };
    Ok((settings, warnings))
}
