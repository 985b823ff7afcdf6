//! Linux as a guest: its image, as its build leaves it (arm64's `Image`), and its first files.
//!
//! The image lies at the beginning of memory; behind what it says that it needs come the
//! description of the board, then the files.
//!
//! Linux reads its time from the virtual counter, of which the processor tells nobody. So the
//! instructions that do become breakpoints by which the monitor reads the clock. Nothing else of
//! the image is changed.

use rcoe_abi::guest::{CLOCK, MEMORY};
use rcoe_abi::object::LARGE;

use super::tree;

/// Where the header has what: where it wants to lie, how much memory it needs, flags, and what
/// tells it for one.
const OFFSET: usize = 8;
const SIZE: usize = 16;
const FLAGS: usize = 24;
const MAGIC: usize = 56;

/// `mrs x0, cntvct_el0`, and `brk #0`.
const COUNTER: u64 = 0xd53b_e040;
const BREAKPOINT: u64 = 0xd420_0000;

/// Room for the description of the board.
const ROOM: u64 = 0x1_0000;

/// An image of Linux.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Linux {
    image: Vec<u8>,
    offset: u64,
    size: u64,
    /// Its first files, which may be none, and its command line.
    files: Vec<u8>,
    line: String,
}

/// Is it such an image, whatever else is in it?
pub(super) fn is_image(content: &[u8]) -> bool {
    content.get(MAGIC..MAGIC + 4) == Some(b"ARMd")
}

/// Has all instructions that read the virtual counter read the monitor's clock.
fn replace_counter(image: &mut [u8]) {
    for bytes in image.as_chunks_mut::<4>().0 {
        let instruction = u64::from(u32::from_le_bytes(*bytes));
        if instruction & !0x1f == COUNTER {
            let breakpoint = BREAKPOINT | (CLOCK | instruction & 0x1f) << 5;
            bytes.copy_from_slice(&breakpoint.to_le_bytes()[..4]);
        }
    }
}

impl Linux {
    /// An image that [`is_image`].
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(super) fn of(mut image: Vec<u8>, files: Vec<u8>, line: &str) -> Result<Self, String> {
        let word = |at: usize| image[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (offset, size, flags) = (word(OFFSET), word(SIZE), word(FLAGS));
        if flags & 1 != 0 {
            return Err("no guest: an image of Linux whose highest byte comes first".into());
        }
        if size < image.len() as u64 || offset >= LARGE || !offset.is_multiple_of(8) {
            return Err("no guest: an image of Linux that does not say what it needs".into());
        }
        replace_counter(&mut image);
        let linux = Self {
            image,
            offset,
            size,
            files,
            line: line.to_owned(),
        };
        let tree = tree::describe(0, line, Some((0, 0)));
        if tree.len() as u64 > ROOM {
            return Err("no guest: the command line of Linux is too long".into());
        }
        Ok(linux)
    }

    /// Where it begins.
    pub(super) const fn entry(&self) -> u64 {
        MEMORY + self.offset
    }

    /// Where the description of the board is.
    pub(super) const fn tree(&self) -> u64 {
        (self.entry() + self.size).next_multiple_of(LARGE)
    }

    /// Where its files are.
    fn files(&self) -> (u64, u64) {
        let start = self.tree() + ROOM;
        (start, start + self.files.len() as u64)
    }

    /// Where all of that ends.
    pub(super) fn end(&self) -> u64 {
        self.files().1
    }

    /// Pieces of memory, of so many bytes.
    pub(super) fn pieces(&self, memory: u64) -> Vec<(u64, Vec<u8>)> {
        let files = self.files();
        let is_there = !self.files.is_empty();
        let tree = tree::describe(memory, &self.line, is_there.then_some(files));
        [
            (self.entry(), self.image.clone()),
            (self.tree(), tree),
            (files.0, self.files.clone()),
        ]
        .into_iter()
        .map(|(address, mut bytes)| {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            (address, bytes)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(offset: u64, size: u64, flags: u64) -> Vec<u8> {
        let mut image = vec![7; 100];
        for (at, word) in [(OFFSET, offset), (SIZE, size), (FLAGS, flags)] {
            image[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        image[MAGIC..MAGIC + 4].copy_from_slice(b"ARMd");
        image
    }

    #[test]
    fn image_description_and_files_lie_behind_each_other() {
        assert!(is_image(&image(0, 100, 10)) && !is_image(b"MZ"));
        let linux = Linux::of(image(0x8_0000, 0x30_0000, 10), vec![1; 13], "quiet").unwrap();
        assert_eq!(linux.entry(), MEMORY + 0x8_0000);
        assert_eq!(linux.tree(), MEMORY + 0x40_0000);
        assert_eq!(linux.end(), MEMORY + 0x41_0000 + 13);
        let pieces = linux.pieces(64 << 20);
        let lens: Vec<usize> = pieces.iter().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!((lens[0], lens[2]), (104, 16));
        assert!(
            pieces
                .iter()
                .all(|(at, bytes)| (at | bytes.len() as u64).is_multiple_of(8))
        );
    }

    #[test]
    fn the_virtual_counter_becomes_the_clock() {
        let mut image = image(0, 100, 0);
        // Into x7; and the physical one, which the processor tells of.
        image[64..68].copy_from_slice(&u32::to_le_bytes(0xd53b_e047));
        image[68..72].copy_from_slice(&0xd53b_e027_u32.to_le_bytes());
        let right = Linux::of(image.clone(), Vec::new(), "").unwrap().image;
        // brk #0xc7a7
        image[64..68].copy_from_slice(&0xd438_f4e0_u32.to_le_bytes());
        assert_eq!(right, image);
    }

    #[test]
    fn what_cannot_be_started_is_refused() {
        for (offset, size, flags) in [(0, 100, 1), (0, 99, 0), (LARGE, 100, 0), (4, 100, 0)] {
            assert!(Linux::of(image(offset, size, flags), Vec::new(), "").is_err());
        }
        let long = "x".repeat(70_000);
        assert!(Linux::of(image(0, 100, 0), Vec::new(), &long).is_err());
    }
}
