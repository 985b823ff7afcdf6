//! Serves threads that make calls of another system, as a personality does. Argument: rounds of
//! calls (1000). Then one is stepped through: it has to be told of each instruction once. Nobody
//! but the kernel has a thread step, neither who serves it nor itself.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::invocation::FaultLabel;
use rcoe_abi::{Error, ObjectType, ThreadFlags, service};
use rcoe_user::{Received, foreign, memory, object, println, recv, reply_recv};

rcoe_user::program!(main);

/// Slots: where threads are served, a buffer that they have to have, and the threads.
const ENDPOINT: u64 = service::SLOT_FREE;
const BUFFER: u64 = ENDPOINT + 1;
const CALLER: u64 = ENDPOINT + 2;
const STEPPER: u64 = ENDPOINT + 3;
const STOPPER: u64 = ENDPOINT + 4;

/// Priority of a program.
const PRIORITY: u64 = 20;
/// Numbers of calls: one that would be the kernel's, and the last.
const ADD: u64 = 1;
const LAST: u64 = 60;
/// What is where the threads' pointers lead.
const HELD: [u64; 2] = [33, 44];
/// Rounds of the thread that is stepped.
const STEPS: u64 = 5;

fn main(argument: u64) -> u64 {
    let rounds = if argument == 0 { 1_000 } else { argument };
    let served = run(rounds);
    let Ok((calls, sum)) = served else {
        println!("foreign: {served:?}");
        return 1;
    };
    let Some(stepped) = step() else {
        println!("foreign: no thread is stepped");
        return 1;
    };
    if !stop() {
        println!("foreign: a thread is stopped by itself");
        return 1;
    }
    println!("{calls} calls of another system: {sum:016x}, {stepped} instructions one by one");
    0
}

/// Runs a thread that makes calls; their number, and what the thread makes of the answers.
fn run(rounds: u64) -> Result<(u64, u64), Error> {
    let made = [
        (ObjectType::Endpoint, ENDPOINT),
        (ObjectType::Frame, BUFFER),
        (ObjectType::Tcb, CALLER),
        (ObjectType::Tcb, STEPPER),
        (ObjectType::Tcb, STOPPER),
    ]
    .into_iter()
    .all(|(kind, slot)| rcoe_user::make(kind, slot));
    let page = memory(512).filter(|_| made).ok_or(Error::NotEnoughMemory)?;
    page[..2].copy_from_slice(&HELD);
    let place = page.as_ptr() as u64;
    object::write_pointers(CALLER, [place, foreign::second_pointer(place + 8)])?;
    begin(CALLER, foreign::calls(), rounds, ThreadFlags::NONE)?;
    let mut count = 0;
    let mut message = recv(ENDPOINT);
    while let Some((ADD, arguments)) = call_of(&message) {
        count += 1;
        // Every argument counts, and so does its place.
        let answer = arguments.iter().fold(7, |sum: u64, word| {
            (sum ^ word).rotate_left(9).wrapping_mul(0x9e37_79b9)
        });
        message = answer_all(&message, answer);
    }
    match call_of(&message) {
        Some((LAST, [sum, ..])) => Ok((count, sum)),
        _ => Err(Error::IllegalOperation),
    }
}

/// Answers a call with all registers as they were told, but for the first, and wishes for a step.
fn answer_all(message: &Received, answer: u64) -> Received {
    let mut registers = [0; foreign::STATUS + 1];
    for (index, register) in registers.iter_mut().enumerate() {
        *register = message.word(1 + index);
    }
    registers[0] = answer;
    registers[foreign::STATUS] |= foreign::STEP;
    reply_recv(ENDPOINT, 0, &registers)
}

/// Starts a thread whose calls, and more, are told to this one.
fn begin(tcb: u64, entry: u64, argument: u64, flags: ThreadFlags) -> object::Outcome {
    let (table, space) = (service::SLOT_CNODE, service::SLOT_VSPACE);
    object::configure(tcb, table, space, BUFFER, ENDPOINT)?;
    object::set_priority(tcb, PRIORITY)?;
    object::set_flags(tcb, flags.or(ThreadFlags::CALLS_ARE_FAULTS))?;
    object::write_registers(tcb, entry, 0, [argument, 0])?;
    object::resume(tcb)
}

/// Number and arguments of a call of another system.
fn call_of(message: &Received) -> Option<(u64, [u64; 6])> {
    let is_call = message.label == FaultLabel::UnknownSyscall as u64;
    let arguments = foreign::ARGUMENTS.map(|register| message.word(1 + register));
    is_call.then_some((message.word(0), arguments))
}

/// Steps through a thread until it makes its call; how many instructions it is stopped behind.
fn step() -> Option<u64> {
    begin(STEPPER, foreign::steps(), STEPS, ThreadFlags::STEPS).ok()?;
    let (count, sum) = follow()?;
    let right = STEPS + (1..=STEPS).sum::<u64>();
    (sum == right).then_some(count)
}

/// Runs a thread that has itself stopped, as far as a program can. Is it told of that, and not
/// stepped?
fn stop() -> bool {
    let begun = begin(STOPPER, foreign::stops(), 0, ThreadFlags::NONE);
    begun.is_ok() && follow() == Some((foreign::STOPS, 2))
}

/// Lets a thread go on behind each exception until it makes its one call: how many there were, and
/// what it tells. Who came before is not answered: it has ended.
fn follow() -> Option<(u64, u64)> {
    let mut count = 0;
    let mut message = recv(ENDPOINT);
    while message.label == FaultLabel::Exception as u64 {
        count += 1;
        message = reply_recv(ENDPOINT, 0, &[]);
    }
    let (number, [sum, ..]) = call_of(&message)?;
    (number == LAST).then_some((count, sum))
}
