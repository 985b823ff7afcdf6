//! Instructions of AArch64, which are words.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::{BRANCH, FAR, Found, NO_CODE, REGISTER};
use crate::Arch;

/// What counts: all ones into `d30`, and less that in `d31`.
const COUNT: [u32; 2] = [0x2f07_e7fe, 0x7efe_87ff];

/// What stands against it that this code is counted.
pub(super) fn find(start: u64, code: &[u8]) -> Option<Found> {
    let words = code.chunks_exact(4);
    if !words.remainder().is_empty() {
        return Some((start, NO_CODE));
    }
    let words: Vec<u32> = words
        .map(|word| u32::from_le_bytes(word.try_into().expect("of four bytes")))
        .collect();
    (0..words.len()).find_map(|at| {
        let what = look(&words, at)?;
        Some((start + 4 * at as u64, what))
    })
}

fn look(words: &[u32], at: usize) -> Option<&'static str> {
    let counted = |at: usize| at >= 2 && words[at - 2..at] == COUNT;
    let word = words[at];
    if is_branch(word) {
        return (!counted(at)).then_some(BRANCH);
    }
    if leaves(word) {
        return Some(FAR);
    }
    if !uses_vectors(word) {
        return None;
    }
    // Either half of a count alone would be one that is wrong.
    let first = words[at..].starts_with(&COUNT);
    if first || at > 0 && words[at - 1..].starts_with(&COUNT) {
        return None;
    }
    let bytes = word.to_le_bytes();
    match InstDecoder::default().decode(&mut U8Reader::new(&bytes)) {
        Ok(it) => Arch::Aarch64
            .takes_register(&it.to_string())
            .then_some(REGISTER),
        Err(_) => Some(NO_CODE),
    }
}

/// Is it a branch, a call or a return?
const fn is_branch(word: u32) -> bool {
    let immediate = word & 0x7c00_0000 == 0x1400_0000;
    let conditional = word >> 24 == 0x54;
    let of_register = matches!(word & 0x7e00_0000, 0x3400_0000 | 0x3600_0000);
    immediate || conditional || of_register || word >> 25 == 0x6b && !leaves(word)
}

/// Does it leave this level by itself: `eret` and its kin?
const fn leaves(word: u32) -> bool {
    word >> 25 == 0x6b && matches!(word >> 21 & 0xf, 4 | 5)
}

/// Is it one of floating point and vectors, or one that loads or stores their registers?
const fn uses_vectors(word: u32) -> bool {
    let computes = word >> 25 & 7 == 7;
    let moves = word >> 25 & 5 == 4 && word >> 26 & 1 == 1;
    computes || moves
}
