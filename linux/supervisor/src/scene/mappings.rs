//! What is mapped where in a replica, and what identifies the files.

use std::fs::{File, read_to_string};

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, ReadCache, elf::FileHeader64};
use serde::Serialize;

use super::Word;

/// Files told of at most; a program with more has those at the lowest addresses told.
const MOST: usize = 256;

/// A line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The four letters of what may be done there.
    pub(crate) may: String,
    pub(crate) offset: u64,
    /// The file's number on its device, or 0.
    pub(crate) inode: u64,
    /// The file, or a name in brackets; empty for neither.
    pub(crate) name: String,
}

impl Area {
    /// Whether it is of a file that can be opened by its name.
    pub(crate) fn is_file(&self) -> bool {
        self.name.starts_with('/') && !self.name.ends_with(" (deleted)")
    }

    /// Reads a line.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let may = words.next()?.to_owned();
        let offset = words.next()?;
        let inode = words.nth(1)?;
        let name = words.next().unwrap_or_default().trim_start();
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            may,
            offset: u64::from_str_radix(offset, 16).ok()?,
            inode: inode.parse().ok()?,
            name: name.to_owned(),
        })
    }
}

/// All that is mapped in a process; nothing if it is gone.
pub(crate) fn areas(pid: u32) -> Vec<Area> {
    let text = read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(Area::parse).collect()
}

/// Code of a file in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// First address.
    pub start: Word,
    /// First address past it.
    pub end: Word,
    /// Where in the file it begins.
    pub offset: Word,
    /// The file.
    pub file: String,
    /// What its linker has given it as identity, in hexadecimal digits.
    pub build_id: Option<String>,
}

impl Mapping {
    pub(super) const fn holds(&self, address: u64) -> bool {
        self.start.0 <= address && address < self.end.0
    }
}

/// The code of files among what is mapped.
pub(crate) fn code_of(areas: &[Area]) -> Vec<Mapping> {
    let code = areas
        .iter()
        .filter(|it| it.may.contains('x') && it.is_file());
    let told = code.take(MOST).map(|it| Mapping {
        start: Word(it.start),
        end: Word(it.end),
        offset: Word(it.offset),
        build_id: build_id(&it.name),
        file: it.name.clone(),
    });
    told.collect()
}

/// The build id of a file, if it is an ELF file that has one.
fn build_id(path: &str) -> Option<String> {
    let data = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<LittleEndian>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, &data).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, &data) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            let is_it = note.name() == object::elf::ELF_NOTE_GNU
                && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID;
            if is_it {
                return Some(
                    note.desc()
                        .iter()
                        .map(|byte| format!("{byte:02x}"))
                        .collect(),
                );
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "7f00-7f20 r-xp 00001000 fe:01 123   /usr/lib/a b.so";
        let area = Area::parse(line).expect("an area");
        assert_eq!(
            (area.start, area.end, area.offset),
            (0x7f00, 0x7f20, 0x1000)
        );
        assert!(area.is_file());
        assert_eq!((area.name.as_str(), area.inode), ("/usr/lib/a b.so", 123));
        let plain = Area::parse("1000-2000 rw-p 00000000 00:00 0 ").expect("an area");
        assert_eq!((plain.name.as_str(), plain.is_file()), ("", false));
        for line in ["", "1000", "x-y r-xp 0 0 0", "1000-2000"] {
            assert_eq!(Area::parse(line), None, "{line}");
        }
    }

    #[test]
    fn this_process_has_code() {
        let code = code_of(&areas(std::process::id()));
        let here = u64::try_from(areas as fn(u32) -> Vec<Area> as usize).expect("64 bits");
        assert!(code.iter().any(|mapping| mapping.holds(here)), "{code:?}");
    }
}
