//! `rcoe run --sphere system`: from arguments to a machine, and from its ending to an exit status.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anstyle::AnsiColor;
use rcoe_abi::layout::MAX_CORES;
use rcoe_linux_sys::host::{SignalFd, die_by_signal};
use rcoe_supervisor::{
    EXIT_FAIL_STOP, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_OWN_FAILURE, SCHEMA,
};
use rcoe_system::{
    Accel, Approach, Arch, Counting, Coupling, Difference, Ending, Entry, Guest, LinuxProgram, Nic,
    Settings, Start, SystemError, Threads, find_linux, folder, is_native, offers, run,
};
use serde_json::{Value, json};

use crate::args::{
    AccelArg, ArchArg, CoreThreads, CountBy, CouplingArg, NicArg, OnFault, RunArgs, StopBy, TickArg,
};
use crate::input::{self, Input};
use crate::reporter::say;

/// Variable with further words for the kernel's command line, for tests.
const KERNEL_WORDS: &str = "RCOE_SYSTEM_WORDS";

/// Status of rcoe after an error.
pub(crate) const fn exit_status(error: &SystemError) -> u8 {
    match error {
        SystemError::NotFound(..) => EXIT_NOT_FOUND,
        SystemError::Program { .. } => EXIT_NOT_EXECUTABLE,
        _ => EXIT_OWN_FAILURE,
    }
}

/// Runs the program in a machine of its own and ends as it did.
///
/// # Errors
/// If there is no machine to be had, or no such program.
pub(crate) fn execute(args: &RunArgs) -> Result<ExitCode, SystemError> {
    let mut settings = validate(args)?;
    let mut events = Events::open(args.events.as_deref())?;
    let folder = folder(settings.arch)?;
    if let Some(path) = &args.guest {
        settings.guest = Some(guest(args, settings.arch, path)?);
    } else {
        (settings.linux, settings.live_input) = linux_program(args, settings.arch, &folder)?;
    }
    let tree = settings.guest.as_ref().and_then(Guest::tree);
    if tree.is_some() {
        settings.argument = tree;
    } else if settings.linux.is_none() {
        settings.argument = argument(args)?;
    }
    let signals = SignalFd::endings().map_err(|source| SystemError::Host {
        what: "collecting signals".into(),
        source,
    })?;
    let mut witness = Witness::new(&settings, &mut events);
    let ended = run(
        &settings,
        &folder,
        signals.as_fd(),
        &mut io::stdout(),
        &mut |replica, entry| witness.hear(replica, entry),
    );
    if args.stats {
        witness.tell_stats();
    }
    let ending = match ended {
        Ok(ending) => ending,
        Err(error) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
            witness.stop(EXIT_OWN_FAILURE, &format!("{error}{cause}"));
            return Err(error);
        }
    };
    if ending == Ending::Stopped
        && let Ok(Some(signal)) = signals.next()
        && let Ok(number) = u8::try_from(signal.number)
    {
        witness.stop(number.saturating_add(128), &format!("signal {number}"));
        die_by_signal(number);
    }
    Ok(witness.end(&ending).into())
}

/// Time between ticks, unless the user says another.
const TICK: Duration = Duration::from_millis(10);

/// Where replicas act, and what counts how far their programs have come.
fn coupling(args: &RunArgs) -> Result<(Coupling, Counting), SystemError> {
    let coupling = match args.coupling {
        // A guest is interrupted wherever it is.
        CouplingArg::Loose if args.guest.is_none() => Coupling::Loose,
        CouplingArg::Loose | CouplingArg::Close => Coupling::Close,
    };
    for (option, given) in [
        ("--stop-by", args.stop_by.is_some()),
        ("--count-by", args.count_by.is_some()),
    ] {
        if given && coupling == Coupling::Loose {
            let why = format!("{option} is for closely coupled replicas: add --coupling close");
            return Err(SystemError::Setting(why));
        }
    }
    let counting = match args.count_by {
        None | Some(CountBy::Machine) => Counting::Machine,
        Some(CountBy::Compiler) => Counting::Compiler,
    };
    Ok((coupling, counting))
}

fn validate(args: &RunArgs) -> Result<Settings, SystemError> {
    let replicas = args.replicas.unwrap_or(3);
    if replicas > MAX_CORES {
        let why = format!("the system sphere has at most {MAX_CORES} replicas");
        return Err(SystemError::Setting(why));
    }
    if args.on_fault == Some(OnFault::Mask) && replicas < 3 {
        let why = "--on-fault mask needs at least three replicas to know who is faulty; use -n 3";
        return Err(SystemError::Setting(why.into()));
    }
    let tick = args.tick.map_or(Ok(TICK), TickArg::of_system);
    let tick = tick.map_err(SystemError::Setting)?;
    let (coupling, counting) = coupling(args)?;
    Ok(Settings {
        arch: match args.arch {
            ArchArg::X86_64 => Arch::X86_64,
            ArchArg::Aarch64 => Arch::Aarch64,
        },
        replicas,
        compare: args.compare.into(),
        timeout: args.timeout,
        tick,
        mask: replicas >= 3 && args.on_fault != Some(OnFault::Stop),
        reintegrate: !args.no_reintegrate,
        accel: match args.accel {
            AccelArg::Tcg => Accel::Tcg,
            AccelArg::Kvm => Accel::Kvm,
        },
        threads: match (args.core_threads, coupling) {
            (None, Coupling::Loose) | (Some(CoreThreads::Single), _) => Threads::Single,
            (Some(CoreThreads::Multi), _) => Threads::Multi,
            (None, Coupling::Close) | (Some(CoreThreads::Counted), _) => Threads::Counted,
        },
        coupling,
        approach: match (args.stop_by, counting) {
            (None, Counting::Machine) | (Some(StopBy::Counter), _) => Approach::Counter,
            (None, Counting::Compiler) | (Some(StopBy::Breakpoint), _) => Approach::Breakpoint,
        },
        counting,
        kernel_words: std::env::var(KERNEL_WORDS).unwrap_or_default(),
        memory: args.memory,
        memory_file: args.memory_file.clone(),
        debugger: args.debugger.clone(),
        monitor: args.monitor.clone(),
        restored: args.restored,
        publish: args.publish.clone(),
        outgoing: args.outgoing,
        nic: nic(args)?,
        wire: args.wire.clone(),
        disk: args.disk.clone(),
        live_input: false,
        program: args
            .command
            .first()
            .map_or_else(String::new, |word| word.to_string_lossy().into_owned()),
        argument: None,
        linux: None,
        guest: None,
    })
}

/// The network card.
fn nic(args: &RunArgs) -> Result<Nic, SystemError> {
    let has_network = args.outgoing || !args.publish.is_empty();
    match args.nic {
        Some(_) if !has_network => {
            let why = "--nic: the machine has no network: add --publish or --outgoing";
            Err(SystemError::Setting(why.into()))
        }
        None | Some(NicArg::Rtl8139) => Ok(Nic::Rtl8139),
        Some(NicArg::Virtio) => Ok(Nic::Virtio),
    }
}

/// The guest that is to be run: the words behind the options are Linux's command line.
fn guest(args: &RunArgs, arch: Arch, path: &Path) -> Result<Guest, SystemError> {
    let words = args.command.iter().map(|word| word.to_string_lossy());
    let line = words.collect::<Vec<_>>().join(" ");
    Guest::read(arch, path, args.initrd.as_deref(), &line)
}

/// The one number that a program of the microkernel can be given.
fn argument(args: &RunArgs) -> Result<Option<u64>, SystemError> {
    let refuse = |why: &str| Err(SystemError::Setting(why.into()));
    if !args.file.is_empty() {
        return refuse("--file is for programs of Linux: others have no files");
    }
    if args.input.is_some() {
        return refuse("--input is for programs of Linux: others read nothing");
    }
    if args.outgoing {
        return refuse("--outgoing is for programs of Linux: others make no connections");
    }
    if args.disk.is_some() {
        return refuse("--disk is for programs of Linux: others have no files");
    }
    // A guest's argument stands alone.
    let (spaced, words) = match args.command.split_first() {
        Some((name, words)) if args.guest.is_none() => {
            (name.to_string_lossy().contains(' '), words)
        }
        _ => (false, &args.command[..]),
    };
    match words {
        [] if !spaced => Ok(None),
        [word] if !spaced => {
            let word = word.to_string_lossy();
            let why = || format!("a program's argument is one number, not '{word}'");
            word.parse()
                .map(Some)
                .map_err(|_| SystemError::Setting(why()))
        }
        _ => refuse("a program of the system sphere has at most one argument, a number"),
    }
}

/// The program of Linux that is to be run, if it is one: a file that is not made for the
/// microkernel, and that the image has no program of the name of. Tells also whether its input
/// comes while it runs.
fn linux_program(
    args: &RunArgs,
    arch: Arch,
    folder: &Path,
) -> Result<(Option<LinuxProgram>, bool), SystemError> {
    let word = &args.command[0];
    if offers(folder, &word.to_string_lossy())? {
        return Ok((None, false));
    }
    let Some(path) = find_linux(word).filter(|path| !is_native(path)) else {
        return Ok((None, false));
    };
    let (input, is_live) = match input::read(args)? {
        Input::None => (None, false),
        Input::Whole(content) => (Some(content), false),
        Input::Live => (None, true),
    };
    let variables = std::env::vars_os().map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        variable
    });
    let start = Start {
        arguments: args.command.clone(),
        environment: variables.collect(),
        files: args.file.clone(),
        input,
        disk: args.disk.as_ref().map(|disk| disk.guest.clone()),
        outgoing: args.outgoing,
    };
    let program = LinuxProgram::new(arch, &path, &start)?;
    Ok((Some(program), is_live))
}

/// The events file.
struct Events {
    start: Instant,
    file: Option<File>,
}

impl Events {
    fn open(path: Option<&Path>) -> Result<Self, SystemError> {
        let file = path.map(|path| {
            File::create(path).map_err(|error| {
                let path = path.display();
                SystemError::Setting(format!("--events {path}: cannot be written: {error}"))
            })
        });
        Ok(Self {
            start: Instant::now(),
            file: file.transpose()?,
        })
    }

    /// Writes one event, with one write.
    fn write(&mut self, kind: &str, mut event: Value) {
        event["t"] = json!(self.start.elapsed().as_secs_f64());
        event["type"] = json!(kind);
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(format!("{event}\n").as_bytes())
        {
            self.file = None;
            let text = format!("--events: writing failed, no more events: {error}");
            say(AnsiColor::Yellow, "warning: ", &text);
        }
    }
}

/// Cycles from a flip to the first notice behind it. Replicas tell by ways of their own, so what
/// was noticed can be heard before the flip.
fn until_noticed(flipped: u64, noticed: &[u64]) -> Option<u64> {
    noticed
        .iter()
        .filter_map(|it| it.checked_sub(flipped))
        .min()
}

/// Makes one story of what the replicas tell: each survivor tells of a removal.
struct Witness<'a> {
    settings: &'a Settings,
    events: &'a mut Events,
    /// Replicas that live, by number.
    living: Vec<usize>,
    primary: usize,
    /// Cycles, events and rendezvous at the end.
    stats: Option<[u64; 3]>,
    /// Interrupts, removals and copies, each with its cycles; portions of copies, and the cycles
    /// of the longest; points at one instruction, their cycles, and those at events.
    meter: [u64; 11],
    /// The cycle at which a test had a bit changed, and those at which somebody noticed something.
    flipped: Option<u64>,
    noticed: Vec<u64>,
    /// Removals that were told, each by its replica and its vote.
    removals: HashSet<(u64, u64)>,
    /// Those that told that they are broken.
    broken: Vec<usize>,
    /// The event at which replicas differ, as last told.
    difference: Option<Difference>,
    divergences: usize,
    /// Why a replica could not be brought back, as last told.
    reason: Option<String>,
}

impl<'a> Witness<'a> {
    fn new(settings: &'a Settings, events: &'a mut Events) -> Self {
        Self {
            settings,
            events,
            living: (0..settings.replicas).collect(),
            primary: 0,
            stats: None,
            meter: [0; 11],
            flipped: None,
            noticed: Vec::new(),
            removals: HashSet::new(),
            broken: Vec::new(),
            difference: None,
            divergences: 0,
            reason: None,
        }
    }

    fn hear(&mut self, replica: usize, entry: &Entry) {
        match entry {
            Entry::Start(_) => self.started(),
            Entry::Event(difference) => self.difference.clone_from(difference),
            Entry::Removed(who, why, vote) => self.hear_of_removal(*who, why, *vote),
            Entry::Joined(who) => self.joined(*who),
            Entry::Abandoned(who, why) => self.abandoned(*who, why),
            Entry::Differs(who) => {
                let event = json!({"replica": who, "stage": "differs"});
                self.events.write("reintegration", event);
                let text = format!("replica {who} has other memory than most: it is not copied");
                say(AnsiColor::Yellow, "warning: ", &text);
            }
            Entry::Broken(text) => {
                self.broken.push(replica);
                let text = format!("replica {replica} failed: {text}");
                say(AnsiColor::Yellow, "", &text);
            }
            Entry::Note(text) => say(AnsiColor::Yellow, "warning: ", text),
            Entry::Stats(stats) => self.stats = Some(*stats),
            Entry::Meter(meter) => self.meter = *meter,
            Entry::Flipped(cycle) => self.flipped = Some(*cycle),
            Entry::Noticed(cycle) => self.noticed.push(*cycle),
            _ => {}
        }
    }

    fn tell_stats(&self) {
        // A closed standard error leaves nobody to tell.
        if let Some([cycles, events, votes]) = self.stats {
            let text = format!("cycles {cycles}, events {events}, rendezvous {votes}");
            let _ = writeln!(anstream::stderr(), "{text}");
        }
        let [
            delivered,
            delivery,
            removed,
            removal,
            copied,
            copy,
            portions,
            longest,
            points,
            coming,
            at_events,
        ] = self.meter;
        for (what, count, cycles) in [
            ("interrupts", delivered, delivery),
            ("removals", removed, removal),
            ("copies", copied, copy),
        ] {
            if let Some(each) = cycles.checked_div(count) {
                let text = format!("{what} {count}, cycles each {each}");
                let _ = writeln!(anstream::stderr(), "{text}");
            }
        }
        if portions > 0 {
            let text = format!("portions of copies {portions}, cycles of the longest {longest}");
            let _ = writeln!(anstream::stderr(), "{text}");
        }
        if let Some(flipped) = self.flipped {
            let found = match until_noticed(flipped, &self.noticed) {
                Some(cycles) => format!("cycles until noticed {cycles}"),
                None => "not noticed".to_owned(),
            };
            let _ = writeln!(anstream::stderr(), "flips 1, {found}");
        }
        if let Some(each) = coming.checked_div(points) {
            let text = format!("points {points}, at events {at_events}, cycles each {each}");
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    fn started(&mut self) {
        let replicas: Vec<Value> = self
            .living
            .iter()
            .map(|id| json!({"id": id, "core": id}))
            .collect();
        let event = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "program": self.settings.program,
            "schema": SCHEMA,
            "sphere": "system",
            "coupling": self.settings.coupling.name(),
            "replicas": replicas,
        });
        self.events.write("start", event);
    }

    fn joined(&mut self, who: u64) {
        let Ok(id) = usize::try_from(who) else { return };
        if id < self.settings.replicas && !self.living.contains(&id) {
            self.living.push(id);
            self.reason = None;
            self.broken.retain(|&broken| broken != id);
            let event = json!({"replica": who, "stage": "done", "core": who});
            self.events.write("reintegration", event);
            let text = format!("replica {who} is back as a copy of another");
            say(AnsiColor::Green, "", &text);
        }
    }

    fn abandoned(&mut self, who: u64, why: &str) {
        let event = json!({"replica": who, "stage": "abandoned", "again": true, "reason": why});
        self.events.write("reintegration", event);
        if self.reason.as_deref() != Some(why) {
            self.reason = Some(why.to_owned());
            let text = format!("replica {who} cannot be brought back yet: {why}");
            say(AnsiColor::Yellow, "warning: ", &text);
        }
    }

    /// Tells of a removal, unless another survivor's word of it was heard: it may come when the
    /// replica is back.
    fn hear_of_removal(&mut self, who: u64, why: &str, vote: u64) {
        if self.removals.insert((who, vote)) {
            self.removed(who, why);
        }
    }

    fn removed(&mut self, who: u64, why: &str) {
        let Some(at) = self.living.iter().position(|&id| id as u64 == who) else {
            return;
        };
        // Nobody waited for one that said it is broken, whatever the vote calls it.
        let why = if self.broken.contains(&self.living[at]) {
            "fault"
        } else {
            why
        };
        let first = self.primary;
        self.living.remove(at);
        self.divergences += 1;
        let difference = self.difference.take().filter(|_| why == "mismatch");
        let number = difference.as_ref().map(|it| it.event);
        let detail = difference.map(|it| it.in_words(Some(who)));
        let event = json!({
            "replica": who, "core": who, "kind": why, "event": number, "detail": detail,
        });
        self.events.write("divergence", event);
        let Some(&lowest) = self.living.iter().min() else {
            return;
        };
        let gone = first as u64 == who;
        self.primary = if gone { lowest } else { first };
        let primary = self.primary;
        let left = self.living.len();
        let event = json!({"removed": who, "primary": primary, "left": left});
        self.events.write("downgrade", event);
        if primary != first {
            let event = json!({"from": first, "to": primary});
            self.events.write("takeover", event);
        }
        let detail = detail.map_or_else(String::new, |detail| format!("; {detail}"));
        let text = format!("replica {who} is faulty ({why}): going on with {left}{detail}");
        say(AnsiColor::Yellow, "", &text);
    }

    /// A fault of which nobody was removed. One that told that it is broken is the culprit.
    fn diverged(&mut self, why: &str) {
        if self.divergences > 0 {
            return;
        }
        let broken = self.broken.first();
        let kind = if broken.is_some() { "fault" } else { why };
        let difference = self.difference.take();
        let number = difference.as_ref().map(|it| it.event);
        let detail = difference.map(|it| it.in_words(None));
        if let Some(detail) = &detail {
            say(AnsiColor::Yellow, "", detail);
        }
        let event = json!({
            "replica": broken, "core": broken, "kind": kind, "event": number, "detail": detail,
        });
        self.events.write("divergence", event);
    }

    /// Tells how it ended; the exit status.
    fn end(mut self, ending: &Ending) -> u8 {
        if let Ending::FailStop(why) = ending {
            self.diverged(why);
        }
        let (status, reason) = match ending {
            Ending::Exit(status) => (*status, "exit".to_owned()),
            Ending::FailStop(why) => {
                let text = format!("a fault was detected and cannot be masked: {why}");
                say(AnsiColor::Red, "", &text);
                (EXIT_FAIL_STOP, "fail-stop".to_owned())
            }
            Ending::Lost(why) => {
                say(AnsiColor::Red, "", why);
                (EXIT_OWN_FAILURE, why.clone())
            }
            Ending::Stopped => (EXIT_OWN_FAILURE, "stopped".to_owned()),
        };
        self.stop(status, &reason);
        status
    }

    /// The last event.
    fn stop(&mut self, status: u8, reason: &str) {
        let counts = json!({"divergences": self.divergences, "replicas": self.living.len()});
        let event = json!({"status": status, "reason": reason, "counts": counts});
        self.events.write("stop", event);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_removal_that_is_told_again_when_the_replica_is_back_is_no_other() {
        let cli = Cli::parse_from([
            "rcoe", "run", "--sphere", "system", "-n", "3", "--", "hello",
        ]);
        let Command::Run(args) = cli.command else {
            panic!("it is to run something");
        };
        let settings = validate(&args).unwrap();
        let mut events = Events::open(None).unwrap();
        let mut witness = Witness::new(&settings, &mut events);
        let tell = |witness: &mut Witness<'_>, lines: &[(usize, &str)]| {
            for (replica, line) in lines {
                witness.hear(*replica, &Entry::parse(line));
            }
            (witness.living.len(), witness.divergences)
        };
        let back = [(0, "removed 2 timeout 9"), (0, "joined 2")];
        assert_eq!(tell(&mut witness, &back), (3, 1));
        assert_eq!(tell(&mut witness, &[(1, "removed 2 timeout 9")]), (3, 1));
        assert_eq!(tell(&mut witness, &[(1, "removed 2 timeout 11")]), (2, 2));
        assert_eq!(tell(&mut witness, &[(0, "removed 2 timeout 11")]), (2, 2));
    }

    #[test]
    fn a_flip_is_noticed_first_behind_it_in_whatever_order_that_is_heard() {
        assert_eq!(until_noticed(50, &[]), None);
        assert_eq!(until_noticed(50, &[20]), None, "that was something else");
        assert_eq!(until_noticed(50, &[90, 20, 70]), Some(20));
    }
}
