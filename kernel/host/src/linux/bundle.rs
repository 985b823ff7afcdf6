//! Writing bundles: what [`rcoe_abi::bundle`] reads.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use rcoe_abi::bundle::{FILE_WORDS, HEADER_WORDS, MAGIC, SEGMENT_WORDS, Word};

use super::elf::Plan;

/// A file that goes into a bundle.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
}

/// What goes into a bundle; the first file is the program.
pub(crate) struct Input<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) identities: &'a [u64],
    pub(crate) arguments: &'a [OsString],
    pub(crate) environment: &'a [OsString],
    pub(crate) files: &'a [File],
    pub(crate) clock: u64,
    pub(crate) seed: [u64; 4],
}

/// Records, and the bytes behind them that they lead to.
struct Writer {
    header: [u64; HEADER_WORDS],
    records: Vec<u64>,
    bytes: Vec<u8>,
    /// Where the bytes begin.
    start: u64,
}

impl Writer {
    /// The next record begins here.
    fn table(&mut self, word: Word, count: usize) {
        let offset = (HEADER_WORDS + self.records.len()) as u64 * 8;
        self.set(word, offset, count);
    }

    fn set(&mut self, word: Word, offset: u64, count: usize) {
        self.header[word as usize] = offset;
        self.header[word as usize + 1] = count as u64;
    }

    /// Offset and number of these bytes.
    fn put(&mut self, bytes: &[u8]) -> [u64; 2] {
        let offset = self.start + self.bytes.len() as u64;
        self.bytes.extend(bytes);
        [offset, bytes.len() as u64]
    }

    fn strings(&mut self, word: Word, strings: &[OsString]) {
        let offset = self.start + self.bytes.len() as u64;
        for string in strings {
            self.put(string.as_bytes());
            self.put(&[0]);
        }
        self.set(word, offset, strings.len());
    }
}

/// The bundle, with no word yet of how much memory there is.
pub(crate) fn write(input: &Input<'_>) -> Vec<u8> {
    let plan = input.plan;
    let words = HEADER_WORDS
        + plan.segments.len() * SEGMENT_WORDS
        + input.identities.len()
        + input.files.len() * FILE_WORDS;
    let mut writer = Writer {
        header: [0; HEADER_WORDS],
        records: Vec::new(),
        bytes: Vec::new(),
        start: words as u64 * 8,
    };
    writer.table(Word::Files, input.files.len());
    let mut program = 0;
    for (index, file) in input.files.iter().enumerate() {
        let path = writer.put(&file.path.clone().into_os_string().into_vec());
        let content = writer.put(&file.content);
        if index == 0 {
            program = content[0];
        }
        writer.records.extend(path.into_iter().chain(content));
        writer.records.push(file.mode.into());
    }
    writer.table(Word::Segments, plan.segments.len());
    for segment in &plan.segments {
        let (offset, len) = segment.content;
        let record = [segment.address, segment.bytes, program + offset, len];
        writer.records.extend(record);
        writer.records.push(segment.rights);
    }
    writer.table(Word::Identities, input.identities.len());
    writer.records.extend(input.identities);
    writer.strings(Word::Arguments, input.arguments);
    writer.strings(Word::Environment, input.environment);
    let mut header = writer.header;
    for (word, value) in [
        (Word::Magic, MAGIC),
        (Word::Bytes, writer.start + writer.bytes.len() as u64),
        (Word::Clock, input.clock),
        (Word::Entry, plan.entry),
        (Word::Headers, plan.headers),
        (Word::HeaderCount, plan.header_count),
        (Word::End, plan.end),
    ] {
        header[word as usize] = value;
    }
    header[Word::Seed as usize..][..4].copy_from_slice(&input.seed);
    let words = header.into_iter().chain(writer.records);
    let mut bundle: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bundle.extend(writer.bytes);
    bundle
}

/// Says in a bundle what follows from the machine: how many pages of memory a replica has, whether
/// there is a network.
pub(crate) fn set(bundle: &mut [u8], word: Word, value: u64) {
    bundle[word as usize * 8..][..8].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::elf::Segment;
    use rcoe_abi::bundle::Bundle;

    #[test]
    fn what_is_written_is_read() {
        let plan = Plan {
            entry: 0x40_1000,
            headers: 0x40_0040,
            header_count: 3,
            end: 0x40_3000,
            segments: vec![Segment {
                address: 0x40_1000,
                bytes: 0x2000,
                content: (4, 3),
                rights: 5,
            }],
        };
        let file = |path: &str, content: &[u8]| File {
            path: path.into(),
            content: content.to_vec(),
            mode: 0o644,
        };
        let mut bytes = write(&Input {
            plan: &plan,
            identities: &[0x40_1001],
            arguments: &["a".into(), "b c".into()],
            environment: &["X=1".into()],
            files: &[file("/p", b"ELF.text"), file("/etc/x", b"")],
            clock: 77,
            seed: [1, 2, 3, 4],
        });
        set(&mut bytes, Word::Pages, 99);
        set(&mut bytes, Word::Network, 1);
        let bundle = Bundle::new(&bytes).unwrap();
        let segment = bundle.segment(0).unwrap();
        assert_eq!((segment.content, segment.bytes), (&b"tex"[..], 0x2000));
        assert!(bundle.identifies(0x40_1001) && !bundle.identifies(0x40_1000));
        let words: Vec<&[u8]> = bundle.strings(Word::Arguments).collect();
        assert_eq!(words, [&b"a"[..], b"b c"]);
        assert_eq!(bundle.strings(Word::Environment).next(), Some(&b"X=1"[..]));
        assert_eq!(bundle.file(1).unwrap().path, b"/etc/x");
        assert_eq!(bundle.file(2), None);
        assert_eq!(
            (bundle.word(Word::Pages), bundle.word(Word::Clock)),
            (Some(99), Some(77))
        );
        assert_eq!(bundle.word(Word::Network), Some(1));
        assert_eq!(bundle.seed(), Some([1, 2, 3, 4]));
    }
}
