//! Calls another program and is answered, again and again. Argument: rounds (1000); a thousand
//! million more for messages that are empty, and as much for each word that they are to have.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::{call, println, spawn};

rcoe_user::program!(main);

/// What stands above the number of rounds.
const KIND: u64 = 1_000_000_000;
/// Words of which as many are sent as are asked for.
const TEXT: [u64; 10] = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55];
/// A message that wants an empty answer.
const PLAIN: u64 = 41;
/// One that wants the next number.
const NUMBER: u64 = 40;

fn main(argument: u64) -> u64 {
    let (kind, rounds) = (argument / KIND, argument % KIND);
    let rounds = if rounds == 0 { 1_000 } else { rounds };
    if !spawn("pong", 0) {
        println!("pingpong: no partner");
        return 1;
    }
    if let Some(words) = kind.checked_sub(1) {
        return messages(rounds, words);
    }
    let mut value = 1;
    for round in 0..rounds {
        let answer = call(service::SLOT_PEER, NUMBER, &[value, round]);
        value = answer.words[0];
    }
    println!("pingpong of {rounds} rounds: {value:016x}");
    0
}

/// Messages of so many words, each with an empty answer.
fn messages(rounds: u64, words: u64) -> u64 {
    let Some(text) = usize::try_from(words).ok().and_then(|len| TEXT.get(..len)) else {
        println!("pingpong: messages have at most {} words", TEXT.len());
        return 1;
    };
    let mut answered = 0;
    for _ in 0..rounds {
        let answer = call(service::SLOT_PEER, PLAIN, text);
        answered += u64::from(answer.len == 0);
    }
    println!("{answered} messages of {words} words");
    u64::from(answered != rounds)
}
