//! A program's first instruction.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .text._start, "ax", @progbits
    .globl _start
_start:
    xor ebp, ebp
    and rsp, -16
    call rcoe_program
    ud2
    "#
);
