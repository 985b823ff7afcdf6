//! A program's first instruction, and its last: a panic.

use core::arch::global_asm;
use core::panic::PanicInfo;

use crate::println;

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

/// Status of a program that panicked, as of Rust programs elsewhere.
const PANICKED: u64 = 101;

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    println!("{info}");
    crate::exit(PANICKED)
}
