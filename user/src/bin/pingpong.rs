//! Calls another program and is answered, again and again. Argument: rounds (1000).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::{call, println, spawn};

rcoe_user::program!(main);

fn main(argument: u64) -> u64 {
    let rounds = if argument == 0 { 1_000 } else { argument };
    if !spawn("pong", 0) {
        println!("pingpong: no partner");
        return 1;
    }
    let mut value = 1;
    for round in 0..rounds {
        let answer = call(service::SLOT_PEER, 40, &[value, round]);
        value = answer.words[0];
    }
    println!("pingpong of {rounds} rounds: {value:016x}");
    0
}
