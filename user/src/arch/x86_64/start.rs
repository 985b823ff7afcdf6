//! A program's first instruction, and the note that says that it is made for this system.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .note.rcoe, "a", @note
    .balign 4
    .long 5, 0, 1
    .asciz "rcoe"
    .balign 4
    .section .text._start, "ax", @progbits
    .globl _start
_start:
    xor ebp, ebp
    and rsp, -16
    call rcoe_program
    ud2
    "#
);
