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
    mov x29, xzr
    mov x30, xzr
    mov x9, sp
    and sp, x9, #-16
    bl rcoe_program
    udf #0
    "#
);
