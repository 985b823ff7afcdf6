//! Fills and hashes a large buffer, again and again: memory and integer work. Argument: rounds (8).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_user::{add_trace, memory, println};

rcoe_user::program!(main);

/// Words of the buffer: 1 MiB.
const WORDS: usize = 1 << 17;

fn main(argument: u64) -> u64 {
    let rounds = if argument == 0 { 8 } else { argument };
    let Some(buffer) = memory(WORDS) else {
        println!("hash: no memory");
        return 1;
    };
    let mut seed = 0x243f_6a88_85a3_08d3_u64;
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for round in 0..rounds {
        for word in buffer.iter_mut() {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(round | 1);
            *word ^= seed >> 7;
        }
        for &word in buffer.iter() {
            hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(13);
        }
        // What counts is compared now, not when it is printed.
        add_trace(&[hash]);
    }
    println!("hash of {rounds} rounds over 1 MiB: {hash:016x}");
    0
}
