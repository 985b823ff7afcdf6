//! One run of a machine, with or without a flip.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::gdb::{Debugger, Gone, Stop};
use super::kept::{self, Kept};
use super::memory::{Memory, Pages};
use super::plan::{Flip, Plan, Target};
use super::process::rcoe;
use super::processor::Processor;
use super::stuck::Stuck;
use super::{Guest, Hit, Setup, guest};
use crate::child::{Exit, Finished};
use crate::events::Events;
use crate::interrupt;

const VECTOR_BITS: u64 = 128;
/// Bytes of a replica's partition, if nobody says how much.
const PARTITION: u64 = 32 << 20;

/// How often it is looked whether a program runs, where one is to be hit.
const LOOKS: u32 = 200;
/// Time between looks.
const BETWEEN: Duration = Duration::from_millis(2);

/// How a machine is reached while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Not at all.
    None,
    /// By a debugger.
    Debugger,
    /// By the emulator's monitor, from the start: its state is to be kept.
    Monitor,
}

/// A machine that runs.
pub(super) struct Running {
    child: Child,
    folder: PathBuf,
    started: Instant,
    stuck: Stuck,
    /// Is it a guest that prints?
    guest: bool,
}

impl Running {
    pub(super) fn start(
        setup: &Setup,
        program: &[String],
        words: &str,
        reach: Reach,
        folder: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let file = |name: &str| File::create(folder.join(name));
        let mut command = rcoe(&setup.rcoe);
        command
            .current_dir(folder)
            .args(["run", "--sphere", "system", "--stats"]);
        command.args(["--arch", setup.processor.name]);
        command.args([
            "-n",
            &setup.replicas.to_string(),
            "--compare",
            &setup.compare,
        ]);
        match &setup.guest {
            Some(guest) => guest.tell(&mut command),
            None => drop(command.args(["--coupling", &setup.coupling])),
        }
        command.args(["--core-threads", "counted", "--tick", "1ms"]);
        command.args(["--timeout", &setup.timeout, "--events", "events"]);
        if reach == Reach::Debugger {
            command.args(["--debugger", "debugger"]);
        }
        if reach != Reach::None || setup.kept.is_some() {
            command.args(["--memory-file", kept::MEMORY]);
        }
        match &setup.kept {
            Some(kept) => kept.tell(&mut command, folder)?,
            None if reach == Reach::Monitor => drop(command.args(["--monitor", kept::MONITOR])),
            None => {}
        }
        command.arg("--").args(program);
        command.env("RCOE_SYSTEM_WORDS", words);
        command
            .stdin(Stdio::null())
            .stdout(file("out")?)
            .stderr(file("err")?);
        let child = interrupt::let_through(|| command.spawn()).context("starting rcoe")?;
        Ok(Self {
            stuck: Stuck::new(child.id(), setup.deadline),
            child,
            folder: folder.to_owned(),
            started: Instant::now(),
            guest: setup.guest.is_some(),
        })
    }

    /// A file of its folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Has it ended?
    pub(super) fn is_over(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Has a machine that goes on from a state read it.
    fn load(&self, setup: &Setup) -> Result<()> {
        setup.kept.iter().try_for_each(|it| it.load(&self.folder))
    }

    fn finish(mut self) -> Result<Finished> {
        self.wait_for_end()
    }

    fn wait_for_end(&mut self) -> Result<Finished> {
        let mut exit = None;
        while exit.is_none() && !self.stuck.look() {
            exit = self.child.try_wait()?.map(Exit::from);
            if exit.is_none() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        if exit.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        let text = |name: &str| fs::read(self.folder.join(name)).unwrap_or_default();
        let stdout = text("out");
        Ok(Finished {
            exit,
            stdout: if self.guest {
                guest::printed(&stdout)
            } else {
                stdout
            },
            stderr: String::from_utf8_lossy(&text("err")).into_owned(),
            events: Events::read(&self.folder.join("events")),
            wall: self.started.elapsed(),
            clock: None,
            leftovers: 0,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended or not, nothing of it stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A run without a flip, and what it took: cycles, or ticks of the emulator where the machine goes
/// on from a state.
///
/// # Errors
/// If it cannot be started.
pub(super) fn plain(
    setup: &Setup,
    program: &[String],
    folder: &Path,
) -> Result<(Finished, Option<u64>)> {
    let mut running = Running::start(setup, program, "", Reach::None, folder)?;
    if setup.kept.is_none() {
        let finished = running.finish()?;
        let cycles = super::cycles_of(&finished);
        return Ok((finished, cycles));
    }
    running.load(setup)?;
    running.stuck.look();
    let before = running.stuck.used();
    Kept::go_on(folder)?;
    let finished = running.wait_for_end()?;
    Ok((finished, Some(running.stuck.used() - before)))
}

/// What became of a machine with flips.
pub(super) struct Injected {
    pub(super) finished: Finished,
    /// What was changed, in this order.
    pub(super) hits: Vec<Hit>,
    /// Where its cores were, if it was stuck.
    pub(super) standstill: Option<String>,
}

/// A run with the planned flips, as long as none shows.
///
/// # Errors
/// If the machine cannot be reached.
pub(super) fn inject(
    setup: &Setup,
    program: &[String],
    cycles: u64,
    plan: &Plan,
    folder: &Path,
) -> Result<Injected> {
    let every = cycles / plan.flips.len().max(1) as u64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "cycles of a short run, in whole numbers"
    )]
    let at = (every as f64 * plan.moment) as u64;
    let words = format!("pauser={} pause={at} every={every}", plan.pauser);
    let mut running = Running::start(setup, program, &words, Reach::Debugger, folder)?;
    running.load(setup)?;
    running.stuck.look();
    let first = running.stuck.used() + at;
    let socket = folder.join("debugger");
    let over = || !matches!(running.child.try_wait(), Ok(None));
    let debugger = Debugger::connect(&socket, over)?;
    let mut hits = Vec::new();
    let mut standstill = None;
    if let Some(mut debugger) = debugger {
        let ended = inject_in(
            (setup, plan, folder),
            (first, every),
            &mut debugger,
            &mut running.stuck,
            &mut hits,
        );
        let last = match ended {
            Err(error) if error.is::<Gone>() => Stop::Ended,
            ended => ended?,
        };
        if last == Stop::Stuck {
            standstill = Some(places(setup.processor, &mut debugger, setup.replicas)?);
        }
    }
    Ok(Injected {
        finished: running.finish()?,
        hits,
        standstill,
    })
}

/// The planned flips of a machine, as far as there is time for them; what was done is in `hits`.
/// Why it stands still at last.
fn inject_in(
    (setup, plan, folder): (&Setup, &Plan, &Path),
    (first, every): (u64, u64),
    debugger: &mut Debugger,
    stuck: &mut Stuck,
    hits: &mut Vec<Hit>,
) -> Result<Stop> {
    let memory = Memory {
        processor: setup.processor,
        file: &folder.join("memory"),
        partition: setup.guest.as_ref().map_or(PARTITION, Guest::partition),
    };
    for (flip, number) in plan.flips.iter().zip(0..) {
        let last = match setup.kept {
            Some(_) => pass(debugger, stuck, first + every * number)?,
            None => debugger.go(&mut || stuck.look())?,
        };
        if last != Stop::Standing {
            return Ok(last);
        }
        if !Events::read(&folder.join("events")).divergences.is_empty() {
            break;
        }
        let of_guest = setup.guest.is_some() && flip.target.is_register();
        if of_guest && !in_program(debugger, setup.processor, plan.victim)? {
            continue;
        }
        for _ in 0..if of_guest { 0 } else { flip.steps } {
            let core = setup.processor.core_of(plan.victim);
            let last = debugger.step(core, &mut || stuck.look())?;
            if last != Stop::Standing {
                return Ok(last);
            }
        }
        let hit = apply(memory, debugger, plan.victim, flip)?;
        hits.extend(hit);
    }
    // There are more pauses than flips.
    loop {
        let last = debugger.go(&mut || stuck.look())?;
        if last != Stop::Standing {
            return Ok(last);
        }
    }
}

/// Lets the machine go on until its emulator has used so much time; then it stands still.
fn pass(debugger: &mut Debugger, stuck: &mut Stuck, until: u64) -> Result<Stop> {
    debugger.release()?;
    while !stuck.look() && !stuck.is_gone() && stuck.used() < until {
        std::thread::sleep(BETWEEN);
    }
    debugger.hold()
}

/// Has the machine stand still where a replica's program runs, its guest as a rule; false if it is
/// not seen there.
fn in_program(debugger: &mut Debugger, processor: &Processor, victim: usize) -> Result<bool> {
    let core = processor.core_of(victim);
    for _ in 0..LOOKS {
        debugger.release()?;
        std::thread::sleep(BETWEEN);
        if debugger.hold()? != Stop::Standing {
            return Ok(false);
        }
        if processor.is_program(number(&debugger.register(core, processor.flags)?)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the cores of a machine are.
fn places(processor: &Processor, debugger: &mut Debugger, cores: usize) -> Result<String> {
    let mut text = String::new();
    for core in 0..cores {
        let core = processor.core_of(core);
        let ip = number(&debugger.register(core, processor.ip)?);
        let flags = number(&debugger.register(core, processor.flags)?);
        let _ = write!(text, "core {core} at {ip:#x}, flags {flags:#x}; ");
    }
    Ok(text)
}

/// Makes one flip in a machine that stands still, unless there is nothing of its class.
///
/// # Errors
/// If the machine cannot be reached.
pub(super) fn apply(
    memory: Memory<'_>,
    debugger: &mut Debugger,
    victim: usize,
    flip: &Flip,
) -> Result<Option<Hit>> {
    let processor = memory.processor;
    let core = processor.core_of(victim);
    let ip = number(&debugger.register(core, processor.ip)?);
    if flip.target.is_register() {
        return flip_register(processor, debugger, core, flip, ip).map(Some);
    }
    let pages = Pages::find(memory, victim)?;
    pages
        .pick(flip.target, flip.place)
        .map(|byte| flip_byte(debugger, flip, byte, ip))
        .transpose()
}

/// The low 64 bits of a register.
pub(super) fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

fn flip_register(
    processor: &Processor,
    debugger: &mut Debugger,
    core: usize,
    flip: &Flip,
    ip: u64,
) -> Result<Hit> {
    let select = |limit: usize| usize::try_from(flip.place % limit as u64).expect("a small number");
    let (index, name, bit) = match flip.target {
        Target::Xmm => {
            let (name, first, count) = processor.vectors;
            let index = select(count);
            (
                first + index,
                format!("{name}{index}"),
                flip.bit % VECTOR_BITS,
            )
        }
        _ => {
            let index = select(processor.general.len());
            let bit = if index == processor.flags {
                let bits = processor.flag_bits;
                bits[usize::try_from(flip.bit % bits.len() as u64)?]
            } else {
                flip.bit % 64
            };
            (index, processor.general[index].to_owned(), bit)
        }
    };
    let mut value = debugger.register(core, index)?;
    let (byte, mask) = (usize::try_from(bit / 8)?, 1 << (bit % 8));
    ensure!(byte < value.len(), "{name} has {} bytes", value.len());
    let before = value[byte];
    value[byte] ^= mask;
    debugger.set_register(index, &value)?;
    Ok(Hit {
        target: flip.target,
        place: name,
        bit,
        before,
        after: value[byte],
        ip,
    })
}

fn flip_byte(debugger: &mut Debugger, flip: &Flip, address: u64, ip: u64) -> Result<Hit> {
    let bit = flip.bit % 8;
    let before = debugger.byte(address)?;
    let after = before ^ 1 << bit;
    debugger.set_byte(address, after)?;
    Ok(Hit {
        target: flip.target,
        place: format!("{address:#x}"),
        bit,
        before,
        after,
        ip,
    })
}
