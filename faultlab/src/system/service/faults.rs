//! What is done to one replica of a machine that serves.

use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::pause;
use crate::plan::Rng;
use crate::system::gdb::{Debugger, Stop};
use crate::system::memory::Memory;
use crate::system::plan::Flip;
use crate::system::run::{apply, number};
use crate::system::{Hit, Processor};

/// The selector of a PC's code segment, as the emulator numbers registers: who runs is told by it.
const CODE_SEGMENT: usize = 18;
/// Its bits that are 0 in the kernel.
const PRIVILEGE: u64 = 3;
/// The flag without which a core takes no interrupt.
const INTERRUPTS: u64 = 1 << 9;
/// An instruction that jumps to itself.
const LOOP: [u8; 2] = [0xeb, 0xfe];
/// How often it is looked whether the victim is in its kernel, and how often whether it does there
/// what no other does: most stand where they wait for each other.
const LOOKS: usize = 2_000;
const LOOKS_AT_WORK: usize = 60;
/// Milliseconds between such looks, at most.
const BETWEEN: u64 = 4;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The kernel goes on where nothing is, finds itself broken, and stops.
    Stop,
    /// The core jumps to where it is, in the kernel and with interrupts masked, and says nothing.
    Stuck,
    /// A bit of a register or of memory, as [`crate::system::Target`] has classes.
    Flip,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Stuck, Self::Flip];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Stuck => "stuck",
            Self::Flip => "flip",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == word);
        found.ok_or_else(|| format!("there is no kind `{word}`: stop, stuck or flip"))
    }
}

/// Does it to a replica of a machine that runs, which stands still meanwhile. What was done, in
/// words.
pub(super) fn inflict(
    kind: Kind,
    (victim, replicas): (usize, usize),
    memory: Memory<'_>,
    debugger: &mut Debugger,
    rng: &mut Rng,
) -> Result<String> {
    let done = match kind {
        Kind::Stop | Kind::Stuck => {
            let ip = in_kernel(debugger, (victim, replicas), memory.processor, rng)?;
            let core = memory.processor.core_of(victim);
            break_kernel(kind, debugger, (core, memory.processor), ip)?;
            format!("the kernel at {ip:#x}")
        }
        Kind::Flip => {
            let flip = Flip::anywhere(rng);
            let hit = flip_in(victim, &flip, memory, debugger)?;
            let told = hit.map(|hit| hit.to_string());
            return Ok(told.unwrap_or_else(|| format!("no {}", flip.target)));
        }
    };
    debugger.release()?;
    Ok(done)
}

/// Flips a bit in a replica of a machine that runs, which stands still meanwhile, unless there is
/// nothing of its class.
pub(super) fn flip_in(
    victim: usize,
    flip: &Flip,
    memory: Memory<'_>,
    debugger: &mut Debugger,
) -> Result<Option<Hit>> {
    hold(debugger)?;
    let hit = apply(memory, debugger, victim, flip)?;
    debugger.release()?;
    Ok(hit)
}

fn hold(debugger: &mut Debugger) -> Result<()> {
    let stop = debugger.hold()?;
    ensure!(stop == Stop::Standing, "the machine is {stop:?}");
    Ok(())
}

/// Where the cores of a machine that runs are, twice.
pub(super) fn places(
    debugger: &mut Debugger,
    replicas: usize,
    processor: &Processor,
) -> Result<String> {
    let mut all = Vec::new();
    for replica in (0..replicas).chain(0..replicas) {
        hold(debugger)?;
        let core = processor.core_of(replica);
        let ip = debugger.register(core, processor.ip);
        debugger.release()?;
        all.push(format!("{:#x}", number(&ip?)));
    }
    Ok(all.join(" "))
}

/// Has the machine stand still while a replica is in its kernel; where that is. Every second time,
/// by chance, where none of the others is, if it comes there soon.
fn in_kernel(
    debugger: &mut Debugger,
    (victim, replicas): (usize, usize),
    processor: &Processor,
    rng: &mut Rng,
) -> Result<u64> {
    let ip_of = |debugger: &mut Debugger, replica: usize| -> Result<u64> {
        let core = processor.core_of(replica);
        Ok(number(&debugger.register(core, processor.ip)?))
    };
    let mut at_work = if rng.next().is_multiple_of(2) {
        LOOKS_AT_WORK
    } else {
        0
    };
    for _ in 0..LOOKS {
        hold(debugger)?;
        let mut others = Vec::new();
        for replica in (0..replicas).filter(|&replica| replica != victim) {
            others.push(ip_of(debugger, replica)?);
        }
        let ip = ip_of(debugger, victim)?;
        let core = processor.core_of(victim);
        let segment = number(&debugger.register(core, CODE_SEGMENT)?);
        if segment & PRIVILEGE == 0 && (at_work == 0 || !others.contains(&ip)) {
            return Ok(ip);
        }
        at_work = at_work.saturating_sub(1);
        debugger.release()?;
        pause(rng, BETWEEN);
    }
    anyhow::bail!("replica {victim} is never seen in its kernel")
}

/// Breaks a kernel that stands still at `ip`.
fn break_kernel(
    kind: Kind,
    debugger: &mut Debugger,
    (core, processor): (usize, &Processor),
    ip: u64,
) -> Result<()> {
    if kind == Kind::Stop {
        let nowhere = 0_u64.to_le_bytes();
        return debugger.set_register(processor.ip, &nowhere);
    }
    let flags = debugger.register(core, processor.flags)?;
    let masked = number(&flags) & !INTERRUPTS;
    let masked = &masked.to_le_bytes()[..flags.len().min(8)];
    debugger.set_register(processor.flags, masked)?;
    debugger
        .set_own_bytes(ip, &LOOP)
        .context("the kernel's code cannot be written")
}
