//! The race of DSN'19, V-A1: 32 threads add to one counter without a lock, so how much it comes to
//! depends on the very instructions at which they are preempted. Argument: rounds (10), in each of
//! which every thread adds a thousand times. What each round comes to joins the trace: replicas
//! that are preempted at one instruction agree, others do not.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_abi::{Error, ObjectType, service};
use rcoe_user::{add_trace, make, memory, object, println, recv, send};

rcoe_user::program!(main);

/// Threads, and how often each adds in a round.
const THREADS: u64 = 32;
const ADDITIONS: u64 = 1_000;
/// What the counter comes to if none is lost.
const ALL: u64 = THREADS * ADDITIONS;

/// Slots: where threads are told to begin and tell that they have ended, a buffer that they have to
/// have, and the threads.
const BEGIN: u64 = service::SLOT_FREE;
const DONE: u64 = BEGIN + 1;
const BUFFER: u64 = BEGIN + 2;
const FIRST: u64 = BEGIN + 3;

/// Priority of a program.
const PRIORITY: u64 = 20;
/// Words of a thread's stack.
const STACK: usize = 512;

/// What all add to.
static COUNTER: AtomicU64 = AtomicU64::new(0);

fn main(argument: u64) -> u64 {
    let rounds = if argument == 0 { 10 } else { argument };
    if let Err(error) = start() {
        println!("race: {error:?}");
        return 1;
    }
    let (mut least, mut most, mut raced) = (u64::MAX, 0, 0);
    for _ in 0..rounds {
        let value = round();
        add_trace(&[value]);
        least = least.min(value);
        most = most.max(value);
        raced += u64::from(value != ALL);
    }
    println!("{rounds} rounds, {raced} with additions lost: {least} to {most} of {ALL}");
    0
}

/// Starts the threads. They send nothing that their buffer would be needed for.
fn start() -> object::Outcome {
    let made = make(ObjectType::Endpoint, BEGIN)
        && make(ObjectType::Endpoint, DONE)
        && make(ObjectType::Frame, BUFFER);
    if !made {
        return Err(Error::NotEnoughMemory);
    }
    let (table, space) = (service::SLOT_CNODE, service::SLOT_VSPACE);
    for thread in FIRST..FIRST + THREADS {
        if !make(ObjectType::Tcb, thread) {
            return Err(Error::NotEnoughMemory);
        }
        let stack = memory(STACK).ok_or(Error::NotEnoughMemory)?;
        let top = stack.as_ptr_range().end as u64 - 16;
        object::configure(thread, table, space, BUFFER, service::SLOT_ROOT)?;
        object::set_priority(thread, PRIORITY)?;
        object::write_registers(thread, work as *const () as u64, top, [0, 0])?;
        object::resume(thread)?;
    }
    Ok(())
}

/// What the counter comes to.
fn round() -> u64 {
    COUNTER.store(0, Ordering::Relaxed);
    for _ in 0..THREADS {
        send(BEGIN, 0, &[]);
    }
    for _ in 0..THREADS {
        let _ = recv(DONE);
    }
    COUNTER.load(Ordering::Relaxed)
}

/// A call, because emulators do not interrupt a straight run of code.
#[inline(never)]
fn one_more(value: u64) -> u64 {
    black_box(value) + 1
}

/// A thread: what it read may be old when it writes.
extern "C" fn work(_argument: u64) -> ! {
    loop {
        let _ = recv(BEGIN);
        for _ in 0..ADDITIONS {
            let value = COUNTER.load(Ordering::Relaxed);
            COUNTER.store(one_more(value), Ordering::Relaxed);
        }
        send(DONE, 0, &[]);
    }
}
