//! `memcpy` and its kin, which the compiler calls and a freestanding program must bring itself.
//!
//! String instructions throughout: a loop could look like a copy to the compiler and become a call
//! of itself. Words first and then the bytes that are left: an emulator takes a step for each.

use core::arch::asm;

/// Bytes of a word.
const WORD: usize = 8;

/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's contract is that of the instructions; the direction flag is clear.
    unsafe {
        asm!("rep movsq", "mov ecx, {rest:e}", "rep movsb", rest = in(reg) n % WORD,
            inout("rcx") n / WORD => _, inout("rdi") dest => _, inout("rsi") src => _,
            options(nostack, preserves_flags));
    }
    dest
}

/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if n == 0 || (dest as usize).wrapping_sub(src as usize) >= n {
        // SAFETY: no byte of the source is overwritten before it is read: a word is read whole, and
        // is written before where the next one is read.
        return unsafe { memcpy(dest, src, n) };
    }
    // SAFETY: downwards from the last byte, because the destination overlaps from above; the flag
    // is clear again before anything else runs.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") n => _,
            inout("rdi") dest.wrapping_add(n - 1) => _,
            inout("rsi") src.wrapping_add(n - 1) => _, options(nostack));
    }
    dest
}

/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(dest: *mut u8, value: i32, n: usize) -> *mut u8 {
    let [byte, ..] = value.to_le_bytes();
    let word = u64::from_ne_bytes([byte; WORD]);
    // SAFETY: the caller's contract is that of the instructions; the direction flag is clear.
    unsafe {
        asm!("rep stosq", "mov ecx, {rest:e}", "rep stosb", rest = in(reg) n % WORD,
            inout("rcx") n / WORD => _, inout("rdi") dest => _, in("rax") word,
            options(nostack, preserves_flags));
    }
    dest
}

/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(first: *const u8, second: *const u8, n: usize) -> i32 {
    for at in 0..n {
        // SAFETY: both ranges hold `n` bytes.
        let (a, b) = unsafe {
            (
                first.add(at).read_volatile(),
                second.add(at).read_volatile(),
            )
        };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// # Safety
/// As C's `bcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(first: *const u8, second: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's.
    unsafe { memcmp(first, second, n) }
}
