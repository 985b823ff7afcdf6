//! Kernel entries: exceptions, interrupts and system calls all leave the same frame on the kernel's
//! one stack, and all go through [`on_trap`].

use core::arch::global_asm;

use rcoe_kernel_objects::arch::CONTEXT_WORDS;

use super::super::machine::with_machine;
use super::{cpu, interrupts};

/// Vectors with a handler.
pub(in crate::arch) const VECTORS: usize = 256;

/// What an entry leaves: general registers, why, and what the processor pushed.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Frame {
    general: [u64; 15],
    vector: u64,
    code: u64,
    ip: u64,
    segment: u64,
    flags: u64,
    sp: u64,
    stack_segment: u64,
}

/// Vector of an interrupt that nothing masks.
const NMI: u64 = 2;
/// Vector of a system call, which has none of its own.
const SYSCALL: u64 = 256;

impl Frame {
    /// Tells the thread's registers.
    fn tell_context(&self, context: &mut [u64; CONTEXT_WORDS]) {
        context[..15].copy_from_slice(&self.general);
        context[15..].copy_from_slice(&[self.ip, self.flags, self.sp]);
    }

    /// The thread that leaves the kernel has these registers.
    fn set_context(&mut self, context: &[u64; CONTEXT_WORDS]) {
        self.general.copy_from_slice(&context[..15]);
        [self.ip, self.flags, self.sp] = [context[15], context[16], context[17]];
        self.segment = super::install::USER_CODE;
        self.stack_segment = super::install::USER_DATA;
    }

    const fn is_from_user(&self) -> bool {
        self.segment & 3 == 3
    }
}

unsafe extern "C" {
    /// Entry of the `syscall` instruction.
    pub(in crate::arch) fn syscall_entry();
    /// Addresses of the handlers, by vector.
    #[link_name = "trap_handlers"]
    pub(in crate::arch) static HANDLERS: [*const (); VECTORS];
    fn leave_kernel(frame: *const Frame) -> !;
    static __stack_top: u8;
}

global_asm!(
    r#"
    .text
trap_common:
    push r15
    push r14
    push r13
    push r12
    push r11
    push r10
    push r9
    push r8
    push rbp
    push rdi
    push rsi
    push rdx
    push rcx
    push rbx
    push rax
    cld
    mov rdi, rsp
    call on_trap
trap_return:
    pop rax
    pop rbx
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    pop rbp
    pop r8
    pop r9
    pop r10
    pop r11
    pop r12
    pop r13
    pop r14
    pop r15
    add rsp, 16
    iretq

    .globl leave_kernel
leave_kernel:
    mov rsp, rdi
    jmp trap_return

    .globl syscall_entry
syscall_entry:
    mov [rip + syscall_stack], rsp
    lea rsp, [rip + __stack_top]
    push {user_data}
    push [rip + syscall_stack]
    push r11
    push {user_code}
    push rcx
    push 0
    push {syscall}
    jmp trap_common

    .macro handler vector
trap_\vector:
    .if \vector == 8 || (\vector >= 10 && \vector <= 14) || \vector == 17 || \vector == 21
    .else
    push 0
    .endif
    push \vector
    jmp trap_common
    .endm

    .altmacro
    .macro handlers from, to
    .set at, \from
    .rept \to - \from
    handler %at
    .set at, at + 1
    .endr
    .endm
    handlers 0, 256

    .section .rodata
    .balign 8
    .globl trap_handlers
trap_handlers:
    .macro address vector
    .quad trap_\vector
    .endm
    .set at, 0
    .rept 256
    address %at
    .set at, at + 1
    .endr

    .bss
    .balign 8
syscall_stack:
    .skip 8
    .text
    "#,
    user_data = const super::install::USER_DATA,
    user_code = const super::install::USER_CODE,
    syscall = const SYSCALL,
);

/// Every kernel entry but the first.
#[unsafe(no_mangle)]
extern "C" fn on_trap(frame: &mut Frame) {
    // Nobody sends an NMI: whatever it came for is nothing that a program did.
    if frame.vector == NMI || !frame.is_from_user() {
        return in_kernel(frame);
    }
    with_machine(|machine| {
        frame.tell_context(machine.enter());
        machine.entered();
        match frame.vector {
            SYSCALL => machine.syscall(),
            14 => machine.page_fault(cpu::fault_address(), frame.code),
            vector @ 0..32 => machine.exception(vector, frame.code),
            vector => interrupt(machine, vector),
        }
        frame.set_context(machine.leave());
    });
}

fn interrupt(machine: &mut crate::machine::Machine, vector: u64) {
    if vector != interrupts::VECTOR_SPURIOUS {
        machine.interrupt(vector);
        interrupts::end_of_interrupt();
    }
}

/// An entry from the kernel itself. Interrupts come only while it waits for one: a note is enough.
/// Everything else is a fault of this replica.
fn in_kernel(frame: &Frame) {
    match frame.vector {
        vector @ 0..32 => crate::report::exception(
            vector,
            frame.code,
            frame.ip,
            if vector == 14 {
                cpu::fault_address()
            } else {
                0
            },
        ),
        vector => {
            if vector != interrupts::VECTOR_SPURIOUS {
                interrupts::note_interrupt(vector);
                interrupts::end_of_interrupt();
            }
        }
    }
}

/// Leaves the kernel for the first time, to a thread with these registers.
pub(in crate::arch) fn first_leave(context: &[u64; CONTEXT_WORDS]) -> ! {
    let mut frame = Frame {
        general: [0; 15],
        vector: 0,
        code: 0,
        ip: 0,
        segment: 0,
        flags: 0,
        sp: 0,
        stack_segment: 0,
    };
    frame.set_context(context);
    // SAFETY: the frame is complete and of a user thread; this function's own stack is not used
    // again.
    unsafe { leave_kernel(&raw const frame) }
}
