//! An array of words with few of them: pages of programs and files, by number.
//!
//! Words stand in chunks of neighbours, and a table that is searched by hashing leads to a chunk.
//! A chunk that has no word any more is had by whoever needs one: programs that come and go at
//! other addresses each take no more than what is there at once.
//!
//! Words below an index are a part's own: those of the part at hand are meant.

/// Words of a chunk.
const CHUNK: usize = 512;
/// Logarithm of the words that each part has of its own.
const PART_BITS: u32 = 40;
/// Words about each chunk: two places of the table, each of two words, and what it holds.
const ABOUT: usize = 6;

/// The array. Words that were never set are 0.
#[derive(Debug)]
pub struct Sparse<'a> {
    /// Number of the chunk and one more than its place, or zeroes.
    table: &'a mut [u64],
    /// Of each place the number of its chunk, and how many of its words are not zero. Of one that
    /// was given back, the next such and 0.
    held: &'a mut [u64],
    pool: &'a mut [u64],
    /// Places that were ever used, and one more than the first that was given back, or 0.
    used: usize,
    free: u64,
    part: u64,
}

impl<'a> Sparse<'a> {
    /// Words that hold the table of so many chunks.
    #[must_use]
    pub const fn table_words(chunks: usize) -> usize {
        ABOUT * chunks
    }

    /// Words that hold so many chunks.
    #[must_use]
    pub const fn pool_words(chunks: usize) -> usize {
        CHUNK * chunks
    }

    /// An empty array in zeroed memory.
    #[must_use]
    pub fn new(table: &'a mut [u64], pool: &'a mut [u64]) -> Self {
        let (held, table) = table.split_at_mut(table.len() / ABOUT * 2);
        Self {
            table,
            held,
            pool,
            used: 0,
            free: 0,
            part: 0,
        }
    }

    /// Words that parts have of their own are those of this one from here on.
    pub(crate) const fn enter(&mut self, part: usize) {
        self.part = (part as u64) << PART_BITS;
    }

    /// The index of a word, whosever it is.
    const fn whole(&self, index: u64) -> u64 {
        if index >> PART_BITS == 0 {
            index | self.part
        } else {
            index
        }
    }

    /// The next word of the part at hand that is not zero, in the order of places: where to go on,
    /// its index, and the word. Words may be set meanwhile; those of other parts, and zeroes.
    pub(crate) fn next(&self, from: usize) -> Option<(usize, u64, u64)> {
        let mut at = from;
        while at < self.used * CHUNK {
            let (chunk, words) = (self.held[at / CHUNK * 2], self.held[at / CHUNK * 2 + 1]);
            let first = chunk * CHUNK as u64;
            if words == 0 || first >> PART_BITS << PART_BITS != self.part {
                at = (at / CHUNK + 1) * CHUNK;
                continue;
            }
            let word = self.pool[at];
            at += 1;
            if word != 0 {
                let index = first + (at - 1) as u64 % CHUNK as u64 - self.part;
                return Some((at, index, word));
            }
        }
        None
    }

    /// The first word of the part at hand from an index on that is not zero: its index, and it.
    pub(crate) fn after(&self, index: u64) -> Option<(u64, u64)> {
        let mut from = self.whole(index);
        loop {
            let chunk = from / CHUNK as u64;
            if let Some(place) = self.place(from) {
                let words = &self.pool[place..place - place % CHUNK + CHUNK];
                if let Some(at) = words.iter().position(|&word| word != 0) {
                    return Some((from + at as u64 - self.part, words[at]));
                }
            }
            let pairs = self.table.chunks_exact(2).filter(|it| it[1] != 0);
            let behind = pairs.map(|it| it[0]).filter(|&it| it > chunk);
            from = behind.min()? * CHUNK as u64;
            if from >> PART_BITS << PART_BITS != self.part {
                return None;
            }
        }
    }

    fn pairs(&self) -> usize {
        self.table.len() / 2
    }

    /// Where the table is searched for a chunk first.
    fn home(&self, chunk: u64) -> usize {
        let first = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        usize::try_from(first % self.pairs() as u64).unwrap_or(0)
    }

    /// Where the table has this chunk, or where it would.
    fn find(&self, chunk: u64) -> Option<usize> {
        let (first, pairs) = (self.home(chunk), self.pairs());
        (0..pairs)
            .map(|step| (first + step) % pairs)
            .find(|&at| self.table[2 * at + 1] == 0 || self.table[2 * at] == chunk)
    }

    fn place(&self, index: u64) -> Option<usize> {
        let at = self.find(index / CHUNK as u64)?;
        let chunk = usize::try_from(self.table[2 * at + 1].checked_sub(1)?).ok()?;
        let within = usize::try_from(index % CHUNK as u64).ok()?;
        Some(chunk * CHUNK + within)
    }

    /// Word `index`.
    #[must_use]
    pub fn get(&self, index: u64) -> u64 {
        self.place(self.whole(index))
            .map_or(0, |place| self.pool[place])
    }

    /// Sets a word; `None` if there is no room for it.
    pub fn set(&mut self, index: u64, word: u64) -> Option<()> {
        let index = self.whole(index);
        let place = match self.place(index) {
            Some(place) => place,
            None if word == 0 => return Some(()),
            None => self.add(index)?,
        };
        let old = core::mem::replace(&mut self.pool[place], word);
        let words = &mut self.held[place / CHUNK * 2 + 1];
        match (old, word) {
            (0, 0) => {}
            (0, _) => *words += 1,
            (_, 0) => {
                *words -= 1;
                if *words == 0 {
                    self.remove(index / CHUNK as u64);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Adds the chunk of a word, of which nothing is there; where the word stands.
    fn add(&mut self, index: u64) -> Option<usize> {
        let chunk = index / CHUNK as u64;
        let at = self.find(chunk)?;
        let place = if let Some(free) = self.free.checked_sub(1) {
            let free = usize::try_from(free).ok()?;
            self.free = self.held[2 * free];
            free
        } else if (self.used + 1) * CHUNK <= self.pool.len() {
            self.used += 1;
            self.used - 1
        } else {
            return None;
        };
        self.table[2 * at] = chunk;
        self.table[2 * at + 1] = place as u64 + 1;
        self.held[2 * place] = chunk;
        self.held[2 * place + 1] = 0;
        self.place(index)
    }

    /// Gives back a chunk that has no words any more.
    fn remove(&mut self, chunk: u64) {
        let Some(at) = self.find(chunk) else {
            return;
        };
        let place = self.table[2 * at + 1];
        // One that is in the table has a place.
        let held = usize::try_from(place - 1).unwrap_or(0);
        self.held[2 * held] = core::mem::replace(&mut self.free, place);
        self.close(at);
    }

    /// Empties a place of the table; those behind it that were put aside for it move up, so that
    /// whoever searches for them meets no gap.
    fn close(&mut self, at: usize) {
        let pairs = self.pairs();
        let (mut gap, mut next) = (at, (at + 1) % pairs);
        while self.table[2 * next + 1] != 0 && next != at {
            let home = self.home(self.table[2 * next]);
            // May it stand at the gap? Not if it would come to stand before its home.
            if (next + pairs - home) % pairs >= (next + pairs - gap) % pairs {
                self.table.copy_within(2 * next..2 * next + 2, 2 * gap);
                gap = next;
            }
            next = (next + 1) % pairs;
        }
        self.table[2 * gap..2 * gap + 2].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn it_holds_what_a_map_holds_until_it_is_full() {
        let (chunks, mut seed) = (40, 1_u64);
        let mut table = vec![0; Sparse::table_words(chunks)];
        let mut pool = vec![0; Sparse::pool_words(chunks)];
        let mut sparse = Sparse::new(&mut table, &mut pool);
        let mut model = BTreeMap::new();
        let mut refused = 0;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let index = (seed >> 40) % 600 * 97 + (seed >> 60 << 40);
            let word = seed >> 33 & 3;
            assert_eq!(sparse.get(index), model.get(&index).copied().unwrap_or(0));
            match sparse.set(index, word) {
                Some(()) => _ = model.insert(index, word),
                None => refused += 1,
            }
        }
        for (&index, &word) in &model {
            assert_eq!(sparse.get(index), word);
        }
        assert!(refused > 0 && model.len() > 100);
    }

    #[test]
    fn chunks_that_have_no_words_any_more_are_had_by_others() {
        let chunks = 8;
        let mut table = vec![0; Sparse::table_words(chunks)];
        let mut pool = vec![0; Sparse::pool_words(chunks)];
        let mut sparse = Sparse::new(&mut table, &mut pool);
        // Eight at a time, at ever other places.
        for round in 0..1000 {
            let indices = (0..8).map(|step| (round * 8 + step) * 77 * CHUNK as u64 + step);
            for index in indices.clone() {
                sparse.set(index, index + 1).unwrap();
            }
            assert_eq!(sparse.set(1 << 39, 1), None);
            for index in indices.clone() {
                assert_eq!(sparse.get(index), index + 1);
            }
            let mut from = 0;
            while let Some((next, index, _)) = sparse.next(from) {
                sparse.set(index, 0).unwrap();
                from = next;
            }
            assert!(indices.clone().all(|index| sparse.get(index) == 0));
            assert_eq!(sparse.after(0), None);
        }
    }

    #[test]
    fn each_part_has_words_of_its_own_and_all_of_them_are_found() {
        let mut table = vec![0; Sparse::table_words(64)];
        let mut pool = vec![0; Sparse::pool_words(64)];
        let mut sparse = Sparse::new(&mut table, &mut pool);
        let indices = |part: u64| (1..9).map(move |step| step * step * 301 * (part + 1));
        for part in 0..3 {
            sparse.enter(part);
            for index in indices(part as u64) {
                assert_eq!(sparse.get(index), 0);
                sparse.set(index, part as u64 + 1).unwrap();
            }
        }
        sparse.set(1 << 60, 99).unwrap();
        for part in 0..4 {
            sparse.enter(part);
            assert_eq!(sparse.get(1 << 60), 99);
            let (mut from, mut found) = (0, Vec::new());
            let mut in_order = Vec::new();
            while let Some((index, _)) = sparse.after(in_order.last().map_or(0, |it| it + 1)) {
                in_order.push(index);
            }
            while let Some((next, index, word)) = sparse.next(from) {
                assert_eq!(word, part as u64 + 1);
                found.push(index);
                from = next;
            }
            found.sort_unstable();
            assert_eq!(found, in_order);
            let expected = indices(part as u64).filter(|_| part < 3);
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}
