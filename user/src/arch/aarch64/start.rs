//! A program's first instruction.

use core::arch::global_asm;

global_asm!(
    r#"
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
