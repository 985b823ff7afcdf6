//! Reads a counter of the machine as the papers' drivers of loosely coupled replicas do: the
//! primary's replica reads the register itself, many times without a system call, into a page that
//! all replicas share; then all read it there. Argument: rounds of 64 readings (8); one more than a
//! thousand of them has followers write the page, which is a fault.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::object::PAGE;
use rcoe_abi::{Error, Rights, service};
use rcoe_user::share::{Page, input};
use rcoe_user::{add_trace, counter, object, println, set_window_word, window_word};

rcoe_user::program!(main);

const DEVICE: u64 = service::SLOT_DEVICE;

/// Own slots, pages of device memory, and pages of the window: readings, and registers.
const READINGS: u64 = service::SLOT_FREE;
const REGISTERS: u64 = READINGS + 1;
const SHARED: Page = Page(0);
const TIMER: Page = Page(1);

/// The counter, as a word of its page.
#[expect(clippy::cast_possible_truncation, reason = "a place in a page")]
const COUNTER: usize = counter::COUNTER as usize / 8;

/// Readings of a round, and turns of a loop between two of them.
const COUNT: usize = 64;
const TURNS: u32 = 40_000;

/// From so many rounds on, followers misbehave.
const MISBEHAVE: u64 = 1_000;

fn main(argument: u64) -> u64 {
    let rounds = if argument == 0 { 8 } else { argument };
    match measure(rounds) {
        Ok((later, anew)) => {
            println!("{later} of {} readings are later", rounds * COUNT as u64);
            println!("{anew} rounds were begun anew");
            u64::from(later != rounds * COUNT as u64)
        }
        Err(error) => {
            println!("clock: {error:?}");
            2
        }
    }
}

fn prepare() -> Result<(), Error> {
    object::device_frame(DEVICE, 0, READINGS)?;
    object::device_frame(DEVICE, 1, REGISTERS)?;
    SHARED.map(READINGS, Rights::READ_WRITE)?;
    TIMER.map(REGISTERS, Rights::READ)?;
    counter::start(DEVICE, PAGE)
}

/// How many readings were later than the one before, and how many rounds were begun anew.
fn measure(rounds: u64) -> Result<(u64, u64), Error> {
    prepare()?;
    if rounds >= MISBEHAVE && !object::meet(READINGS)?.writes {
        set_window_word(SHARED.0, 0, 1);
    }
    let (mut last, mut later, mut anew) = (None, 0, 0);
    for _ in 0..rounds {
        anew += input(READINGS, fetch)?;
        let mut readings = [0; COUNT];
        for (index, reading) in readings.iter_mut().enumerate() {
            *reading = window_word(SHARED.0, index);
        }
        // From here on it is each replica's own.
        add_trace(&readings);
        for reading in readings {
            // The counter's lower half wraps in less than a minute.
            let passed = last.map_or(1, |last| reading.wrapping_sub(last) & 0xffff_ffff);
            later += u64::from(passed != 0 && passed < 1 << 31);
            last = Some(reading);
        }
    }
    Ok((later, anew))
}

/// The primary's part.
fn fetch() {
    for index in 0..COUNT {
        for turn in 0..TURNS {
            core::hint::black_box(turn);
        }
        set_window_word(SHARED.0, index, window_word(TIMER.0, COUNTER));
    }
}
