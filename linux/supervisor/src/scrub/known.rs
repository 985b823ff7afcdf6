//! What all replicas had in memory when it was looked at last.
//!
//! Intuition: of two replicas that differ in a page nobody can tell which is right, but a digest
//! that all had published for it before can. A page that the program has written since is not what
//! it was in either; if exactly one of two still has what all had, the program has not written it,
//! and the other one has changed by itself.
//!
//! There also is a digest for each of the *blocks* of a page. A page that the program writes often
//! has blocks that it does not write, and there the same holds. Blocks are told where a copy has
//! been compared with the members, too.
//!
//! Contract: a digest is kept until the second pass after it, or until the page is looked at again.
//! Blocks are kept until the page is looked at or compared again.
//!
//! Not covered: a flip that undoes, bit by bit, all that the program has written to a page since
//! the last look. That takes a page in which one bit was changed since, and that very bit.

use std::collections::HashMap;

use rcoe_linux_abi::{BLOCKS, Blocks};
use xxhash_rust::xxh3::xxh3_64;

/// Most pages that are kept of a pass: digests of 4 GiB.
const MOST: usize = 1 << 20;
/// Most pages of which blocks are kept: those of 1 GiB, which takes 20 MiB.
const MOST_IN_BLOCKS: usize = 1 << 18;
/// What is in the blocks of this page.
pub(crate) fn blocks(page: &[u8]) -> Blocks {
    rcoe_linux_abi::blocks(page, xxh3_64)
}

/// Digests by page, of this pass and the one before.
#[derive(Debug, Default)]
pub(super) struct Known {
    pass: u64,
    now: HashMap<u64, u64>,
    last: HashMap<u64, u64>,
    blocks: HashMap<u64, Blocks>,
}

impl Known {
    /// All members had this in a page.
    pub(super) fn note(&mut self, pass: u64, page: u64, digest: u64) {
        if self.pass != pass {
            self.pass = pass;
            self.last = std::mem::take(&mut self.now);
        }
        if self.now.len() < MOST || self.now.contains_key(&page) {
            self.now.insert(page, digest);
        } else {
            self.last.remove(&page);
        }
    }

    /// Nobody knows any more what was in a page.
    pub(super) fn forget(&mut self, page: u64) {
        self.now.remove(&page);
        self.last.remove(&page);
    }

    /// All members had this in a page.
    pub(super) fn note_blocks(&mut self, page: u64, blocks: Blocks) {
        if self.blocks.len() < MOST_IN_BLOCKS || self.blocks.contains_key(&page) {
            self.blocks.insert(page, blocks);
        }
    }

    /// Which of these, if exactly one, still has what all had in each block in which they differ.
    pub(super) fn unchanged_blocks(&self, page: u64, all: &[Blocks]) -> Option<usize> {
        let known = self.blocks.get(&page)?;
        let first = all.first()?;
        let odd = (0..BLOCKS).filter(|&at| all.iter().any(|it| it[at] != first[at]));
        let mut right = None;
        for at in odd {
            let mut same = (0..all.len()).filter(|&who| all[who][at] == known[at]);
            let who = same.next()?;
            let contradicted = right.is_some_and(|other| other != who);
            if same.next().is_some() || contradicted {
                return None;
            }
            right = Some(who);
        }
        right
    }

    /// Which of these, if exactly one, still has what all had in the page.
    pub(super) fn unchanged(&self, page: u64, digests: &[u64]) -> Option<usize> {
        let known = self.now.get(&page).or_else(|| self.last.get(&page))?;
        let mut same = (0..digests.len()).filter(|&at| digests[at] == *known);
        let first = same.next()?;
        same.next().is_none().then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_that_is_as_before_is_right() {
        let mut known = Known::default();
        assert_eq!(known.unchanged(3, &[7, 8]), None, "never looked at");
        known.note(0, 3, 7);
        assert_eq!(known.unchanged(3, &[7, 8]), Some(0));
        assert_eq!(known.unchanged(3, &[8, 7]), Some(1));
        assert_eq!(known.unchanged(3, &[8, 9]), None, "written since");
        assert_eq!(known.unchanged(3, &[7, 7]), None, "they are alike");
        known.note(0, 3, 9);
        assert_eq!(known.unchanged(3, &[7, 8]), None, "looked at again");
        assert_eq!(known.unchanged(3, &[8, 9]), Some(1));
    }

    #[test]
    fn what_is_too_old_is_forgotten() {
        let mut known = Known::default();
        known.note(0, 3, 7);
        known.note(1, 4, 7);
        assert_eq!(known.unchanged(3, &[7, 8]), Some(0), "one pass old");
        known.note(2, 4, 7);
        assert_eq!(known.unchanged(3, &[7, 8]), None);
        known.forget(4);
        assert_eq!(known.unchanged(4, &[7, 8]), None);
    }

    #[test]
    fn blocks_tell_who_is_right_in_a_page_that_was_written() {
        let mut known = Known::default();
        let mut page = [7; 4096];
        known.note_blocks(3, blocks(&page));
        // The program writes one block, and another one flips in one of two.
        page[0] = 8;
        let right = blocks(&page);
        page[300] ^= 1;
        let wrong = blocks(&page);
        assert_eq!(known.unchanged_blocks(3, &[right, wrong]), Some(0));
        assert_eq!(known.unchanged_blocks(3, &[wrong, right]), Some(1));
        assert_eq!(known.unchanged_blocks(4, &[wrong, right]), None, "unknown");
        assert_eq!(known.unchanged_blocks(3, &[right, right]), None, "alike");
        page[1] ^= 1;
        let worse = blocks(&page);
        let written = known.unchanged_blocks(3, &[right, worse]);
        assert_eq!(written, None, "in a block that was written, too");
    }

    #[test]
    fn two_flips_in_two_replicas_are_nobodys() {
        let mut known = Known::default();
        let page = [7; 4096];
        known.note_blocks(3, blocks(&page));
        let flipped = |at: usize| {
            let mut page = page;
            page[at] ^= 1;
            blocks(&page)
        };
        let both = [flipped(0), flipped(4095)];
        assert_eq!(known.unchanged_blocks(3, &both), None);
    }
}
