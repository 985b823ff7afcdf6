//! Sleeps by the timer's interrupts, and says so now and then. Argument: ticks of 10 ms (20); with
//! a million more a thread of it computes meanwhile, so that interrupts find a program running.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::black_box;

use rcoe_abi::{Error, ObjectType, service};
use rcoe_user::{call, make, memory, object, println};

rcoe_user::program!(main);

/// In the argument: somebody computes.
const COMPUTE: u64 = 1_000_000;

/// The thread that computes, a buffer that it has to have, and the words of its stack.
const THREAD: u64 = service::SLOT_FREE;
const BUFFER: u64 = THREAD + 1;
const STACK: usize = 512;
/// Less than that of any program.
const PRIORITY: u64 = 10;

fn main(argument: u64) -> u64 {
    let (computes, ticks) = (argument >= COMPUTE, argument % COMPUTE);
    if computes && let Err(error) = start() {
        println!("sleep: {error:?}");
        return 1;
    }
    let ticks = if ticks == 0 { 20 } else { ticks };
    for done in (1..=ticks).filter(|tick| tick % 10 == 0) {
        call(service::SLOT_TIMER, service::TIMER_SLEEP, &[10]);
        println!("slept {done} ticks");
    }
    0
}

fn start() -> object::Outcome {
    if !make(ObjectType::Tcb, THREAD) || !make(ObjectType::Frame, BUFFER) {
        return Err(Error::NotEnoughMemory);
    }
    let stack = memory(STACK).ok_or(Error::NotEnoughMemory)?;
    let top = stack.as_ptr_range().end as u64 - 16;
    let (table, space) = (service::SLOT_CNODE, service::SLOT_VSPACE);
    object::configure(THREAD, table, space, BUFFER, service::SLOT_ROOT)?;
    object::set_priority(THREAD, PRIORITY)?;
    object::write_registers(THREAD, compute as *const () as u64, top, [0, 0])?;
    object::resume(THREAD)
}

/// A thread that makes no call.
extern "C" fn compute(_argument: u64) -> ! {
    let mut value = 1_u64;
    loop {
        value = black_box(value.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1));
    }
}
