//! Makes, revokes and deletes what takes the kernel many steps, while ticks have a second thread
//! run in between. Argument: rounds at least (1). The program ends well once each of the three was
//! cut by ticks.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_abi::{Error, ObjectType, service};
use rcoe_user::{add_trace, make, make_sized, memory, object, println, yield_now};

rcoe_user::program!(main);

/// Slots: memory for the large table and for what is in it, the table, and the second thread.
const MEMORY: u64 = service::SLOT_FREE;
const CONTENT: u64 = MEMORY + 1;
const TABLE: u64 = MEMORY + 2;
const BUFFER: u64 = MEMORY + 3;
const COUNTER: u64 = MEMORY + 4;

/// Logarithm of the slots of the table, and of a slot's bytes.
const BITS: u32 = 17;
const SLOT_BITS: u32 = 5;
/// Of so many of its slots something is made, by so many at a time.
const FILLED: u64 = 1 << 14;
const AT_ONCE: u64 = 256;
/// Logarithm of the bytes of that.
const CONTENT_BITS: u32 = 20;

/// Priority of a program.
const PRIORITY: u64 = 20;
/// Rounds beyond those that were asked for, until it is given up.
const MORE: u64 = 2000;
/// Turns of the second thread within one call that cannot all have come at its edges.
const CUT: u64 = 3;

/// Turns of the second thread. It runs at ticks only, and those are at one point of the trace.
static TURNS: AtomicU64 = AtomicU64::new(0);

fn main(argument: u64) -> u64 {
    match run(argument) {
        Ok(true) => {
            println!("made, revoked and deleted in steps, with ticks in the midst");
            0
        }
        Ok(false) => {
            println!("long: no ticks in the midst");
            1
        }
        Err(error) => {
            println!("long: {error:?}");
            1
        }
    }
}

/// Counts its turns.
extern "C" fn count(_argument: u64) -> ! {
    loop {
        let turns = TURNS.fetch_add(1, Ordering::Relaxed) + 1;
        // A turn that one replica took and another did not would be found here.
        add_trace(&[turns]);
        yield_now();
    }
}

/// Starts the second thread. It sends nothing that its buffer would be needed for.
fn start() -> object::Outcome {
    let stack = memory(1024).ok_or(Error::NotEnoughMemory)?;
    let top = stack.as_ptr_range().end as u64 - 16;
    let (table, space) = (service::SLOT_CNODE, service::SLOT_VSPACE);
    object::configure(COUNTER, table, space, BUFFER, service::SLOT_ROOT)?;
    object::set_priority(COUNTER, PRIORITY)?;
    object::write_registers(COUNTER, count as *const () as u64, top, [0, 0])?;
    object::resume(COUNTER)
}

/// Turns of the second thread while something is done.
fn turns_in(act: impl FnOnce() -> object::Outcome) -> Result<u64, Error> {
    let before = TURNS.load(Ordering::Relaxed);
    act()?;
    Ok(TURNS.load(Ordering::Relaxed) - before)
}

/// Fills the table's first slots.
fn fill() -> object::Outcome {
    (0..FILLED / AT_ONCE)
        .map(|part| part * AT_ONCE)
        .try_for_each(|first| {
            object::retype(CONTENT, ObjectType::Endpoint, 0, TABLE, first, AT_ONCE)
        })
}

/// Goes round until each operation was cut by ticks, at least so many times.
fn run(least: u64) -> Result<bool, Error> {
    let made = make(ObjectType::Frame, BUFFER)
        && make(ObjectType::Tcb, COUNTER)
        && make_sized(ObjectType::Untyped, CONTENT_BITS, CONTENT)
        && make_sized(ObjectType::Untyped, BITS + SLOT_BITS, MEMORY);
    if !made {
        return Err(Error::NotEnoughMemory);
    }
    start()?;
    let own = service::SLOT_CNODE;
    let mut cut = [false; 3];
    for round in 1..least + MORE {
        let table = || object::retype(MEMORY, ObjectType::CNode, BITS, own, TABLE, 1);
        cut[0] |= turns_in(table)? >= CUT;
        fill()?;
        cut[1] |= turns_in(|| object::revoke(own, CONTENT))? >= CUT;
        fill()?;
        cut[2] |= turns_in(|| object::delete(own, TABLE))? >= CUT;
        if round >= least && cut == [true; 3] {
            return Ok(true);
        }
    }
    Ok(false)
}
