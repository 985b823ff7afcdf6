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
//! The host is asked once for each list which pages there are, and content is looked at by digests
//! of whole pages, each taken once: the owner of a target takes them while the others are on their
//! way.
//!
//! Contract: the program does not run meanwhile, and no patch is in. [`Memory`] is of one stop.
//!
//! Not covered: pages that cannot be read; shared ones that the host has swapped out, where there
//! are too many to be named one by one.

use core::cell::{OnceCell, RefCell};

use rcoe_core::coupling::{PAGES, list_digest};
use rcoe_core::mix;
use rcoe_linux_abi::PAGE;
use rcoe_linux_sys::tracking::{self, Region, Scan, category, entry};

use crate::arch::digest::Digest;
use crate::convert::size;
use crate::coupling::pages::{Asked, Run, Untracked, answer, each_entry, open};
use crate::memory::guest;
use crate::memory::space::{Kind, space};
use crate::sys;

/// Bits of an area's number that say how many pages it has.
const ORDER_BITS: u32 = 6;
/// Words of a page, and most parts of a block.
const PARTS: u32 = 512_u32.ilog2();
/// Runs of pages that are kept; memory in more pieces is asked for piece by piece.
const RUNS: usize = 128;
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
    pages: PageDigests,
    /// Which pages there are, and digests of the areas of a list.
    found: RefCell<Found>,
    known: RefCell<Known>,
}

impl Memory {
    /// Of the replica with this number.
    pub(crate) fn of(number: usize) -> Self {
        Self {
            own: number as u64,
            pagemap: OnceCell::new(),
            pages: PageDigests::new(),
            found: RefCell::new(Found::NOTHING),
            known: RefCell::new(Known::NOTHING),
        }
    }

    fn pagemap(&self) -> Result<i64, Untracked> {
        let opened = || open(Asked::Pagemap, c"/proc/self/pagemap", false).ok();
        let refused = Untracked::Refused(Asked::Pagemap, sys::Errno(0));
        self.pagemap.get_or_init(opened).ok_or(refused)
    }

    /// The blocks that have pages, as few as go into the list, in order; how many. `None` if the
    /// host does not tell. From here on these are the pages that there are.
    pub(crate) fn list(&self, list: &mut [u64]) -> Option<usize> {
        let mut found = self.found.borrow_mut();
        *found = Found::NOTHING;
        let count = self.blocks(list, |run| found.add(run))?;
        found.is_whole = found.count <= RUNS;
        self.known.borrow_mut().begin(&list[..count]);
        Some(count)
    }

    /// [`list_digest`] of a list of so many blocks, by another look.
    pub(crate) fn seal(&self, room: usize) -> Option<u64> {
        let mut list = [0; PAGES];
        let count = self.blocks(&mut list[..room], |_| {})?;
        Some(list_digest(&list[..count]))
    }

    fn blocks(&self, list: &mut [u64], mut tell: impl FnMut(Run)) -> Option<usize> {
        let (mut count, mut order) = (0, 0);
        let add = |run: Run| {
            tell(run);
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
        self.look(ALL, add).ok()?;
        Some(count)
    }

    /// The words of an area; how many.
    pub(crate) fn words(&self, block: Block, out: &mut [u64]) -> usize {
        if block.order > 0 {
            return self.parts(block, out);
        }
        let mut page = [0; size(PAGE)];
        let read = self.page(block, |at| read(at, &mut page));
        let (words, _) = page.as_chunks::<8>();
        for (word, bytes) in out.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.unless(read, out);
        words.len()
    }

    /// Digests of the parts of a block; how many.
    fn parts(&self, block: Block, out: &mut [u64]) -> usize {
        let parts = 1_usize << block.parts();
        let shift = block.order - block.parts();
        out[..parts].fill(0);
        let digests = |run: Run| {
            for at in run.start / PAGE..run.end / PAGE {
                let part = &mut out[size((at - block.first) >> shift)];
                *part = joined(*part, at, self.pages.digest(at * PAGE));
            }
        };
        let done = self.each_present(block.range(), digests);
        self.unless(done, out);
        parts
    }

    /// A digest of all that is in a block: of its page, or of the digests of its parts.
    pub(crate) fn digest(&self, block: Block) -> u64 {
        let digest = || self.digest_anew(block);
        self.known.borrow_mut().get(block.area(), digest)
    }

    fn digest_anew(&self, block: Block) -> u64 {
        if block.order > 0 {
            let mut words = [0; 1 << PARTS];
            let count = self.parts(block, &mut words);
            return list_digest(&words[..count]);
        }
        let mut digest = 0;
        let read = self.page(block, |at| digest = self.pages.digest(at));
        read.map_or(self.unknown(), |()| digest)
    }

    /// Takes the next digest that is not known of a block of the list; false if all are.
    pub(crate) fn digest_ahead(&self) -> bool {
        let next = self.known.borrow().next();
        next.map(|area| self.digest(Block::of_area(area))).is_some()
    }

    /// Calls `each` for the page of a block, if it is there. Only what the program can write
    /// counts, and a page that is not there has zeroes. One of shared memory may be swapped out.
    fn page(&self, block: Block, mut each: impl FnMut(u64)) -> Result<(), Untracked> {
        let run = block.range();
        match space().kind_at(run.start) {
            Some(Kind::Common) => {
                each(run.start);
                Ok(())
            }
            _ => self.each_present(run, |run| each(run.start)),
        }
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
    fn each_present(&self, range: Run, each: impl FnMut(Run)) -> Result<(), Untracked> {
        let found = self.found.borrow();
        match found.is_whole {
            true => found.within(range).for_each(each),
            false => return self.look(range, each),
        }
        Ok(())
    }

    /// The same, as the host tells it now.
    fn look(&self, range: Run, mut each: impl FnMut(Run)) -> Result<(), Untracked> {
        let pagemap = self.pagemap()?;
        for (start, end, is_common) in space().writable() {
            let within = Run { start, end }.within(range);
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

/// All addresses.
const ALL: Run = Run {
    start: 0,
    end: u64::MAX,
};

impl Run {
    fn within(self, range: Self) -> Self {
        Self {
            start: self.start.max(range.start),
            end: self.end.min(range.end),
        }
    }
}

/// Digests of pages, of which those of zeroes are 0, and that of zeroes.
struct PageDigests {
    how: Digest,
    zero: OnceCell<u64>,
}

impl PageDigests {
    fn new() -> Self {
        Self {
            how: Digest::fastest(),
            zero: OnceCell::new(),
        }
    }

    fn digest(&self, at: u64) -> u64 {
        let zero = self.zero.get_or_init(|| {
            let zeroes = [0_u8; size(PAGE)];
            let digest = self.how.of(zeroes.as_ptr() as u64, zeroes.len());
            digest.expect("the agent's own memory")
        });
        match self.how.of(at, size(PAGE)) {
            // One that cannot be read holds nothing.
            None => 0,
            Some(digest) if digest == *zero => 0,
            Some(digest) => digest,
        }
    }
}

/// The runs of pages that a look has found.
struct Found {
    runs: [Run; RUNS],
    /// How many: if they are more than there is room for, these are not all.
    count: usize,
    is_whole: bool,
}

impl Found {
    const NOTHING: Self = Self {
        runs: [Run { start: 0, end: 0 }; RUNS],
        count: 0,
        is_whole: false,
    };

    /// One more, behind all others.
    fn add(&mut self, run: Run) {
        let last = self.count.checked_sub(1);
        match last.and_then(|last| self.runs.get_mut(last)) {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => {
                if let Some(room) = self.runs.get_mut(self.count) {
                    *room = run;
                }
                self.count += 1;
            }
        }
    }

    /// Those parts of them that are within the range.
    fn within(&self, range: Run) -> impl Iterator<Item = Run> {
        let runs = &self.runs[..self.count.min(RUNS)];
        let first = runs.partition_point(|run| run.end <= range.start);
        let runs = runs[first..].iter();
        let runs = runs.take_while(move |run| run.start < range.end);
        runs.map(move |run| run.within(range))
    }
}

/// Digests of the areas of a list, from the first on.
struct Known {
    areas: [u64; PAGES],
    digests: [u64; PAGES],
    count: usize,
    done: usize,
}

impl Known {
    const NOTHING: Self = Self {
        areas: [0; PAGES],
        digests: [0; PAGES],
        count: 0,
        done: 0,
    };

    /// Of this list, none yet.
    fn begin(&mut self, list: &[u64]) {
        self.areas[..list.len()].copy_from_slice(list);
        (self.count, self.done) = (list.len(), 0);
    }

    /// The next area of which none is known.
    fn next(&self) -> Option<u64> {
        self.areas[..self.count].get(self.done).copied()
    }

    /// That of an area.
    fn get(&mut self, area: u64, digest: impl FnOnce() -> u64) -> u64 {
        let at = self.areas[..self.count].binary_search(&area);
        match at {
            Ok(at) if at < self.done => self.digests[at],
            Ok(at) if at == self.done => {
                self.digests[at] = digest();
                self.done += 1;
                self.digests[at]
            }
            _ => digest(),
        }
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

/// A part's digest with one page more, of which this is the digest.
const fn joined(before: u64, at: u64, page: u64) -> u64 {
    match page {
        0 => before,
        page => mix(before ^ mix(page ^ at.rotate_left(32))),
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
        let pages = PageDigests::new();
        let digest = |page: &[u8]| pages.digest(page.as_ptr() as u64);
        let zeroes = [0; size(PAGE)];
        let mut other = zeroes;
        other[4095] = 1;
        assert_eq!(digest(&zeroes), 0);
        let other = digest(&other);
        assert_eq!(joined(7, 1, 0), 7);
        assert_ne!(joined(7, 1, other), 7);
        assert_ne!(joined(7, 1, other), joined(7, 2, other));
    }

    #[test]
    fn pages_that_were_found_are_told_within_a_range() {
        let run = |start: u64, end: u64| Run { start, end };
        let mut found = Found::NOTHING;
        for (start, end) in [(10, 20), (20, 30), (40, 50), (60, 70)] {
            found.add(run(start, end));
        }
        assert_eq!(found.count, 3, "neighbours are one");
        let within = |start, end| found.within(run(start, end)).collect::<Vec<_>>();
        assert_eq!(within(25, 65), [run(25, 30), run(40, 50), run(60, 65)]);
        assert_eq!(within(30, 40), []);
        assert_eq!(within(0, 100).len(), 3);
        for at in 10..10 + RUNS as u64 {
            found.add(run(10 * at, 10 * at + 1));
        }
        assert_eq!(found.count, RUNS + 3, "more than there is room for");
    }

    #[test]
    fn the_host_is_asked_for_no_page_that_was_found() {
        #[repr(C, align(4096))]
        struct Page([u8; size(PAGE)]);
        let page = Box::new(Page([3; size(PAGE)]));
        let start = (&raw const *page) as u64;
        let end = start + PAGE;
        let memory = Memory::of(0);
        memory.found.borrow_mut().add(Run { start, end });
        memory.found.borrow_mut().is_whole = true;
        let block = Block::containing(start / PAGE, 0);
        let mut words = [0; size(PAGE) / 8];
        assert_eq!(memory.words(block, &mut words), words.len());
        assert!(words.iter().all(|word| *word == 0x0303_0303_0303_0303));
        let around = Block::containing(start / PAGE, 3);
        assert!(memory.digest(block) != 0 && memory.digest(around) != 0);
        assert_eq!(memory.pagemap.get(), None);
    }

    #[test]
    fn each_digest_of_a_list_is_taken_once_and_in_order() {
        let mut known = Known::NOTHING;
        known.begin(&[3, 5, 9]);
        let mut taken = Vec::new();
        let mut get = |known: &mut Known, area| {
            known.get(area, || {
                taken.push(area);
                10 * area
            })
        };
        assert_eq!(get(&mut known, 9), 90, "not its turn");
        while let Some(area) = known.next() {
            assert_eq!(get(&mut known, area), 10 * area);
        }
        for area in [9, 3, 5, 4] {
            assert_eq!(get(&mut known, area), 10 * area);
        }
        assert_eq!(taken, [9, 3, 5, 9, 4], "one that is not in the list");
    }
}
