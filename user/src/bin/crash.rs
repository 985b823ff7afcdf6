//! Faults. Argument: 0 reads what is not there, 1 divides by zero, 2 makes a system call that does
//! not exist, 3 reads the time stamp, 4 panics.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_user::fault;

rcoe_user::program!(main);

fn main(argument: u64) -> u64 {
    match argument {
        0 => fault::read_nothing(),
        1 => fault::divide_by_zero(),
        2 => fault::unknown_call(),
        3 => fault::time_stamp(),
        _ => panic!("as asked"),
    }
    0
}
