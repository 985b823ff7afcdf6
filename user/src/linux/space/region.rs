//! What of the address space is alike: pages that follow one another, with the same rights.

use rcoe_abi::Rights;

use super::{PROMISED, Page, STACK_BYTES, STACK_TOP, Space};
use crate::linux::Sparse;
use crate::linux::machine::PAGE;

/// Such pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// May they be read, written, executed?
    pub(crate) letters: [u8; 3],
    pub(crate) shared: bool,
    /// How many have memory.
    pub(crate) given: u64,
    /// How many are to stay in memory.
    pub(crate) locked: u64,
}

fn letters(rights: Rights) -> [u8; 3] {
    [
        (Rights::READ, b'r'),
        (Rights::WRITE, b'w'),
        (Rights::EXECUTE, b'x'),
    ]
    .map(|(right, letter)| match rights.contains(right) {
        true => letter,
        false => b'-',
    })
}

impl Space {
    /// Where the heap begins and ends.
    pub(crate) const fn heap(&self) -> [u64; 2] {
        [self.brk_start, self.brk.next_multiple_of(PAGE)]
    }

    /// The first region from an address on. The heap is one of its own, and the stack is one,
    /// whatever of it was used.
    pub(crate) fn region(&self, store: &Sparse<'_>, from: u64) -> Option<Region> {
        let (mut page, word) = store.after(from / PAGE)?;
        let first = Page::from_word(word)?;
        let alike = |it: &Page| it.rights == first.rights && (it.alias != 0) == (first.alias != 0);
        let mut region = Region {
            start: page * PAGE,
            end: page * PAGE,
            letters: letters(first.rights),
            shared: first.alias != 0,
            given: 0,
            locked: 0,
        };
        let mut next = Some((page, word));
        while let Some((at, word)) = next {
            let is_stack = region.start >= STACK_TOP - STACK_BYTES && at * PAGE < STACK_TOP;
            let it = Page::from_word(word).filter(|it| alike(it) && (at == page || is_stack));
            let Some(it) = it else {
                break;
            };
            if at * PAGE != region.start && self.heap().contains(&(at * PAGE)) {
                break;
            }
            region.given += u64::from(it.frame != PROMISED);
            region.locked += u64::from(it.locked);
            page = at + 1;
            region.end = page * PAGE;
            next = store.after(page);
        }
        Some(region)
    }
}
