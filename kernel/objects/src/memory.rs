//! Object memory: one slice of words, and references into it.

use core::fmt;

/// Bytes of the unit of references: that of a slot, the smallest thing there is.
pub(crate) const UNIT: u64 = 32;
const UNIT_WORDS: usize = 4;

/// A place in object memory, in units. 0 is nowhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref(u32);

impl Ref {
    /// Nowhere.
    pub const NONE: Self = Self(0);

    /// The place at this number of units.
    #[must_use]
    pub const fn from_units(units: u32) -> Self {
        Self(units)
    }

    /// The place at this byte offset, a multiple of the unit.
    ///
    /// # Panics
    /// If it is none, or beyond what references reach.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        assert!(bytes.is_multiple_of(UNIT), "objects are aligned");
        Self(u32::try_from(bytes / UNIT).expect("references reach all memory"))
    }

    /// Units.
    #[must_use]
    pub const fn units(self) -> u32 {
        self.0
    }

    /// Byte offset.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 as u64 * UNIT
    }

    /// Nowhere?
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// This place, if it is one.
    #[must_use]
    pub const fn some(self) -> Option<Self> {
        if self.0 == 0 { None } else { Some(self) }
    }

    /// The slot so many slots further on.
    #[must_use]
    pub const fn slot(self, index: u32) -> Self {
        Self(self.0 + index)
    }
}

impl fmt::Debug for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{:#x}", self.bytes())
    }
}

/// All object memory of one replica. An access beyond it is a broken invariant and panics.
#[derive(Debug)]
pub struct Memory<'m> {
    words: &'m mut [u64],
    /// Words that were written.
    #[cfg(test)]
    pub(crate) written: u64,
    /// A word that does not hold what is written, and the bits that are others then.
    #[cfg(test)]
    pub(crate) faulty: Option<(usize, u64)>,
}

impl<'m> Memory<'m> {
    /// Memory of these words.
    #[must_use]
    pub const fn new(words: &'m mut [u64]) -> Self {
        Self {
            words,
            #[cfg(test)]
            written: 0,
            #[cfg(test)]
            faulty: None,
        }
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Word `index` of what lies at `place`.
    #[inline]
    #[must_use]
    pub fn get(&self, place: Ref, index: usize) -> u64 {
        self.words[Self::at(place, index)]
    }

    /// Writes word `index` of what lies at `place`.
    #[inline]
    pub fn set(&mut self, place: Ref, index: usize, value: u64) {
        #[cfg(test)]
        self.count(1);
        let at = Self::at(place, index);
        self.words[at] = value;
        #[cfg(test)]
        self.fail(at, 1);
    }

    /// The faulty word, if it is one of these, does not hold what was written.
    #[cfg(test)]
    fn fail(&mut self, first: usize, len: usize) {
        if let Some((at, bits)) = self.faulty
            && (first..first + len).contains(&at)
        {
            self.words[at] ^= bits;
        }
    }

    /// As [`Self::get`], from memory itself: not what the compiler remembers to have written.
    #[inline]
    #[must_use]
    pub(crate) fn read_back(&self, place: Ref, index: usize) -> u64 {
        let words = core::hint::black_box(&*self.words);
        words[Self::at(place, index)]
    }

    #[cfg(test)]
    const fn count(&mut self, words: usize) {
        self.written += words as u64;
    }

    #[inline]
    pub(crate) fn at(place: Ref, index: usize) -> usize {
        assert!(!place.is_none(), "nowhere has no words");
        place.0 as usize * UNIT_WORDS + index
    }

    /// A run of words.
    #[must_use]
    pub fn words(&self, place: Ref, from: usize, len: usize) -> &[u64] {
        let at = Self::at(place, from);
        &self.words[at..at + len]
    }

    /// A run of words, to be changed.
    pub fn words_mut(&mut self, place: Ref, from: usize, len: usize) -> &mut [u64] {
        #[cfg(test)]
        self.count(len);
        let at = Self::at(place, from);
        &mut self.words[at..at + len]
    }

    /// Copies the words of these numbers from one place to another.
    #[inline]
    pub fn copy_some(&mut self, from: Ref, to: Ref, indices: &[usize]) {
        #[cfg(test)]
        self.count(indices.len());
        let (from, to) = (Self::at(from, 0), Self::at(to, 0));
        for &index in indices {
            self.words[to + index] = self.words[from + index];
            #[cfg(test)]
            self.fail(to + index, 1);
        }
    }

    /// Copies `len` words.
    pub fn copy(&mut self, from: (Ref, usize), to: (Ref, usize), len: usize) {
        let from = Self::at(from.0, from.1);
        let to = Self::at(to.0, to.1);
        #[cfg(test)]
        self.count(len);
        self.words.copy_within(from..from + len, to);
        #[cfg(test)]
        self.fail(to, len);
    }

    /// All of it, to be read.
    pub(crate) const fn everything(&self) -> &[u64] {
        self.words
    }

    /// All of it.
    #[must_use]
    pub const fn all(&mut self) -> &mut [u64] {
        self.words
    }
}
