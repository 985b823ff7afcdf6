//! Threads as programs of another system would be: their calls have that system's numbers, in the
//! registers that it has them in.

use core::arch::global_asm;

/// Where in the registers of a call that is told to a fault handler the six arguments are.
pub const ARGUMENTS: [usize; 6] = [5, 4, 3, 9, 7, 8];

/// Where in them its status is, and the bit by which the kernel has it step.
pub const STATUS: usize = 16;
/// See [`STATUS`].
pub const STEP: u64 = 1 << 8;

/// How often a thread is stopped that does all that a program can do for it ([`stops`]).
pub const STOPS: u64 = 1;

/// The second pointer of a thread: what GS leads to.
#[must_use]
pub const fn second_pointer(place: u64) -> u64 {
    place
}

unsafe extern "C" {
    fn foreign_calls();
    fn foreign_steps();
    fn foreign_stops();
}

global_asm!(
    r#"
    .text
    # Argument: rounds. Each call is told what is where FS and GS lead, and answers are added up.
foreign_calls:
    mov rbx, rdi
    xor r13d, r13d
1:  mov eax, 1
    mov rdi, rbx
    mov rsi, r13
    mov rdx, fs:[0]
    mov r10, gs:[0]
    mov r8d, 5
    mov r9d, 6
    syscall
    add r13, rax
    dec rbx
    jnz 1b
    jmp 3f
    # The same, with three instructions of each round before a call at the end.
foreign_steps:
    mov r13, rdi
2:  add r13, rdi
    dec rdi
    jnz 2b
3:  mov eax, 60
    mov rdi, r13
    syscall
    ud2
    # Has the processor stop it behind the next instruction, as a program can on this processor.
foreign_stops:
    lea rsp, [rip + foreign_stack + 64]
    xor r13d, r13d
    pushfq
    or qword ptr [rsp], 0x100
    popfq
    inc r13
    inc r13
    jmp 3b
    .bss
    .balign 16
foreign_stack:
    .skip 64
    .text
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
