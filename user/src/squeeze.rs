//! Compression for the pipeline: repeats become references (LZ77, greedy, without entropy coding).
//!
//! A packed text is a sequence of tokens. A byte below 128 is followed by that many literal bytes
//! and one more. Any other byte is a reference: its low seven bits are the length less
//! [`SHORTEST`], two bytes of distance follow, low byte first. Texts are at most 64 KiB long.

/// Shortest repeat that is worth a reference.
const SHORTEST: usize = 4;
/// Longest repeat of one reference, and longest run of literals.
const LONGEST: usize = 127 + SHORTEST;
const RUN: usize = 128;
/// Places remembered, by a digest of what stands there.
const REMEMBERED: usize = 1024;

/// Bytes that a text of `len` bytes needs at most.
#[must_use]
pub const fn bound(len: usize) -> usize {
    len + len.div_ceil(RUN)
}

/// A digest of bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, &byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A digest of digests.
#[must_use]
pub const fn chain(digest: u64, next: u64) -> u64 {
    (digest.rotate_left(13) ^ next).wrapping_mul(0x0100_0000_01b3)
}

/// What is written, with a place for each byte or none at all.
struct Sink<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Sink<'_> {
    fn push(&mut self, byte: u8) -> Option<()> {
        *self.bytes.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }

    fn literals(&mut self, text: &[u8]) -> Option<()> {
        for run in text.chunks(RUN) {
            self.push(u8::try_from(run.len() - 1).ok()?)?;
            for &byte in run {
                self.push(byte)?;
            }
        }
        Some(())
    }
}

fn place_of(four: &[u8]) -> usize {
    let word = four
        .iter()
        .fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
    (word.wrapping_mul(0x9e37_79b1) >> 22) as usize
}

/// How many bytes from `at` on are those from `from` on.
fn common(text: &[u8], from: usize, at: usize) -> usize {
    let pairs = text[from..].iter().zip(&text[at..]).take(LONGEST);
    pairs.take_while(|(a, b)| a == b).count()
}

/// Packs a text; the length, or `None` if `out` is too short ([`bound`]) or the text too long.
#[must_use]
pub fn pack(text: &[u8], out: &mut [u8]) -> Option<usize> {
    if text.len() > usize::from(u16::MAX) {
        return None;
    }
    let mut seen = [0_u16; REMEMBERED];
    let mut sink = Sink { bytes: out, len: 0 };
    let (mut at, mut kept) = (0, 0);
    while at + SHORTEST <= text.len() {
        let place = place_of(&text[at..at + SHORTEST]);
        // One more than the place, so that 0 is none.
        let from = usize::from(core::mem::replace(
            &mut seen[place],
            u16::try_from(at + 1).ok()?,
        ));
        let len = from.checked_sub(1).map_or(0, |from| common(text, from, at));
        if len < SHORTEST {
            at += 1;
            continue;
        }
        sink.literals(&text[kept..at])?;
        let [low, high] = u16::try_from(at + 1 - from).ok()?.to_le_bytes();
        sink.push(0x80 | u8::try_from(len - SHORTEST).ok()?)?;
        sink.push(low)?;
        sink.push(high)?;
        at += len;
        kept = at;
    }
    sink.literals(&text[kept..])?;
    Some(sink.len)
}

/// Unpacks; the length, or `None` if that is no packed text or `out` is too short for it.
#[must_use]
pub fn unpack(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut sink = Sink { bytes: out, len: 0 };
    let mut rest = packed;
    while let Some((&token, tail)) = rest.split_first() {
        if token < 0x80 {
            let len = usize::from(token) + 1;
            for &byte in tail.get(..len)? {
                sink.push(byte)?;
            }
            rest = &tail[len..];
            continue;
        }
        let &[low, high] = tail.first_chunk()?;
        let distance = usize::from(u16::from_le_bytes([low, high]));
        if distance == 0 {
            return None;
        }
        for _ in 0..usize::from(token & 0x7f) + SHORTEST {
            let byte = sink.bytes[sink.len.checked_sub(distance)?];
            sink.push(byte)?;
        }
        rest = &tail[2..];
    }
    Some(sink.len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn texts() -> Vec<Vec<u8>> {
        let mut seed = 7_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        let mut texts = vec![
            vec![],
            vec![1],
            b"abcabcabcabcabcabc".to_vec(),
            vec![0; 5000],
        ];
        for alphabet in [2, 5, 256] {
            for len in [3, 4, 100, 129, 2048, 4000] {
                texts.push(
                    (0..len)
                        .map(|_| next() % alphabet)
                        .map(|n| u8::try_from(n).unwrap())
                        .collect(),
                );
            }
        }
        texts
    }

    #[test]
    fn what_was_packed_is_unpacked_within_the_bound() {
        for text in texts() {
            let mut packed = vec![0; bound(text.len())];
            let len = pack(&text, &mut packed).expect("within the bound");
            let mut out = vec![0; text.len()];
            assert_eq!(unpack(&packed[..len], &mut out), Some(text.len()));
            assert_eq!(out, text);
        }
    }

    #[test]
    fn repeats_take_less_room() {
        let mut packed = [0; 256];
        assert!(pack(&[b'x'; 1000], &mut packed).is_some_and(|len| len < 40));
    }

    #[test]
    fn a_damaged_text_is_refused_or_another_one_but_never_out_of_bounds() {
        for text in texts() {
            let mut packed = vec![0; bound(text.len())];
            let len = pack(&text, &mut packed).expect("within the bound");
            let mut out = vec![0; text.len()];
            for at in 0..len.min(64) {
                let mut damaged = packed[..len].to_vec();
                damaged[at] ^= 0x81;
                let got = unpack(&damaged, &mut out);
                assert!(got.is_none_or(|len| len <= out.len()));
            }
        }
        assert_eq!(
            unpack(&[0x80, 1, 0], &mut [0; 8]),
            None,
            "before the beginning"
        );
        assert_eq!(unpack(&[5, 1], &mut [0; 8]), None, "literals are missing");
    }
}
