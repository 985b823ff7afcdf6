//! The boot image: an archive of programs, each already laid out in pages.
//!
//! The first pages are the directory; every segment begins on a page and holds all its bytes,
//! zeroes included, so that whoever starts a program needs to know nothing of ELF. Readers check
//! every number: a damaged image yields `None`, never a page outside it.

use crate::object::PAGE;

/// First word of an image.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rcoeimg1");
/// Words of the header: magic, number of programs, pages of the whole.
pub const HEADER_WORDS: usize = 4;
/// Words of an entry of the directory.
pub const ENTRY_WORDS: usize = 30;
/// Words of a program's name.
pub const NAME_WORDS: usize = 4;
/// Most segments of a program.
pub const SEGMENTS: usize = 6;
/// Words of a segment: address, pages, rights, first page in the image.
pub const SEGMENT_WORDS: usize = 4;
/// Most programs of an image.
pub const MAX_PROGRAMS: usize = 64;

const _: () = assert!(ENTRY_WORDS >= NAME_WORDS + 1 + SEGMENTS * SEGMENT_WORDS);

/// A program's segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it is mapped.
    pub address: u64,
    /// How long it is.
    pub pages: u64,
    /// [`crate::Rights`] as a word.
    pub rights: u64,
    /// Its first page in the image.
    pub first: u64,
}

/// A program of the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its name, padded with zeroes.
    pub name: [u64; NAME_WORDS],
    /// Where it begins.
    pub entry: u64,
    /// Its segments; unused ones have no pages.
    pub segments: [Segment; SEGMENTS],
}

/// A name as it stands in the directory, or `None` if it is too long.
#[must_use]
pub fn name_words(name: &[u8]) -> Option<[u64; NAME_WORDS]> {
    if name.is_empty() || name.len() > NAME_WORDS * 8 {
        return None;
    }
    let mut words = [0; NAME_WORDS];
    for (index, &byte) in name.iter().enumerate() {
        words[index / 8] |= u64::from(byte) << (index % 8 * 8);
    }
    Some(words)
}

/// Where word `index` of the directory is to be had; a closure, because an image is memory to one
/// reader and kernel words to another.
pub trait Words {
    /// The word, or `None` beyond the end.
    fn word(&self, index: usize) -> Option<u64>;
}

impl Words for [u64] {
    fn word(&self, index: usize) -> Option<u64> {
        self.get(index).copied()
    }
}

/// Pages of an image, if it is one.
#[must_use]
pub fn pages(image: &(impl Words + ?Sized)) -> Option<u64> {
    (image.word(0)? == MAGIC).then_some(image.word(2)?)
}

/// Program `number` of an image.
#[must_use]
pub fn program(image: &(impl Words + ?Sized), number: usize) -> Option<Program> {
    let pages = pages(image)?;
    let count = image.word(1)?.min(MAX_PROGRAMS as u64);
    if number as u64 >= count {
        return None;
    }
    let base = HEADER_WORDS + number * ENTRY_WORDS;
    let mut name = [0; NAME_WORDS];
    for (index, word) in name.iter_mut().enumerate() {
        *word = image.word(base + index)?;
    }
    let mut segments = [Segment {
        address: 0,
        pages: 0,
        rights: 0,
        first: 0,
    }; SEGMENTS];
    for (index, segment) in segments.iter_mut().enumerate() {
        let at = base + NAME_WORDS + 1 + index * SEGMENT_WORDS;
        *segment = Segment {
            address: image.word(at)?,
            pages: image.word(at + 1)?,
            rights: image.word(at + 2)?,
            first: image.word(at + 3)?,
        };
        let inside = segment.first.checked_add(segment.pages)? <= pages;
        let mapped = segment.address.is_multiple_of(PAGE)
            && segment
                .address
                .checked_add(segment.pages.checked_mul(PAGE)?)?
                <= crate::layout::PROGRAM_END;
        if !inside || !mapped {
            return None;
        }
    }
    Some(Program {
        name,
        entry: image.word(base + NAME_WORDS)?,
        segments,
    })
}

/// The program of this name.
#[must_use]
pub fn find(image: &(impl Words + ?Sized), name: &[u64; NAME_WORDS]) -> Option<Program> {
    (0..MAX_PROGRAMS)
        .map_while(|number| program(image, number))
        .find(|program| program.name == *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn a_damaged_image_yields_nothing_outside_it() {
        let mut image = vec![0_u64; 512];
        image[..3].copy_from_slice(&[MAGIC, 1, 2]);
        let name = name_words(b"root").unwrap();
        image[4..8].copy_from_slice(&name);
        image[8] = 0x40_0000;
        image[9..13].copy_from_slice(&[0x40_0000, 1, 5, 1]);
        let found = find(image.as_slice(), &name).unwrap();
        assert_eq!(found.segments[0].pages, 1);
        for (at, value) in [
            (10, 2),
            (10, u64::MAX),
            (12, 2),
            (9, 1),
            (9, u64::MAX),
            (1, 0),
            (0, 1),
        ] {
            let mut damaged = image.clone();
            damaged[at] = value;
            assert_eq!(find(damaged.as_slice(), &name), None, "word {at} = {value}");
        }
        assert_eq!(program(&image[..20], 0), None);
    }

    #[test]
    fn names_have_a_limit() {
        assert!(name_words(&[b'x'; 32]).is_some());
        assert!(name_words(&[b'x'; 33]).is_none());
        assert!(name_words(b"").is_none());
    }
}
