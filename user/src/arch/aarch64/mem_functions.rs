//! `memcpy` and its kin, which the compiler calls and a freestanding program must bring itself.
//!
//! Instructions throughout: a loop could look like a copy to the compiler and become a call of
//! itself.

use core::arch::asm;

/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: eight bytes at a time, then one: as many as the caller says, upwards.
    unsafe {
        asm!(
            "2:", "cmp {n}, #8", "b.lo 3f",
            "ldr {word}, [{src}], #8", "str {word}, [{dest}], #8", "sub {n}, {n}, #8", "b 2b",
            "3:", "cbz {n}, 4f",
            "ldrb {word:w}, [{src}], #1", "strb {word:w}, [{dest}], #1", "sub {n}, {n}, #1",
            "b 3b", "4:",
            n = inout(reg) n => _, dest = inout(reg) dest => _, src = inout(reg) src => _,
            word = out(reg) _, options(nostack),
        );
    }
    dest
}

/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if n == 0 || (dest as usize).wrapping_sub(src as usize) >= n {
        // SAFETY: no byte of the source is overwritten before it is read.
        return unsafe { memcpy(dest, src, n) };
    }
    // SAFETY: downwards from the last byte, because the destination overlaps from above.
    unsafe {
        asm!(
            "2:", "sub {n}, {n}, #1", "ldrb {byte:w}, [{src}, {n}]",
            "strb {byte:w}, [{dest}, {n}]", "cbnz {n}, 2b",
            n = inout(reg) n => _, dest = in(reg) dest, src = in(reg) src, byte = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    dest
}

/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(dest: *mut u8, value: i32, n: usize) -> *mut u8 {
    let [byte, ..] = value.to_le_bytes();
    let word = u64::from(byte) * 0x0101_0101_0101_0101;
    // SAFETY: eight bytes at a time, then one: as many as the caller says.
    unsafe {
        asm!(
            "2:", "cmp {n}, #8", "b.lo 3f",
            "str {word}, [{dest}], #8", "sub {n}, {n}, #8", "b 2b",
            "3:", "cbz {n}, 4f",
            "strb {word:w}, [{dest}], #1", "sub {n}, {n}, #1", "b 3b", "4:",
            n = inout(reg) n => _, dest = inout(reg) dest => _, word = in(reg) word,
            options(nostack),
        );
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
