//! `rcoe top`: running jobs, once or each second.
//!
//! On a terminal the screen is drawn over each second until the user interrupts; nothing of the
//! terminal is changed that would have to be put back. Rates are differences between two looks.
//! The same is served to browsers by `--web` (see [`web`]).

mod render;
mod web;

use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rcoe_supervisor::{Snapshot, find_job, find_jobs, jobs_folder};

use crate::args::TopArgs;
use render::{Look, draw_all, draw_one};
pub(crate) use web::WebAddress;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Clears from the top left corner of the screen.
const HOME_AND_CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows what was asked for.
///
/// # Errors
///
/// If there is no such job, or standard output cannot be written.
pub(crate) fn execute(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let folder = jobs_folder(|name| env::var_os(name));
    if let Some(address) = args.web {
        web::serve(address, args, folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    let written = if args.json {
        print_json(&folder, args)
    } else if args.once || !io::stdout().is_terminal() {
        let look = look(&folder, args, None)?;
        write(&look.text)
    } else {
        watch(&folder, args)
    };
    written.map(|()| ExitCode::SUCCESS)
}

fn print_json(folder: &Path, args: &TopArgs) -> anyhow::Result<()> {
    let mut text = match args.pid {
        Some(pid) => serde_json::to_string_pretty(&job(folder, pid)?)?,
        None => serde_json::to_string_pretty(&jobs(folder)?)?,
    };
    text.push('\n');
    write(&text)
}

/// What one look shows, and what the next one compares with.
struct Shown {
    text: String,
    seen: Vec<Look>,
}

/// Looks again and again until the user interrupts, or the one job is over.
fn watch(folder: &Path, args: &TopArgs) -> anyhow::Result<()> {
    let mut before = look(folder, args, None)?;
    loop {
        write(&format!("{HOME_AND_CLEAR}{}", before.text))?;
        std::thread::sleep(PERIOD);
        before = match look(folder, args, Some(&before)) {
            Ok(shown) => shown,
            Err(_) if args.pid.is_some() => return write("The job has ended.\n"),
            Err(error) => return Err(error),
        };
    }
}

fn look(folder: &Path, args: &TopArgs, before: Option<&Shown>) -> anyhow::Result<Shown> {
    let found = match args.pid {
        Some(pid) => vec![job(folder, pid)?],
        None => jobs(folder)?,
    };
    let now = Instant::now();
    let seen = found
        .into_iter()
        .map(|snapshot| Look { now, snapshot })
        .collect::<Vec<_>>();
    let old = |pid: u32| before?.seen.iter().find(|look| look.snapshot.pid == pid);
    let text = match seen.as_slice() {
        [] => "No jobs of this user run.\n".to_owned(),
        [one] if !args.all => draw_one(one, old(one.snapshot.pid)),
        all => draw_all(all, old),
    };
    Ok(Shown { text, seen })
}

fn jobs(folder: &Path) -> anyhow::Result<Vec<Snapshot>> {
    find_jobs(folder).with_context(|| format!("looking for jobs in {}", folder.display()))
}

/// The job whose rcoe, or one of whose replicas, has this process id.
fn job(folder: &Path, pid: u32) -> anyhow::Result<Snapshot> {
    if let Ok(snapshot) = find_job(folder, pid) {
        return Ok(snapshot);
    }
    let has = |job: &Snapshot| {
        let processes = job.processes.iter();
        processes
            .flat_map(|process| &process.replicas)
            .any(|replica| replica.pid == pid)
    };
    match jobs(folder)?.into_iter().find(has) {
        Some(snapshot) => Ok(snapshot),
        None => bail!("no job {pid} in {}", folder.display()),
    }
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("writing the view")
}
