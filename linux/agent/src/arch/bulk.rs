//! Work on many bytes by vector registers, which hold afterwards what they held before.
//!
//! The agent's image is compiled without them (see [`crate::arch::entry`]), so these loops are
//! written by hand. For few bytes what the compiler makes is as good, and saves no registers.

use core::arch::global_asm;

use rcoe_core::{Checksum, SUM_LANES};

use crate::arch::cpuid;
use crate::arch::entry::{guarded_with, without_vectors};
use crate::convert::low32;

unsafe extern "C" {
    fn rcoe_bulk_difference(a: u64, b: u64, len: u64) -> u64;
    fn rcoe_bulk_sums(from: *const u64, rows: u64, sums: *mut [[u64; SUM_LANES]; 2]);
    fn rcoe_bulk_marks(from: u64, marks: *mut u64, blocks: u64, values: *const Values) -> i64;
    fn rcoe_bulk_pairs(from: u64, marks: *mut u64, blocks: u64, values: *const Pairs) -> i64;
    fn rcoe_bulk_leads(from: u64, blocks: u64, place: u32, bits: u32) -> u64;
}

global_asm!(
    r#"
    .pushsection .text.rcoe_bulk, "ax", @progbits

    // All bits in which rows of 64 bytes differ: rdi and rsi are where they are, rdx is how many
    // bytes they are.
    .globl rcoe_bulk_difference
    .type rcoe_bulk_difference, @function
rcoe_bulk_difference:
    .irp n, 0,1,2,3
    pxor xmm\n, xmm\n
    .endr
2:  .irp n, 0,1,2,3
    movdqu xmm4, xmmword ptr [rdi + 16*\n]
    movdqu xmm5, xmmword ptr [rsi + 16*\n]
    pxor xmm4, xmm5
    por xmm\n, xmm4
    .endr
    add rdi, 64
    add rsi, 64
    sub rdx, 64
    jnz 2b
    por xmm0, xmm1
    por xmm2, xmm3
    por xmm0, xmm2
    movq rax, xmm0
    punpckhqdq xmm0, xmm0
    movq rcx, xmm0
    or rax, rcx
    ret
    .size rcoe_bulk_difference, . - rcoe_bulk_difference

    // The two sums of each lane, which begin as 0: rdi is where the words are, rsi is how many rows
    // they are, rdx is where the sums go.
    .macro sum_words at, first, second
    movdqu xmm8, xmmword ptr [rdi + \at]
    paddq xmm\first, xmm8
    paddq xmm\second, xmm\first
    .endm
    .globl rcoe_bulk_sums
    .type rcoe_bulk_sums, @function
rcoe_bulk_sums:
    .irp n, 0,1,2,3,4,5,6,7
    pxor xmm\n, xmm\n
    .endr
2:  sum_words 0, 0, 4
    sum_words 16, 1, 5
    sum_words 32, 2, 6
    sum_words 48, 3, 7
    add rdi, 64
    dec rsi
    jnz 2b
    .irp n, 0,1,2,3,4,5,6,7
    movdqu xmmword ptr [rdx + 16*\n], xmm\n
    .endr
    ret
    .size rcoe_bulk_sums, . - rcoe_bulk_sums

    // Marks bytes that have one of a few values, and behind which another one stands, if that is
    // asked for: rdi is where they are, in rdx blocks of 64, rsi is where a word of bits for each
    // block goes. At rcx is how many values the first and the second may have, and behind that
    // each of them sixteen times.
    .macro mark row, marks
    movdqa xmm6, xmm5
    pcmpeqb xmm6, xmm\row
    por xmm\marks, xmm6
    .endm
    .macro bits marks, shift
    pmovmskb r8d, xmm\marks
    shl r8, \shift
    or rax, r8
    .endm
    .globl rcoe_bulk_marks
    .type rcoe_bulk_marks, @function
rcoe_bulk_marks:
2:  .irp n, 0,1,2,3
    movdqu xmm\n, xmmword ptr [rdi + 16*\n]
    .endr
    .irp n, 8,9,10,11
    pxor xmm\n, xmm\n
    .endr
    mov r8, qword ptr [rcx]
    lea r9, [rcx + 16]
3:  movdqu xmm5, xmmword ptr [r9]
    mark 0, 8
    mark 1, 9
    mark 2, 10
    mark 3, 11
    add r9, 16
    dec r8
    jnz 3b
    mov r8, qword ptr [rcx + 8]
    test r8, r8
    jz 5f
    .irp n, 0,1,2,3
    movdqu xmm\n, xmmword ptr [rdi + 16*\n + 1]
    .endr
    .irp n, 12,13,14,15
    pxor xmm\n, xmm\n
    .endr
4:  movdqu xmm5, xmmword ptr [r9]
    mark 0, 12
    mark 1, 13
    mark 2, 14
    mark 3, 15
    add r9, 16
    dec r8
    jnz 4b
    pand xmm8, xmm12
    pand xmm9, xmm13
    pand xmm10, xmm14
    pand xmm11, xmm15
5:  pmovmskb eax, xmm8
    bits 9, 16
    bits 10, 32
    bits 11, 48
    mov qword ptr [rsi], rax
    add rdi, 64
    add rsi, 8
    dec rdx
    jnz 2b
    xor eax, eax
    ret
    .size rcoe_bulk_marks, . - rcoe_bulk_marks

    // The same for one first value, whatever the number of second ones: at rcx is how the second
    // ones are told by the lower and by the upper half of a byte, then the lower half of each byte,
    // and the first value, sixteen bytes of each.
    .macro pair row
    movdqu xmm\row, xmmword ptr [rdi + 16*\row]
    movdqu xmm4, xmmword ptr [rdi + 16*\row + 1]
    pcmpeqb xmm\row, xmm11
    movdqa xmm5, xmm4
    psrlw xmm5, 4
    pand xmm4, xmm10
    pand xmm5, xmm10
    movdqa xmm6, xmm8
    pshufb xmm6, xmm4
    movdqa xmm7, xmm9
    pshufb xmm7, xmm5
    pand xmm6, xmm7
    pcmpeqb xmm6, xmm12
    pandn xmm6, xmm\row
    .endm
    .globl rcoe_bulk_pairs
    .type rcoe_bulk_pairs, @function
rcoe_bulk_pairs:
    .irp n, 8,9,10,11
    movdqu xmm\n, xmmword ptr [rcx + 16*\n - 128]
    .endr
    pxor xmm12, xmm12
2:  pair 0
    pmovmskb eax, xmm6
    pair 1
    bits 6, 16
    pair 2
    bits 6, 32
    pair 3
    bits 6, 48
    mov qword ptr [rsi], rax
    add rdi, 64
    add rsi, 8
    dec rdx
    jnz 2b
    xor eax, eax
    ret
    .size rcoe_bulk_pairs, . - rcoe_bulk_pairs

    // The first of rsi blocks of 64 bytes, from rdi on, in which four bytes anywhere would lead, as
    // the displacement of a branch that ends with them, into a window; rsi if there is none. The
    // window has a power of two of bytes, ecx is which; edx is where a displacement of 0 at rdi
    // leads to, from the window's start on.
    .globl rcoe_bulk_leads
    .type rcoe_bulk_leads, @function
rcoe_bulk_leads:
    movd xmm8, ecx
    movd xmm7, edx
    pshufd xmm7, xmm7, 0
    // 0, 4, 8 and 12.
    mov rax, 0x400000000
    movq xmm9, rax
    mov rax, 0xc00000008
    movq xmm10, rax
    punpcklqdq xmm9, xmm10
    paddd xmm7, xmm9
    mov eax, 16
    movd xmm9, eax
    pshufd xmm9, xmm9, 0
    pcmpeqd xmm10, xmm10
    pxor xmm11, xmm11
    xor eax, eax
2:  cmp rax, rsi
    jae 5f
    pxor xmm6, xmm6
    .irp row, 0,1,2,3
    movdqa xmm5, xmm7
    .irp phase, 0,1,2,3
    movdqu xmm\phase, xmmword ptr [rdi + 16*\row + \phase]
    paddd xmm\phase, xmm5
    psrld xmm\phase, xmm8
    pcmpeqd xmm\phase, xmm11
    por xmm6, xmm\phase
    psubd xmm5, xmm10
    .endr
    paddd xmm7, xmm9
    .endr
    pmovmskb ecx, xmm6
    test ecx, ecx
    jnz 5f
    add rdi, 64
    inc rax
    jmp 2b
5:  ret
    .size rcoe_bulk_leads, . - rcoe_bulk_leads
    .popsection
    "#
);

/// Bytes that [`differ`] and [`mark`] look at together.
pub(crate) const ROW: u64 = 64;

/// Do so many bytes, a multiple of [`ROW`] and not none, differ between these places? They also do
/// if some of them cannot be read.
pub(crate) fn differ(a: u64, b: u64, len: u64) -> bool {
    extern "C" fn body(a: u64, b: u64, len: u64, _: u64) -> i64 {
        // SAFETY: it only reads, as much as the caller says; a bad pointer to the program faults,
        // which the guard catches. Vector registers are kept meanwhile.
        i64::from(unsafe { rcoe_bulk_difference(a, b, len) } != 0)
    }
    assert!(len != 0 && len.is_multiple_of(ROW));
    without_vectors(|| guarded_with([a, b, len, 0], body)) != 0
}

/// The checksum of `before` and of these words, in their order.
pub(crate) fn add_all(before: Checksum, words: &[u64]) -> Checksum {
    /// Below this all the registers cost more than they save.
    const FEW: usize = 16 * SUM_LANES;
    if words.len() < FEW {
        return before.add_all(words);
    }
    let (rows, rest) = words.as_chunks::<SUM_LANES>();
    let mut sums = [[0; SUM_LANES]; 2];
    // SAFETY: rows of the slice, more than none, and room for the sums.
    without_vectors(|| unsafe {
        rcoe_bulk_sums(words.as_ptr(), rows.len() as u64, &raw mut sums);
    });
    let rows = before.add_lanes(rows.len(), sums);
    rest.iter().fold(rows, |sum, &word| sum.add(word))
}

/// Blocks of which it is worth while to ask at a time: a page of them.
pub(crate) const BLOCKS: usize = 64;

/// Most values that [`mark`] looks for, of both kinds.
const MOST: usize = 6;

/// Values that are looked for, each in all bytes of a row: the first ones, and behind them those
/// that the byte behind may have.
#[repr(C)]
struct Values {
    counts: [u64; 2],
    rows: [[u8; 16]; MOST],
}

impl Values {
    /// # Panics
    ///
    /// If there are no first ones, or too many.
    fn new(first: &[u8], second: &[u8]) -> Self {
        assert!(!first.is_empty() && first.len() + second.len() <= MOST);
        let mut rows = [[0; 16]; MOST];
        for (row, value) in rows.iter_mut().zip(first.iter().chain(second)) {
            *row = [*value; 16];
        }
        Self {
            counts: [first.len() as u64, second.len() as u64],
            rows,
        }
    }
}

/// One first value, and the second ones told by a bit for each: a byte is one of them if a bit is
/// set for both of its halves.
#[repr(C)]
struct Pairs {
    lower: [u8; 16],
    upper: [u8; 16],
    half: [u8; 16],
    first: [u8; 16],
}

impl Pairs {
    fn new(first: u8, second: &[u8]) -> Self {
        const HALF: u8 = 0xf;
        let (mut lower, mut upper) = ([0; 16], [0; 16]);
        for (number, value) in second.iter().enumerate() {
            lower[usize::from(value & HALF)] |= 1 << number;
            upper[usize::from(value >> 4)] |= 1 << number;
        }
        Self {
            lower,
            upper,
            half: [HALF; 16],
            first: [first; 16],
        }
    }
}

/// Can the processor look up bytes in a register? What it was asked for is asked by all replicas.
fn looks_up() -> bool {
    const SSSE3: u32 = 1 << 9;
    cpuid::answer(1, 0)[2] & SSSE3 != 0
}

/// Marks in blocks of [`ROW`] bytes, from `from` on, those that have one of the first values and
/// that one of the second values follows, if there are any: a bit each, a word for each block. With
/// second values one byte more is read than the blocks have. False, and no mark is of use, if some
/// of that cannot be read.
///
/// # Panics
///
/// If there are no first values, or more than six of both.
pub(crate) fn mark(from: u64, first: &[u8], second: &[u8], marks: &mut [u64]) -> bool {
    match *first {
        [first] if !second.is_empty() && !marks.is_empty() && looks_up() => {
            mark_pairs(from, first, second, marks)
        }
        _ => mark_each(from, first, second, marks),
    }
}

/// The same, for a processor that can look up bytes.
fn mark_pairs(from: u64, first: u8, second: &[u8], marks: &mut [u64]) -> bool {
    extern "C" fn body(from: u64, marks: u64, blocks: u64, values: u64) -> i64 {
        // SAFETY: as in `mark_each`.
        unsafe { rcoe_bulk_pairs(from, marks as *mut u64, blocks, values as *const Pairs) }
    }
    assert!(second.len() < MOST);
    let values = Pairs::new(first, second);
    let words = [
        from,
        marks.as_mut_ptr() as u64,
        marks.len() as u64,
        (&raw const values) as u64,
    ];
    without_vectors(|| guarded_with(words, body)) == 0
}

/// The same, for any processor.
fn mark_each(from: u64, first: &[u8], second: &[u8], marks: &mut [u64]) -> bool {
    extern "C" fn body(from: u64, marks: u64, blocks: u64, values: u64) -> i64 {
        // SAFETY: of the program it only reads, where a hole faults, which the guard catches. The
        // marks and the values are the caller's. Vector registers are kept meanwhile.
        unsafe { rcoe_bulk_marks(from, marks as *mut u64, blocks, values as *const Values) }
    }
    let values = Values::new(first, second);
    if marks.is_empty() {
        return true;
    }
    let words = [
        from,
        marks.as_mut_ptr() as u64,
        marks.len() as u64,
        (&raw const values) as u64,
    ];
    without_vectors(|| guarded_with(words, body)) == 0
}

/// The number of the first of so many blocks of [`ROW`] bytes, from `from` on, in which four bytes
/// anywhere would lead, as the displacement of a branch that ends with them, to one of `1 << bits`
/// bytes from `target` on; that of blocks if there is none. Three bytes more are read than the
/// blocks have. Nothing if some of that cannot be read.
pub(crate) fn leads(from: u64, blocks: u64, target: u64, bits: u32) -> Option<u64> {
    extern "C" fn body(from: u64, blocks: u64, place: u64, bits: u64) -> i64 {
        // SAFETY: it only reads, as much as the caller says; a hole in the program's code faults,
        // which the guard catches. Vector registers are kept meanwhile.
        let found = unsafe { rcoe_bulk_leads(from, blocks, low32(place), low32(bits)) };
        found.cast_signed()
    }
    let place = from.wrapping_add(4).wrapping_sub(target);
    let found = without_vectors(|| guarded_with([from, blocks, place, bits.into()], body));
    u64::try_from(found).ok()
}

/// The numbers of the bits that are set, from the lowest on.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u64> {
    core::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that look like none in particular.
    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn every_bit_that_differs_is_seen() {
        for len in [64, 128, 320] {
            let ours = bytes(len + 1);
            // Not aligned alike.
            let mut theirs = ours[1..].to_vec();
            let differs = |theirs: &[u8]| {
                differ(
                    (&raw const ours[1]) as u64,
                    theirs.as_ptr() as u64,
                    len as u64,
                )
            };
            assert!(!differs(&theirs));
            for at in 0..8 * len {
                theirs[at / 8] ^= 1 << (at % 8);
                assert!(differs(&theirs), "bit {at} of {len} bytes");
                theirs[at / 8] ^= 1 << (at % 8);
            }
        }
    }

    #[test]
    fn sums_are_those_of_a_word_after_the_other() {
        let bytes = bytes(8 * 300);
        let (words, _) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|it| u64::from_le_bytes(*it)).collect();
        let before = Checksum::EMPTY.add(5);
        for len in 0..=words.len() {
            let words = &words[..len];
            let expected = words.iter().fold(before, |sum, &word| sum.add(word));
            assert_eq!(add_all(before, words), expected, "{len} words");
        }
    }

    #[test]
    fn each_byte_of_a_value_is_marked() {
        are_marked(mark_each);
        if std::is_x86_feature_detected!("ssse3") {
            are_marked(|from, first, second, marks| match *first {
                [first] if !(second.is_empty() || marks.is_empty()) => {
                    mark_pairs(from, first, second, marks)
                }
                _ => mark_each(from, first, second, marks),
            });
        }
    }

    #[test]
    fn each_byte_is_told_from_those_behind_which_a_value_stands() {
        let code: Vec<u8> = (0..=255).flat_map(|second| [0x0f, second]).collect();
        let seconds = [0xa2, 0xc7, 0x31, 0x01, 0xae];
        let mut marks = vec![7; 7];
        assert!(mark_pairs(code.as_ptr() as u64, 0x0f, &seconds, &mut marks));
        let found = marks.iter().zip((0..).step_by(64));
        let found = found.flat_map(|(mask, start)| bits(*mask).map(move |bit| start + bit));
        let found: Vec<u64> = found.collect();
        // A byte of the first value that follows itself is none.
        let mut expected: Vec<u64> = seconds.iter().map(|it| 2 * u64::from(*it)).collect();
        expected.retain(|at| *at < 448);
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    /// Tests what marks as [`mark`] does.
    fn are_marked(mark_with: impl Fn(u64, &[u8], &[u8], &mut [u64]) -> bool) {
        // Of few values, so that pairs are frequent.
        let bytes: Vec<u8> = bytes(5 * 64 + 2).iter().map(|it| it % 7).collect();
        let seconds = [&[][..], &[3], &[0, 5, 6]];
        for (skipped, second) in (0..2).zip(seconds.iter().cycle()).chain([(0, &seconds[2])]) {
            let code = &bytes[skipped..];
            for first in [&[2][..], &[2, 6], &[0, 1, 5]] {
                for blocks in 0..=5 {
                    let mut marks = vec![7; blocks];
                    assert!(mark_with(code.as_ptr() as u64, first, second, &mut marks));
                    for (at, pair) in code.windows(2).take(64 * blocks).enumerate() {
                        let marked = marks[at / 64] >> (at % 64) & 1 != 0;
                        let followed = second.is_empty() || second.contains(&pair[1]);
                        let expected = first.contains(&pair[0]) && followed;
                        assert_eq!(marked, expected, "{at} of {blocks} blocks");
                    }
                }
            }
        }
    }

    #[test]
    fn what_leads_into_a_window_is_found_in_its_block() {
        const BLOCKS: u64 = 4;
        for at in 0..64 * BLOCKS {
            for target in [-90_000_i32, 4000, i32::MAX - 300] {
                for (off, hits) in [(-1, false), (0, true), (7, true), (8, false)] {
                    let mut code = vec![0x33_u8; 64 * 4 + 3];
                    let from = code.as_ptr() as u64;
                    let window = from.wrapping_add_signed(target.into());
                    let distance = window.wrapping_add_signed(off).wrapping_sub(from + at + 4);
                    let place = usize::try_from(at).unwrap();
                    code[place..place + 4].copy_from_slice(&low32(distance).to_le_bytes());
                    let found = leads(from, BLOCKS, window, 3);
                    let expected = if hits { at / 64 } else { BLOCKS };
                    assert_eq!(found, Some(expected), "{off} of {target} at {at}");
                }
            }
        }
    }

    #[test]
    fn bits_are_told_from_the_lowest_on() {
        let told = |mask| bits(mask).collect::<Vec<_>>();
        assert_eq!(told(0), []);
        assert_eq!(told(1 << 63 | 1 << 5 | 1), [0, 5, 63]);
        assert_eq!(told(u64::MAX), (0..64).collect::<Vec<_>>());
    }
}
