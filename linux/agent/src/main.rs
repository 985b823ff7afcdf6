//! The freestanding agent image: entry point and panic handler; all else is in the library.
#![no_std]
#![no_main]

use core::arch::global_asm;
use core::panic::PanicInfo;

global_asm!(
    r#"
    .pushsection .text._start, "ax", @progbits
    .globl _start
_start:
    xor ebp, ebp
    mov rdi, rsp
    lea rsp, [rip + RCOE_AGENT_STACK + {stack_bytes}]
    call rcoe_boot
    ud2
    .popsection
    "#,
    stack_bytes = const rcoe_agent::AGENT_STACK_BYTES,
);

/// Called by the kernel's `exec` with the initial stack.
#[unsafe(no_mangle)]
extern "C" fn rcoe_boot(initial_stack: *const u64) -> ! {
    // SAFETY: this is the pointer the kernel handed to `_start`, and nothing has run before.
    unsafe { rcoe_agent::boot(initial_stack) }
}

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    rcoe_agent::fail(info)
}
