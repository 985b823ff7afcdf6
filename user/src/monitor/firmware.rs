//! Calls of the firmware (PSCI 1.1), for a machine of one processor.

/// Functions, without what says whether their arguments are wide.
const VERSION: u64 = 0x8400_0000;
const SUSPEND: u64 = 0x8400_0001;
const OFF: u64 = 0x8400_0002;
const ON: u64 = 0x8400_0003;
const INFO: u64 = 0x8400_0004;
const MIGRATION: u64 = 0x8400_0006;
const SYSTEM_OFF: u64 = 0x8400_0008;
const SYSTEM_RESET: u64 = 0x8400_0009;
const FEATURES: u64 = 0x8400_000a;
/// Arguments are of 64 bits.
const WIDE: u64 = 1 << 30;

/// Answers.
const NOT_SUPPORTED: i64 = -1;
const INVALID: i64 = -2;
const DENIED: i64 = -3;
const ALREADY_ON: i64 = -4;
/// There is nobody who would have to be moved.
const NOBODY: i64 = 2;

/// What comes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Done {
    /// The guest goes on with this answer.
    Answer(u64),
    /// It waits for an interrupt, and goes on with this answer.
    Wait(u64),
    /// It has switched the machine off.
    Off,
    /// It wants to begin anew.
    Reset,
}

/// Makes a call, by its number and its first argument.
#[must_use]
pub(super) const fn call(function: u64, argument: u64) -> Done {
    let answer = match function & !WIDE {
        _ if function >> 32 != 0 => NOT_SUPPORTED,
        VERSION => 0x1_0001,
        SUSPEND => return Done::Wait(0),
        OFF => DENIED,
        ON if argument == 0 => ALREADY_ON,
        INFO if argument == 0 => 0,
        ON | INFO => INVALID,
        MIGRATION => NOBODY,
        SYSTEM_OFF => return Done::Off,
        SYSTEM_RESET => return Done::Reset,
        FEATURES => feature(argument),
        _ => NOT_SUPPORTED,
    };
    Done::Answer(answer.cast_unsigned())
}

const fn feature(function: u64) -> i64 {
    match function & !WIDE {
        VERSION | SUSPEND | OFF | ON | INFO | MIGRATION | SYSTEM_OFF | SYSTEM_RESET | FEATURES => 0,
        _ => NOT_SUPPORTED,
    }
}
