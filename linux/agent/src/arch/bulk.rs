//! Work on many bytes by vector registers, which hold afterwards what they held before.
//!
//! The agent's image is compiled without them (see [`crate::arch::entry`]), so these loops are
//! written by hand. For few bytes what the compiler makes is as good, and saves no registers.

use core::arch::global_asm;

use rcoe_core::{Checksum, SUM_LANES};

use crate::arch::entry::{guarded_with, without_vectors};

unsafe extern "C" {
    fn rcoe_bulk_difference(a: u64, b: u64, len: u64) -> u64;
    fn rcoe_bulk_sums(from: *const u64, rows: u64, sums: *mut [[u64; SUM_LANES]; 2]);
    fn rcoe_bulk_candidates(from: u64, to: u64, patterns: *const u64, count: u64) -> u64;
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

    // The first of blocks of 64 bytes, from rdi to rsi, in which, or right after which, a pair of
    // bytes is one of the rcx patterns at rdx, each of them four times in its word; rsi if none is.
    // Reads one byte more than the blocks have.
    .globl rcoe_bulk_candidates
    .type rcoe_bulk_candidates, @function
rcoe_bulk_candidates:
    mov rax, rdi
2:  cmp rax, rsi
    jae 5f
    .irp n, 0,1,2,3
    movdqu xmm\n, xmmword ptr [rax + 16*\n]
    movdqu xmm1\n, xmmword ptr [rax + 16*\n + 1]
    .endr
    pxor xmm4, xmm4
    mov r8, rcx
3:  movq xmm5, qword ptr [rdx + 8*r8 - 8]
    punpcklqdq xmm5, xmm5
    .irp n, 0,1,2,3,10,11,12,13
    movdqa xmm6, xmm5
    pcmpeqw xmm6, xmm\n
    por xmm4, xmm6
    .endr
    dec r8
    jnz 3b
    pmovmskb r8d, xmm4
    test r8d, r8d
    jnz 5f
    add rax, 64
    jmp 2b
5:  ret
    .size rcoe_bulk_candidates, . - rcoe_bulk_candidates
    .popsection
    "#
);

/// Bytes that [`differ`] and [`candidates`] look at together.
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

/// The first of blocks of [`ROW`] bytes, from `from` on, in which one of these pairs of bytes
/// begins; the first byte after them if there is none. The blocks, and one byte more, lie before
/// `end`. Nothing if some of that cannot be read.
pub(crate) fn candidates(from: u64, end: u64, pairs: &[u16]) -> Option<u64> {
    const MOST: usize = 8;
    extern "C" fn body(from: u64, to: u64, patterns: u64, count: u64) -> i64 {
        // SAFETY: it only reads; a hole in the program's code faults, which the guard catches. The
        // patterns are the caller's. Vector registers are kept meanwhile.
        unsafe { rcoe_bulk_candidates(from, to, patterns as *const u64, count) }.cast_signed()
    }
    let mut patterns = [0; MOST];
    for (pattern, pair) in patterns.iter_mut().zip(pairs) {
        *pattern = u64::from(*pair) * 0x0001_0001_0001_0001;
    }
    assert!((1..=MOST).contains(&pairs.len()));
    let to = from + end.saturating_sub(from + 1) / ROW * ROW;
    let words = [from, to, patterns.as_ptr() as u64, pairs.len() as u64];
    let found = without_vectors(|| guarded_with(words, body));
    u64::try_from(found).ok()
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
    fn a_pair_is_found_in_its_block() {
        let pairs = [0x050f, 0xa20f, 0x00ff_u16];
        for at in 0..=4 * 64 {
            for pair in pairs {
                let mut bytes = vec![0x90_u8; 4 * 64 + 2];
                bytes[at..at + 2].copy_from_slice(&pair.to_le_bytes());
                let from = bytes.as_ptr() as u64;
                for end in [0, 64, 65, 4 * 64, 4 * 64 + 1] {
                    let found = candidates(from, from + end, &pairs).expect("memory of ours");
                    let block = (at as u64 / 64 * 64).min(end.saturating_sub(1) / 64 * 64);
                    assert_eq!(found - from, block, "{pair:#x} at {at} of {end}");
                }
                assert_eq!(candidates(from, from + 257, &[0xffff]), Some(from + 256));
            }
        }
    }
}
