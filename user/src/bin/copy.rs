//! Copies memory to and fro. Argument: rounds (16).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_user::{add_trace, memory, println};

rcoe_user::program!(main);

/// Words of each buffer: 1 MiB.
const WORDS: usize = 1 << 17;

fn main(argument: u64) -> u64 {
    let rounds = if argument == 0 { 16 } else { argument };
    let (Some(first), Some(second)) = (memory(WORDS), memory(WORDS)) else {
        println!("copy: no memory");
        return 1;
    };
    for (index, word) in first.iter_mut().enumerate() {
        *word = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    for _ in 0..rounds {
        second.copy_from_slice(first);
        second.rotate_left(1);
        first.copy_from_slice(second);
    }
    let sum = first
        .iter()
        .fold(0_u64, |sum, &word| sum.rotate_left(1).wrapping_add(word));
    add_trace(&[sum]);
    println!("copied {rounds} MiB to and fro: {sum:016x}");
    0
}
