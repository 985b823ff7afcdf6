//! Work of a moment with a table of descriptors that nobody else has.
//!
//! All replicas of a process share one table, and which number comes next is the program's to see.
//! A replica that has to open a file of its own (below `/proc/self`) therefore does it in a second
//! thread that gets a copy of the table and ends at once; meanwhile the replica stands still.
//! The thread belongs to the same process, so `/proc/self` is the replica, and it dies with it. A
//! program that counts its threads is not to find it: the host lets the replica go on a moment
//! before it is gone.
//!
//! Contract: the work is a few system calls that cannot wait. The thread runs on the lower end of
//! the agent's stack, which nothing else reaches.
//!
//! Not covered: a host that allows no further thread; the work is then not done.

use core::arch::global_asm;

use linux_raw_sys::general as nr;

use crate::arch::entry;
use crate::sys::{self, Errno, check};

/// Looks at the thread until it is gone; it has only the rest of its end to make.
const LOOKS: u32 = 100_000;
/// Bytes of the agent's stack that the thread may use.
const ROOM: u64 = 64 * 1024;

unsafe extern "C" {
    fn rcoe_aside(body: extern "C" fn(*mut u8), context: *mut u8, flags: u64, stack: u64) -> i64;
}

global_asm!(
    r#"
    .pushsection .text.rcoe_aside, "ax", @progbits
    .globl rcoe_aside
    .type rcoe_aside, @function
rcoe_aside:
    push r12
    push r13
    mov r12, rdi
    mov r13, rsi
    mov rdi, rdx
    mov rsi, rcx
    xor edx, edx
    xor r10d, r10d
    xor r8d, r8d
    mov eax, {clone}
    syscall
    test rax, rax
    jz 2f
    pop r13
    pop r12
    ret
2:  xor ebp, ebp
    mov rdi, r13
    call r12
    xor edi, edi
    mov eax, {exit}
    syscall
    ud2
    .popsection
    "#,
    clone = const sys::CLONE,
    exit = const sys::EXIT,
);

/// Does `work` in such a thread; returns what it returns.
///
/// # Errors
/// The host allows no further thread.
pub(crate) fn with_own_descriptors<F: FnMut() -> i64>(mut work: F) -> Result<i64, Errno> {
    extern "C" fn run<F: FnMut() -> i64>(context: *mut u8) {
        // SAFETY: the pair handed in below, which outlives the thread.
        let (work, result) = unsafe { &mut *context.cast::<(&mut F, i64)>() };
        *result = work();
    }
    let flags = nr::CLONE_VM
        | nr::CLONE_FS
        | nr::CLONE_SIGHAND
        | nr::CLONE_THREAD
        | nr::CLONE_SYSVSEM
        | nr::CLONE_VFORK;
    let stack = entry::stack_range().0 + ROOM;
    let mut pair = (&mut work, 0_i64);
    // What is sent to the replica waits for the replica.
    let mask = sys::exchange_signal_mask(u64::MAX);
    // SAFETY: the thread runs on memory that nothing uses, and this one goes on when it has ended.
    let thread = unsafe { rcoe_aside(run::<F>, (&raw mut pair).cast(), u64::from(flags), stack) };
    if let Ok(thread) = u64::try_from(thread) {
        let is_there = |_: &u32| sys::has_thread(thread);
        (0..LOOKS)
            .take_while(is_there)
            .for_each(|_| sys::sched_yield());
    }
    sys::set_signal_mask(mask);
    check(thread).map(|_| pair.1)
}
