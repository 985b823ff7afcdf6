//! An array of words with few of them: pages of programs and files, by number.
//!
//! Words stand in chunks of neighbours, and a table that is searched by hashing leads to a chunk.
//! A chunk stays once it is made.
//!
//! Words below an index are a part's own: those of the part at hand are meant.

/// Words of a chunk.
const CHUNK: usize = 512;
/// Logarithm of the words that each part has of its own.
const PART_BITS: u32 = 40;

/// The array. Words that were never set are 0.
#[derive(Debug)]
pub struct Sparse<'a> {
    /// Number of the chunk and one more than its place, or zeroes.
    table: &'a mut [u64],
    pool: &'a mut [u64],
    used: usize,
    part: u64,
}

impl<'a> Sparse<'a> {
    /// Words that hold the table of so many chunks.
    #[must_use]
    pub const fn table_words(chunks: usize) -> usize {
        4 * chunks
    }

    /// Words that hold so many chunks.
    #[must_use]
    pub const fn pool_words(chunks: usize) -> usize {
        CHUNK * chunks
    }

    /// An empty array in zeroed memory.
    #[must_use]
    pub const fn new(table: &'a mut [u64], pool: &'a mut [u64]) -> Self {
        Self {
            table,
            pool,
            used: 0,
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

    /// The next word of the part at hand that is not zero, in the order in which chunks were found
    /// places: where to go on, its index, and the word.
    pub(crate) fn next(&self, from: usize) -> Option<(usize, u64, u64)> {
        let mut at = from;
        while at < self.table.len() / 2 * CHUNK {
            let (chunk, place) = (self.table[at / CHUNK * 2], self.table[at / CHUNK * 2 + 1]);
            let first = chunk * CHUNK as u64;
            let place = usize::try_from(place).ok()?;
            if place == 0 || first >> PART_BITS << PART_BITS != self.part {
                at = (at / CHUNK + 1) * CHUNK;
                continue;
            }
            let word = self.pool[(place - 1) * CHUNK + at % CHUNK];
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

    /// Where the table has this chunk, or where it would.
    fn find(&self, chunk: u64) -> Option<usize> {
        let pairs = self.table.len() / 2;
        let first = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        (0..pairs as u64)
            .filter_map(|step| usize::try_from((first + step) % pairs as u64).ok())
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
        if let Some(place) = self.place(index) {
            self.pool[place] = word;
            return Some(());
        }
        if word == 0 {
            return Some(());
        }
        let at = self.find(index / CHUNK as u64)?;
        if (self.used + 1) * CHUNK > self.pool.len() {
            return None;
        }
        self.table[2 * at] = index / CHUNK as u64;
        self.used += 1;
        self.table[2 * at + 1] = self.used as u64;
        let place = self.place(index)?;
        self.pool[place] = word;
        Some(())
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
        assert!(refused > 0 && model.len() > 100);
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
