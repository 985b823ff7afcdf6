//! Integer work in a loop without calls: a tight one, of one branch, or one whose round has 64 that
//! are taken or not, so that a breakpoint in it is seldom met. Argument: thousands of rounds (200),
//! of the tight loop; with a billion more, of the other.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::black_box;

use rcoe_user::println;

rcoe_user::program!(main);

/// In the argument: the loop with many branches.
const LONG: u64 = 1_000_000_000;

const fn mixed(value: u64) -> u64 {
    let value = value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    value ^ value >> 29
}

/// Four branches at places of their own.
macro_rules! four {
    ($value:ident, $($bit:literal)*) => {
        $(if $value & 1 << $bit != 0 {
            $value = black_box($value.wrapping_add(0x9e37_79b9));
        })*
    };
}

/// Sixteen of them.
macro_rules! sixteen {
    ($value:ident) => {
        four!($value, 1 5 9 13);
        four!($value, 17 21 25 29);
        four!($value, 33 37 41 45);
        four!($value, 49 53 57 61);
    };
}

fn tight(rounds: u64) -> u64 {
    let mut value = 1;
    for _ in 0..rounds {
        value = black_box(mixed(value));
    }
    value
}

fn long(rounds: u64) -> u64 {
    let mut value = 1;
    for _ in 0..rounds {
        value = mixed(value);
        sixteen!(value);
        sixteen!(value);
        sixteen!(value);
        sixteen!(value);
    }
    value
}

fn main(argument: u64) -> u64 {
    let rounds = match argument % LONG {
        0 => 200,
        rounds => rounds,
    };
    let rounds = rounds * 1_000;
    let value = if argument < LONG {
        tight(rounds)
    } else {
        long(rounds)
    };
    println!("loops of {rounds} rounds: {value:016x}");
    0
}
