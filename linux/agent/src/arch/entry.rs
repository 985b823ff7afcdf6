//! The ways into the agent and back out: hand-written assembly and the frames it builds.
//!
//! A system call reaches [`rcoe_entry`](self) in one of two ways, and cannot tell which:
//!
//! * a rewritten site jumps to a stub that loads the return address into `rcx` and jumps here;
//! * Syscall User Dispatch raises SIGSYS; the handler only moves the return address into `rcx`
//!   and the instruction pointer here, and returns from the signal.
//!
//! Both therefore look like the `syscall` instruction itself, which leaves the return address in
//! `rcx` and is free to clobber `r11`. The entry switches to the agent's own stack, so the
//! program's stack, including its red zone, is never touched.
//!
//! The extended state (vectors, floating point) is nowhere saved on the way: in the agent the
//! program's is in the registers, from the beginning of a call or point to its end. Invariant: no
//! compiled code changes it, as the image's target has no such registers (see `build.rs` of the
//! supervisor, whose tests look for them in the image), and what is written by hand loads what it
//! has changed ([`without_vectors`]). Only what gives the program other values changes it: another
//! thread, a signal's frame that is taken back, a program that begins.
//!
//! Not covered: faults. They are handled inside their signal handler (see [`crate::arch::faults`]),
//! because a faulting instruction leaves no register free.

use core::arch::global_asm;
use core::mem::MaybeUninit;

use linux_raw_sys::errno::{EFAULT, EINTR};

use crate::one_thread::OneThread;
use crate::sys;

/// The program's registers while the agent works for it, in the order the entry pushes them.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrapFrame {
    /// All but the extended state.
    pub cpu: Cpu,
}

impl TrapFrame {
    /// No registers at all, for a place where some will be put.
    pub(crate) const ZERO: Self = Self {
        cpu: Cpu {
            regs: Registers {
                r15: 0,
                r14: 0,
                r13: 0,
                r12: 0,
                r11: 0,
                r10: 0,
                r9: 0,
                r8: 0,
                rdi: 0,
                rsi: 0,
                rbp: 0,
                rbx: 0,
                rdx: 0,
                rcx: 0,
                rax: 0,
            },
            rip: 0,
            cs: 0,
            rflags: 0,
            rsp: 0,
            ss: 0,
        },
    };
}

/// Registers other than the extended state; the tail is what `iretq` takes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    /// General-purpose registers.
    pub regs: Registers,
    /// Instruction to go on with.
    pub rip: u64,
    /// Code segment.
    pub cs: u64,
    /// Flags.
    pub rflags: u64,
    /// The program's stack pointer.
    pub rsp: u64,
    /// Stack segment.
    pub ss: u64,
}

impl Cpu {
    /// A program's first registers.
    pub(crate) fn at(rip: u64, rsp: u64) -> Self {
        Self {
            regs: Registers::default(),
            rip,
            cs: 0x33,
            rflags: 0x202,
            rsp,
            ss: 0x2b,
        }
    }
}

/// General-purpose registers in push order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
}

const _: () = assert!(size_of::<TrapFrame>() == 160);

/// Size of the stack the agent runs on while it handles a system call.
pub const AGENT_STACK_BYTES: usize = 1024 * 1024;
/// Size of the stack for the agent's signal handlers.
pub(crate) const SIGNAL_STACK_BYTES: usize = 256 * 1024;

/// A stack in the agent's own zero-initialised data.
#[repr(C, align(4096))]
pub(crate) struct Stack<const N: usize>([u8; N]);

impl<const N: usize> OneThread<Stack<N>> {
    /// First address of the stack's memory.
    pub(crate) fn base(&self) -> u64 {
        self.get() as u64
    }
}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".bss.own.9")]
static RCOE_AGENT_STACK: OneThread<Stack<AGENT_STACK_BYTES>> =
    OneThread::new(Stack([0; AGENT_STACK_BYTES]));

/// Where the agent's stack lies.
pub(crate) fn stack_range() -> (u64, u64) {
    let base = RCOE_AGENT_STACK.base();
    (base, base + AGENT_STACK_BYTES as u64)
}

/// Where the stack of the agent's signal handlers lies.
pub(crate) fn signal_stack_range() -> (u64, u64) {
    let base = SIGNAL_STACK.base();
    (base, base + SIGNAL_STACK_BYTES as u64)
}

/// Stack of the agent's signal handlers.
#[unsafe(link_section = ".bss.own.1")]
pub(crate) static SIGNAL_STACK: OneThread<Stack<SIGNAL_STACK_BYTES>> =
    OneThread::new(Stack([0; SIGNAL_STACK_BYTES]));

/// Result of a call that was not begun because a signal came first: the program makes it again
/// after its handler. The kernel's own ERESTARTNOINTR, which no program ever sees.
pub(crate) const NOT_BEGUN: i64 = -513;

unsafe extern "C" {
    /// Where system calls enter; never called from Rust.
    fn rcoe_entry();
    /// Returns from a signal handler of the agent.
    fn rcoe_restorer();
    /// First address of the agent image.
    static __executable_start: u8;
    /// First address past the agent's text.
    static etext: u8;
}

unsafe extern "C" {
    /// The instruction that goes back to the program with all its registers.
    fn rcoe_return();
    fn rcoe_enter_program(frame: *const TrapFrame) -> !;
    fn rcoe_guarded_call(a: u64, b: u64, c: u64, d: u64, body: GuardedBody) -> i64;
    fn rcoe_guard_fault();
    fn rcoe_interruptible_call(nr: u64, args: *const u64) -> i64;
    fn rcoe_kept_call(nr: u64, args: *const u64) -> i64;
    fn rcoe_call_window_start();
    fn rcoe_call_window_end();
    fn rcoe_call_interrupted();
    fn rcoe_keep_vectors(xmm: *mut [[u64; 2]; 16]);
    fn rcoe_load_vectors(xmm: *const [[u64; 2]; 16]);
    fn rcoe_save_extended(area: *mut u8);
    fn rcoe_load_extended(area: *const u8);
    fn rcoe_point();
    fn rcoe_landing();
    static mut RCOE_GUARD_STACK: u64;
    static mut RCOE_POINT: u64;
}

/// Where stubs send a replica that has what they look for, and where the trap says that it is.
pub(crate) fn landing() -> (u64, u64) {
    let at = rcoe_landing as *const () as u64;
    (at, at + 1)
}

/// From a handler that has interrupted the program at `rip`: the address to go on at so that the
/// agent is entered as by a call, with all registers kept.
pub(crate) fn point_from(rip: u64) -> u64 {
    // SAFETY: one kernel thread; read at the entry that comes next, and nowhere else.
    unsafe { RCOE_POINT = rip };
    rcoe_point as *const () as u64
}

global_asm!(
    r#"
    .pushsection .text.rcoe_entry, "ax", @progbits
    .globl rcoe_entry
    .type rcoe_entry, @function
rcoe_entry:
    mov qword ptr [rip + RCOE_PROGRAM_STACK], rsp
    lea rsp, [rip + RCOE_AGENT_STACK + {stack_bytes}]
    push 0x2b
    push qword ptr [rip + RCOE_PROGRAM_STACK]
    pushfq
    push 0x33
    push rcx
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    test dword ptr [rsp + {flags_offset}], {alignment_check} | {nested_task} | {backwards}
    jnz 4f
5:  mov rdi, rsp
    call rcoe_system_call
    test al, al
    jnz rcoe_leave
    // What functions preserve is what it was, and what `syscall` changes is free.
    mov r11, qword ptr [rsp + {r11}]
    mov r10, qword ptr [rsp + {r10}]
    mov r9, qword ptr [rsp + {r9}]
    mov r8, qword ptr [rsp + {r8}]
    mov rdi, qword ptr [rsp + {rdi}]
    mov rsi, qword ptr [rsp + {rsi}]
    mov rdx, qword ptr [rsp + {rdx}]
    mov rax, qword ptr [rsp + {rax}]
    mov rcx, qword ptr [rsp + {rip}]
    push qword ptr [rsp + {flags_offset}]
    popfq
    mov rsp, qword ptr [rsp + {rsp}]
    jmp rcx
rcoe_leave:
    cmp al, {all_registers}
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
    jne 7f
    .globl rcoe_return
rcoe_return:
    iretq
7:  mov rcx, qword ptr [rsp]
    push qword ptr [rsp + 16]
    popfq
    mov rsp, qword ptr [rsp + 24]
    jmp rcx
4:  and dword ptr [rsp + {flags_offset}], ~{nested_task}
    pushfq
    and dword ptr [rsp], ~({alignment_check} | {nested_task} | {backwards})
    popfq
    jmp 5b

    // A point between calls that all have agreed on: a handler comes here with all registers of
    // the program but the instruction pointer, which it has kept.
    .globl rcoe_point
rcoe_point:
    mov qword ptr [rip + RCOE_PROGRAM_STACK], rsp
    lea rsp, [rip + RCOE_AGENT_STACK + {stack_bytes}]
    push 0x2b
    push qword ptr [rip + RCOE_PROGRAM_STACK]
    pushfq
    push 0x33
    push qword ptr [rip + RCOE_POINT]
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    cld
    pushfq
    and dword ptr [rsp], ~{alignment_check}
    popfq
    mov rdi, rsp
    call rcoe_point_reached
    mov al, {all_registers}
    jmp rcoe_leave

    // Where stubs send a replica that has what they look for.
    .globl rcoe_landing
rcoe_landing:
    int3

    // Signal handlers begin with the program's flags. Of these the agent's code minds that it may
    // not touch what is not aligned.
    .irp name, dispatch, fault, timer, kick, tick
    .globl rcoe_on_\name
rcoe_on_\name:
    pushfq
    and dword ptr [rsp], ~{alignment_check}
    popfq
    jmp rcoe_handle_\name
    .endr

    .globl rcoe_enter_program
rcoe_enter_program:
    mov rsp, rdi
    mov al, {all_registers}
    jmp rcoe_leave

    .globl rcoe_restorer
rcoe_restorer:
    mov eax, 15
    syscall
    ud2

    .globl rcoe_guarded_call
rcoe_guarded_call:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    sub rsp, 8
    mov qword ptr [rip + RCOE_GUARD_STACK], rsp
    call r8
3:  mov qword ptr [rip + RCOE_GUARD_STACK], 0
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
    .globl rcoe_guard_fault
rcoe_guard_fault:
    cld
    mov rax, {fault}
    jmp 3b

    .globl rcoe_kept_call
rcoe_kept_call:
    mov rax, rbx
    .irp name, rbp, r12, r13, r14, r15
    xor rax, \name
    .endr
    push rax
    call rcoe_interruptible_call
    pop rcx
    .irp name, rbx, rbp, r12, r13, r14, r15
    xor rcx, \name
    .endr
    jnz 6f
    ret
6:  ud2

    .globl rcoe_interruptible_call
rcoe_interruptible_call:
    mov rax, rdi
    mov r11, rsi
    mov rdi, qword ptr [r11]
    mov rsi, qword ptr [r11 + 8]
    mov rdx, qword ptr [r11 + 16]
    mov r10, qword ptr [r11 + 24]
    mov r8, qword ptr [r11 + 32]
    mov r9, qword ptr [r11 + 40]
    .globl rcoe_call_window_start
rcoe_call_window_start:
    cmp dword ptr [rip + {interrupt}], 0
    jne rcoe_call_interrupted
    syscall
    .globl rcoe_call_window_end
rcoe_call_window_end:
    ret
    .globl rcoe_call_interrupted
rcoe_call_interrupted:
    mov rax, {not_begun}
    ret

    .globl rcoe_keep_vectors
    .type rcoe_keep_vectors, @function
rcoe_keep_vectors:
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movaps xmmword ptr [rdi + 16*\n], xmm\n
    .endr
    ret
    .size rcoe_keep_vectors, . - rcoe_keep_vectors

    .globl rcoe_load_vectors
    .type rcoe_load_vectors, @function
rcoe_load_vectors:
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movaps xmm\n, xmmword ptr [rdi + 16*\n]
    .endr
    ret
    .size rcoe_load_vectors, . - rcoe_load_vectors

    .globl rcoe_save_extended
rcoe_save_extended:
    mov eax, -1
    mov edx, -1
    xsave64 [rdi]
    ret

    .globl rcoe_load_extended
rcoe_load_extended:
    // But for the rights of protection keys, which are not offered: code that is overwritten for a
    // while has one, by which the program cannot read it.
    mov eax, {all_but_rights}
    mov edx, -1
    xrstor64 [rdi]
    ret
    .popsection

    .pushsection .bss.rcoe_entry, "aw", @nobits
    .globl RCOE_GUARD_STACK
    .globl RCOE_POINT
    .globl RCOE_PROGRAM_STACK
    .hidden RCOE_PROGRAM_STACK
    .balign 8
RCOE_PROGRAM_STACK: .zero 8
RCOE_GUARD_STACK:   .zero 8
RCOE_POINT:         .zero 8
    .popsection
    "#,
    fault = const -(EFAULT as i64),
    stack_bytes = const AGENT_STACK_BYTES,
    flags_offset = const CPU + core::mem::offset_of!(Cpu, rflags),
    rip = const CPU + core::mem::offset_of!(Cpu, rip),
    rsp = const CPU + core::mem::offset_of!(Cpu, rsp),
    r11 = const REGISTERS + core::mem::offset_of!(Registers, r11),
    r10 = const REGISTERS + core::mem::offset_of!(Registers, r10),
    r9 = const REGISTERS + core::mem::offset_of!(Registers, r9),
    r8 = const REGISTERS + core::mem::offset_of!(Registers, r8),
    rdi = const REGISTERS + core::mem::offset_of!(Registers, rdi),
    rsi = const REGISTERS + core::mem::offset_of!(Registers, rsi),
    rdx = const REGISTERS + core::mem::offset_of!(Registers, rdx),
    rax = const REGISTERS + core::mem::offset_of!(Registers, rax),
    alignment_check = const ALIGNMENT_CHECK,
    nested_task = const NESTED_TASK,
    backwards = const BACKWARDS,
    all_but_rights = const !(1_u32 << 9),
    all_registers = const Leave::AllRegisters as u8,
    not_begun = const NOT_BEGUN,
    interrupt = sym RCOE_INTERRUPT,
);

/// What of its frame a program goes on with.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Its result is new; what functions preserve was not changed.
    Result = 0,
    /// All registers are loaded from it.
    AllRegisters = 1,
    /// All but those that a system call changes. Another thread may go on.
    Registers = 2,
}

impl Leave {
    /// All registers, or all but those that a system call changes.
    pub(crate) const fn with(all_registers: bool) -> Self {
        if all_registers {
            Self::AllRegisters
        } else {
            Self::Registers
        }
    }
}

/// Where a frame has its registers other than the extended state, and the general ones of these.
const CPU: usize = core::mem::offset_of!(TrapFrame, cpu);
const REGISTERS: usize = CPU + core::mem::offset_of!(Cpu, regs);

/// A flag without meaning for a program, which nothing but `popf` changes. It ends at a call, so
/// that one replica in which it was flipped does not differ for good.
const NESTED_TASK: u32 = 1 << 14;
/// The flag with which accesses to what is not aligned fault.
const ALIGNMENT_CHECK: u32 = 1 << 18;
/// The flag with which strings go backwards.
const BACKWARDS: u32 = 1 << 10;

/// Non-zero while an asynchronous signal waits for the program: blocking calls then return EINTR.
#[unsafe(link_section = ".bss.own.2")]
pub(crate) static RCOE_INTERRUPT: core::sync::atomic::AtomicU32 =
    core::sync::atomic::AtomicU32::new(0);

/// Address of the system call entry, for stubs and the SIGSYS handler.
pub(crate) fn entry_address() -> u64 {
    rcoe_entry as *const () as u64
}

/// Address of the signal return of the agent's handlers.
pub(crate) fn restorer_address() -> u64 {
    rcoe_restorer as *const () as u64
}

/// The agent's text: the only place system calls are not dispatched from.
pub(crate) fn text_range() -> core::ops::Range<u64> {
    (&raw const __executable_start) as u64..(&raw const etext) as u64
}

/// Resumes the program with these registers; the agent's stack is empty afterwards.
pub(crate) fn enter_program(frame: &TrapFrame) -> ! {
    // SAFETY: the frame is complete and aligned; nothing on the current stack is needed again.
    unsafe { rcoe_enter_program(frame) }
}

/// Is this where the program's registers are all loaded but those that the processor takes from the
/// stack as it returns: instruction pointer, segments, flags, stack pointer?
pub(crate) fn is_return(rip: u64) -> bool {
    rip == rcoe_return as *const () as u64
}

/// What runs under a guard, with four words in registers.
pub(crate) type GuardedBody = extern "C" fn(u64, u64, u64, u64) -> i64;

/// Runs `body`; if it touches memory of the program that is not there, returns `-EFAULT`.
///
/// The body is cut short where it faulted, so it must not own anything that needs dropping.
pub(crate) fn guarded<F: FnMut() -> i64>(mut body: F) -> i64 {
    extern "C" fn call<F: FnMut() -> i64>(context: u64, _: u64, _: u64, _: u64) -> i64 {
        // SAFETY: `context` is the closure handed in just below, alive for the whole call.
        let body = unsafe { &mut *(context as *mut F) };
        body()
    }
    guarded_with([(&raw mut body) as u64, 0, 0, 0], call::<F>)
}

/// The same with these words, which need no memory on the way.
#[inline]
pub(crate) fn guarded_with([a, b, c, d]: [u64; 4], body: GuardedBody) -> i64 {
    // SAFETY: on a fault the stack is cut back to the frame of this call; per the contract of
    // `guarded` nothing in between owns a resource.
    unsafe { rcoe_guarded_call(a, b, c, d, body) }
}

/// If a guarded call is active, the stack pointer and instruction to resume it at.
pub(crate) fn guard_landing() -> Option<(u64, u64)> {
    // SAFETY: a replica is one kernel thread; the word is only written by the assembly above.
    let stack = unsafe { RCOE_GUARD_STACK };
    (stack != 0).then_some((stack, rcoe_guard_fault as *const () as u64))
}

/// A system call that an asynchronous signal interrupts without a race: if the signal arrives
/// before the `syscall` instruction, its handler moves on to the exit with [`NOT_BEGUN`].
///
/// It may last, and meanwhile what this replica holds in registers lies in the kernel. One that is
/// another afterwards is a fault of the agent (an invalid instruction).
///
/// # Safety
/// As for any raw system call: the arguments must be right for it.
pub(crate) unsafe fn interruptible_call(nr: u64, args: &[u64; 6]) -> i64 {
    // SAFETY: forwarded from the caller.
    unsafe { rcoe_kept_call(nr, args.as_ptr()) }
}

/// The same without a look at the registers, for a replica whose faults nobody would mask.
///
/// # Safety
/// As for any raw system call: the arguments must be right for it.
pub(crate) unsafe fn unkept_call(nr: u64, args: &[u64; 6]) -> i64 {
    // SAFETY: forwarded from the caller.
    unsafe { rcoe_interruptible_call(nr, args.as_ptr()) }
}

/// Did a call with this result end, with nothing done, because this replica was called away?
#[inline]
pub(crate) const fn is_away(result: i64) -> bool {
    result == NOT_BEGUN || result == sys::error(EINTR)
}

/// Where an interrupted instruction pointer must go on: see [`interruptible_call`].
pub(crate) fn interrupted_landing(rip: u64) -> Option<u64> {
    let start = rcoe_call_window_start as *const () as u64;
    let end = rcoe_call_window_end as *const () as u64;
    // At `end` the call has been made; before it, it has not.
    (rip >= start && rip < end).then_some(rcoe_call_interrupted as *const () as u64)
}

/// Does `work`, after which vector registers are as they were before, whatever it does to them.
#[inline]
pub(crate) fn without_vectors<T>(work: impl FnOnce() -> T) -> T {
    #[repr(align(16))]
    struct Kept(MaybeUninit<[[u64; 2]; 16]>);
    let mut kept = Kept(MaybeUninit::uninit());
    // SAFETY: room for all of them, aligned; they are loaded as they were kept.
    unsafe { rcoe_keep_vectors(kept.0.as_mut_ptr()) };
    let done = work();
    // SAFETY: as above.
    unsafe { rcoe_load_vectors(kept.0.as_ptr()) };
    done
}

/// Saves the program's whole extended state into `area` (XSAVE format, 64-byte aligned).
///
/// # Safety
/// `area` must be writable, aligned, and as large as the CPU says for the enabled features, with
/// the header zeroed.
pub(crate) unsafe fn save_extended(area: *mut u8) {
    // SAFETY: forwarded from the caller.
    unsafe { rcoe_save_extended(area) }
}

/// Loads the program's whole extended state from `area`.
///
/// # Safety
/// `area` must hold a valid XSAVE image; a malformed one faults. No code that was compiled for
/// vector registers expects anything in them.
pub(crate) unsafe fn load_extended(area: *const u8) {
    // SAFETY: forwarded from the caller.
    unsafe { rcoe_load_extended(area) }
}

/// Puts the whole extended state into the state in which a program starts.
pub(crate) fn reset_extended() {
    #[repr(C, align(64))]
    struct Area([u32; 256]);
    const CONTROL_WORD: u32 = 0x37f;
    const MXCSR: u32 = 0x1f80;
    let mut area = Area([0; 256]);
    area.0[0] = CONTROL_WORD;
    area.0[6] = MXCSR;
    // SAFETY: an aligned image whose header says that every component is in its initial state.
    unsafe { load_extended(area.0.as_ptr().cast()) };
}
