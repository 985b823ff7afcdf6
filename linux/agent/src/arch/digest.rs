//! A digest of many bytes, and a copy on the way.
//!
//! One round of AES for sixteen bytes, in lanes side by side: bytes are looked at about as fast as
//! they can be read. Every bit of a lane counts in all that follows, and equal lengths with a
//! difference in one bit never have equal states. It is no protection against somebody who looks
//! for two that are alike.

use core::arch::global_asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::cpuid;
use crate::arch::entry::{GuardedBody, guarded_with, without_vectors};
use crate::arch::mem_functions::copy_forward;
use crate::convert::size;

const LANES: usize = 8;
const LANE: usize = 16;
const ROW: usize = LANES * LANE;

/// Asks the processor what [`Digest::fastest`] needs; in all replicas before the program asks it
/// anything, because what was asked is alike in all.
pub(crate) fn measure() {
    const AES: u32 = 1 << 25;
    let helped = cpuid::answer(1, 0)[2] & AES != 0;
    HELPED.store(helped, Ordering::Relaxed);
}

/// Has the processor instructions for AES? As was measured: to look an answer up takes as long as
/// the digest of a few hundred bytes.
static HELPED: AtomicBool = AtomicBool::new(false);

/// Which digest.
#[derive(Clone, Copy)]
pub(crate) struct Digest {
    helped: bool,
}

impl Digest {
    /// The one that this processor is faster with. The same in all replicas.
    pub(crate) fn fastest() -> Self {
        Self::new(HELPED.load(Ordering::Relaxed))
    }

    /// The one for so many bytes: of few the other one makes less ado.
    #[inline]
    pub(crate) fn fastest_for(len: u64) -> Self {
        const FEW: u64 = 32;
        if len < FEW {
            Self::new(false)
        } else {
            Self::fastest()
        }
    }

    /// Is it the one by AES?
    pub(crate) const fn is_helped(self) -> bool {
        self.helped
    }

    /// `helped`: the processor has instructions for AES.
    pub(crate) const fn new(helped: bool) -> Self {
        Self { helped }
    }

    /// Of bytes of the program; none if they cannot be read.
    pub(crate) fn of(self, from: u64, len: usize) -> Option<u64> {
        self.of_copy(from, len, 0)
    }

    /// Of the same, and copies them to other memory, of the caller's or the program's, unless that
    /// is 0. Either may be such that it cannot be touched: none then, and what is there is any.
    pub(crate) fn of_copy(self, from: u64, len: usize, to: u64) -> Option<u64> {
        let mut digest = 0_u64;
        let words = [from, len as u64, to, (&raw mut digest) as u64];
        let result = if self.helped {
            without_vectors(|| guarded_with(words, helped()))
        } else {
            guarded_with(words, plain)
        };
        (result == 0).then_some(digest)
    }
}

extern "C" fn plain(from: u64, len: u64, to: u64, digest: u64) -> i64 {
    let len = size(len);
    // SAFETY: bytes of the program, which nothing changes while this replica's only thread is here;
    // a bad pointer faults, which the guard catches. The rest is the caller's.
    unsafe {
        let bytes = core::slice::from_raw_parts(from as *const u8, len);
        *(digest as *mut u64) = xxhash_rust::xxh3::xxh3_64(bytes);
        if to != 0 {
            copy_forward(to as *mut u8, bytes.as_ptr(), len);
        }
    }
    0
}

unsafe extern "C" {
    /// The same with instructions for AES; it changes vector registers.
    fn rcoe_digest_by_aes(from: u64, len: u64, to: u64, digest: u64) -> i64;
}

/// That as what runs under a guard.
fn helped() -> GuardedBody {
    extern "C" fn body(from: u64, len: u64, to: u64, digest: u64) -> i64 {
        // SAFETY: as for `plain`; the caller has asked for the instructions, and keeps registers.
        unsafe { rcoe_digest_by_aes(from, len, to, digest) }
    }
    body
}

// The agent's image is compiled without vector registers, so this is written by hand. The lanes are
// xmm0 to xmm7.
global_asm!(
    r#"
    .pushsection .text.rcoe_digest, "ax", @progbits
    .macro digest_rows copies
    mov rcx, r9
    shr rcx, {row_shift}
    jz 3f
2:  .irp n, 0,1,2,3,4,5,6,7
    movdqu xmm9, xmmword ptr [rdi + 16*\n]
    .if \copies
    movdqu xmmword ptr [r10 + 16*\n], xmm9
    .endif
    aesenc xmm\n, xmm9
    .endr
    add rdi, {row}
    .if \copies
    add r10, {row}
    .endif
    dec rcx
    jnz 2b
3:
    .endm

    .globl rcoe_digest_by_aes
    .type rcoe_digest_by_aes, @function
rcoe_digest_by_aes:
    sub rsp, {row} + 8
    mov r9, rsi
    mov r10, rdx
    mov r8, rcx
    movabs rax, 0x4b33a62ed433d4a3
    movq xmm8, rax
    movabs rax, 0x2d358dccaa6c78a5
    movq xmm9, rax
    punpcklqdq xmm8, xmm9
    .irp n, 0,1,2,3,4,5,6,7
    mov eax, \n + 1
    movq xmm9, rax
    punpcklqdq xmm9, xmm9
    movdqa xmm\n, xmm8
    aesenc xmm\n, xmm9
    .endr
    test r10, r10
    jz 4f
    digest_rows 1
    jmp 5f
4:  digest_rows 0

    // What is left, filled with zeroes.
5:  pxor xmm9, xmm9
    .irp n, 0,1,2,3,4,5,6,7
    movdqu xmmword ptr [rsp + 16*\n], xmm9
    .endr
    mov rsi, rdi
    mov rdi, rsp
    mov rcx, r9
    and ecx, {row} - 1
    mov edx, ecx
    jz 6f
    rep movsb
    test r10, r10
    jz 6f
    mov rsi, rsp
    mov rdi, r10
    mov ecx, edx
    rep movsb
6:  movq xmm8, r9
    .irp n, 0,1,2,3,4,5,6,7
    movdqu xmm9, xmmword ptr [rsp + 16*\n]
    aesenc xmm\n, xmm9
    aesenc xmm8, xmm\n
    .endr
    .rept 3
    movdqa xmm9, xmm8
    aesenc xmm8, xmm9
    .endr
    movq rax, xmm8
    punpckhqdq xmm8, xmm8
    movq rcx, xmm8
    rol rcx, 32
    xor rax, rcx
    mov qword ptr [r8], rax
    xor eax, eax
    add rsp, {row} + 8
    ret
    .size rcoe_digest_by_aes, . - rcoe_digest_by_aes
    .popsection
    "#,
    row = const ROW,
    row_shift = const ROW.trailing_zeros(),
);

#[cfg(test)]
mod tests {
    use core::arch::x86_64::{
        _mm_aesenc_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi64,
    };

    use super::*;

    fn digest(helped: bool, bytes: &[u8]) -> u64 {
        let digest = Digest::new(helped).of(bytes.as_ptr() as u64, bytes.len());
        digest.expect("memory of ours")
    }

    #[test]
    fn a_bit_a_byte_more_and_another_order_make_another_digest() {
        for helped in [false, true] {
            for len in [1, 15, 16, 127, 128, 129, 4096, 4100] {
                let mut bytes: Vec<u8> = (0..len)
                    .map(|at| u8::try_from(at * 7 / 3 % 251).expect("small"))
                    .collect();
                let before = digest(helped, &bytes);
                for at in (0..len).step_by(len / 40 + 1) {
                    bytes[at] ^= 1 << (at % 8);
                    assert_ne!(digest(helped, &bytes), before, "byte {at} of {len}");
                    bytes[at] ^= 1 << (at % 8);
                }
                assert_eq!(digest(helped, &bytes), before);
                bytes.push(0);
                assert_ne!(digest(helped, &bytes), before, "longer than {len}");
            }
            let mut rows = [0_u8; 2 * ROW];
            rows[0] = 1;
            let before = digest(helped, &rows);
            rows.rotate_right(ROW);
            assert_ne!(digest(helped, &rows), before, "rows");
            rows.rotate_right(LANE);
            assert_ne!(digest(helped, &rows), before, "lanes");
        }
    }

    /// The same digest, as a compiler makes it.
    #[target_feature(enable = "aes")]
    fn reference(bytes: &[u8]) -> u64 {
        let start = _mm_set_epi64x(0x2d35_8dcc_aa6c_78a5, 0x4b33_a62e_d433_d4a3);
        let key = |number| _mm_set_epi64x(number, number);
        let mut lanes = [1, 2, 3, 4, 5, 6, 7, 8].map(|it| _mm_aesenc_si128(start, key(it)));
        let (words, rest) = bytes.as_chunks::<LANE>();
        let mut last = [0; LANE];
        last[..rest.len()].copy_from_slice(rest);
        let rows = bytes.len() / ROW + 1;
        for at in 0..rows * LANES {
            let word = words.get(at).copied();
            let word = word.unwrap_or(if at == words.len() { last } else { [0; LANE] });
            let (halves, _) = word.as_chunks();
            let [low, high] = [halves[0], halves[1]].map(i64::from_le_bytes);
            let word = _mm_set_epi64x(high, low);
            lanes[at % LANES] = _mm_aesenc_si128(lanes[at % LANES], word);
        }
        let mut all = _mm_set_epi64x(0, bytes.len().cast_signed() as i64);
        for lane in lanes {
            all = _mm_aesenc_si128(all, lane);
        }
        for _ in 0..3 {
            all = _mm_aesenc_si128(all, all);
        }
        let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(all, all));
        (_mm_cvtsi128_si64(all) ^ high.rotate_left(32)).cast_unsigned()
    }

    #[test]
    fn what_is_written_by_hand_is_what_a_compiler_makes() {
        let bytes: Vec<u8> = (0..=250).cycle().take(600).collect();
        for len in 0..bytes.len() {
            let bytes = &bytes[..len];
            // SAFETY: the other tests need these instructions, too.
            let expected = unsafe { reference(bytes) };
            assert_eq!(digest(true, bytes), expected, "{len} bytes");
        }
    }

    #[test]
    fn a_copy_has_the_digest_and_the_bytes() {
        for helped in [false, true] {
            for len in [0, 5, 128, 4099] {
                let bytes: Vec<u8> = (0..len)
                    .map(|at| u8::try_from(at % 253).expect("small"))
                    .collect();
                let mut copy = vec![0xff_u8; len + 1];
                let to = copy.as_mut_ptr() as u64;
                let found = Digest::new(helped).of_copy(bytes.as_ptr() as u64, len, to);
                assert_eq!(found, Some(digest(helped, &bytes)));
                assert_eq!(copy[..len], bytes);
                assert_eq!(copy[len], 0xff, "no more than that");
            }
        }
    }
}
