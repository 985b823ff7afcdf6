//! What all replicas hold alike: a digest of a kernel and its object memory, compared before one of
//! them is copied.
//!
//! Replicas are at one point of the trace when they compare, and there a blocked thread has
//! executed the same instructions everywhere. So everything is the same word by word, but for
//!
//! * *page tables*, whose entries say where the partition is: they count from its beginning, and
//!   without the bits that the processor sets;
//! * *threads that can run*: they may have been preempted at another instruction in each replica.
//!   Their registers are left out, and all that they could have written since, which is what is
//!   writable in their address spaces;
//! * *drivers that were told* whether theirs is the primary ([`crate::shared`]): they may remember,
//!   so the same is left out of theirs; and entries that map device memory count by page;
//! * the replica's number in the root task's boot page, and the loader's page.
//!
//! Memory behind what was ever given out is not covered: it is zeroed before it is used. Not
//! covered either: a thread that another stopped or deleted in the midst of a computation. What it
//! leaves behind can differ between replicas that are all right.

use rcoe_abi::object::LARGE;

use crate::Ref;
use crate::arch::{self, CONTEXT_WORDS, ENTRIES, FPU_WORDS, LEVELS};
use crate::digest::Checksum;
use crate::field;
use crate::kernel::{Kernel, SPACES};
use crate::sphere::Sphere;

/// Bytes of a block, by which memory is left out or taken in another way: those of a thread.
pub(crate) const BLOCK: u64 = 2048;
const BLOCK_WORDS: usize = 256;
const BLOCK_UNITS: u32 = 64;
/// Blocks of all memory at most.
const BLOCKS: usize = 3 << 19;
const PAGE: u64 = 4096;
/// Words of a set for the blocks of a large frame.
const LARGE_WORDS: usize = (LARGE / BLOCK / 64) as usize;

/// Most bytes of object memory of which a digest can be made: more than 32-bit addresses leave.
pub const ALIKE_MAX: u64 = BLOCKS as u64 * BLOCK;

/// A set of blocks.
#[derive(Debug)]
struct Blocks([u64; BLOCKS / 64]);

/// What a digest needs to know of each block while it is made. It is too large for a stack.
#[derive(Debug)]
pub struct Marks {
    /// Blocks that are left out or were taken in another way.
    apart: Blocks,
    /// Page tables that were walked.
    seen: Blocks,
}

impl Marks {
    /// None.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "it is made as a static, not on a stack"
    )]
    pub const fn new() -> Self {
        Self {
            apart: Blocks::empty(),
            seen: Blocks::empty(),
        }
    }

    /// The set of blocks that are left out or were taken in another way.
    #[must_use]
    pub const fn apart(&self) -> &[u64] {
        &self.apart.0
    }
}

impl Blocks {
    const fn empty() -> Self {
        Self([0; BLOCKS / 64])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    const fn number(place: Ref) -> usize {
        (place.bytes() / BLOCK) as usize % BLOCKS
    }

    const fn contains(&self, number: usize) -> bool {
        self.0[number / 64] & 1 << (number % 64) != 0
    }

    /// Adds a block. Is it new?
    const fn add(&mut self, place: Ref) -> bool {
        let number = Self::number(place);
        let new = !self.contains(number);
        self.0[number / 64] |= 1 << (number % 64);
        new
    }

    /// Adds all blocks of a large frame, which are whole words of the set.
    fn add_large(&mut self, frame: Ref) {
        let first = Self::number(frame) / 64;
        let words = self.0.iter_mut().skip(first).take(LARGE_WORDS);
        words.for_each(|word| *word = u64::MAX);
    }

    /// Adds a page. Is its first block new?
    const fn add_page(&mut self, page: Ref) -> bool {
        self.add(page.slot(BLOCK_UNITS));
        self.add(page)
    }
}

impl<S: Sphere> Kernel<'_, S> {
    /// A digest of all that is the same in all replicas at this point of the trace: of memory so
    /// far as it was ever given out, and was not compared in a portion and left as it was since.
    ///
    /// # Panics
    /// If memory is larger than [`ALIKE_MAX`], or something is being ended ([`Kernel::finish`]).
    #[must_use]
    pub fn alike(&self, marks: &mut Marks) -> u64 {
        assert!(self.mem.bytes() <= ALIKE_MAX, "memory has so many blocks");
        let mut sum = Checksum::default();
        self.sum_state(&mut sum);
        self.sum_apart(&mut sum, marks);
        let apart = &mut marks.apart;
        for root in self
            .spaces
            .iter()
            .take(SPACES)
            .filter_map(|root| root.some())
        {
            self.sum_table(root, LEVELS - 1, &mut sum, apart);
        }
        let end = self.end();
        sum.words(&self.kept.owned()[..end]);
        for word in 0..end {
            let unchecked = self.kept.unchecked(word, marks.apart(), true);
            self.sum_blocks(word, unchecked, &mut sum);
        }
        sum.digest()
    }

    /// Marks what may differ, and adds what does not of it.
    pub(crate) fn sum_apart(&self, sum: &mut Checksum, marks: &mut Marks) {
        let Marks { apart, seen } = marks;
        apart.clear();
        apart.add_page(Ref::NONE);
        self.sum_info(sum, apart);
        seen.clear();
        self.sum_runnable(sum, seen, apart);
        seen.clear();
        self.sum_drivers(sum, seen, apart);
    }

    pub(crate) fn block(&self, number: usize) -> &[u64] {
        &self.mem.everything()[number * BLOCK_WORDS..][..BLOCK_WORDS]
    }

    /// What lies outside of object memory.
    fn sum_state(&self, sum: &mut Checksum) {
        self.ready.sum(sum);
        let ending = [self.dying, self.dying_pages];
        assert!(ending == [Ref::NONE; 2], "what ends has ended");
        for place in [self.current, self.fpu, self.irqs, self.info] {
            sum.word(u64::from(place.units()));
        }
        for (number, root) in self.spaces.iter().enumerate() {
            sum.word(u64::from(root.units()) << 16 | number as u64);
        }
        sum.word(u64::from(self.next_space) << 32 | u64::from(self.unchecked));
        sum.word(self.given);
        self.shares.sum(sum);
    }

    /// The root task's boot page without the replica's number.
    fn sum_info(&self, sum: &mut Checksum, apart: &mut Blocks) {
        let number = rcoe_abi::boot::Word::ReplicaId as usize;
        apart.add(self.info);
        sum.words(self.mem.words(self.info, 0, number));
        sum.words(
            self.mem
                .words(self.info, number + 1, BLOCK_WORDS - number - 1),
        );
    }

    /// Threads that can run, without their registers; what they can write is left out.
    fn sum_runnable(&self, sum: &mut Checksum, seen: &mut Blocks, apart: &mut Blocks) {
        for first in self.ready.firsts() {
            let mut next = Some(first);
            while let Some(tcb) = next {
                if !apart.add(tcb) {
                    // A queue that a fault has made a ring.
                    break;
                }
                self.sum_thread(tcb, sum);
                if let Some(root) = self.space_of(tcb) {
                    self.leave_out(root, LEVELS - 1, seen, apart);
                }
                next = self.behind(tcb);
            }
        }
    }

    /// The same for threads that were told whether theirs is the primary, whatever they wait for.
    fn sum_drivers(&self, sum: &mut Checksum, seen: &mut Blocks, apart: &mut Blocks) {
        for tcb in self.shares.drivers() {
            if apart.add(tcb) {
                self.sum_thread(tcb, sum);
            }
            if let Some(root) = self.space_of(tcb) {
                self.leave_out(root, LEVELS - 1, seen, apart);
            }
        }
    }

    /// A thread without its registers.
    fn sum_thread(&self, tcb: Ref, sum: &mut Checksum) {
        let before_fpu = field::FPU - CONTEXT_WORDS;
        sum.words(self.mem.words(tcb, CONTEXT_WORDS, before_fpu));
        let behind = field::FPU + FPU_WORDS;
        sum.words(self.mem.words(tcb, behind, BLOCK_WORDS - behind));
    }

    /// Leaves out all that is writable in a space.
    fn leave_out(&self, table: Ref, level: usize, seen: &mut Blocks, apart: &mut Blocks) {
        if !seen.add(table) {
            return;
        }
        for index in 0..ENTRIES {
            let entry = self.mem.get(table, index);
            let Some(place) = self.inside(level, index, entry) else {
                continue;
            };
            match level {
                1.. if arch::is_table(entry) => self.leave_out(place, level - 1, seen, apart),
                _ if !arch::is_writable(entry) => {}
                0 => _ = apart.add_page(place),
                _ => apart.add_large(place),
            }
        }
    }

    /// Where in object memory an entry leads: a page of it.
    pub(crate) fn inside(&self, level: usize, index: usize, entry: u64) -> Option<Ref> {
        let kernel = level == LEVELS - 1 && index == arch::KERNEL_ENTRY;
        if kernel || !arch::is_present(entry) {
            return None;
        }
        let offset = arch::physical(entry).wrapping_sub(self.sphere.base());
        let within = offset > 0 && offset <= self.mem.bytes() - PAGE;
        within.then(|| Ref::from_bytes(offset))
    }

    /// A page table and all below it.
    fn sum_table(&self, table: Ref, level: usize, sum: &mut Checksum, apart: &mut Blocks) {
        if !apart.add_page(table) {
            return;
        }
        for index in 0..ENTRIES {
            let entry = self.mem.get(table, index);
            sum.word(self.relative(entry));
            let leads_on = level > 0 && arch::is_table(entry);
            if let (Some(place), true) = (self.inside(level, index, entry), leads_on) {
                self.sum_table(place, level - 1, sum, apart);
            }
        }
    }

    /// An entry as it would be in a partition at 0.
    pub(crate) fn relative(&self, entry: u64) -> u64 {
        let entry = arch::unused(entry);
        if entry == self.sphere.kernel_entry() {
            return 1;
        }
        if !arch::is_present(entry) {
            return entry;
        }
        if let Some(page) = self.shared_page(entry) {
            return page;
        }
        let place = arch::physical(entry);
        entry ^ place ^ place.wrapping_sub(self.sphere.base())
    }
}
