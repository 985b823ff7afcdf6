//! Reads the event timer's counter, which is another one at each reading: the kernel has the
//! primary read it and gives all replicas that value. Argument: readings (100).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{Error, service};
use rcoe_user::{add_trace, object, println};

rcoe_user::program!(main);

const DEVICE: u64 = service::SLOT_DEVICE;

/// Registers: capabilities, with the period in the upper half; configuration; counter.
const CAPABILITIES: u64 = 0;
const CONFIGURATION: u64 = 0x10;
const COUNTER: u64 = 0xf0;

fn main(argument: u64) -> u64 {
    let readings = if argument == 0 { 100 } else { argument };
    match measure(readings) {
        Ok((period, later)) => {
            println!("{later} of {readings} readings are later than the one before");
            println!("a tick of the counter is {period} fs");
            u64::from(later != readings)
        }
        Err(error) => {
            println!("hpet: {error:?}");
            2
        }
    }
}

/// The counter's period, and how many readings were later than the last.
fn measure(readings: u64) -> Result<(u64, u64), Error> {
    let period = object::device_status(DEVICE, CAPABILITIES, 8)? >> 32;
    object::device_set(DEVICE, CONFIGURATION, 4, 1)?;
    let mut last = object::device_status(DEVICE, COUNTER, 4)?;
    let mut later = 0;
    for _ in 0..readings {
        let value = object::device_status(DEVICE, COUNTER, 4)?;
        // It wraps at 32 bits, in less than a minute.
        let passed = value.wrapping_sub(last) & 0xffff_ffff;
        later += u64::from(passed != 0 && passed < 1 << 31);
        last = value;
        // If replicas had read it themselves, this would differ.
        add_trace(&[value]);
    }
    Ok((period, later))
}
