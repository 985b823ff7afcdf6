//! Reading a Linux program's ELF file: where its segments go, or why it cannot be carried, and what
//! other files it needs.

use std::path::PathBuf;

use object::read::elf::{FileHeader as _, NoteIterator, ProgramHeader as _};
use object::{Endianness, elf};
use rcoe_abi::object::PAGE;

use crate::Arch;

mod needs;

pub(crate) use needs::{Needs, needs};

/// What is added to the addresses of a program that can be anywhere.
const ANYWHERE: u64 = 0x40_0000;
/// Where segments may be.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x8_0000_0000;
/// Most segments.
const SEGMENTS: usize = 16;

/// Name of the note by which a program says that it is made for the microkernel.
const NATIVE: &[u8] = b"rcoe";
/// The property of what instructions a program needs, and the one set that there is.
const ISA_NEEDED: u32 = 0xc000_8002;
const ISA_BASELINE: u32 = 1;

/// Where a segment goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Offset and bytes of its content in the file.
    pub(crate) content: (u64, u64),
    /// [`rcoe_abi::Rights`] as a word.
    pub(crate) rights: u64,
}

/// How a program is laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) entry: u64,
    /// Where its program headers are in its memory (0: nowhere), and how many.
    pub(crate) headers: u64,
    pub(crate) header_count: u64,
    pub(crate) end: u64,
    /// What was added to the file's addresses.
    pub(crate) base: u64,
    pub(crate) segments: Vec<Segment>,
    /// The path of the loader that is to be begun in its place, if it is a dynamic program.
    pub(crate) loader: Option<PathBuf>,
}

type Header = elf::FileHeader64<Endianness>;
type ProgramHeader = elf::ProgramHeader64<Endianness>;

/// A file's header, its program headers, and what is added to its addresses.
struct Read<'a> {
    arch: Arch,
    data: &'a [u8],
    endian: Endianness,
    header: &'a Header,
    segments: &'a [ProgramHeader],
    base: u64,
}

fn open(data: &[u8]) -> Option<Read<'_>> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let anywhere = header.e_type(endian) == elf::ET_DYN;
    let known = anywhere || header.e_type(endian) == elf::ET_EXEC;
    let arch = match header.e_machine(endian) {
        elf::EM_X86_64 => Arch::X86_64,
        elf::EM_AARCH64 => Arch::Aarch64,
        _ => return None,
    };
    (known && endian == Endianness::Little).then_some(Read {
        arch,
        data,
        endian,
        header,
        segments,
        base: if anywhere { ANYWHERE } else { 0 },
    })
}

/// Is this an ELF file of this machine's?
pub(crate) fn is_ours(arch: Arch, data: &[u8]) -> bool {
    open(data).is_some_and(|file| file.arch == arch)
}

/// Why an ELF file is none of this machine's, and what to do.
fn foreign(arch: Arch, data: &[u8]) -> String {
    match open(data) {
        Some(Read { arch: other, .. }) => {
            let (own, other) = (arch.name(), other.name());
            format!("a program for {other}, where the machine's is {own}: use --arch {other}")
        }
        None => format!("not a 64-bit ELF program for {}", arch.name()),
    }
}

/// Reads an ELF file of a program or a library.
///
/// # Errors
/// Why it cannot be carried, and what to do.
pub(crate) fn read(arch: Arch, data: &[u8]) -> Result<Plan, String> {
    let file = open(data).filter(|file| file.arch == arch);
    let file = file.ok_or_else(|| foreign(arch, data))?;
    file.check()?;
    let mut segments: Vec<Segment> = Vec::new();
    for header in file.of_type(elf::PT_LOAD) {
        if header.p_memsz(file.endian) > 0 {
            segments.push(file.segment(header)?);
        }
    }
    segments.sort_by_key(|it| it.address);
    if segments.is_empty() || segments.len() > SEGMENTS {
        return Err(format!("a program has 1 to {SEGMENTS} segments"));
    }
    let entry = file.header.e_entry(file.endian).wrapping_add(file.base);
    let end = segments.last().map_or(0, |it| it.address + it.bytes);
    Ok(Plan {
        entry,
        headers: file.headers(&segments),
        header_count: file.segments.len() as u64,
        end,
        base: file.base,
        segments,
        loader: file.loader(),
    })
}

impl Plan {
    /// Can it be begun as it is laid out?
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let last = |it: &Segment| (it.address + it.bytes - 1) / PAGE;
        let mut pairs = self.segments.windows(2);
        if pairs.any(|it| last(&it[0]) >= it[1].address / PAGE) {
            return Err("two of its segments share a page: link it with -z separate-code".into());
        }
        let entry = self.entry;
        let inside = |it: &&Segment| entry >= it.address && entry - it.address < it.bytes;
        let begins = self.segments.iter().find(inside);
        match begins.is_some_and(|it| it.rights & 4 != 0) {
            true => Ok(()),
            false => Err("it begins outside its code".into()),
        }
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory(&self) -> u64 {
        self.segments.iter().map(|it| it.bytes).sum()
    }
}

impl Read<'_> {
    fn of_type(&self, kind: elf::ProgramType) -> impl Iterator<Item = &ProgramHeader> {
        self.segments
            .iter()
            .filter(move |it| it.p_type(self.endian) == kind)
    }

    /// Is there anything that no personality could make up for?
    fn check(&self) -> Result<(), String> {
        let stack = self.of_type(elf::PT_GNU_STACK).next();
        if stack.is_some_and(|it| it.p_flags(self.endian).0 & elf::PF_X.0 != 0) {
            return Err("it wants an executable stack: link it with -z noexecstack".into());
        }
        let needed = self.needed();
        if self.arch == Arch::X86_64 && needed & !ISA_BASELINE != 0 {
            let level = 32 - needed.leading_zeros();
            return Err(format!(
                "it needs a processor of x86-64-v{level}, where the machine's is x86-64: \
                 build it with -march=x86-64"
            ));
        }
        Ok(())
    }

    /// The path of the loader of a dynamic program.
    fn loader(&self) -> Option<PathBuf> {
        let header = self.of_type(elf::PT_INTERP).next()?;
        needs::text(header.data(self.endian, self.data).ok()?).map(PathBuf::from)
    }

    /// The sets of instructions that a program says it needs.
    fn needed(&self) -> u32 {
        let mut needed = 0;
        for header in self.of_type(elf::PT_NOTE) {
            let Ok(Some(mut notes)) = header.notes(self.endian, self.data) else {
                continue;
            };
            while let Ok(Some(note)) = notes.next() {
                let properties = note.gnu_properties(self.endian);
                for property in properties.into_iter().flatten().flatten() {
                    if property.pr_type().0 == ISA_NEEDED {
                        needed |= property.data_u32(self.endian).unwrap_or(u32::MAX);
                    }
                }
            }
        }
        needed
    }

    fn segment(&self, header: &ProgramHeader) -> Result<Segment, String> {
        let endian = self.endian;
        let content = header.data(endian, self.data);
        let content = content.map_err(|()| "a segment lies outside its file")?;
        let bytes = header.p_memsz(endian);
        let address = header.p_vaddr(endian).checked_add(self.base);
        let end = address.and_then(|address| address.checked_add(bytes));
        let (Some(address), Some(end)) = (address, end) else {
            return Err("a segment wraps".into());
        };
        if address < LOWEST || end > HIGHEST {
            return Err("it is linked to addresses that programs do not have".into());
        }
        if content.len() as u64 > bytes {
            return Err("a segment is shorter in memory than in its file".into());
        }
        let flags = header.p_flags(endian).0;
        let right =
            |flag: elf::ProgramFlags, right: u64| if flags & flag.0 == 0 { 0 } else { right };
        let rights = 1 | right(elf::PF_W, 2) | right(elf::PF_X, 4);
        if rights == 7 {
            return Err("a segment is both writable and executable".into());
        }
        Ok(Segment {
            address,
            bytes,
            content: (header.p_offset(endian), content.len() as u64),
            rights,
        })
    }

    /// Where the program headers are in memory.
    fn headers(&self, segments: &[Segment]) -> u64 {
        let offset = self.header.e_phoff(self.endian);
        let held = segments.iter().find(|it| {
            let (start, len) = it.content;
            offset >= start && offset - start < len
        });
        held.map_or(0, |it| it.address + (offset - it.content.0))
    }
}

/// Does a note say that the file is made for the microkernel?
pub(crate) fn has_note(data: &[u8]) -> bool {
    let Ok(header) = Header::parse(data) else {
        return false;
    };
    let Ok(endian) = header.endian() else {
        return false;
    };
    let segments = header.program_headers(endian, data).unwrap_or(&[]);
    let notes = segments
        .iter()
        .filter_map(|it| it.notes(endian, data).ok()?);
    notes.into_iter().any(|notes| is_native(notes))
}

fn is_native(mut notes: NoteIterator<'_, Header>) -> bool {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == NATIVE {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of 16, 32 and 64 bits.
    fn put(file: &mut Vec<u8>, words: &[(usize, u64)]) {
        for &(bytes, word) in words {
            file.extend(&word.to_le_bytes()[..bytes]);
        }
    }

    /// A program header: type, flags, offset, address, bytes in the file and in memory.
    fn header(file: &mut Vec<u8>, kind: u32, flags: u32, place: [u64; 4]) {
        let [offset, address, len, bytes] = place;
        let align = if kind == 4 { 4 } else { 0x1000 };
        put(file, &[(4, kind.into()), (4, flags.into())]);
        put(
            file,
            &[
                (8, offset),
                (8, address),
                (8, address),
                (8, len),
                (8, bytes),
                (8, align),
            ],
        );
    }

    /// A file of 512 bytes with these program headers, which begins at `entry`.
    fn file(kind: u16, entry: u64, headers: &[(u32, u32, [u64; 4])]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        put(
            &mut file,
            &[
                (2, kind.into()),
                (2, 62),
                (4, 1),
                (8, entry),
                (8, 64),
                (8, 0),
                (4, 0),
            ],
        );
        put(
            &mut file,
            &[
                (2, 64),
                (2, 56),
                (2, headers.len() as u64),
                (2, 64),
                (2, 0),
                (2, 0),
            ],
        );
        for &(kind, flags, place) in headers {
            header(&mut file, kind, flags, place);
        }
        file.resize(512, 0);
        file
    }

    const CODE: (u32, u32, [u64; 4]) = (1, 5, [0, 0x40_0000, 512, 512]);
    const DATA: (u32, u32, [u64; 4]) = (1, 6, [400, 0x40_1190, 112, 0x2000]);

    #[test]
    fn a_program_is_laid_out() {
        let plan = read(Arch::X86_64, &file(2, 0x40_0080, &[CODE, DATA])).unwrap();
        assert_eq!((plan.entry, plan.end), (0x40_0080, 0x40_3190));
        assert_eq!((plan.headers, plan.header_count), (0x40_0040, 2));
        let rights = plan.segments.iter().map(|it| it.rights).collect::<Vec<_>>();
        assert_eq!(rights, [5, 3]);
        assert_eq!(plan.segments[1].content, (400, 112));
        // One that can be anywhere is where such programs are.
        let code = (1, 5, [0, 0, 512, 512]);
        let plan = read(Arch::X86_64, &file(3, 0x80, &[code])).unwrap();
        assert_eq!(
            (plan.entry, plan.headers),
            (ANYWHERE + 0x80, ANYWHERE + 0x40)
        );
    }

    #[test]
    fn what_cannot_be_carried_is_said() {
        let judge = |file: &[u8]| read(Arch::X86_64, file).and_then(|plan| plan.check());
        let why = |headers: &[_]| judge(&file(2, 0x40_0080, headers)).unwrap_err();
        for (headers, said) in [
            (&[CODE, (0x6474_e551, 7, [0; 4])][..], "executable stack"),
            (&[(1, 7, CODE.2)], "writable and executable"),
            (&[CODE, (1, 6, [0, 0x40_0800, 9, 9])], "share a page"),
            (&[(1, 6, CODE.2)], "outside its code"),
            (&[(1, 5, [0, 0x40_0000, 512, 4])], "shorter in memory"),
            (&[(1, 5, [0, 0x40_0000, 513, 513])], "outside its file"),
            (&[(1, 5, [0, u64::MAX - 9, 9, 99])], "wraps"),
            (&[(1, 5, [0, 0x1000, 9, 99])], "addresses"),
            (&[], "segments"),
        ] {
            assert!(why(headers).contains(said), "{}", why(headers));
        }
        for (at, byte) in [(0, 0), (4, 1), (5, 2), (16, 1), (18, 183)] {
            let mut wrong = file(2, 0x40_0080, &[CODE]);
            wrong[at] = byte;
            assert_eq!(
                read(Arch::X86_64, &wrong),
                Err(foreign(Arch::X86_64, &wrong)),
                "byte {at}"
            );
        }
    }

    #[test]
    fn a_program_for_another_processor_is_refused_with_the_option_for_it() {
        let mut other = file(2, 0x40_0080, &[CODE]);
        let why = read(Arch::Aarch64, &other).unwrap_err();
        assert!(why.contains("use --arch x86_64"), "{why}");
        other[18] = 183;
        assert_eq!(read(Arch::Aarch64, &other).unwrap().entry, 0x40_0080);
        let why = read(Arch::X86_64, &other).unwrap_err();
        assert!(why.contains("use --arch aarch64"), "{why}");
        assert!(is_ours(Arch::Aarch64, &other) && !is_ours(Arch::X86_64, &other));
    }

    /// A file with such program headers that needs a loader and libraries.
    fn dynamic(headers: &[(u32, u32, [u64; 4])]) -> Vec<u8> {
        let more = [
            (3, 4, [384, 0x40_0180, 4, 4]),
            (2, 4, [400, 0x40_0190, 96, 96]),
        ];
        let mut file = file(2, 0x40_0080, &[headers, &more].concat());
        file[384..397].copy_from_slice(b"/ld\0a\0b\0$O/c\0");
        let mut entries = Vec::new();
        for (tag, value) in [(1, 4), (1, 6), (29, 8), (14, 4), (5, 0x40_0180), (0, 0)] {
            put(&mut entries, &[(8, tag), (8, value)]);
        }
        file[400..496].copy_from_slice(&entries);
        file
    }

    #[test]
    fn what_a_file_needs_of_others_is_read() {
        let file = dynamic(&[CODE]);
        let plan = read(Arch::X86_64, &file).unwrap();
        assert_eq!(plan.loader.as_deref(), Some("/ld".as_ref()));
        let needs = needs(&file);
        assert_eq!(needs.libraries, ["a", "b"]);
        assert_eq!(needs.name.as_deref(), Some("a"));
        assert_eq!(needs.run_path.as_deref(), Some("$O/c"));
        assert_eq!(needs.inherited_path, None);
    }

    #[test]
    fn a_note_says_what_a_program_is_made_for_or_needs() {
        let noted = |kind: u64, name: &[u8; 4], rest: &[(usize, u64)]| {
            let mut file = file(2, 0x40_0080, &[CODE, (4, 4, [320, 0x40_0140, 64, 64])]);
            let mut note = Vec::new();
            let bytes = rest.iter().map(|&(bytes, _)| bytes as u64).sum();
            put(&mut note, &[(4, 4), (4, bytes), (4, kind)]);
            note.extend(name);
            put(&mut note, rest);
            file[320..320 + note.len()].copy_from_slice(&note);
            file
        };
        let native = noted(1, b"rcoe", &[]);
        assert!(has_note(&native) && !has_note(&file(2, 0x40_0080, &[CODE])));
        let needs = |set: u64| {
            let property = [(4, ISA_NEEDED.into()), (4, 4), (4, set), (4, 0)];
            read(Arch::X86_64, &noted(5, b"GNU\0", &property))
        };
        assert!(needs(1).is_ok());
        assert!(needs(3).unwrap_err().contains("x86-64-v2"));
        assert!(needs(15).unwrap_err().contains("x86-64-v4"));
    }

    #[test]
    fn a_damaged_file_is_read_or_refused_and_stays_within_bounds() {
        let note = (4, 4, [320, 0x40_0140, 64, 64]);
        let whole = dynamic(&[CODE, DATA, note]);
        let mut seed = 2026_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap()
        };
        let mut good = 0;
        for _ in 0..20_000 {
            let mut damaged = whole.clone();
            for _ in 0..1 + next() % 3 {
                let at = next() % 512;
                damaged[at] = u8::try_from(next() % 256).unwrap();
            }
            damaged.truncate(if next() % 4 == 0 { next() % 512 } else { 512 });
            let _ = has_note(&damaged);
            let _ = needs(&damaged);
            let Ok(plan) = read(Arch::X86_64, &damaged) else {
                continue;
            };
            let _ = plan.check();
            good += 1;
            assert!((1..=SEGMENTS).contains(&plan.segments.len()));
            for segment in &plan.segments {
                let (offset, len) = segment.content;
                assert!(offset + len <= damaged.len() as u64 && len <= segment.bytes);
                assert!(segment.address >= LOWEST && segment.address + segment.bytes <= HIGHEST);
                assert_ne!(segment.rights, 7);
            }
        }
        assert!(good > 100, "{good}");
    }
}
