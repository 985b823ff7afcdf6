//! Threads as programs of another system would be: their calls have that system's numbers, in the
//! registers that it has them in.

use core::arch::global_asm;

/// Where in the registers of a call that is told to a fault handler the six arguments are.
pub const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];

/// Where in them its status is, and the bit by which the kernel has it step.
pub const STATUS: usize = 32;
/// See [`STATUS`].
pub const STEP: u64 = 1 << 21;

/// How often a thread is stopped that does all that a program can do for it ([`stops`]).
pub const STOPS: u64 = 0;

/// The second pointer of a thread: there is none.
#[must_use]
pub const fn second_pointer(_place: u64) -> u64 {
    0
}

unsafe extern "C" {
    fn foreign_calls();
    fn foreign_steps();
    fn foreign_stops();
}

global_asm!(
    r#"
    .text
    // Argument: rounds. Each call is told what is where the thread's register leads and behind it,
    // and answers are added up.
foreign_calls:
    mov x19, x0
    mov x20, xzr
1:  mrs x9, tpidr_el0
    mov x8, #1
    mov x0, x19
    mov x1, x20
    ldp x2, x3, [x9]
    mov x4, #5
    mov x5, #6
    svc #0
    add x20, x20, x0
    subs x19, x19, #1
    b.ne 1b
    b 3f
    // The same, with three instructions of each round before a call at the end.
foreign_steps:
    mov x20, x0
2:  add x20, x20, x0
    subs x0, x0, #1
    b.ne 2b
3:  mov x8, #60
    mov x0, x20
    svc #0
    udf #0
    // As on another processor, where a program can have itself stopped; not here.
foreign_stops:
    mov x20, #2
    b 3b
    "#
);

/// Where a thread begins that makes calls.
#[must_use]
pub fn calls() -> u64 {
    foreign_calls as *const () as u64
}

/// Where a thread begins that is to be stepped: its argument is the number of rounds of three
/// instructions, with three others in all before its one call.
#[must_use]
pub fn steps() -> u64 {
    foreign_steps as *const () as u64
}

/// Where a thread begins that has itself stopped, if a program can; then it makes its one call,
/// which tells 2.
#[must_use]
pub fn stops() -> u64 {
    foreign_stops as *const () as u64
}
