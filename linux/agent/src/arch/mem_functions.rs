//! `memcpy` and its kin, which the compiler calls and a freestanding image must bring itself.
//!
//! `rep movsb` and `rep stosb` are fast on every CPU with ERMS; short lengths take two overlapping
//! moves, because starting the microcode costs more than it saves. No loop here may look like a
//! copy or fill to the compiler, or it would become a call of itself.

use core::arch::asm;

/// Below this length a loop beats `rep movsb`.
const SHORT: usize = 128;

/// # Safety
/// As C's `memcpy`.
#[cfg_attr(feature = "blob", unsafe(no_mangle))]
unsafe extern "C" fn memcpy(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller's contract is that of the copy.
    unsafe { copy_forward(dest, src, n) };
    dest
}

/// Copies upwards.
///
/// # Safety
/// Both ranges must be valid; they may overlap only if `dest` is below `src`.
#[inline]
pub(crate) unsafe fn copy_forward(dest: *mut u8, src: *const u8, n: usize) {
    // SAFETY: per the contract; each pair covers `n` bytes because `n` lies between its size and
    // twice its size. Both halves are read before either is written.
    unsafe {
        match n {
            0 => {}
            1 => dest.write(src.read()),
            2..=4 => copy_ends::<u16>(dest, src, n),
            5..=8 => copy_ends::<u32>(dest, src, n),
            9..=16 => copy_ends::<u64>(dest, src, n),
            17..=32 => copy_ends::<u128>(dest, src, n),
            33..=64 => copy_ends::<[u128; 2]>(dest, src, n),
            65..SHORT => copy_ends::<[u128; 4]>(dest, src, n),
            _ => asm!("rep movsb", inout("rcx") n => _, inout("rdi") dest => _,
                inout("rsi") src => _, options(nostack, preserves_flags)),
        }
    }
}

/// Copies the first and the last `size_of::<T>()` bytes of `n`.
///
/// # Safety
/// `n >= size_of::<T>()`, and both ranges must be valid.
#[inline(always)]
unsafe fn copy_ends<T: Copy>(dest: *mut u8, src: *const u8, n: usize) {
    let last = n - size_of::<T>();
    // SAFETY: per the contract.
    unsafe {
        let first = src.cast::<T>().read_unaligned();
        let end = src.add(last).cast::<T>().read_unaligned();
        dest.cast::<T>().write_unaligned(first);
        dest.add(last).cast::<T>().write_unaligned(end);
    }
}

/// # Safety
/// As C's `memmove`.
#[cfg_attr(feature = "blob", unsafe(no_mangle))]
unsafe extern "C" fn memmove(dest: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if (dest as usize).wrapping_sub(src as usize) >= n {
        // SAFETY: no byte of the source is overwritten before it is read.
        unsafe { copy_forward(dest, src, n) };
        return dest;
    }
    let mut i = n;
    while i > 0 {
        i -= 1;
        // SAFETY: `i < n`; downwards, because the destination overlaps from above.
        unsafe { dest.add(i).write_volatile(src.add(i).read_volatile()) };
    }
    dest
}

/// # Safety
/// As C's `memset`.
#[cfg_attr(feature = "blob", unsafe(no_mangle))]
unsafe extern "C" fn memset(dest: *mut u8, byte: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller's contract.
    unsafe { fill(dest, byte.to_le_bytes()[0], n) };
    dest
}

/// Fills with a byte.
///
/// # Safety
/// The range must be valid.
#[inline]
unsafe fn fill(dest: *mut u8, byte: u8, n: usize) {
    let word = u64::from(byte) * 0x0101_0101_0101_0101;
    let double = u128::from(word) << 64 | u128::from(word);
    // SAFETY: per the contract; each pair covers `n` bytes because `n` lies between its size and
    // twice its size. `al` holds the byte.
    unsafe {
        match n {
            0 => {}
            1 => dest.write(byte),
            2..=3 => fill_ends(dest, u16::from_le_bytes([byte; 2]), n),
            4..=7 => fill_ends(dest, u32::from_le_bytes([byte; 4]), n),
            8..=15 => fill_ends(dest, word, n),
            16..=31 => fill_ends(dest, double, n),
            32..64 => fill_ends(dest, [double; 2], n),
            64..SHORT => fill_ends(dest, [double; 4], n),
            _ => asm!("rep stosb", inout("rcx") n => _, inout("rdi") dest => _, in("al") byte,
                options(nostack, preserves_flags)),
        }
    }
}

/// Writes a value to the first and the last `size_of::<T>()` bytes of `n`.
///
/// # Safety
/// `n >= size_of::<T>()`, and the range must be valid.
#[inline(always)]
unsafe fn fill_ends<T: Copy>(dest: *mut u8, value: T, n: usize) {
    // SAFETY: per the contract.
    unsafe {
        dest.cast::<T>().write_unaligned(value);
        dest.add(n - size_of::<T>())
            .cast::<T>()
            .write_unaligned(value);
    }
}

/// # Safety
/// As C's `memcmp`.
#[cfg_attr(feature = "blob", unsafe(no_mangle))]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: the caller's contract is that of the comparison.
    unsafe { compare(a, b, n) }
}

/// Compares as C's `memcmp`, eight bytes at a time while they are the same.
///
/// # Safety
/// Both ranges must be readable.
#[inline]
unsafe fn compare(a: *const u8, b: *const u8, n: usize) -> i32 {
    const WORD: usize = size_of::<Unaligned>();
    let mut i = 0;
    while i + WORD <= n {
        // SAFETY: the word ends at `n` at the latest, and has no alignment.
        let (x, y) = unsafe {
            let (a, b) = (a.add(i).cast::<Unaligned>(), b.add(i).cast::<Unaligned>());
            (a.read_volatile(), b.read_volatile())
        };
        if x.0 != y.0 {
            break;
        }
        i += WORD;
    }
    while i < n {
        // SAFETY: `i < n`.
        let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        i += 1;
    }
    0
}

/// A word anywhere.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned(u64);

/// # Safety
/// As C's `bcmp`.
#[cfg_attr(feature = "blob", unsafe(no_mangle))]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: same contract.
    unsafe { compare(a, b, n) }
}

/// # Safety
/// As C's `strlen`.
#[cfg_attr(feature = "blob", unsafe(no_mangle))]
unsafe extern "C" fn strlen(s: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: the string is terminated.
    while unsafe { s.add(n).read_volatile() } != 0 {
        n += 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use crate::arch::mem_functions::{compare, copy_forward, fill};

    #[test]
    fn every_length_is_copied_and_nothing_else() {
        let source: Vec<u8> = (0..=255).collect();
        for len in 0..=200 {
            let mut target = [0xee_u8; 256];
            // SAFETY: both are longer than `len`.
            unsafe { copy_forward(target.as_mut_ptr().add(8), source.as_ptr(), len) };
            assert_eq!(target[8..8 + len], source[..len], "length {len}");
            assert!(
                target[..8]
                    .iter()
                    .chain(&target[8 + len..])
                    .all(|byte| *byte == 0xee)
            );
        }
    }

    #[test]
    fn every_length_is_filled_and_nothing_else() {
        for len in 0..=200 {
            let mut target = [0xee_u8; 256];
            // SAFETY: it is longer than `len` and what comes before.
            unsafe { fill(target.as_mut_ptr().add(8), 0xa5, len) };
            let (before, rest) = target.split_at(8);
            let (filled, after) = rest.split_at(len);
            assert!(filled.iter().all(|byte| *byte == 0xa5), "length {len}");
            assert!(
                before.iter().chain(after).all(|byte| *byte == 0xee),
                "length {len}"
            );
        }
    }

    #[test]
    fn the_first_difference_decides() {
        let one: Vec<u8> = (0..100).collect();
        let is_less = |a: &[u8], b: &[u8], len| {
            // SAFETY: both are at least as long.
            unsafe { compare(a.as_ptr(), b.as_ptr(), len) }
        };
        for len in 0..one.len() {
            assert_eq!(is_less(&one, &one.clone(), len), 0);
            for at in 0..len {
                let mut other = one.clone();
                other[at] = 0xff;
                other[at + 1..].fill(0);
                assert!(is_less(&one, &other, len) < 0, "{at} of {len}");
                assert!(is_less(&other, &one, len) > 0, "{at} of {len}");
                assert_eq!(is_less(&one, &other, at), 0, "{at}");
            }
        }
    }
}
