//! The program's memory as areas that two replicas compare: pages, or blocks of many pages.
//!
//! A list of areas has an end, and memory may have more pages than that. So a list is coarsened
//! until it fits: an area is an aligned block of a power of two of pages. The words of one page are
//! its content, those of a block digests of its parts, so whoever looks for a difference descends.
//!
//! A page of zeroes is as one that is not there: whether it is depends on who has read it. Memory
//! that processes share is the program's while it has its turn, and so compared like its own. Which
//! of its pages this process has touched says nothing of the others': there those count that the
//! host has in memory, whoever has written them.
//!
//! Contract: the program does not run meanwhile, and no patch is in.
//!
//! Not covered: pages that cannot be read; shared ones that the host has swapped out, where there
//! are too many to be named one by one.

use core::cell::OnceCell;

use rcoe_core::mix;
use rcoe_linux_abi::PAGE;
use rcoe_linux_sys::tracking::{self, Region, Scan, category, entry};
use xxhash_rust::xxh3::xxh3_64;

use crate::convert::size;
use crate::coupling::pages::{Asked, Run, Untracked, answer, each_entry, open};
use crate::memory::guest;
use crate::memory::space::{Kind, space};
use crate::sys;

/// Bits of an area's number that say how many pages it has.
const ORDER_BITS: u32 = 6;
/// Words of a page, and most parts of a block.
const PARTS: u32 = 512_u32.ilog2();
/// Instead of a digest of memory of which the host tells nothing: no two replicas are alike then.
const UNKNOWN: u64 = 0x756e_6b6e_6f77_6e00;

/// An aligned block of `1 << order` pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its first page, in pages.
    first: u64,
    order: u32,
}

impl Block {
    const fn containing(page: u64, order: u32) -> Self {
        Self {
            first: page >> order << order,
            order,
        }
    }

    /// The block that is named so.
    pub(crate) const fn of_area(area: u64) -> Self {
        let order = crate::convert::low32(area) & ((1 << ORDER_BITS) - 1);
        Self::containing(area >> ORDER_BITS, order)
    }

    /// Its name; in the order of addresses for blocks of one size.
    pub(crate) const fn area(self) -> u64 {
        self.first << ORDER_BITS | self.order as u64
    }

    fn range(self) -> Run {
        let end = self.first.saturating_add(1 << self.order);
        Run {
            start: self.first.saturating_mul(PAGE),
            end: end.saturating_mul(PAGE),
        }
    }

    /// Parts that have a word, as a power of two.
    fn parts(self) -> u32 {
        self.order.min(PARTS)
    }

    /// The block for which a word stands; `None` if the word is content.
    pub(crate) fn part(self, word: usize) -> Option<Self> {
        let order = self.order.checked_sub(self.parts())?;
        (self.order > 0).then(|| Self {
            first: self.first + ((word as u64) << order),
            order,
        })
    }

    /// Where a word of a page is; `None` if the block has several.
    pub(crate) fn address(self, word: usize) -> Option<u64> {
        (self.order == 0).then(|| self.first * PAGE + 8 * word as u64)
    }
}

/// The memory of the program.
pub(crate) struct Memory {
    /// Of this replica's number: what no other one has where the host tells nothing.
    own: u64,
    pagemap: OnceCell<Option<i64>>,
}

impl Memory {
    /// Of the replica with this number.
    pub(crate) const fn of(number: usize) -> Self {
        Self {
            own: number as u64,
            pagemap: OnceCell::new(),
        }
    }

    fn pagemap(&self) -> Result<i64, Untracked> {
        let opened = || open(Asked::Pagemap, c"/proc/self/pagemap", false).ok();
        let refused = Untracked::Refused(Asked::Pagemap, sys::Errno(0));
        self.pagemap.get_or_init(opened).ok_or(refused)
    }

    /// The blocks that have pages, as few as go into the list, in order; how many. `None` if the
    /// host does not tell.
    pub(crate) fn list(&self, list: &mut [u64]) -> Option<usize> {
        let (mut count, mut order) = (0, 0);
        let all = Run {
            start: 0,
            end: u64::MAX,
        };
        let add = |run: Run| {
            let (mut page, end) = (run.start / PAGE, run.end / PAGE);
            while page < end {
                let block = Block::containing(page, order);
                page = block.range().end / PAGE;
                if list[..count].last() == Some(&block.area()) {
                    continue;
                }
                while count == list.len() {
                    order += 1;
                    count = coarsen(list, order);
                }
                let block = Block::containing(block.first, order);
                page = block.range().end / PAGE;
                if list[..count].last() != Some(&block.area()) {
                    list[count] = block.area();
                    count += 1;
                }
            }
        };
        self.each_present(all, add).ok()?;
        Some(count)
    }

    /// The words of an area; how many.
    pub(crate) fn words(&self, block: Block, out: &mut [u64]) -> usize {
        let mut page = [0; size(PAGE)];
        if block.order == 0 {
            let run = block.range();
            // Only what the program can write counts, and a page that is not there has zeroes.
            let mut fill = |_| read(run.start, &mut page);
            // One of shared memory may be swapped out.
            let read = if space().kind_at(run.start) == Some(Kind::Common) {
                fill(run);
                Ok(())
            } else {
                self.each_present(run, fill)
            };
            let (words, _) = page.as_chunks::<8>();
            for (word, bytes) in out.iter_mut().zip(words) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.unless(read, out);
            return words.len();
        }
        let parts = 1_usize << block.parts();
        let shift = block.order - block.parts();
        out[..parts].fill(0);
        let digests = |run: Run| {
            for at in run.start / PAGE..run.end / PAGE {
                read(at * PAGE, &mut page);
                let part = &mut out[size((at - block.first) >> shift)];
                *part = joined(*part, at, &page);
            }
        };
        let done = self.each_present(block.range(), digests);
        self.unless(done, out);
        parts
    }

    /// Makes the first word one that no sibling has if something was refused.
    fn unless(&self, done: Result<(), Untracked>, out: &mut [u64]) {
        if done.is_err() {
            out[0] = UNKNOWN + self.own;
        }
    }

    /// What stands for all memory if there is no list: no two replicas have the same.
    pub(crate) const fn unknown(&self) -> u64 {
        UNKNOWN + self.own
    }

    /// Calls `each` for runs of pages that there are, of the program's own writable memory, in
    /// order and within the range.
    fn each_present(&self, range: Run, mut each: impl FnMut(Run)) -> Result<(), Untracked> {
        let pagemap = self.pagemap()?;
        for (start, end, is_common) in space().writable() {
            let within = Run {
                start: start.max(range.start),
                end: end.min(range.end),
            };
            if within.start >= within.end {
                continue;
            }
            match is_common {
                true => resident(within, &mut each)?,
                false => present(pagemap, within, &mut each)?,
            }
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(Some(pagemap)) = self.pagemap.get() {
            tracking::close(*pagemap);
        }
    }
}

/// Makes all blocks of a full list of this order; how many are left.
fn coarsen(list: &mut [u64], order: u32) -> usize {
    let mut count = 0;
    for at in 0..list.len() {
        let area = Block::containing(Block::of_area(list[at]).first, order).area();
        if list[..count].last() != Some(&area) {
            list[count] = area;
            count += 1;
        }
    }
    count
}

/// A part's digest with one page more.
fn joined(before: u64, at: u64, page: &[u8]) -> u64 {
    match page.iter().all(|byte| *byte == 0) {
        true => before,
        false => mix(before ^ mix(xxh3_64(page) ^ at.rotate_left(32))),
    }
}

fn read(at: u64, page: &mut [u8]) {
    if guest::copy_in(page, at).is_err() {
        page.fill(0);
    }
}

/// Pages of a range that hold something.
fn present(pagemap: i64, run: Run, each: &mut impl FnMut(Run)) -> Result<(), Untracked> {
    const BATCH: usize = 64;
    const THERE: u64 = category::PRESENT | category::SWAPPED;
    let mut regions = [Region::default(); BATCH];
    let mut what = Scan::new(0, 0, THERE, THERE);
    (what.start, what.end) = (run.start, run.end);
    while what.start < what.end {
        let filled = tracking::scan(pagemap, &mut what, &mut regions);
        let Ok(filled) = answer(Asked::Scan, filled) else {
            return present_by_words(pagemap, run, each);
        };
        for region in &regions[..size(filled.cast_unsigned())] {
            let (start, end) = (region.start, region.end);
            each(Run { start, end });
        }
        if what.walk_end <= what.start {
            return Err(Untracked::Refused(Asked::Scan, sys::Errno(0)));
        }
        what.start = what.walk_end;
    }
    Ok(())
}

/// Pages of a range that the host has in memory, whoever has touched them.
fn resident(run: Run, each: &mut impl FnMut(Run)) -> Result<(), Untracked> {
    const BATCH: u64 = 512;
    let mut told = [0; size(BATCH)];
    let mut from = run.start;
    while from < run.end {
        let count = size((run.end - from) / PAGE).min(told.len());
        answer(Asked::Resident, sys::resident(from, &mut told[..count]))?;
        for (start, is_there) in (from..).step_by(size(PAGE)).zip(&told[..count]) {
            if is_there & 1 != 0 {
                let end = start + PAGE;
                each(Run { start, end });
            }
        }
        from += count as u64 * PAGE;
    }
    Ok(())
}

/// The same of a host that does not scan.
fn present_by_words(pagemap: i64, run: Run, each: &mut impl FnMut(Run)) -> Result<(), Untracked> {
    each_entry(pagemap, &[run], |start, word| {
        if word & entry::POPULATED != 0 {
            let end = start + PAGE;
            each(Run { start, end });
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_names_parts_and_addresses() {
        let page = Block::containing(0x7f_1234, 0);
        assert_eq!(Block::of_area(page.area()), page);
        assert_eq!(page.address(3), Some(0x7f_1234 * PAGE + 24));
        assert_eq!(page.part(3), None);
        let block = Block::containing(0x7f_1234, 11);
        assert_eq!(Block::of_area(block.area()), block);
        assert_eq!((block.first, block.address(0)), (0x7f_1000, None));
        let part = block.part(2).expect("a part");
        assert_eq!((part.first, part.order), (0x7f_1008, 2));
        let page = part.part(3).expect("a page");
        assert_eq!((page.first, page.order), (0x7f_100b, 0));
    }

    #[test]
    fn a_full_list_becomes_one_of_larger_blocks() {
        let mut list = [1, 2, 3, 8, 9, 40].map(|page| Block::containing(page, 0).area());
        let count = coarsen(&mut list, 1);
        let firsts = list[..count].iter().map(|area| Block::of_area(*area).first);
        assert_eq!(firsts.collect::<Vec<_>>(), [0, 2, 8, 40]);
    }

    #[test]
    fn a_page_of_zeroes_counts_as_none() {
        let zeroes = [0; size(PAGE)];
        let mut other = zeroes;
        other[4095] = 1;
        assert_eq!(joined(7, 1, &zeroes), 7);
        assert_ne!(joined(7, 1, &other), 7);
        assert_ne!(joined(7, 1, &other), joined(7, 2, &other));
    }
}
