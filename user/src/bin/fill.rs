//! Fills memory, and checks all of it. Argument: MiB (8). Three rounds, each with other words.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_user::{add_trace, memory, println};

rcoe_user::program!(main);

/// Words of a MiB.
const MIB: usize = 1 << 17;
const ROUNDS: u64 = 3;

/// The word that belongs at a place.
const fn word(place: usize, round: u64) -> u64 {
    (place as u64 ^ round << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn main(argument: u64) -> u64 {
    let size = if argument == 0 { 8 } else { argument };
    let words = usize::try_from(size)
        .ok()
        .and_then(|size| size.checked_mul(MIB));
    let Some(all) = words.and_then(memory) else {
        println!("fill: no {size} MiB of memory");
        return 1;
    };
    for round in 0..ROUNDS {
        for (place, at) in all.iter_mut().enumerate() {
            *at = word(place, round);
        }
        // Replicas agree that all are here before any looks at what it wrote.
        add_trace(&[round]);
        let right = |(place, &at): (usize, &u64)| at == word(place, round);
        let wrong = all.iter().enumerate().filter(|&it| !right(it)).count();
        add_trace(&[wrong as u64]);
        if wrong > 0 {
            println!("fill: {wrong} words of {size} MiB are not what was written");
            return 1;
        }
    }
    println!("filled and checked {size} MiB, {ROUNDS} times");
    0
}
