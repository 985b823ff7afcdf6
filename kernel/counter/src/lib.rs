//! A counter of branches with an overflow interrupt, for emulated x86-64 processors, which have
//! none: a plugin of QEMU.
//!
//! It counts, for each core, what programs execute of the instructions that change the way: all
//! between two of them is one straight run, so a count and an instruction pointer are a place, but
//! for repeated string instructions, which are one place each. Two words for each core are in the
//! memory of the machine ([`words`]): the count, which the plugin writes, and the limit, at which
//! it interrupts all cores by their local interrupt line 1. A kernel has that line open while it
//! counts. The interrupt is pending before the instruction that was counted ends its block of
//! translated code, so it is taken right behind that instruction, unless the emulator is busy: then
//! later, which the kernel sees by the count.
//!
//! Programs are what executes below the middle of the address space.
//!
//! *Not covered*: a branch that faults is counted each time that it is executed. The window behind
//! a load of the stack segment, in which no interrupt is taken, is passed over.

#![cfg_attr(test, expect(dead_code, reason = "its tests run without an emulator"))]

#[cfg(not(test))]
mod api;
mod branch;
mod monitor;
mod words;

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use monitor::Monitor;
use rcoe_abi::arch::x86_64::FIRST_CORE;
use words::{CORES, Words};

/// What the plugin was told when it was loaded.
#[derive(Debug)]
struct Arguments {
    /// The file that is the machine's memory, as this process has mapped it.
    memory: String,
    /// The socket of the emulator's monitor.
    monitor: PathBuf,
}

impl Arguments {
    fn read<'a>(words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut memory, mut monitor) = (None, None);
        for word in words {
            match word.split_once('=')? {
                ("memory", file) => memory = Some(file.to_owned()),
                ("monitor", socket) => monitor = Some(PathBuf::from(socket)),
                _ => return None,
            }
        }
        Some(Self {
            memory: memory?,
            monitor: monitor?,
        })
    }
}

static ARGUMENTS: OnceLock<Arguments> = OnceLock::new();
static WORDS: OnceLock<[Words; CORES]> = OnceLock::new();
static MONITOR: OnceLock<Mutex<Monitor>> = OnceLock::new();

/// The emulator cannot go on without what it was asked for.
fn fail(why: &str) -> ! {
    eprintln!("counter of branches: {why}");
    std::process::exit(1)
}

/// The plugin was loaded. Is all well?
fn install(words: &[&str]) -> bool {
    let Some(arguments) = Arguments::read(words.iter().copied()) else {
        eprintln!("counter of branches: needs memory=FILE and monitor=SOCKET, not {words:?}");
        return false;
    };
    ARGUMENTS.set(arguments).is_ok()
}

/// A core was made: the machine's memory is there, and the monitor listens.
fn begin() {
    let arguments = ARGUMENTS.get().expect("the plugin was loaded");
    WORDS.get_or_init(|| match words::find(&arguments.memory) {
        Ok(words) => words,
        Err(why) => fail(&format!("memory {}: {why}", arguments.memory)),
    });
    MONITOR.get_or_init(|| match Monitor::connect(&arguments.monitor) {
        Ok(monitor) => Mutex::new(monitor),
        Err(why) => fail(&format!("monitor {}: {why}", arguments.monitor.display())),
    });
}

/// A program on this core is about to execute a branch.
fn count(core: u32) {
    let replica = core.checked_sub(FIRST_CORE);
    let words = WORDS.get().zip(replica);
    let words = words.and_then(|(all, replica)| all.get(replica as usize));
    if words.is_some_and(Words::count) {
        interrupt();
    }
}

/// Interrupts all cores, and waits for a while until that is so.
#[cold]
fn interrupt() {
    let monitor = MONITOR.get().expect("a core was made");
    let mut monitor = monitor.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(why) = monitor.interrupt() {
        fail(&format!("the monitor is gone: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_all_needed_and_no_others_taken() {
        let read = |words: &[&str]| Arguments::read(words.iter().copied());
        let told = read(&["memory=/memfd:ram", "monitor=socket/a=b"]).expect("both");
        assert_eq!(told.memory, "/memfd:ram");
        assert_eq!(told.monitor, PathBuf::from("socket/a=b"));
        assert!(read(&["memory=/memfd:ram"]).is_none());
        assert!(read(&["memory=m", "monitor=s", "more=x"]).is_none());
        assert!(read(&["memory"]).is_none());
    }
}
