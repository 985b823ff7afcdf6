//! Says hello, and ends with its argument as status.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_user::println;

rcoe_user::program!(main);

fn main(argument: u64) -> u64 {
    println!("hello from a replicated system");
    argument
}
