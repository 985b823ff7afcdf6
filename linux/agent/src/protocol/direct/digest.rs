//! A digest of what was read, and a copy on the way.
//!
//! One round of AES for sixteen bytes, in lanes side by side: bytes are looked at about as fast as
//! they can be read. Every bit of a lane counts in all that follows, and equal lengths with a
//! difference in one bit never have equal states. It is no protection against somebody who looks
//! for two that are alike.

use core::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_set_epi64x,
    _mm_storeu_si128, _mm_unpackhi_epi64,
};

use crate::arch::entry::guarded_with;
use crate::arch::mem_functions::copy_forward;
use crate::convert::size;
use crate::memory::guest::Fault;

const LANES: usize = 8;
const LANE: usize = size_of::<__m128i>();
const ROW: usize = LANES * LANE;

/// Which digest.
#[derive(Clone, Copy)]
pub(super) struct Digest {
    helped: bool,
}

impl Digest {
    /// `helped`: the processor has instructions for AES.
    pub(super) const fn new(helped: bool) -> Self {
        Self { helped }
    }

    /// Of bytes of the program.
    pub(super) fn of(self, from: u64, len: usize) -> Result<u64, Fault> {
        self.of_copy(from, len, 0)
    }

    /// Of the same, and copies them to memory of the caller's, unless that is 0.
    pub(super) fn of_copy(self, from: u64, len: usize, to: u64) -> Result<u64, Fault> {
        let mut digest = 0_u64;
        let words = [from, len as u64, to, (&raw mut digest) as u64];
        let body = if self.helped { helped } else { plain };
        if guarded_with(words, body) == 0 {
            Ok(digest)
        } else {
            Err(Fault)
        }
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

extern "C" fn helped(from: u64, len: u64, to: u64, digest: u64) -> i64 {
    let len = size(len);
    // SAFETY: as above; the caller has asked for the instructions.
    unsafe {
        *(digest as *mut u64) = if to == 0 {
            by_aes::<false>(from as *const u8, len, core::ptr::null_mut())
        } else {
            by_aes::<true>(from as *const u8, len, to as *mut u8)
        };
    }
    0
}

/// # Safety
/// The processor has AES; `from` holds `len` bytes, and `to` has room for them if they are copied.
#[target_feature(enable = "aes")]
unsafe fn by_aes<const COPY: bool>(from: *const u8, len: usize, to: *mut u8) -> u64 {
    let mut lanes = [_mm_set_epi64x(0x2d35_8dcc_aa6c_78a5, 0x4b33_a62e_d433_d4a3); LANES];
    for (lane, number) in lanes.iter_mut().zip(1..) {
        *lane = _mm_aesenc_si128(*lane, _mm_set_epi64x(number, number));
    }
    let rows = len / ROW;
    for row in 0..rows {
        for (lane, state) in lanes.iter_mut().enumerate() {
            let at = row * ROW + lane * LANE;
            // SAFETY: whole rows lie within both, by the contract.
            let word = unsafe { _mm_loadu_si128(from.add(at).cast()) };
            if COPY {
                // SAFETY: as above.
                unsafe { _mm_storeu_si128(to.add(at).cast(), word) };
            }
            *state = _mm_aesenc_si128(*state, word);
        }
    }
    let done = rows * ROW;
    let mut rest = [0_u8; ROW];
    // SAFETY: less than a row is left.
    unsafe {
        copy_forward(rest.as_mut_ptr(), from.add(done), len - done);
        if COPY {
            copy_forward(to.add(done), rest.as_ptr(), len - done);
        }
    }
    let mut all = _mm_set_epi64x(0, len.cast_signed() as i64);
    for (lane, state) in lanes.into_iter().enumerate() {
        // SAFETY: a lane of the row.
        let word = unsafe { _mm_loadu_si128(rest.as_ptr().add(lane * LANE).cast()) };
        all = _mm_aesenc_si128(all, _mm_aesenc_si128(state, word));
    }
    for _ in 0..3 {
        all = _mm_aesenc_si128(all, all);
    }
    let halves = [
        _mm_cvtsi128_si64(all),
        _mm_cvtsi128_si64(_mm_unpackhi_epi64(all, all)),
    ];
    (halves[0] ^ halves[1].rotate_left(32)).cast_unsigned()
}

#[cfg(test)]
mod tests {
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
                assert_eq!(found, Ok(digest(helped, &bytes)));
                assert_eq!(copy[..len], bytes);
                assert_eq!(copy[len], 0xff, "no more than that");
            }
        }
    }
}
