//! Sleeps by the timer's interrupts, and says so now and then. Argument: ticks of 10 ms (20).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::{call, println};

rcoe_user::program!(main);

fn main(argument: u64) -> u64 {
    let ticks = if argument == 0 { 20 } else { argument };
    for done in (1..=ticks).filter(|tick| tick % 10 == 0) {
        call(service::SLOT_TIMER, service::TIMER_SLEEP, &[10]);
        println!("slept {done} ticks");
    }
    0
}
