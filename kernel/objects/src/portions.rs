//! A copy of this replica that is made in portions: which blocks of memory were written since they
//! were copied ([`rcoe_core::portions`]).
//!
//! * *Programs* write through page tables. At each portion all tables are looked through for pages
//!   that were written, and set such that the next write is noted again: by the processor in the
//!   entry, or by a fault of which nobody but this kernel learns ([`Kernel::soil`]). A page that
//!   is mapped for a program, or taken from it, counts as written.
//! * *The kernel* zeroes memory, which it takes note of. What it makes objects of is its own:
//!   slots, threads, page tables and the like. So are pages for messages, and those that it copies
//!   a device's data into. All that is copied when the last portion is.
//!
//! Not covered: what a program that computes writes is noted at another point in each replica,
//! which is why its pages are apart.

use core::ops::Range;

use rcoe_core::portions::WORD;

use crate::Ref;
use crate::alike::{ALIKE_MAX, BLOCK, Marks};
use crate::arch::{self, ENTRIES, LEVELS};
use crate::digest::Checksum;
use crate::kernel::{Kernel, SPACES};
use crate::sphere::Sphere;

/// Words that [`rcoe_core::portions::Kept`] takes for the largest memory.
pub const KEPT_WORDS: usize = (3 * ALIKE_MAX / BLOCK / WORD) as usize;

const PAGE_BITS: u32 = 12;

/// The blocks in which these bytes are.
const fn around(place: Ref, bytes: u64) -> Range<u64> {
    let start = place.bytes();
    start / BLOCK..(start + bytes).div_ceil(BLOCK)
}

impl<S: Sphere> Kernel<'_, S> {
    /// The kernel writes these bytes from here on.
    pub(crate) fn own(&mut self, place: Ref, bytes: u64) {
        self.kept.own(around(place, bytes));
    }

    /// The kernel writes the page around this place from here on.
    pub(crate) fn own_page(&mut self, place: Ref) {
        let page = place.bytes() >> PAGE_BITS << PAGE_BITS;
        self.kept
            .own(page / BLOCK..(page + (1 << PAGE_BITS)) / BLOCK);
    }

    /// These bytes were zeroed, to be something else. What is around them may still be the
    /// kernel's.
    pub(crate) fn forget_zeroed(&mut self, place: Ref, bytes: u64) {
        self.kept.forget(around(place, bytes));
        let start = place.bytes();
        let within = start.div_ceil(BLOCK)..(start + bytes) / BLOCK;
        if !within.is_empty() {
            self.kept.disown(within);
        }
    }

    /// The memory that this entry of a table of `level` lets programs write counts as written.
    pub(crate) fn forget_leaf(&mut self, entry: u64, level: usize) {
        if !arch::is_present(entry) || !arch::is_writable(entry) {
            return;
        }
        let offset = arch::physical(entry).wrapping_sub(self.sphere.base());
        // Else it is a page of device memory.
        if offset < self.mem.bytes() {
            let bytes = 1 << (PAGE_BITS as usize + 9 * level);
            self.kept.forget(around(Ref::from_bytes(offset), bytes));
        }
    }

    /// Takes note of all that programs have written.
    pub fn note_written(&mut self) {
        for number in 0..SPACES {
            if let Some(root) = self.spaces[number].some() {
                self.note_table(root, LEVELS - 1);
            }
        }
        self.sphere.flush();
    }

    /// As deep as there are levels.
    fn note_table(&mut self, table: Ref, level: usize) {
        for index in 0..ENTRIES {
            let entry = self.mem.get(table, index);
            if level > 0 && arch::is_table(entry) {
                if let Some(below) = self.inside(level, index, entry) {
                    self.note_table(below, level - 1);
                }
            } else if let Some(unwritten) = arch::unwritten(entry)
                && self.inside(level, index, entry).is_some()
            {
                self.mem.set(table, index, unwritten);
                self.forget_leaf(entry, level);
            }
        }
    }

    /// The running thread cannot reach this address: is that only because a first write there is to
    /// be noted? Then it can now. This is no event of the trace.
    #[cold]
    pub fn soil(&mut self, address: u64) -> bool {
        let root = self.current.some().and_then(|tcb| self.space_of(tcb));
        let Some(mut table) = root else {
            return false;
        };
        for level in (0..LEVELS).rev() {
            let index = arch::index(address, level);
            let entry = self.mem.get(table, index);
            if level > 0 && arch::is_table(entry) {
                let Some(below) = self.inside(level, index, entry) else {
                    return false;
                };
                table = below;
                continue;
            }
            let Some(noted) = arch::noted(entry).filter(|_| arch::is_present(entry)) else {
                return false;
            };
            self.mem.set(table, index, noted);
            self.sphere.flush();
            return true;
        }
        false
    }

    /// Marks what may differ between replicas that are all right.
    pub fn mark_apart(&self, marks: &mut Marks) {
        let mut unused = Checksum::default();
        self.sum_apart(&mut unused, marks);
    }

    /// Words of sets of blocks that memory takes which was ever given out.
    #[must_use]
    pub fn end(&self) -> usize {
        let blocks = self.given().min(self.mem.bytes()).div_ceil(BLOCK);
        usize::try_from(blocks.div_ceil(WORD)).expect("few words")
    }

    /// A digest of what is to be compared in a portion, for which what is apart was marked.
    #[must_use]
    pub fn alike_in(&self, words: Range<usize>, marks: &Marks) -> u64 {
        let mut sum = Checksum::default();
        for word in words {
            let unchecked = self.kept.unchecked(word, marks.apart(), false);
            self.sum_blocks(word, unchecked, &mut sum);
        }
        sum.digest()
    }

    /// Adds these blocks of a word, so far as they were ever given out.
    pub(crate) fn sum_blocks(&self, word: usize, mut blocks: u64, sum: &mut Checksum) {
        let given = usize::try_from(self.given().min(self.mem.bytes()).div_ceil(BLOCK));
        let given = given.expect("few blocks");
        while blocks != 0 {
            let number = word * 64 + blocks.trailing_zeros() as usize;
            blocks &= blocks - 1;
            if number < given {
                sum.words(self.block(number));
            }
        }
    }

    /// What a copy does not have: byte offsets in object memory, from the lowest on. In the last
    /// portion also of what is the kernel's own. The loader's page is nobody's.
    pub fn missing(&self, words: Range<usize>, last: bool) -> impl Iterator<Item = Range<u64>> {
        let numbers = words.flat_map(move |word| {
            let own = if last { 0 } else { self.kept.owned()[word] };
            let missing = self.kept.missing(word) & !own;
            (0..WORD).filter_map(move |bit| {
                (missing & 1 << bit != 0).then_some(word as u64 * WORD + bit)
            })
        });
        let limit = self.mem.bytes();
        let bytes = numbers.map(|number| number * BLOCK..(number + 1) * BLOCK);
        joined(bytes.filter(move |bytes| bytes.start >= 1 << PAGE_BITS && bytes.end <= limit))
    }
}

/// Ranges in a row, where one begins at which the one before ends, as one.
fn joined(mut ranges: impl Iterator<Item = Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let mut next = ranges.next();
    core::iter::from_fn(move || {
        let mut whole = next.take()?;
        for range in ranges.by_ref() {
            if range.start != whole.end {
                next = Some(range);
                break;
            }
            whole.end = range.end;
        }
        Some(whole)
    })
}
