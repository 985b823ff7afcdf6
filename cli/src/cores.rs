//! `rcoe cores`: shows, clears and exports the ledger of cores.

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use rcoe_pages::date;
use rcoe_supervisor::{
    Charge, Clearing, Content, CoreRecord, Entry, Ledger, WINDOW_DAYS, host_name, seconds_of,
    suspects, tally,
};
use serde::Serialize;

use crate::args::{CoresAction, CoresArgs};

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Overview {
    ledger: String,
    host: String,
    suspect_after: u32,
    window_days: u32,
    /// Lines of the ledger that cannot be read.
    unreadable: usize,
    cores: Vec<CoreRecord>,
}

/// Does what was asked for.
///
/// # Errors
///
/// If there is no ledger to speak of, or it or standard output cannot be read or written.
pub(crate) fn execute(args: &CoresArgs) -> anyhow::Result<ExitCode> {
    let ledger = Ledger::of_user(|name| env::var_os(name))
        .context("there is no place for the ledger of cores: neither HOME nor XDG_STATE_HOME")?;
    let named = || format!("the ledger of cores {}", ledger.path().display());
    match args.action {
        Some(CoresAction::Clear { core }) => ledger.append(&clearing(core)).with_context(named)?,
        Some(CoresAction::Export { csv }) => {
            let content = ledger.read().with_context(named)?;
            export(&content, csv).context("writing the ledger")?;
        }
        None => {
            let content = ledger.read().with_context(named)?;
            let overview = overview(&ledger, &content, args.suspect_after);
            print(&overview, args.json).context("writing the table")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The cores that the ledger suspects, or a warning of why it cannot be read.
pub(crate) fn suspected(ledger: &Ledger, suspect_after: u32) -> Result<Vec<u32>, String> {
    let content = ledger.read().map_err(|error| {
        let path = ledger.path();
        format!(
            "the ledger of cores {} cannot be read: {error}",
            path.display()
        )
    })?;
    Ok(suspects(&overview(ledger, &content, suspect_after).cores))
}

fn overview(ledger: &Ledger, content: &Content, suspect_after: u32) -> Overview {
    let host = host_name();
    let now = seconds_of(SystemTime::now());
    Overview {
        ledger: ledger.path().display().to_string(),
        cores: tally(&content.entries, &host, now, suspect_after),
        host,
        suspect_after,
        window_days: WINDOW_DAYS,
        unreadable: content.unreadable,
    }
}

/// What the ledger says of this machine's cores.
pub(crate) fn records(ledger: &Ledger, suspect_after: u32) -> io::Result<Vec<CoreRecord>> {
    Ok(overview(ledger, &ledger.read()?, suspect_after).cores)
}

fn clearing(core: Option<u32>) -> Entry {
    Entry::Clear(Clearing {
        time: seconds_of(SystemTime::now()),
        host: host_name(),
        core,
    })
}

fn print(overview: &Overview, json: bool) -> io::Result<()> {
    let mut out = anstream::stdout();
    if json {
        return writeln!(out, "{}", serde_json::to_string_pretty(overview)?);
    }
    if overview.unreadable > 0 {
        writeln!(out, "{} damaged lines left out", overview.unreadable)?;
    }
    if overview.cores.is_empty() {
        return writeln!(
            out,
            "No faults within {} days in {}",
            overview.window_days, overview.ledger
        );
    }
    writeln!(
        out,
        "{:>4}  {:<8} {:>6} {:>6} {:>9}  {:<20}  {:<20}  programs",
        "core", "state", "faults", "shared", "uncounted", "first", "last"
    )?;
    for core in &overview.cores {
        let state = if core.suspect { "suspect" } else { "in use" };
        let programs = core.programs.iter().map(String::as_str).collect::<Vec<_>>();
        writeln!(
            out,
            "{:>4}  {state:<8} {:>6} {:>6} {:>9}  {}  {}  {}",
            core.core,
            core.faults,
            core.shared,
            core.uncounted,
            date(core.first),
            date(core.last),
            programs.join(" ")
        )?;
    }
    Ok(())
}

fn export(content: &Content, csv: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if csv {
        writeln!(
            out,
            "date,time_seconds,host,kind,program,pid,replica,cores,blame,reason,detail"
        )?;
    }
    for entry in &content.entries {
        match entry {
            Entry::Fault(charge) if csv => writeln!(out, "{}", row(charge)?)?,
            Entry::Clear(_) if csv => {}
            entry => writeln!(out, "{}", serde_json::to_string(entry)?)?,
        }
    }
    out.flush()
}

fn row(charge: &Charge) -> io::Result<String> {
    let cores = charge.cores.iter().map(u32::to_string).collect::<Vec<_>>();
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let fields = [
        date(charge.time),
        charge.time.to_string(),
        charge.host.clone(),
        charge.kind.name().to_owned(),
        charge.program.clone(),
        charge.pid.to_string(),
        charge.replica.map_or_else(String::new, |id| id.to_string()),
        cores.join(" "),
        word(serde_json::to_value(charge.blame)?),
        charge.reason.clone(),
        charge.detail.clone(),
    ];
    let quoted = fields.map(|field| format!("\"{}\"", field.replace('"', "\"\"")));
    Ok(quoted.join(","))
}
