//! The machine's command line: words like `n=3`, up to `--`, behind which the root task's begins.

use rcoe_core::Compare;
use rcoe_core::counted::Approach;

use crate::flip::Flip;
use crate::sphere::{DEVICE, READ, TRANSFER};

/// What the command line asks of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// What is compared.
    pub(crate) compare: Compare,
    /// Milliseconds for which a replica may be late.
    pub(crate) timeout: u64,
    /// Microseconds between ticks; 0 for none.
    pub(crate) tick: u64,
    /// Are faults masked where there are enough replicas?
    pub(crate) mask: bool,
    /// Are lost replicas replaced?
    pub(crate) reintegrate: bool,
    /// Are replicas to act at one instruction?
    pub(crate) close: bool,
    /// How are they stopped there?
    pub(crate) approach: Approach,
    /// What counts what programs execute?
    pub(crate) counter: Source,
    /// For tests: is all memory to be compared where they do?
    pub(crate) verify: bool,
    /// For tests: which replica is to make a wild store at its first tick, and where.
    pub(crate) probe: Option<(u64, Probe)>,
    /// For tests: which replica is to break while it writes, and what.
    pub(crate) breaks: Option<Breaks>,
    /// For tests: what a replica reads wrongly.
    pub(crate) misreads: Option<Misreads>,
    /// For fault injection: when the machine is to stand still.
    pub(crate) pause: Option<Pause>,
    /// For fault injection: which bit a replica is to change of its program's registers.
    pub(crate) flip: Option<Flip>,
}

/// What counts the instructions or branches of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The processor.
    Processor,
    /// A plugin of the emulator.
    Plugin,
    /// Code that programs were built with.
    Compiler,
    /// For tests: the plugin, as if it were a processor's counter, which interrupts late.
    Late,
}

/// What a replica is writing when a test has it break: the world outside has got it, the other
/// replicas do not know. Or what it is reading: it alone has got it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Breaks {
    /// Who breaks.
    pub(crate) replica: u64,
    /// A port, or a byte of device memory with [`DEVICE`], or what is read with [`READ`].
    pub(crate) place: u64,
}

fn breaks(command: &[u8]) -> Option<Breaks> {
    let register = number(command, b"breaks-at-register").map(|place| DEVICE | place);
    // Of a byte, as its width is part of what is read.
    let read = number(command, b"breaks-at-reading-port").map(|port| READ | port << 8 | 1);
    Some(Breaks {
        place: register.or(read).or(number(command, b"breaks-at-port"))?,
        replica: number(command, b"victim")?,
    })
}

/// What a replica reads as zero, once, when a test has it err: a register of device memory, a port
/// of a byte, or so many words of transfer memory at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misreads {
    /// Who errs.
    pub(crate) replica: u64,
    /// The place of the reading.
    pub(crate) place: u64,
    /// Readings before that.
    pub(crate) after: u64,
}

fn misreads(command: &[u8]) -> Option<Misreads> {
    let width = number(command, b"width").unwrap_or(2);
    let register = number(command, b"misreads-register").map(|at| DEVICE | at << 8 | width);
    let port = number(command, b"misreads-port").map(|port| port << 8 | 1);
    let transfer = number(command, b"misreads-transfer").map(|words| TRANSFER | words);
    Some(Misreads {
        replica: number(command, b"victim")?,
        place: register.or(port).or(transfer)?,
        after: number(command, b"after")?,
    })
}

/// When one replica has the machine stand still: at its first event after so many cycles, and again
/// and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    /// Who does it.
    pub(crate) replica: u64,
    /// Cycles since the start.
    pub(crate) at: u64,
    /// Cycles between pauses.
    pub(crate) every: u64,
}

fn pause(command: &[u8]) -> Option<Pause> {
    Some(Pause {
        at: number(command, b"pause")?,
        replica: number(command, b"pauser")?,
        every: number(command, b"every")?,
    })
}

fn flip(command: &[u8]) -> Option<Flip> {
    Some(Flip {
        at: number(command, b"flip")?,
        behind: number(command, b"behind")?,
        replica: number(command, b"victim")?,
        register: number(command, b"register")?,
        bit: number(command, b"bit")?,
    })
}

/// What a test has a replica's kernel do: store where it must not, or something else that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    /// Into what another replica publishes.
    Sibling,
    /// Into its own code.
    Code,
    /// Through the window for copies, which leads nowhere.
    Window,
    /// Into memory of programs, by their addresses.
    Program,
    /// Nowhere: the replica's trace goes astray.
    Astray,
    /// Nowhere: the replica's trace goes astray, and copies of replicas begin late.
    Late,
    /// Nowhere: the replica's trace goes astray, and its page tables and parameters are made
    /// useless.
    Remains,
    /// Into the root tables of programs, where they map the kernel.
    Spaces,
    /// Nowhere: the kernel goes round for ever, interrupts off.
    Loop,
    /// Nowhere: the same, and no interrupt finds a handler, not even one that nothing masks.
    Deaf,
    /// Nowhere: no exception finds a handler, and there is one, so that the processor shuts down.
    Shutdown,
    /// Nowhere: the kernel hears no device any more.
    Devices,
    /// Nowhere: the core halts, interrupts off.
    Halt,
    /// Nowhere: the kernel breaks at its own timer's interrupt, whatever the others are doing.
    Sudden,
    /// Nowhere: the kernel forgets where its object memory is.
    Base,
    /// Nowhere: the replica takes it that the group cannot go on.
    Stop,
    /// Nowhere: the kernel comes to where it refuses to start.
    Refuse,
    /// Nowhere: the kernel comes to the command that switches the machine off.
    Off,
    /// Nowhere: the kernel comes to the command that stops the core of another replica.
    Command,
    /// Nowhere: the replica takes it that a vote has removed the others.
    Exclude,
}

fn probe(command: &[u8]) -> Option<(u64, Probe)> {
    let probe = match value(command, b"probe")? {
        b"sibling" => Probe::Sibling,
        b"code" => Probe::Code,
        b"window" => Probe::Window,
        b"program" => Probe::Program,
        b"astray" => Probe::Astray,
        b"late" => Probe::Late,
        b"remains" => Probe::Remains,
        b"spaces" => Probe::Spaces,
        b"loop" => Probe::Loop,
        b"deaf" => Probe::Deaf,
        b"shutdown" => Probe::Shutdown,
        b"devices" => Probe::Devices,
        b"halt" => Probe::Halt,
        b"sudden" => Probe::Sudden,
        b"base" => Probe::Base,
        b"stop" => Probe::Stop,
        b"refuse" => Probe::Refuse,
        b"off" => Probe::Off,
        b"command" => Probe::Command,
        b"exclude" => Probe::Exclude,
        _ => return None,
    };
    Some((number(command, b"victim")?, probe))
}

/// The kernel's words and the root task's part of a command line.
fn parts(command: &[u8]) -> (&[u8], &[u8]) {
    let end = command.windows(4).position(|part| part == b" -- ");
    end.map_or((command, &[]), |at| (&command[..at], &command[at + 4..]))
}

/// The root task's part.
pub(crate) fn of_root_task(command: &[u8]) -> &[u8] {
    parts(command).1
}

fn value<'a>(command: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut words = parts(command).0.split(|&byte| byte == b' ');
    words.find_map(|word| word.strip_prefix(key)?.strip_prefix(b"="))
}

fn number(command: &[u8], key: &[u8]) -> Option<u64> {
    let digits = value(command, key)?;
    digits.iter().try_fold(0_u64, |number, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// How many replicas are asked for; 0 if that is no number.
pub(crate) fn replicas(command: &[u8]) -> u64 {
    number(command, b"n").unwrap_or(0)
}

/// Cycles and units of the local timer in a millisecond, if the machine is known to have such
/// clocks.
pub(crate) fn clocks(command: &[u8]) -> Option<(u64, u64)> {
    let speeds = (number(command, b"cycles")?, number(command, b"units")?);
    (speeds.0 > 0 && speeds.1 > 0).then_some(speeds)
}

impl Config {
    /// Reads a command line; what it does not say has its usual value.
    pub(crate) fn read(command: &[u8]) -> Self {
        Self {
            compare: value(command, b"compare")
                .and_then(Compare::from_name)
                .unwrap_or(Compare::Args),
            timeout: number(command, b"timeout").unwrap_or(2_000).max(1),
            tick: number(command, b"tick").unwrap_or(10_000),
            mask: value(command, b"mask") != Some(b"no"),
            close: value(command, b"coupling") == Some(b"close"),
            approach: match value(command, b"approach") {
                Some(b"breakpoint") => Approach::Breakpoint,
                _ => Approach::Counter,
            },
            counter: match value(command, b"counter") {
                Some(b"plugin") => Source::Plugin,
                Some(b"compiler") => Source::Compiler,
                Some(b"late") => Source::Late,
                _ => Source::Processor,
            },
            verify: value(command, b"verify") == Some(b"yes"),
            probe: probe(command),
            breaks: breaks(command),
            misreads: misreads(command),
            pause: pause(command),
            flip: flip(command),
            reintegrate: value(command, b"reintegrate") != Some(b"no"),
        }
    }
}
