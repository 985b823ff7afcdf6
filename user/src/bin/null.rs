//! The cheapest system call, again and again. Argument: rounds (1000).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_user::{println, yield_now};

rcoe_user::program!(main);

fn main(argument: u64) -> u64 {
    let rounds = if argument == 0 { 1_000 } else { argument };
    for _ in 0..rounds {
        yield_now();
    }
    println!("{rounds} calls of nothing");
    0
}
