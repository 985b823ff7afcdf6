//! Short work on the program's memory that ends where it meets a bad pointer.
//!
//! Intuition: work of any kind runs under a guard ([`guarded`](crate::arch::entry::guarded)), which
//! keeps all registers that a function may not change, since a fault cuts it short anywhere. For
//! sixty bytes that is as much as the work. The functions here are leaves, written by hand: they
//! change nothing but registers that callers expect to be changed, and do not touch the stack. So
//! whoever finds a fault within them goes on at an instruction that says so and returns.

use core::arch::global_asm;

/// What a leaf has found.
#[repr(C)]
struct Found {
    value: u64,
    /// 0, or not if it has met a bad pointer.
    faulted: u64,
}

unsafe extern "C" {
    fn rcoe_leaf_start();
    fn rcoe_leaf_fault();
    fn rcoe_leaf_digest(from: u64, len: u64) -> Found;
}

global_asm!(
    r#"
    .pushsection .text.rcoe_leaf, "ax", @progbits
    .globl rcoe_leaf_start
rcoe_leaf_start:

    // Each lane takes every other word; the last row may meet the one before it.
    .macro lane state, word
    xor \state, qword ptr [\word]
    imul \state, r8
    rol \state, 32
    .endm
    .macro row at
    lane rax, \at
    lane rdx, \at + 8
    lane rax, \at + 16
    lane rdx, \at + 24
    .endm
    .globl rcoe_leaf_digest
    .type rcoe_leaf_digest, @function
rcoe_leaf_digest:
    mov rax, rsi
    movabs r8, 0xbf58476d1ce4e5b9
    mov rdx, r8
    lea rcx, [rdi + rsi - 32]
2:  row rdi
    add rdi, 32
    cmp rdi, rcx
    jb 2b
    row rcx
    imul rax, r8
    rol rax, 32
    xor rax, rdx
    imul rax, r8
    rol rax, 32
    xor edx, edx
    ret
    .size rcoe_leaf_digest, . - rcoe_leaf_digest

    .globl rcoe_leaf_fault
    .type rcoe_leaf_fault, @function
rcoe_leaf_fault:
    mov edx, 1
    ret
    .popsection
    "#
);

/// Where a fault at this instruction goes on, if it is one of a leaf's.
pub(crate) fn landing(rip: u64) -> Option<u64> {
    let end = rcoe_leaf_fault as *const () as u64;
    (rcoe_leaf_start as *const () as u64..end)
        .contains(&rip)
        .then_some(end)
}

/// Lengths that [`digest_of`] is for. The work for longer ones grows faster than that of others.
pub(crate) const DIGESTED: core::ops::RangeInclusive<u64> = 32..=256;

/// Digest of so many bytes of the program, one of [`DIGESTED`]; none if they cannot be read. Each
/// bit of them is in it: it is one to one in each word.
#[inline]
pub(crate) fn digest_of(from: u64, len: u64) -> Option<u64> {
    // SAFETY: it only reads, within the range as the length is none of the shorter ones; a bad
    // pointer faults, which leads to the other result.
    let Found { value, faulted } = unsafe { rcoe_leaf_digest(from, len) };
    (faulted == 0).then_some(value)
}
