//! Was this replica off its CPU? And a call that is begun anew if it is.
//!
//! Intuition: between the vote on an effect and the call lie a few hundred instructions, which no
//! flip meets in practice, unless the host takes the CPU away there: then registers and memory lie
//! about for milliseconds. The kernel's *restartable sequences* tell of that. A thread registers a
//! small structure, and may leave the address of a descriptor in it. The kernel takes that address
//! away whenever the thread comes back to user mode after it was preempted, moved or interrupted by
//! a signal, and if it was in the range of instructions that the descriptor names, it goes on at an
//! address beside it.
//!
//! * [`watch`] leaves the address, before what goes out is digested. That it is still there says
//!   that nobody has used this CPU since.
//! * [`call`] is that range. It begins with the look at the address and ends with `syscall`; number
//!   and arguments are loaded within it, each compared with a second copy. So between the look and
//!   the entry into the kernel there is no instruction at which a loss of the CPU goes unnoticed,
//!   and no register that was saved meanwhile is used.
//!
//! A signal, too, leads out of the range, so a call that a signal shall interrupt needs no other
//! care than to look for one within the range.
//!
//! One structure serves a replica for good: it is registered before the first clone, and a process
//! that is forked keeps the registration, at the same address. Programs are refused theirs
//! (`rseq` in the table of calls). The kernel writes to it at any time, so it is one's own memory.
//!
//! Contract: only for calls that the kernel does not continue by `restart_syscall`. A call that it
//! would make again from the start comes back as [`DISTURBED`], and has done nothing.
//!
//! Not covered: a kernel of 6.19 or later does not tell of a loss of the CPU within a system call.
//! Whoever makes one that may take long calls [`disturb`], or [`after_calls`].

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use rcoe_linux_abi::RSEQ_SIGNATURE;

use crate::arch::entry::NOT_BEGUN;
use crate::one_thread::OneThread;
use crate::sys;

/// A call's number and arguments.
pub(crate) type Words = [u64; 7];

/// Words of a call with few arguments: the kernel reads no others, and no more are compared.
pub(crate) const SHORT: usize = 4;

/// Has a call of so many arguments few?
#[inline(always)]
pub(crate) const fn is_short(arguments: u8) -> bool {
    (arguments as usize) < SHORT
}

/// Result of [`call`]: nothing was done, and since [`watch`] the CPU was lost, or a signal came.
/// Less than any result of a call, and short enough to stand in an instruction.
pub(crate) const DISTURBED: i64 = i32::MIN as i64;
/// Result of [`call`]: nothing was done, since the two copies differ.
pub(crate) const ALTERED: i64 = DISTURBED + 1;

/// What came of a call, and the same once more: copied by the instruction behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Twice {
    /// The kernel's word.
    pub(crate) result: i64,
    /// Its copy.
    pub(crate) copy: i64,
}

/// The kernel's `struct rseq`.
#[repr(C, align(32))]
pub(crate) struct Area {
    cpu: [u32; 2],
    /// Address of a descriptor, or 0.
    section: AtomicU64,
    rest: [u32; 4],
}

const _: () = assert!(size_of::<Area>() == 32 && core::mem::offset_of!(Area, section) == 8);

/// Beside this thread the kernel writes its fields, of which only the atomic one is used.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".bss.own.1")]
static RCOE_RSEQ: OneThread<Area> = OneThread::new(Area {
    cpu: [0; 2],
    section: AtomicU64::new(0),
    rest: [0; 4],
});

/// Address of the descriptor, or 0 where the kernel does not look at it.
static WATCHED: AtomicU64 = AtomicU64::new(0);
/// Not 0 where the kernel does not tell of a loss of the CPU within its calls.
static BLIND_IN_CALLS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static RCOE_SECTION: [u64; 4];
    fn rcoe_section_is_watched() -> bool;
    /// Not by the rules of C: see [`call`].
    fn rcoe_section_call();
    /// The same of a call with few arguments.
    fn rcoe_section_call_short();
}

core::arch::global_asm!(
    r#"
    .pushsection .text.rcoe_section, "ax", @progbits
    .globl rcoe_section_call
    .type rcoe_section_call, @function
rcoe_section_call:
    lea r8, [rip + RCOE_SECTION]
10: cmp qword ptr [rip + RCOE_RSEQ + 8], r8
    jne 14f
    mov r10, qword ptr [r11 + 32]
    mov r8, qword ptr [r11 + 40]
    mov r9, qword ptr [r11 + 48]
    cmp r10, qword ptr [rcx + 32]
    jne 13f
    cmp r8, qword ptr [rcx + 40]
    jne 13f
    cmp r9, qword ptr [rcx + 48]
    jne 13f
    jmp 15f
    // Also within the range, which one descriptor names.
    .globl rcoe_section_call_short
    .type rcoe_section_call_short, @function
rcoe_section_call_short:
    lea r8, [rip + RCOE_SECTION]
    cmp qword ptr [rip + RCOE_RSEQ + 8], r8
    jne 14f
15: cmp dword ptr [rdx], 0
    jne 12f
    mov rax, qword ptr [r11]
    mov rdi, qword ptr [r11 + 8]
    mov rsi, qword ptr [r11 + 16]
    mov rdx, qword ptr [r11 + 24]
    cmp rax, qword ptr [rcx]
    jne 13f
    cmp rdi, qword ptr [rcx + 8]
    jne 13f
    cmp rsi, qword ptr [rcx + 16]
    jne 13f
    cmp rdx, qword ptr [rcx + 24]
    jne 13f
    syscall
11: mov rdx, rax
    ret
12: mov rax, {interrupted}
    mov rdx, rax
    ret
13: mov rax, {altered}
    mov rdx, rax
    ret
    // An instruction that traps, whose last four bytes are the signature.
    .byte 0x0f, 0xb9, 0x3d
    .long {signature}
14: mov rax, {disturbed}
    mov rdx, rax
    ret

    .globl rcoe_section_is_watched
    .type rcoe_section_is_watched, @function
rcoe_section_is_watched:
    lea r8, [rip + RCOE_SECTION]
    cmp qword ptr [rip + RCOE_RSEQ + 8], r8
    sete al
    ret
    .popsection

    // Version and flags, start, length, where an interrupted range goes on.
    .pushsection .data.rel.ro.rcoe_section, "aw", @progbits
    .globl RCOE_SECTION
    .hidden RCOE_SECTION
    .balign 32
RCOE_SECTION:
    .long 0, 0
    .quad 10b
    .quad 11b - 10b
    .quad 14b
    .popsection
    "#,
    interrupted = const NOT_BEGUN,
    altered = const ALTERED,
    disturbed = const DISTURBED,
    signature = const RSEQ_SIGNATURE,
);

fn section() -> &'static AtomicU64 {
    // SAFETY: valid for good, and atomic.
    unsafe { &(*RCOE_RSEQ.get()).section }
}

/// Registers the structure, for this process and all that it forks. Where the kernel refuses, the
/// CPU counts as lost at every look.
pub(crate) fn register() {
    if sys::register_rseq(RCOE_RSEQ.get() as u64, size_of::<Area>(), RSEQ_SIGNATURE) {
        WATCHED.store((&raw const RCOE_SECTION) as u64, Ordering::Relaxed);
        let blind = sys::credentials::release() >= (6, 19);
        BLIND_IN_CALLS.store(blind.into(), Ordering::Relaxed);
    }
}

/// How often it is worth trying [`call`] again after a disturbance.
pub(crate) fn attempts() -> u32 {
    const ATTEMPTS: u32 = 3;
    if WATCHED.load(Ordering::Relaxed) == 0 {
        0
    } else {
        ATTEMPTS
    }
}

/// From here on a loss of the CPU is to be noticed.
#[inline(always)]
pub(crate) fn watch() {
    let watched = WATCHED.load(Ordering::Relaxed);
    // SAFETY: the structure's second word, valid for good; an aligned word is stored at once.
    unsafe {
        asm!("mov qword ptr [rip + {area} + 8], {}", in(reg) watched, area = sym RCOE_RSEQ);
    }
}

/// Was the CPU lost since [`watch`], as far as the kernel tells? Always, where it does not.
pub(crate) fn is_disturbed() -> bool {
    // SAFETY: reads the structure.
    unsafe { !rcoe_section_is_watched() }
}

/// The CPU was lost.
#[inline]
pub(crate) fn disturb() {
    section().store(0, Ordering::Relaxed);
}

/// The host was called; that may have cost the CPU without a word.
#[inline]
pub(crate) fn after_calls() {
    if BLIND_IN_CALLS.load(Ordering::Relaxed) != 0 {
        disturb();
    }
}

/// Makes the call `sent`, which has so many arguments, if it is the same as `agreed`, and nothing
/// has disturbed this replica since [`watch`]; else [`ALTERED`] or [`DISTURBED`]. While `stop` is
/// not 0 it is [`NOT_BEGUN`] instead.
///
/// # Safety
/// As for any raw system call: the arguments must be right for it.
#[inline(always)]
pub(crate) unsafe fn call(
    arguments: u8,
    sent: &Words,
    agreed: &Words,
    stop: &core::sync::atomic::AtomicU32,
) -> Twice {
    let (result, copy): (i64, i64);
    // SAFETY: forwarded from the caller; the rest is read only. It changes no other registers than
    // these.
    unsafe {
        macro_rules! enter {
            ($way:ident) => {
                asm!(
                    "call {way}",
                    way = sym $way,
                    inout("r11") sent => _,
                    inout("rcx") agreed => _,
                    inout("rdx") stop.as_ptr() => copy,
                    out("rax") result,
                    out("rdi") _, out("rsi") _, out("r8") _, out("r9") _, out("r10") _,
                )
            };
        }
        if is_short(arguments) {
            enter!(rcoe_section_call_short);
        } else {
            enter!(rcoe_section_call);
        }
    }
    Twice { result, copy }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody watches here, so nothing is made.
    #[test]
    fn what_came_of_a_call_comes_out_twice() {
        const EXIT: u64 = 231;
        let words = [EXIT, 1, 0, 0, 0, 0, 0];
        for arguments in [1, 6] {
            let stop = core::sync::atomic::AtomicU32::new(0);
            // SAFETY: it is not made.
            let came = unsafe { call(arguments, &words, &words, &stop) };
            assert_eq!((came.result, came.copy), (DISTURBED, DISTURBED));
        }
    }
}
