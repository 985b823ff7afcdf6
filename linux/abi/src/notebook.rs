//! What replicas have found in the code of files, kept for those of processes to come.
//!
//! Every process executes, as a rule, what another one has executed before, and looking through
//! code is dear. Replica *i* of every process writes what it has found into notebook *i*, and reads
//! all notebooks.
//!
//! Nothing in here is relied on for itself. Several processes may write into a notebook at once,
//! without a lock, and any of them may have been hit: so each page comes with a digest, which the
//! reader makes anew, and a reader believes only what it finds alike in two notebooks. What is not
//! believed is looked for again.
//!
//! Contract: zeroes are an empty notebook. A page that is torn or overwritten is not found, or does
//! not have its digest.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// Most pages; later ones take the place of the oldest.
const PAGES: usize = 256;
/// Words of all pages.
const WORDS: usize = 16 << 10;

/// A page as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Words in it.
    pub len: usize,
    /// Digest of what it is about and of its words, as its writer says.
    pub digest: u64,
}

/// The notebook of one replica number.
#[derive(Debug)]
#[repr(C)]
pub struct Notebook {
    /// Pages that were ever written.
    pages: AtomicU64,
    /// Where the next words go.
    words: AtomicU64,
    /// Of each page: what it is about, its digest, where its words begin, and how many they are.
    index: [[AtomicU64; 4]; PAGES],
    text: [AtomicU64; WORDS],
}

impl Notebook {
    /// Most pages that it can have.
    pub const MOST_PAGES: usize = PAGES;
    /// Words of the index for each page.
    pub const ENTRY_WORDS: usize = 4;
    /// Where the text begins; before it are how many pages and words there are, and the index.
    pub const TEXT_OFFSET: usize = offset_of!(Self, text);

    /// A notebook of nobody's yet.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            pages: AtomicU64::new(0),
            words: AtomicU64::new(0),
            index: [const { [const { AtomicU64::new(0) }; Self::ENTRY_WORDS] }; PAGES],
            text: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// The digest of what a page is about and of its words. Words that differ in one place have
    /// different ones.
    #[must_use]
    pub fn digest(about: u64, words: &[u64]) -> u64 {
        /// Odd, so that nothing is lost by multiplying; the golden ratio.
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let first = about ^ (words.len() as u64).wrapping_mul(FACTOR);
        let mixed = words.iter().fold(first, |digest, word| {
            (digest ^ word).wrapping_mul(FACTOR).rotate_left(31)
        });
        mixed ^ mixed >> 32
    }

    /// How many pages and words were ever written, as far as that can be told.
    pub fn written(&self) -> [u64; 2] {
        [&self.pages, &self.words].map(|it| it.load(Ordering::Acquire))
    }

    /// What its pages are about, from the oldest on.
    pub fn abouts(&self) -> impl Iterator<Item = u64> {
        let written = usize::try_from(self.pages.load(Ordering::Acquire)).unwrap_or(0);
        let (newer, older) = self.index[..written.min(PAGES)].split_at(match written > PAGES {
            true => written % PAGES,
            false => 0,
        });
        let all = older.iter().chain(newer);
        all.map(|page| page[0].load(Ordering::Acquire))
    }

    /// What is written about this, at most as many words as there is room for.
    pub fn read(&self, about: u64, into: &mut [u64]) -> Option<Page> {
        let [_, digest, from, len] = &self.index[self.find(about)?];
        let digest = digest.load(Ordering::Acquire);
        let from = usize::try_from(from.load(Ordering::Relaxed)).ok()?;
        let len = usize::try_from(len.load(Ordering::Relaxed)).ok()?;
        let text = self.text.get(from..from.checked_add(len)?)?;
        for (word, cell) in into.get_mut(..len)?.iter_mut().zip(text) {
            *word = cell.load(Ordering::Relaxed);
        }
        Some(Page { len, digest })
    }

    /// Writes about this; more than there is room for is not written.
    pub fn write(&self, about: u64, words: &[u64], digest: u64) {
        if words.len() > WORDS {
            return;
        }
        let page = self.find(about).unwrap_or_else(|| self.new_page());
        let from = self.room(words.len());
        for (cell, word) in self.text[from..].iter().zip(words) {
            cell.store(*word, Ordering::Relaxed);
        }
        // Whoever finds a part of this only does not find its digest.
        let entry = [about, digest, from as u64, words.len() as u64];
        for (cell, word) in self.index[page].iter().zip(entry) {
            cell.store(word, Ordering::Release);
        }
    }

    /// The page about this. Memory that nobody has written to is left untouched.
    fn find(&self, about: u64) -> Option<usize> {
        let written = usize::try_from(self.pages.load(Ordering::Acquire)).ok()?;
        let mut written = self.index[..written.min(PAGES)].iter();
        written.position(|page| about != 0 && page[0].load(Ordering::Acquire) == about)
    }

    /// The next page, or the oldest.
    fn new_page(&self) -> usize {
        let written = self.pages.load(Ordering::Relaxed);
        self.pages
            .store(written.saturating_add(1), Ordering::Release);
        usize::try_from(written).unwrap_or(0) % PAGES
    }

    /// Where so many words in a row go.
    fn room(&self, len: usize) -> usize {
        let used = usize::try_from(self.words.load(Ordering::Relaxed)).unwrap_or(0);
        let from = if used > WORDS - len { 0 } else { used };
        self.words.store((from + len) as u64, Ordering::Relaxed);
        from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(notebook: &Notebook, about: u64) -> Option<([u64; 4], Page)> {
        let mut words = [0; 4];
        let page = notebook.read(about, &mut words)?;
        Some((words, page))
    }

    #[test]
    fn what_was_written_last_is_read() {
        let notebook = Notebook::empty();
        assert_eq!(read(&notebook, 7), None);
        assert_eq!(read(&notebook, 0), None, "about nothing");
        notebook.write(7, &[1, 2], 30);
        notebook.write(8, &[], 31);
        notebook.write(7, &[3], 32);
        let page = |len, digest| Page { len, digest };
        assert_eq!(read(&notebook, 7), Some(([3, 0, 0, 0], page(1, 32))));
        assert_eq!(read(&notebook, 8), Some(([0; 4], page(0, 31))));
    }

    #[test]
    fn more_than_the_reader_has_room_for_is_not_read() {
        let notebook = Notebook::empty();
        notebook.write(7, &[1; 5], 30);
        assert_eq!(read(&notebook, 7), None);
    }

    #[test]
    fn a_full_notebook_goes_on_with_the_oldest_page() {
        let notebook = Notebook::empty();
        for about in 1..=PAGES as u64 + 1 {
            notebook.write(about, &[about; 3], about);
        }
        assert_eq!(read(&notebook, 1), None);
        assert!(read(&notebook, 3).is_some());
        let abouts = notebook.abouts();
        assert!(abouts.eq(2..=PAGES as u64 + 1), "from the oldest on");
        notebook.write(1000, &[1; WORDS], 1);
        notebook.write(1001, &[1; WORDS + 1], 1);
        assert_eq!(read(&notebook, 1001), None);
        let (words, page) = read(&notebook, 3).unwrap();
        assert_ne!((words[0], page.digest), (3, 3), "its words are overwritten");
    }

    #[test]
    fn a_page_that_was_hit_is_never_outside_of_the_text() {
        let notebook = Notebook::empty();
        notebook.write(7, &[1], 30);
        for (at, word) in [(2, u64::MAX), (2, WORDS as u64), (3, u64::MAX)] {
            let before = notebook.index[0][at].swap(word, Ordering::Relaxed);
            assert_eq!(read(&notebook, 7), None);
            notebook.index[0][at].store(before, Ordering::Relaxed);
        }
        notebook.words.store(u64::MAX, Ordering::Relaxed);
        notebook.pages.store(u64::MAX, Ordering::Relaxed);
        notebook.write(8, &[1], 30);
        assert!(read(&notebook, 8).is_some());
    }

    #[test]
    fn the_digest_tells_pages_and_places_apart() {
        let words = [1, 2, 0, 0];
        let digest = Notebook::digest(7, &words);
        assert_ne!(digest, Notebook::digest(8, &words));
        assert_ne!(digest, Notebook::digest(7, &words[..3]));
        assert_ne!(digest, Notebook::digest(7, &[2, 1, 0, 0]));
        for bit in 0..64 * words.len() {
            let mut hit = words;
            hit[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(digest, Notebook::digest(7, &hit), "bit {bit}");
        }
    }
}
