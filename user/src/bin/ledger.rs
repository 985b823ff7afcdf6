//! Keeps accounts that never go out. Argument: ticks of 10 ms (20) for which they are kept, in the
//! trace at every tick; a number that is odd gives up the right to that first, and nobody sees what
//! becomes of them.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::{Error, service};
use rcoe_user::{add_trace_by, call, memory, object, println};

rcoe_user::program!(main);

/// Words of the accounts.
const ACCOUNTS: usize = 8;
/// What is in the first is its own number times this, and so on.
const UNIT: u64 = 0x9e37_79b9_7f4a_7c15;

fn main(argument: u64) -> u64 {
    let ticks = if argument == 0 { 20 } else { argument };
    let Some(accounts) = memory(ACCOUNTS) else {
        println!("ledger: no memory");
        return 1;
    };
    // Known when it runs only, so that they are nowhere else in memory.
    for (number, account) in (ticks | 1..).zip(accounts.iter_mut()) {
        *account = number.wrapping_mul(UNIT);
    }
    let mut expected = Ok(());
    if ticks % 2 == 1 {
        if object::delete(service::SLOT_CNODE, service::SLOT_TRACE).is_err() {
            println!("ledger: the right cannot be given up");
            return 1;
        }
        expected = Err(Error::InvalidCapability);
    }
    println!("the accounts are open");
    for _ in 0..ticks {
        call(service::SLOT_TIMER, service::TIMER_SLEEP, &[1]);
        let added = add_trace_by(service::SLOT_TRACE, core::hint::black_box(accounts));
        if added != expected {
            println!("ledger: {added:?}");
            return 1;
        }
    }
    println!("the accounts are closed");
    0
}
