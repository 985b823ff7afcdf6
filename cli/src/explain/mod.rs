//! `rcoe explain`: from an events file to what happened, where in the program, and what to do.
//!
//! The idea: `rcoe run` tells addresses and the identity of files, and nothing is looked up while
//! replicas wait. Here there is time for that, and a fault here harms nobody.

mod files;
mod read;
mod words;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

use crate::args::ExplainArgs;
use files::{Files, Frame};
use read::{Fault, Scene, Seen, Story};

/// A replica at a fault.
#[derive(Debug, Serialize)]
struct Replica {
    replica: usize,
    faulty: bool,
    /// What it had recorded as the first event that differs.
    recorded: Option<String>,
    /// The call that it had made when that was found out.
    call: Option<String>,
    /// The innermost frame of the program itself.
    place: Option<Place>,
    frames: Vec<Frame>,
    core_file: Option<String>,
}

/// A line of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Place {
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    module: Option<String>,
    address: String,
}

/// A fault, explained.
#[derive(Debug, Serialize)]
struct Explained {
    t: f64,
    process: Option<u32>,
    kind: String,
    what: String,
    replica: Option<usize>,
    core: Option<u32>,
    event: Option<u64>,
    detail: String,
    /// Whether the replicas met at another call than the one that differs.
    met_later: bool,
    replicas: Vec<Replica>,
    done: Vec<String>,
    next: Vec<String>,
    remarks: Vec<String>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    rcoe: String,
    program: String,
    replicas: usize,
    faults: Vec<Explained>,
    status: Option<u64>,
    reason: Option<String>,
}

/// Explains.
///
/// # Errors
///
/// If the file is not what it should be, or standard output cannot be written.
pub(crate) fn execute(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let story = read::read(&args.events).with_context(|| args.events.display().to_string())?;
    let report = report(&story, &args.debug_dir);
    let text = if args.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        text(&report)
    };
    io::stdout()
        .write_all(text.as_bytes())
        .context("writing the explanation")?;
    Ok(ExitCode::SUCCESS)
}

fn report(story: &Story, debug: &Path) -> Report {
    let last = story.faults.len().saturating_sub(1);
    let faults = story.faults.iter().enumerate();
    let faults = faults.map(|(at, fault)| explain(story, fault, at == last, debug));
    Report {
        schema: story.start.schema,
        rcoe: story.start.version.clone(),
        program: story.start.program.clone(),
        replicas: story.start.replicas.len(),
        faults: faults.collect(),
        status: story.end.as_ref().map(|(status, _)| *status),
        reason: story.end.as_ref().map(|(_, reason)| reason.clone()),
    }
}

fn explain(story: &Story, fault: &Fault, is_last: bool, debug: &Path) -> Explained {
    let none = Scene::default();
    let scene = fault.scene.as_ref().unwrap_or(&none);
    let files = Files::new(scene, debug);
    let program = &story.start.program;
    let replicas: Vec<Replica> = scene
        .replicas
        .iter()
        .map(|seen| replica(seen, fault, &files, program))
        .collect();
    let first = replicas.iter().find(|it| it.faulty && it.place.is_some());
    let first = first.or_else(|| replicas.iter().find(|it| it.place.is_some()));
    let place = first.and_then(|it| it.place.as_ref()).map(Place::text);
    let told = &fault.divergence;
    let mut remarks = files.remarks;
    if fault.scene.is_none() {
        remarks.push("the events do not tell where the program stood".into());
    }
    Explained {
        t: told.t,
        process: told.process,
        kind: told.kind.clone(),
        what: words::kind(fault),
        replica: told.replica,
        core: told.core,
        event: told.event,
        detail: told.detail.clone(),
        met_later: words::met_later(fault),
        replicas,
        done: words::outcome(story, fault, is_last),
        next: words::advice(story, fault, place.as_deref()),
        remarks,
    }
}

fn replica(seen: &Seen, fault: &Fault, files: &Files, program: &str) -> Replica {
    let frames = files.frames(seen);
    let core = fault.cores.iter().find(|(index, _)| *index == seen.replica);
    Replica {
        replica: seen.replica,
        faulty: seen.faulty,
        recorded: seen.recorded.clone(),
        call: seen.call.as_ref().map(read::Call::text),
        place: place(&frames, program),
        frames,
        core_file: core.map(|(_, file)| file.clone()),
    }
}

/// The innermost frame that is the program's own: of its file; else of a file that is not the
/// system's, with a line; else the innermost of all.
fn place(frames: &[Frame], program: &str) -> Option<Place> {
    let is = |frame: &&Frame, file: &str| frame.module.as_deref() == Some(file);
    let foreign = |frame: &&Frame| {
        let module = frame.module.as_deref().unwrap_or_default();
        let system = ["/lib", "/usr/lib"].iter().any(|it| module.starts_with(it));
        frame.line.is_some() && !system
    };
    let own = frames
        .iter()
        .find(|it| is(it, program) && it.line.is_some());
    let own = own.or_else(|| frames.iter().find(|it| is(it, program)));
    let own = own.or_else(|| frames.iter().find(foreign));
    own.or(frames.first()).map(|frame| Place {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        module: frame.module.clone(),
        address: frame.address.clone(),
    })
}

impl Place {
    fn text(&self) -> String {
        let function = self.function.as_deref().unwrap_or("?");
        match (&self.file, self.line, &self.module) {
            (Some(file), Some(line), _) => format!("{function} at {file}:{line}"),
            (_, _, Some(module)) => format!("{function} in {module}"),
            _ => format!("{function} at {}", self.address),
        }
    }
}

/// One frame as a line.
fn line_of(frame: &Frame) -> String {
    let function = frame.function.as_deref().unwrap_or("?");
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{function}{inlined} at {file}:{line}"),
        _ => {
            let module = frame.module.as_deref().unwrap_or("no file");
            format!("{function} at {} in {module}", frame.address)
        }
    }
}

fn text(report: &Report) -> String {
    let mut lines = vec![format!(
        "rcoe {} ran {} as {} replicas.",
        report.rcoe, report.program, report.replicas
    )];
    if report.faults.is_empty() {
        lines.push("No replica differed or failed.".into());
    }
    for (number, fault) in (1..).zip(&report.faults) {
        tell(number, fault, &mut lines);
    }
    match (&report.reason, report.status) {
        (Some(reason), Some(status)) => {
            lines.push(String::new());
            lines.push(format!("The run ended: {reason}, status {status}."));
        }
        _ => lines.push("\nThe run has not ended, or rcoe was killed.".into()),
    }
    lines.join("\n") + "\n"
}

fn tell(number: u32, fault: &Explained, lines: &mut Vec<String>) {
    lines.push(format!(
        "\nFault {number}, after {:.3} s: {}.",
        fault.t, fault.what
    ));
    let process = fault.process.map(|it| format!("process {it}"));
    let core = fault.core.map(|it| format!("core {it}"));
    let event = fault
        .event
        .map(|it| format!("event {it} is the first that differs"));
    let known: Vec<String> = [process, core, event].into_iter().flatten().collect();
    if !known.is_empty() {
        lines.push(format!("  {}", known.join(", ")));
    }
    lines.push(format!("  {}", fault.detail));
    if fault.replicas.iter().any(|it| it.recorded.is_some()) {
        lines.push("  What each had of that event:".into());
        for it in &fault.replicas {
            let what = it.recorded.as_deref().unwrap_or("nothing, or no longer");
            lines.push(format!("    replica {}: {what}", it.replica));
        }
    }
    tell_places(fault, lines);
    let parts = [
        ("What was done:", &fault.done),
        ("What to do next:", &fault.next),
        ("Remarks:", &fault.remarks),
    ];
    for (title, all) in parts.into_iter().filter(|(_, all)| !all.is_empty()) {
        lines.push(format!("  {title}"));
        lines.extend(all.iter().map(|it| format!("    * {it}")));
    }
}

/// Where the program stood, once for all replicas that stood at the same place.
fn tell_places(fault: &Explained, lines: &mut Vec<String>) {
    let title = if fault.met_later {
        "Where they met, and found it out"
    } else {
        "Where the program stood"
    };
    let mut told: Vec<&Replica> = Vec::new();
    for replica in fault.replicas.iter().filter(|it| !it.frames.is_empty()) {
        if told.iter().any(|it| it.frames == replica.frames) {
            continue;
        }
        told.push(replica);
        let alike = fault.replicas.iter();
        let alike = alike.filter(|it| it.frames == replica.frames);
        let alike: Vec<String> = alike.map(|it| it.replica.to_string()).collect();
        let place = replica.place.as_ref().map(Place::text).unwrap_or_default();
        lines.push(format!(
            "  {title} (replica {}): {place}",
            alike.join(", replica ")
        ));
        if let Some(call) = &replica.call {
            lines.push(format!("    in {call}"));
        }
        let frames = (0..).zip(&replica.frames);
        lines.extend(frames.map(|(at, frame)| format!("    #{at} {}", line_of(frame))));
    }
}
