//! Writing bundles: what [`rcoe_abi::bundle`] reads.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rcoe_abi::bundle::{FILE_WORDS, HEADER_WORDS, MAGIC, PROGRAM_WORDS, SEGMENT_WORDS, Word};

use super::elf::Plan;

/// A file that goes into a bundle.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
}

/// A program or a library.
pub(crate) struct Program {
    /// The number of its file.
    pub(crate) file: usize,
    /// How it is laid out, with where its code identifies the processor, if that is known.
    pub(crate) laid: Option<(Plan, Vec<u64>)>,
    /// Why it cannot be begun.
    pub(crate) why: Option<String>,
    /// The number of its loader among programs.
    pub(crate) loader: Option<usize>,
}

/// What goes into a bundle; the first file and the first program are the one that is begun.
pub(crate) struct Input<'a> {
    pub(crate) programs: &'a [Program],
    pub(crate) arguments: &'a [OsString],
    pub(crate) environment: &'a [OsString],
    pub(crate) files: &'a [File],
    pub(crate) disk: Option<&'a Path>,
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
    /// Where the next record begins.
    const fn place(&self) -> u64 {
        (HEADER_WORDS + self.records.len()) as u64 * 8
    }

    /// The next record is the first one of this table.
    fn table(&mut self, word: Word, count: usize) {
        self.set(word, self.place(), count);
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

/// Words of all records.
fn record_words(input: &Input<'_>) -> usize {
    let laid = input.programs.iter().flat_map(|it| &it.laid);
    let tables = laid.map(|(plan, found)| plan.segments.len() * SEGMENT_WORDS + found.len());
    input.files.len() * FILE_WORDS + input.programs.len() * PROGRAM_WORDS + tables.sum::<usize>()
}

/// Writes the records of files; where their contents are.
fn write_files(writer: &mut Writer, files: &[File]) -> Vec<u64> {
    writer.table(Word::Files, files.len());
    let mut contents = Vec::new();
    for file in files {
        let path = writer.put(&file.path.clone().into_os_string().into_vec());
        let content = writer.put(&file.content);
        contents.push(content[0]);
        writer.records.extend(path.into_iter().chain(content));
        writer.records.push(file.mode.into());
    }
    contents
}

/// Writes the segments of a program whose file's content is there, and where its code identifies
/// the processor: what its own record says of that.
fn write_laid(writer: &mut Writer, (plan, found): &(Plan, Vec<u64>), content: u64) -> [u64; 8] {
    let segments = writer.place();
    for segment in &plan.segments {
        let (offset, len) = segment.content;
        let offset = content + offset;
        let record = [segment.address, segment.bytes, offset, len, segment.rights];
        writer.records.extend(record);
    }
    let places = writer.place();
    writer.records.extend(found);
    let counts = [plan.segments.len() as u64, found.len() as u64];
    let begin = [plan.entry, plan.headers, plan.header_count, plan.end];
    let tables = [segments, counts[0], places, counts[1]];
    core::array::from_fn(|at| if at < 4 { begin[at] } else { tables[at - 4] })
}

/// Writes the records of programs behind those that they lead to.
fn write_programs(writer: &mut Writer, programs: &[Program], contents: &[u64]) {
    let mut records = Vec::new();
    for program in programs {
        records.push(program.file as u64);
        records.extend(match &program.laid {
            Some(laid) => write_laid(writer, laid, contents[program.file]),
            None => [0; 8],
        });
        let why = program.why.as_deref().unwrap_or("");
        records.extend(writer.put(why.as_bytes()));
        records.push(program.loader.map_or(0, |it| it as u64 + 1));
    }
    writer.table(Word::Programs, programs.len());
    writer.records.extend(records);
}

/// The bundle, with no word yet of how much memory there is.
pub(crate) fn write(input: &Input<'_>) -> Vec<u8> {
    let mut writer = Writer {
        header: [0; HEADER_WORDS],
        records: Vec::new(),
        bytes: Vec::new(),
        start: (HEADER_WORDS + record_words(input)) as u64 * 8,
    };
    let contents = write_files(&mut writer, input.files);
    write_programs(&mut writer, input.programs, &contents);
    writer.strings(Word::Arguments, input.arguments);
    writer.strings(Word::Environment, input.environment);
    let disk = input
        .disk
        .map_or(&[][..], |folder| folder.as_os_str().as_bytes());
    let [offset, len] = writer.put(disk);
    writer.header[Word::Disk as usize..][..2].copy_from_slice(&[offset, len]);
    let mut header = writer.header;
    for (word, value) in [
        (Word::Magic, MAGIC),
        (Word::Bytes, writer.start + writer.bytes.len() as u64),
        (Word::Clock, input.clock),
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
/// there is a network, whether input comes.
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
            base: 0,
            segments: vec![Segment {
                address: 0x40_1000,
                bytes: 0x2000,
                content: (4, 3),
                rights: 5,
            }],
            loader: None,
        };
        let file = |path: &str, content: &[u8]| File {
            path: path.into(),
            content: content.to_vec(),
            mode: 0o644,
        };
        let program = |file, laid, why: Option<&str>, loader| Program {
            file,
            laid,
            why: why.map(str::to_owned),
            loader,
        };
        let mut bytes = write(&Input {
            programs: &[
                program(0, Some((plan, vec![0x40_1001])), None, Some(1)),
                program(1, None, Some("damaged"), None),
            ],
            arguments: &["a".into(), "b c".into()],
            environment: &["X=1".into()],
            files: &[file("/p", b"ELF.text"), file("/etc/x", b"")],
            disk: Some(Path::new("/var/x")),
            clock: 77,
            seed: [1, 2, 3, 4],
        });
        set(&mut bytes, Word::Pages, 99);
        set(&mut bytes, Word::Network, 1);
        let bundle = Bundle::new(&bytes).unwrap();
        let program = bundle.program(0).unwrap();
        let segment = program.segment(0).unwrap();
        assert_eq!((program.file, program.entry), (0, 0x40_1000));
        assert_eq!((program.headers, program.header_count), (0x40_0040, 3));
        assert_eq!((program.end, program.why), (0x40_3000, &b""[..]));
        let other = bundle.program(1).unwrap();
        assert_eq!((other.file, other.why), (1, &b"damaged"[..]));
        assert!(other.segment(0).is_none() && bundle.program(2).is_none());
        assert_eq!((segment.content, segment.bytes), (&b"tex"[..], 0x2000));
        assert_eq!(segment.offset, 4);
        assert_eq!(program.identities().collect::<Vec<_>>(), [0x40_1001]);
        assert_eq!(program.loader().map(|it| it.file), Some(1));
        assert!(other.loader().is_none());
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
        assert_eq!(bundle.disk(), Some(&b"/var/x"[..]));
        assert_eq!(bundle.seed(), Some([1, 2, 3, 4]));
    }
}
