//! What the host packs for a program of Linux: the program, laid out, with what it is started with
//! and the files that it finds.
//!
//! A bundle is words first, then records and bytes that the words lead to by their offsets. The
//! host has read the program's ELF file, so the personality maps segments and knows nothing of
//! ELF. It holds all input from outside that a program gets at its start, so replicas get the same.
//! Readers check every offset: a damaged bundle yields `None`, never a byte outside it.

/// First word of a bundle.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rcoelnx4");

/// A word of the header, by its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Word {
    /// [`MAGIC`].
    Magic = 0,
    /// Bytes of the bundle.
    Bytes = 1,
    /// Pages of memory of a replica, at most.
    Pages = 2,
    /// Nanoseconds of the host's clock when the bundle was packed.
    Clock = 3,
    /// First of the four words that random numbers are made from.
    Seed = 4,
    /// Offset and number of the records of programs; the first is the one that is begun.
    Programs = 8,
    /// The same of the program's arguments: strings that end with a zero byte.
    Arguments = 10,
    /// The same of its environment.
    Environment = 12,
    /// The same of the records of files; the first is the program itself.
    Files = 14,
    /// 0 if the machine has no network, 1 if others reach it by one, 2 if it reaches others, too.
    Network = 16,
    /// Offset and bytes of the path of the folder whose files are on the disk; no bytes if there is
    /// no disk.
    Disk = 17,
    /// 1 if the program's input comes while the machine runs, 0 if all there is of it was packed.
    Input = 19,
}

/// Words of the header.
pub const HEADER_WORDS: usize = 20;
/// Words of the record of a program: the number of its file; where it begins; where its program
/// headers are in its memory, and how many; where its image ends; offset and number of the records
/// of its segments, and of the addresses of instructions that identify the processor; offset and
/// bytes of why it cannot be begun, if that is so; and one more than the number of its loader among
/// programs, or 0. What cannot be begun may have segments all the same: those of a library.
pub const PROGRAM_WORDS: usize = 12;
/// Words of the record of a segment: address, bytes in memory, offset and bytes of its content,
/// rights.
pub const SEGMENT_WORDS: usize = 5;
/// Words of the record of a file: offset and bytes of its path, offset and bytes of its content,
/// and its mode.
pub const FILE_WORDS: usize = 5;

/// A segment of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// Where it is.
    pub address: u64,
    /// Bytes that it takes; those behind its content are zero.
    pub bytes: u64,
    /// What it begins with.
    pub content: &'a [u8],
    /// Where that is in its file.
    pub offset: u64,
    /// [`crate::Rights`] as a word.
    pub rights: u64,
}

/// A program in one of the files.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    bundle: Bundle<'a>,
    /// The number of its file.
    pub file: u64,
    /// Where it begins.
    pub entry: u64,
    /// Where its program headers are in its memory, or 0.
    pub headers: u64,
    /// How many of them there are.
    pub header_count: u64,
    /// Where its image ends.
    pub end: u64,
    /// Why it cannot be begun; empty if it can.
    pub why: &'a [u8],
    loader: u64,
    segments: [u64; 2],
    identities: [u64; 2],
}

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File<'a> {
    /// Its path, from the root.
    pub path: &'a [u8],
    /// What is in it.
    pub content: &'a [u8],
    /// Its permissions.
    pub mode: u64,
}

/// A bundle that is being read.
#[derive(Clone, Copy, Debug)]
pub struct Bundle<'a>(&'a [u8]);

impl<'a> Bundle<'a> {
    /// The bundle at the beginning of these bytes, if there is one.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let bundle = Self(bytes);
        let len = usize::try_from(bundle.word(Word::Bytes)?).ok()?;
        (bundle.word(Word::Magic)? == MAGIC).then_some(Self(bytes.get(..len)?))
    }

    fn word_at(&self, offset: usize) -> Option<u64> {
        let bytes = self.0.get(offset..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// A word of the header.
    #[must_use]
    pub fn word(&self, word: Word) -> Option<u64> {
        self.word_at(word as usize * 8)
    }

    /// The words that random numbers are made from.
    #[must_use]
    pub fn seed(&self) -> Option<[u64; 4]> {
        let mut seed = [0; 4];
        for (index, word) in seed.iter_mut().enumerate() {
            *word = self.word_at((Word::Seed as usize + index) * 8)?;
        }
        Some(seed)
    }

    /// Offset and number that a word of the header and the next one are.
    fn table(&self, word: Word) -> Option<[u64; 2]> {
        let count = self.word_at((word as usize + 1) * 8)?;
        Some([self.word(word)?, count])
    }

    /// Record `index` of a table.
    fn record<const WORDS: usize>(
        &self,
        [first, count]: [u64; 2],
        index: usize,
    ) -> Option<[u64; WORDS]> {
        let first = usize::try_from(first).ok()?;
        if index as u64 >= count {
            return None;
        }
        let start = index.checked_mul(WORDS * 8)?.checked_add(first)?;
        let mut record = [0; WORDS];
        for (place, word) in record.iter_mut().enumerate() {
            *word = self.word_at(start.checked_add(place * 8)?)?;
        }
        Some(record)
    }

    fn bytes(&self, offset: u64, len: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(len).ok()?)?;
        self.0.get(start..end)
    }

    /// The path of the folder whose files are on the disk; empty without a disk.
    #[must_use]
    pub fn disk(&self) -> Option<&'a [u8]> {
        let [offset, len] = self.table(Word::Disk)?;
        self.bytes(offset, len)
    }

    /// Program `index`.
    #[must_use]
    pub fn program(&self, index: usize) -> Option<Program<'a>> {
        let words: [u64; PROGRAM_WORDS] = self.record(self.table(Word::Programs)?, index)?;
        let [file, entry, headers, header_count, end, first, count, ..] = words;
        let [.., identities, identity_count, why, why_bytes, loader] = words;
        Some(Program {
            bundle: *self,
            file,
            entry,
            headers,
            header_count,
            end,
            why: self.bytes(why, why_bytes)?,
            loader,
            segments: [first, count],
            identities: [identities, identity_count],
        })
    }

    /// The program in the file of which this is the content.
    #[must_use]
    pub fn program_in(&self, content: &[u8]) -> Option<Program<'a>> {
        let mut all = (0..).map_while(|index| self.program(index));
        all.find(|it| core::ptr::eq(it.content(), content))
    }

    /// Strings of a table, each without the zero byte at its end.
    pub fn strings(&self, table: Word) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let first = self.word(table).and_then(|it| usize::try_from(it).ok());
        let count = self.word_at((table as usize + 1) * 8).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(0);
        let rest = first.and_then(|first| self.0.get(first..)).unwrap_or(&[]);
        rest.split(|&byte| byte == 0).take(count)
    }

    /// File `index`.
    #[must_use]
    pub fn file(&self, index: usize) -> Option<File<'a>> {
        let [path, path_len, offset, len, mode] = self.record(self.table(Word::Files)?, index)?;
        Some(File {
            path: self.bytes(path, path_len)?,
            content: self.bytes(offset, len)?,
            mode,
        })
    }
}

impl<'a> Program<'a> {
    /// Segment `index`.
    #[must_use]
    pub fn segment(&self, index: usize) -> Option<Segment<'a>> {
        let [address, bytes, offset, len, rights] = self.bundle.record(self.segments, index)?;
        let content = self.bundle.bytes(offset, len)?;
        let index = usize::try_from(self.file).ok()?;
        let file: [u64; FILE_WORDS] = self.bundle.record(self.bundle.table(Word::Files)?, index)?;
        (len <= bytes).then_some(Segment {
            address,
            bytes,
            content,
            offset: offset.checked_sub(file[2])?,
            rights,
        })
    }

    /// Where instruction `index` is, of those that identify the processor, which are in order.
    #[must_use]
    pub fn identity(&self, index: usize) -> Option<u64> {
        let [address] = self.bundle.record(self.identities, index)?;
        Some(address)
    }

    /// All segments.
    pub fn segments(self) -> impl Iterator<Item = Segment<'a>> {
        (0..).map_while(move |index| self.segment(index))
    }

    /// Where all such instructions are.
    pub fn identities(self) -> impl Iterator<Item = u64> + use<'a> {
        (0..).map_while(move |index| self.identity(index))
    }

    /// What its file holds.
    fn content(&self) -> &'a [u8] {
        let file = usize::try_from(self.file).ok();
        let file = file.and_then(|file| self.bundle.file(file));
        file.map_or(&[], |file| file.content)
    }

    /// The loader that is to be begun in its place, as it is a dynamic program.
    #[must_use]
    pub fn loader(&self) -> Option<Self> {
        let index = usize::try_from(self.loader.checked_sub(1)?).ok()?;
        self.bundle.program(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn bundle() -> Vec<u8> {
        let mut words = [0_u64; HEADER_WORDS + SEGMENT_WORDS + FILE_WORDS + PROGRAM_WORDS + 2];
        let mut set = |word: Word, values: [u64; 2]| {
            words[word as usize] = values[0];
            words[word as usize + 1] = values[1];
        };
        let segments = HEADER_WORDS as u64 * 8;
        let files = segments + SEGMENT_WORDS as u64 * 8;
        let programs = files + FILE_WORDS as u64 * 8;
        let text = programs + PROGRAM_WORDS as u64 * 8;
        set(Word::Magic, [MAGIC, text + 16]);
        set(Word::Programs, [programs, 1]);
        set(Word::Files, [files, 1]);
        set(Word::Arguments, [text, 2]);
        words[HEADER_WORDS..][..5].copy_from_slice(&[0x40_0000, 9, text, 4, 5]);
        words[HEADER_WORDS + SEGMENT_WORDS..][..5].copy_from_slice(&[text, 2, text, 7, 0o755]);
        let tail = HEADER_WORDS + SEGMENT_WORDS + FILE_WORDS;
        words[tail..][..7].copy_from_slice(&[0, 0x40_0001, 0, 0, 0x40_0009, segments, 1]);
        words[tail + PROGRAM_WORDS - 1] = 1;
        let tail = tail + PROGRAM_WORDS;
        words[tail] = u64::from_le_bytes(*b"/a\0bcd\0e");
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_bundle_says_what_it_holds() {
        let bytes = bundle();
        let bundle = Bundle::new(&bytes).unwrap();
        let program = bundle.program(0).unwrap();
        let segment = program.segment(0).unwrap();
        assert_eq!(
            (segment.address, segment.content, segment.offset),
            (0x40_0000, &b"/a\0b"[..], 0)
        );
        assert_eq!(program.segment(1), None);
        assert!(program.why.is_empty() && bundle.program(1).is_none());
        assert_eq!(bundle.file(0).unwrap().path, b"/a");
        let words: Vec<&[u8]> = bundle.strings(Word::Arguments).collect();
        assert_eq!(words, [&b"/a"[..], b"bcd"]);
        assert!(program.identity(0).is_none() && bundle.seed() == Some([0; 4]));
        let content = bundle.file(0).unwrap().content;
        assert_eq!(bundle.program_in(content).map(|it| it.file), Some(0));
        assert!(bundle.program_in(&Vec::from(content)).is_none());
        assert_eq!(program.loader().map(|it| it.entry), Some(0x40_0001));
    }

    #[test]
    fn a_damaged_bundle_yields_nothing_outside_it() {
        let whole = bundle();
        for at in 0..whole.len() / 8 {
            for value in [u64::MAX, 1 << 40, whole.len() as u64 - 1] {
                let mut bytes = whole.clone();
                bytes[at * 8..][..8].copy_from_slice(&value.to_le_bytes());
                let Some(bundle) = Bundle::new(&bytes) else {
                    continue;
                };
                let _ = (bundle.file(0), bundle.seed());
                let _ = bundle.strings(Word::Files).count();
                if let Some(program) = bundle.program(0) {
                    let _ = (program.segment(0), program.identity(0), program.loader());
                    let _ = bundle.program_in(&[]);
                }
            }
        }
        for len in 0..whole.len() {
            assert!(Bundle::new(&whole[..len]).is_none());
        }
    }
}
