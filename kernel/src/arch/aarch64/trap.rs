//! Kernel entries. Those from programs leave one frame on the kernel's one stack and all go through
//! [`on_trap`]. Those from the kernel itself never return: a fault of this replica, and the
//! interrupt that stops it.

use core::arch::global_asm;

use rcoe_abi::guest::HYPERVISOR_CALL;
use rcoe_kernel_objects::arch::aarch64::{CALL_BYTES, CONTEXT_WORDS, IP};

use super::super::machine::with_machine;
use super::{cpu, guest, interrupts};
use crate::arch;

/// What an entry leaves: the registers of a context, and why.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Frame {
    context: [u64; CONTEXT_WORDS],
    why: u64,
}

/// Why: an exception, or an interrupt.
const EXCEPTION: u64 = 0;
const INTERRUPT: u64 = 1;

/// Classes of exceptions.
const SYSTEM_CALL: u64 = 0x15;
const NO_CODE: u64 = 0x20;
const NO_DATA: u64 = 0x24;
/// The end of a step; its code tells whether an interrupt came before, which is not the program's.
const STEPPED: u64 = 0x32;

unsafe extern "C" {
    pub(super) fn trap_vectors();
    fn leave_kernel(frame: *const Frame) -> !;
}

global_asm!(
    r#"
    .text
    .macro from_program why
    .balign 128
    sub sp, sp, #{frame}
    stp x0, x1, [sp]
    mov x0, #\why
    b trap_common
    .endm
    .macro for_good handler
    .balign 128
    adrp x0, __fault_stack_top
    add x0, x0, :lo12:__fault_stack_top
    mov sp, x0
    bl \handler
    udf #0
    .endm

    .balign 2048
    .globl trap_vectors
trap_vectors:
    // From the kernel with the wrong stack, then with its own.
    for_good on_kernel_fault
    for_good on_kernel_fault
    for_good on_stop
    for_good on_kernel_fault
    for_good on_kernel_fault
    for_good on_kernel_fault
    for_good on_stop
    for_good on_kernel_fault
    // From programs, then from those of 32 bits, which there are none of.
    from_program {exception}
    from_program {interrupt}
    for_good on_stop
    from_program {exception}
    for_good on_kernel_fault
    for_good on_kernel_fault
    for_good on_kernel_fault
    for_good on_kernel_fault

trap_common:
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x1, elr_el1
    stp x30, x1, [sp, #240]
    mrs x1, spsr_el1
    mrs x2, sp_el0
    stp x1, x2, [sp, #256]
    mrs x1, tpidr_el0
    stp x1, x0, [sp, #272]
    msr daifclr, #1
    mov x29, xzr
    mov x0, sp
    bl on_trap
    mov x0, sp

    .globl leave_kernel
leave_kernel:
    adrp x1, __stack_top
    add x1, x1, :lo12:__stack_top
    ldp x30, x2, [x0, #240]
    ldp x3, x4, [x0, #256]
    ldr x5, [x0, #272]
    // From here on an interrupt would overwrite where this leads.
    msr daifset, #3
    mov sp, x1
    msr elr_el1, x2
    msr spsr_el1, x3
    msr sp_el0, x4
    msr tpidr_el0, x5
    ldp x2, x3, [x0, #16]
    ldp x4, x5, [x0, #32]
    ldp x6, x7, [x0, #48]
    ldp x8, x9, [x0, #64]
    ldp x10, x11, [x0, #80]
    ldp x12, x13, [x0, #96]
    ldp x14, x15, [x0, #112]
    ldp x16, x17, [x0, #128]
    ldp x18, x19, [x0, #144]
    ldp x20, x21, [x0, #160]
    ldp x22, x23, [x0, #176]
    ldp x24, x25, [x0, #192]
    ldp x26, x27, [x0, #208]
    ldp x28, x29, [x0, #224]
    ldp x0, x1, [x0]
    // Page table entries that were written are there for the program.
    dsb ish
    eret
    "#,
    frame = const size_of::<Frame>(),
    exception = const EXCEPTION,
    interrupt = const INTERRUPT,
);

const _: () = assert!(CONTEXT_WORDS == 35 && size_of::<Frame>() == 288);

/// Every kernel entry from a program but the first.
#[unsafe(no_mangle)]
extern "C" fn on_trap(frame: &mut Frame) {
    let syndrome = cpu::syndrome();
    let (class, code) = (syndrome >> 26 & 0x3f, syndrome & 0x1ff_ffff);
    let mut address = cpu::fault_address();
    with_machine(|machine| {
        *machine.enter() = frame.context;
        if machine.entered() {
            address = guest::fault_address(address);
            if (frame.why, class) == (EXCEPTION, HYPERVISOR_CALL) {
                // As with all else, it stands at the instruction.
                machine.enter()[IP] -= CALL_BYTES;
            }
        }
        match (frame.why, class) {
            (INTERRUPT, _) => {
                machine.retrace();
                interrupts::handle(|vector| machine.interrupt(vector));
            }
            (_, SYSTEM_CALL) => machine.syscall(),
            (_, NO_CODE | NO_DATA) => machine.page_fault(address, code),
            (_, STEPPED) => machine.exception(class, 0),
            _ => machine.exception(class, code),
        }
        frame.context = *machine.leave();
    });
}

/// An exception in the kernel itself.
#[unsafe(no_mangle)]
extern "C" fn on_kernel_fault() -> ! {
    let syndrome = cpu::syndrome();
    crate::report::exception(
        syndrome >> 26 & 0x3f,
        syndrome & 0x1ff_ffff,
        cpu::fault_place(),
        cpu::fault_address(),
    )
}

/// The others have removed this replica: its core is switched off, until its memory holds a copy of
/// one of them.
#[unsafe(no_mangle)]
extern "C" fn on_stop() -> ! {
    interrupts::end_of_stop();
    arch::retire()
}

/// Leaves the kernel for the first time, to a thread with these registers.
pub(in crate::arch) fn first_leave(context: &[u64; CONTEXT_WORDS]) -> ! {
    let frame = Frame {
        context: *context,
        why: EXCEPTION,
    };
    // SAFETY: the frame is complete and of a user thread; this function's own stack is not used
    // again.
    unsafe { leave_kernel(&raw const frame) }
}
